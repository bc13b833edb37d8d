//! Servers for the tests: installed once by npm and pip into the build directory, started on separate ports.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use belljar_mcp_client::{McpServerStdio, ToolOutcome, ToolOutput};
pub(crate) use belljar_testing::free_port;
use belljar_testing::install;
use serde_json::{Value, json};

/// Versions are pinned: the tests expect the servers' exact behaviour.
const NPM: &[&str] = &[
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
];
const CONFORMANCE: &[&str] = &["@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22.23.3"];
const PYDANTIC_AI: &[&str] = &["pydantic-ai-slim[mcp]==1.107.10"];
const PYDANTIC_AI_2: &[&str] = &["pydantic-ai-slim[mcp]==2.68.0"];
const MODERN_SDK: &[&str] = &["mcp==2.3.0"];

static NPM_SERVERS: LazyLock<PathBuf> = LazyLock::new(|| install::npm(folder(), "servers", NPM));
static CONFORMANCE_SUITE: LazyLock<PathBuf> = LazyLock::new(|| install::npm(folder(), "conformance", CONFORMANCE));
static LEGACY_PYTHON: LazyLock<PathBuf> = LazyLock::new(|| install::pip(folder(), "pydantic-ai", PYDANTIC_AI));
static PYDANTIC_AI_2_PYTHON: LazyLock<PathBuf> =
    LazyLock::new(|| install::pip(folder(), "pydantic-ai-2", PYDANTIC_AI_2));
static MODERN_PYTHON: LazyLock<PathBuf> = LazyLock::new(|| install::pip(folder(), "mcp-2", MODERN_SDK));

fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/belljar-mcp-client-servers"))
}

/// Returns the Python interpreter with pydantic-ai and the SDK of the legacy era.
pub(crate) fn legacy_python() -> String {
    LEGACY_PYTHON.join("python").display().to_string()
}

/// Returns the Python interpreter with pydantic-ai 2.
pub(crate) fn pydantic_ai_2() -> String {
    PYDANTIC_AI_2_PYTHON.join("python").display().to_string()
}

/// Returns the Python interpreter with the SDK of the modern era.
pub(crate) fn modern_python() -> String {
    MODERN_PYTHON.join("python").display().to_string()
}

/// Returns the path of one of the tests' scripts.
pub(crate) fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/python").join(name).display().to_string()
}

/// Returns the JavaScript entry point of one of npm's reference servers.
pub(crate) fn npm_server(name: &str) -> String {
    NPM_SERVERS.join("@modelcontextprotocol").join(name).join("dist/index.js").display().to_string()
}

/// Returns the directory of the conformance suite and its Node.
pub(crate) fn conformance_suite() -> PathBuf {
    CONFORMANCE_SUITE.clone()
}

/// Returns npm's `server-everything` on standard streams.
pub(crate) fn everything() -> McpServerStdio {
    McpServerStdio::new("node").arg(npm_server("server-everything")).arg("stdio").timeout(START_TIMEOUT)
}

/// Returns a server of the legacy SDK whose tools are in `results.json`.
pub(crate) fn results() -> McpServerStdio {
    McpServerStdio::new(legacy_python()).arg(script("results_server.py")).timeout(START_TIMEOUT)
}

/// Returns a server with this fault. It needs only Python's standard library.
pub(crate) fn faulty(fault: &str) -> McpServerStdio {
    McpServerStdio::new("python3").args(["-u", &script("faulty_server.py"), fault]).timeout(START_TIMEOUT)
}

/// Starts a faulty HTTP server; the URL's path selects the fault.
pub(crate) fn faulty_http() -> TestServer {
    TestServer::start("python3", &["-u", &script("faulty_http_server.py")])
}

/// The time within which servers must start, even on a busy machine.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(120);

/// A server that listens on a port and is killed when this is dropped.
pub(crate) struct TestServer {
    child: Child,
    pub(crate) port: u16,
}

impl TestServer {
    /// Starts a server that reads its port from `PORT`, and waits until it accepts connections.
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        Self::start_on(free_port(), program, arguments)
    }

    /// Starts a server as [`start`](Self::start) does, with these environment variables.
    pub(crate) fn start_with(program: &str, arguments: &[&str], variables: &[(&str, String)]) -> Self {
        Self::spawn(free_port(), program, arguments, variables)
    }

    /// Starts a server as [`start`](Self::start) does, on this port.
    pub(crate) fn start_on(port: u16, program: &str, arguments: &[&str]) -> Self {
        Self::spawn(port, program, arguments, &[])
    }

    fn spawn(port: u16, program: &str, arguments: &[&str], variables: &[(&str, String)]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .env("PORT", port.to_string())
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The output is ignored, but the pipes must not fill up.
        drain(child.stdout.take().unwrap());
        drain(child.stderr.take().unwrap());
        let started = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("{program} {arguments:?} ended with {status}");
            }
            assert!(started.elapsed() < START_TIMEOUT, "{program} {arguments:?} does not listen on {port}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, port }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn drain(stream: impl std::io::Read + Send + 'static) {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n') {
            if line.is_err() {
                return;
            }
        }
    });
}

/// Returns the output of a successful call.
#[track_caller]
pub(crate) fn output(outcome: ToolOutcome) -> ToolOutput {
    match outcome {
        ToolOutcome::Output(result) => result.output,
        other => panic!("no output: {other:?}"),
    }
}

/// Converts an output to the notation of `oracle.py`.
pub(crate) fn notation(output: &ToolOutput) -> Value {
    match output {
        ToolOutput::Text(text) => json!(text),
        ToolOutput::Json(value) => value.clone(),
        ToolOutput::Binary(binary) => json!({"binary": binary.base64(), "media_type": binary.media_type}),
        ToolOutput::List(parts) => parts.iter().map(notation).collect(),
        other => panic!("an unknown kind of output: {other:?}"),
    }
}

/// Polls a condition until it holds; fails after [`START_TIMEOUT`].
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < START_TIMEOUT, "{what}: never");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
