//! Servers that share sessions through a store: the replicas of a cluster. The store is an S3 server in this process.

mod console;
mod credentials;
mod durability;
mod expiry;
mod failures;
mod images;
mod moving;
mod runs;
#[path = "../../../../belljar-store/tests/support/s3_server.rs"]
mod s3_server;
mod tasks;
mod tls;

use std::process::Stdio;
use std::sync::LazyLock;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::harness::Belljar;
use crate::serve::http::{Listening, hello};
use crate::wire::Wire;
use s3_server::S3Server;

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());

/// A store for one test.
struct Shared {
    server: S3Server,
}

impl Shared {
    fn new() -> Self {
        Self { server: RUNTIME.block_on(S3Server::start()) }
    }

    fn belljar(&self, command: &str, arguments: &[&str]) -> Belljar {
        let belljar = Belljar::new().args([command, "--port", "0"]);
        self.with_store(belljar).args(arguments.iter().copied())
    }

    fn with_store(&self, belljar: Belljar) -> Belljar {
        let belljar = belljar.args(["--store", "s3://bucket/tests"]);
        self.server.pairs().into_iter().fold(belljar, |belljar, (name, value)| belljar.env(&name, value))
    }

    /// Starts a replica on standard streams, which others cannot reach, for a client that can be asked.
    fn wire(&self, belljar: Belljar, arguments: &[&str]) -> Wire {
        let options = ["stdio", "--toolset", "interpreter"];
        let mut command = self.with_store(belljar.args(options)).args(arguments.iter().copied()).into_command();
        command.stderr(Stdio::inherit());
        let mut wire = Wire::spawn(command);
        wire.initialize_with(json!({ "elicitation": {} }));
        wire
    }

    /// Starts a replica whose requests are independent of each other.
    fn replica(&self) -> Listening {
        self.replica_with("streamable-http-stateless", &["--toolset", "interpreter"])
    }

    fn replica_with(&self, command: &str, arguments: &[&str]) -> Listening {
        Listening::spawn(self.belljar(command, arguments))
    }
}

/// A client of the legacy era, whose MCP session is in the replica that it has connected to.
struct Client {
    id: String,
}

impl Client {
    fn new(replica: &Listening) -> Self {
        let (status, head) = replica.post(&[], &hello());
        assert_eq!(status, 200, "{head}");
        let id = head.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().trim().to_owned();
        let client = Self { id };
        replica.post(&client.headers(), &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn headers(&self) -> [(&str, &str); 1] {
        [("Mcp-Session-Id", &self.id)]
    }

    /// Runs a cell through any replica, and returns the structured result.
    fn cell(&self, through: &Listening, session: Option<&str>, code: &str) -> Value {
        let arguments = json!({ "code": code, "session_id": session.unwrap_or("") });
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": { "name": "execute_code", "arguments": arguments } });
        through.answer(&self.headers(), &call)["result"]["structuredContent"].take()
    }
}

/// Runs a cell in a new session, or in `session`, and returns the structured result.
fn cell(replica: &Listening, session: Option<&str>, code: &str) -> Value {
    let mut result = replica.tool("execute_code", &json!({ "code": code, "session_id": session.unwrap_or("") }));
    result["structuredContent"].take()
}

/// Opens a session and returns its ID.
fn open(replica: &Listening, code: &str) -> String {
    let opened = cell(replica, None, code);
    opened["session_info"]["session_id"].as_str().unwrap_or_else(|| panic!("{opened:#}")).to_owned()
}

/// Returns the value of a cell's last line.
fn value(replica: &Listening, session: &str, code: &str) -> String {
    let result = cell(replica, Some(session), code);
    result["result"].as_str().unwrap_or_else(|| panic!("{result:#}")).to_owned()
}

/// Returns the number of sessions that are awake in a replica.
fn awake(replica: &Listening) -> u64 {
    let (_, text) = replica.send("GET", "/metrics", &[], "");
    let line = text.lines().find_map(|line| line.strip_prefix("belljar_sessions{state=\"awake\"} "));
    line.unwrap_or_else(|| panic!("{text}")).trim().parse().unwrap()
}
