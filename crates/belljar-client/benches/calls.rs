//! Benchmarks calls per second against the Python SDK's client, on the same server in the same run, and the cost of a
//! call beyond the bare exchange of messages.
//!
//! ```sh
//! cargo bench -p belljar-mcp-client
//! cargo bench -p belljar-mcp-client --bench calls -- --without-python
//! ```
//!
//! The servers have one tool, which echoes its arguments; with `--serve` this program is one of the servers. Over HTTP
//! the server is `rmcp`'s. Over stdio there are two: `rmcp`'s, which takes longer for a call than a fast client does,
//! and one that answers line by line, so that the client is the bottleneck.
#![expect(
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark fails by panicking and reports by printing"
)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use axum::serve::ListenerExt;
use belljar_mcp_client::{McpServer, McpServerStdio, McpServerStreamableHttp, ProtocolEra};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};

#[expect(dead_code, reason = "of the tests' harness only a part is needed")]
#[path = "../tests/it/harness.rs"]
mod harness;

/// The number of sequential calls per measurement.
const CALLS: usize = 500;
/// The number of concurrent calls per measurement.
const CONCURRENT: usize = 1_000;
/// The numbers of measurements, of which the median is reported. Python's take by far the longest.
const ROUNDS: usize = 5;
const PYTHON_ROUNDS: usize = 3;

/// A server that echoes arguments.
#[derive(Clone)]
struct Echo;

impl ServerHandler for Echo {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _request: Option<rmcp::model::PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({"type": "object"}).as_object().unwrap().clone();
        Ok(ListToolsResult::with_all_items(vec![rmcp::model::Tool::new("echo", "Echoes its arguments.", schema)]))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = serde_json::to_string(&request.arguments).unwrap();
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }
}

fn serve(how: &str) {
    match how {
        "lines" => serve_lines(),
        _ => serve_with_rmcp(how),
    }
}

/// Serves over stdio and answers each line before it reads the next: the minimal server.
fn serve_lines() {
    let mut answers = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let Some(id) = message.get("id") else { continue };
        let result = match message["method"].as_str().unwrap() {
            "initialize" => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "lines", "version": "1"},
            }),
            "tools/list" => json!({"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}),
            "tools/call" => json!({"content": [{"type": "text", "text": message["params"]["arguments"].to_string()}]}),
            _ => json!({}),
        };
        answers.write_all(format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "result": result})).as_bytes()).unwrap();
        answers.flush().unwrap();
    }
}

#[tokio::main]
async fn serve_with_rmcp(how: &str) {
    if how == "stdio" {
        Echo.serve(rmcp::transport::stdio()).await.unwrap().waiting().await.unwrap();
        return;
    }
    let service = StreamableHttpService::new(
        || Ok(Echo),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default(),
    );
    let port: u16 = std::env::var("PORT").unwrap().parse().unwrap();
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    // Without it a client that reuses connections, such as the Python one, waits 40 ms for each response (Nagle's
    // algorithm).
    let listener = listener.tap_io(|connection| connection.set_nodelay(true).unwrap());
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await.unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(place) = arguments.iter().position(|argument| argument == "--serve") {
        return serve(&arguments[place + 1]);
    }
    let me = std::env::current_exe().unwrap().display().to_string();
    let http = harness::TestServer::start(&me, &["--serve", "http"]);
    let url = http.url("/mcp");
    // One thread, like the Python client.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();

    println!(
        "medians of {ROUNDS} rounds (Python: {PYTHON_ROUNDS}): {CALLS} sequential calls, then {CONCURRENT} concurrent\n"
    );
    println!(
        "{:<13}{:<28}{:>10}{:>10}{:>10}{:>13}{:>10}",
        "", "", "µs/call", "CPU µs", "calls/s", "at once, /s", "CPU µs"
    );
    let stdio = |how| McpServerStdio::new(&me).args(["--serve", how]).era(ProtocolEra::Legacy).build();
    let over_http = McpServerStreamableHttp::new(&url).unwrap().era(ProtocolEra::Legacy).build();
    let has_python = !arguments.iter().any(|argument| argument == "--without-python");
    let servers =
        [("stdio", "lines", stdio("lines")), ("stdio, rmcp", "stdio", stdio("stdio")), ("HTTP", "", over_http)];
    for (name, how, server) in &servers {
        let bare = median(ROUNDS, || match *how {
            "" => Times { one_by_one: runtime.block_on(bare_posts(&url)), ..Times::default() },
            how => Times { one_by_one: bare_exchange(&me, how), ..Times::default() },
        });
        let belljar = median(ROUNDS, || runtime.block_on(measured(server)));
        let python = has_python.then(|| match *how {
            "" => python_client(&[&url]),
            how => python_client(&[&me, "--serve", how]),
        });
        bare.print(name, "the exchange alone, by hand");
        belljar.print(name, "belljar-mcp-client");
        if let Some(python) = python {
            python.print(name, "Python SDK client");
            let ratio = |time: fn(&Times) -> Duration| time(&python).as_secs_f64() / time(&belljar).as_secs_f64();
            let (one_by_one, cpu, at_once) =
                (ratio(|times| times.one_by_one), ratio(|times| times.cpu), ratio(|times| times.at_once));
            println!(
                "{name:<13}{:<28}{one_by_one:>10.1}{cpu:>10.1}{:>10}{at_once:>13.1}",
                "times as fast as Python", ""
            );
        }
        let beyond = micros(belljar.one_by_one, CALLS) - micros(bare.one_by_one, CALLS);
        println!("{name:<13}{:<28}{beyond:>10.1}\n", "beyond the exchange alone");
    }
}

