//! Benchmarks the steps of an agent with many servers: the list of a combined toolset of 20 servers with 400 tools, and
//! a call through it.
//!
//! ```sh
//! cargo bench -p belljar-mcp-client --bench toolsets
//! ```
//!
//! The servers are `rmcp`'s, in this process. One of them answers its first list later than the others, so that the
//! time beyond the slowest server shows.
#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a benchmark fails by panicking and reports by printing")]

use std::time::{Duration, Instant};

use async_trait::async_trait;
use belljar_mcp_client::transport::{Connector, OpenTransport};
use belljar_mcp_client::{
    CombinedToolset, McpError, McpServer, RunContext, ToolDefinition, ToolRunner, Toolset, ToolsetExt,
};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult, PaginatedRequestParams,
    ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Map, json};

const SERVERS: usize = 20;
const TOOLS: usize = 20;
/// The delay of the slowest server's list.
const SLOWEST: Duration = Duration::from_millis(50);
const ROUNDS: usize = 15;
const STEPS: usize = 200;

/// A server with `TOOLS` tools.
#[derive(Debug, Clone)]
struct Many {
    number: usize,
    delay: Duration,
}

impl ServerHandler for Many {
    fn get_info(&self) -> ServerConfig {
        // Otherwise a list of the modern era is valid for its time to live only, which is 0 here.
        let announcing = ServerCapabilities::builder().enable_tools().enable_tool_list_changed();
        ServerConfig::new(announcing.build())
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        tokio::time::sleep(self.delay).await;
        let parameter = json!({"type": "string", "description": "A parameter with a description of some length."});
        let properties = json!({"one": parameter, "two": parameter, "three": parameter, "four": parameter});
        let schema = json!({"type": "object", "properties": properties, "required": ["one", "two"]});
        let tools = (0..TOOLS).map(|tool| {
            let description = "Does something that takes two or three sentences to describe. ".repeat(4);
            Tool::new(format!("tool_{tool}"), description, schema.as_object().unwrap().clone())
        });
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    async fn call_tool(
        &self,
        _request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text("done")]).into())
    }
}

#[async_trait]
impl Connector for Many {
    async fn connect(&self) -> Result<OpenTransport, McpError> {
        let (client_end, server_end) = tokio::io::duplex(256 * 1024);
        let server = self.clone();
        tokio::spawn(async move { server.serve(server_end).await.unwrap().waiting().await });
        Ok(OpenTransport::new(client_end))
    }

    fn identity(&self) -> String {
        format!("server {}", self.number)
    }
}

fn server(number: usize, delay: Duration) -> McpServer {
    McpServer::custom(Many { number, delay }).tool_prefix(format!("s{number}")).build()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

async fn time<T>(future: impl Future<Output = T>) -> Duration {
    let started = Instant::now();
    future.await;
    started.elapsed()
}

#[tokio::main]
async fn main() {
    let run = RunContext::new();
    let (mut slowest, mut first, mut later, mut layered, mut calls) = (vec![], vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        let alone = server(0, SLOWEST);
        let running = alone.connect().await.unwrap();
        slowest.push(time(async { assert_eq!(alone.tools(&run).await.unwrap().len(), TOOLS) }).await);
        running.close().await.unwrap();

        let all: CombinedToolset =
            (0..SERVERS).map(|number| server(number, if number == 0 { SLOWEST } else { Duration::ZERO })).collect();
        let runner = ToolRunner::new(all.clone());
        let guard = runner.enter(&run).await.unwrap();
        first.push(time(async { assert_eq!(runner.step(&run).await.unwrap().tools().len(), SERVERS * TOOLS) }).await);
        for _ in 0..STEPS {
            later.push(time(async { runner.step(&run).await.unwrap() }).await);
        }
        let wrapped = all
            .clone()
            .filtered(|_: &RunContext, tool: &ToolDefinition| tool.name != "s1_tool_1")
            .renamed([("s2_tool_2", "renamed")])
            .prefixed("p");
        for _ in 0..STEPS {
            layered.push(time(async { wrapped.tools(&run).await.unwrap() }).await);
            calls.push(time(async { all.call(&run, "s19_tool_7", Map::new()).await.unwrap() }).await);
        }
        guard.close().await.unwrap();
    }
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let (slowest, first) = (median(slowest), median(first));
    println!("{SERVERS} servers, {} tools                      ms", SERVERS * TOOLS);
    println!("list of the slowest server alone      {:>8.3}", milliseconds(slowest));
    println!("first step                            {:>8.3}", milliseconds(first));
    println!("first step beyond the slowest server  {:>8.3}", milliseconds(first.saturating_sub(slowest)));
    println!("later step                            {:>8.3}", milliseconds(median(later)));
    println!("later list through three layers       {:>8.3}", milliseconds(median(layered)));
    println!("call                                  {:>8.3}", milliseconds(median(calls)));
}
