//! Servers whose code can call tools, and Belljar's client library as their client.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belljar_mcp_client::protocol::ServerNotification;
use belljar_mcp_client::{
    BoxError, CallOptions, Elicitation, ElicitationResponse, LogLevel, McpServer, McpServerSse, McpServerStdio,
    McpServerStreamableHttp, ProtocolEra, ServerBuilder,
};
use serde_json::{Map, Value};

const START_TIMEOUT: Duration = Duration::from_secs(300);

/// Returns the option `--server` for the test server with the tools of `mode`.
pub(crate) fn tool_server(name: &str, mode: &str) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../belljar-tools/tests/it/python/tool_server.py");
    format!("--server={name}=python3 -u '{}' {mode}", script.display())
}

/// A client that answers each elicitation with the next of its answers.
pub(crate) struct Client {
    server: McpServer,
    pub(crate) questions: Arc<Mutex<Vec<String>>>,
    pub(crate) log: Arc<Mutex<Vec<String>>>,
    /// The messages of progress notifications.
    pub(crate) progress: Arc<Mutex<Vec<String>>>,
    /// The number of notifications that the list of tools has changed.
    pub(crate) changes: Arc<Mutex<usize>>,
}

impl Client {
    /// Returns the client of a server over standard streams with these arguments after `stdio`.
    pub(crate) fn new(era: ProtocolEra, arguments: &[String], answers: &'static [&'static str]) -> Self {
        let server = McpServerStdio::new(env!("CARGO_BIN_EXE_belljar")).arg("stdio").args(arguments);
        Self::of(server, era, answers, ServerBuilder::build)
    }

    /// Returns the client of a server at a URL.
    pub(crate) fn over_http(era: ProtocolEra, url: &str, answers: &'static [&'static str]) -> Self {
        if url.ends_with("/sse") {
            return Self::of(McpServerSse::new(url).unwrap(), era, answers, ServerBuilder::build);
        }
        Self::of(McpServerStreamableHttp::new(url).unwrap(), era, answers, ServerBuilder::build)
    }

    fn of<T>(
        server: ServerBuilder<T>,
        era: ProtocolEra,
        answers: &'static [&'static str],
        build: fn(ServerBuilder<T>) -> McpServer,
    ) -> Self {
        let (questions, log) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<Vec<String>>>::default());
        let (progress, changes) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<usize>>::default());
        let (asked, lines, steps, noted) = (questions.clone(), log.clone(), progress.clone(), changes.clone());
        let server = server.timeout(START_TIMEOUT).era(era).log_level(LogLevel::Info);
        let server = server.log_handler(move |message| lines.lock().unwrap().push(message.text()));
        let server = server.progress_handler(move |step| steps.lock().unwrap().extend(step.message));
        let server = server.message_handler(move |message| {
            if matches!(message, ServerNotification::ToolListChangedNotification(_)) {
                *noted.lock().unwrap() += 1;
            }
        });
        let server = if answers.is_empty() {
            server
        } else {
            server.elicitation_handler(move |elicitation: Elicitation| {
                let Elicitation::Form { message, .. } = elicitation else { panic!("not a form") };
                let mut asked = asked.lock().unwrap();
                let answer = answers[asked.len()];
                asked.push(message);
                let content = Map::from_iter([("value".to_owned(), Value::from(answer))]);
                async move { Ok::<_, BoxError>(ElicitationResponse::Accept(Some(content))) }
            })
        };
        Self { server: build(server), questions, log, progress, changes }
    }

    /// Runs calls over one connection.
    pub(crate) fn run<F: Future>(&self, work: impl FnOnce(McpServer) -> F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let running = self.server.connect().await.unwrap();
            let result = work(self.server.clone()).await;
            running.close().await.unwrap();
            result
        })
    }
}

/// Calls a tool, and returns its text and its structured content.
pub(crate) async fn call(server: &McpServer, tool: &str, arguments: Value) -> (String, Value) {
    let result = server.call_tool_raw(tool, arguments, CallOptions::new()).await.unwrap();
    let text = result.content.iter().filter_map(|part| part.as_text()).map(|part| part.text.clone()).collect();
    (text, result.structured_content.unwrap_or_default())
}