/// The times of one measurement. Zero means unknown.
#[derive(Default)]
struct Times {
    /// The time of sequential calls, and the client's processor time meanwhile.
    one_by_one: Duration,
    cpu: Duration,
    /// The same for concurrent calls.
    at_once: Duration,
    cpu_at_once: Duration,
}

impl Times {
    fn print(&self, server: &str, client: &str) {
        let or_nothing =
            |value: f64, time: Duration| if time.is_zero() { String::new() } else { format!("{value:.0}") };
        println!(
            "{server:<13}{client:<28}{:>10.1}{:>10}{:>10.0}{:>13}{:>10}",
            micros(self.one_by_one, CALLS),
            or_nothing(micros(self.cpu, CALLS), self.cpu),
            CALLS as f64 / self.one_by_one.as_secs_f64(),
            or_nothing(CONCURRENT as f64 / self.at_once.as_secs_f64(), self.at_once),
            or_nothing(micros(self.cpu_at_once, CONCURRENT), self.cpu_at_once),
        );
    }
}

/// Returns the median of each time.
fn median(rounds: usize, mut measure: impl FnMut() -> Times) -> Times {
    let rounds: Vec<Times> = (0..rounds).map(|_| measure()).collect();
    let median = |time: fn(&Times) -> Duration| {
        let mut times: Vec<Duration> = rounds.iter().map(time).collect();
        times.sort();
        times[times.len() / 2]
    };
    Times {
        one_by_one: median(|times| times.one_by_one),
        cpu: median(|times| times.cpu),
        at_once: median(|times| times.at_once),
        cpu_at_once: median(|times| times.cpu_at_once),
    }
}

/// Returns the time of one of `calls`, in microseconds.
fn micros(time: Duration, calls: usize) -> f64 {
    time.as_secs_f64() * 1e6 / calls as f64
}

/// Returns the processor time of this thread, on which the whole client runs; zero if the system does not provide it.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanoseconds| nanoseconds.parse().ok()).unwrap_or(0))
}

async fn measured(server: &McpServer) -> Times {
    let running = server.connect().await.unwrap();
    call(server, 0).await;
    let (started, before) = (Instant::now(), processor_time());
    for number in 0..CALLS {
        call(server, number).await;
    }
    let (one_by_one, cpu) = (started.elapsed(), processor_time() - before);
    let (started, before) = (Instant::now(), processor_time());
    let calls = (0..CONCURRENT).map(|number| {
        let server = server.clone();
        tokio::spawn(async move { call(&server, number).await })
    });
    for call in futures::future::join_all(calls).await {
        call.unwrap();
    }
    let (at_once, cpu_at_once) = (started.elapsed(), processor_time() - before);
    running.close().await.unwrap();
    Times { one_by_one, cpu, at_once, cpu_at_once }
}

async fn call(server: &McpServer, number: usize) {
    let outcome = server.direct_call_tool("echo", json!({"number": number})).await.unwrap();
    assert_eq!(outcome.output().unwrap().as_json().unwrap()["number"], number);
}

/// Exchanges the same messages by hand and returns the time that server and pipes take.
fn bare_exchange(server: &str, how: &str) -> Duration {
    let mut child =
        Command::new(server).args(["--serve", how]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let mut exchange = |message: Value| {
        stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
        if message.get("id").is_some() {
            line.clear();
            lines.read_line(&mut line).unwrap();
        }
    };
    let info = json!({"name": "bare", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    exchange(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}));
    exchange(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let started = Instant::now();
    for number in 0..CALLS {
        let params = json!({"name": "echo", "arguments": {"number": number}});
        exchange(json!({"jsonrpc": "2.0", "id": number + 1, "method": "tools/call", "params": params}));
    }
    let time = started.elapsed();
    drop(stdin);
    child.wait().unwrap();
    time
}

/// Posts the same messages by hand over a persistent connection and returns the time that server and HTTP take.
async fn bare_posts(url: &str) -> Duration {
    let client = reqwest::Client::new();
    let post = async |session: Option<&str>, message: Value| {
        let mut request = client.post(url).header("accept", "application/json, text/event-stream").json(&message);
        if let Some(session) = session {
            request = request.header("mcp-session-id", session).header("mcp-protocol-version", "2025-11-25");
        }
        let response = request.send().await.unwrap().error_for_status().unwrap();
        let session = response.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
        let text = response.text().await.unwrap();
        assert!(message.get("id").is_none() || text.contains("\"result\""), "{text}");
        session
    };
    let info = json!({"name": "bare", "version": "1"});
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
    let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
    let session = post(None, hello).await;
    post(session.as_deref(), json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
    let started = Instant::now();
    for number in 0..CALLS {
        let params = json!({"name": "echo", "arguments": {"number": number}});
        let call = json!({"jsonrpc": "2.0", "id": number + 1, "method": "tools/call", "params": params});
        post(session.as_deref(), call).await;
    }
    started.elapsed()
}

/// Runs the Python SDK's client, which measures itself.
fn python_client(target: &[&str]) -> Times {
    let output = Command::new(harness::legacy_python())
        .arg(harness::script("client_benchmark.py"))
        .args([CALLS, CONCURRENT, PYTHON_ROUNDS].map(|number| number.to_string()))
        .args(target)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut seconds = text.split_whitespace().map(|number| Duration::from_secs_f64(number.parse().unwrap()));
    let [one_by_one, cpu, at_once] = std::array::from_fn(|_| seconds.next().unwrap());
    Times { one_by_one, cpu, at_once, cpu_at_once: Duration::ZERO }
}
