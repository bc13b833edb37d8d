//! Servers for the tests: fetched once, by npm and pip, into the build folder; started on ports of their own.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use belljar_client::{McpServerStdio, ToolOutcome, ToolOutput};
use serde_json::{Value, json};

/// Versions are pinned: what a server does is part of what the tests expect.
const NPM: &[&str] = &[
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
];
const CONFORMANCE: &[&str] = &["@modelcontextprotocol/conformance@0.2.0-alpha.12", "node@22.23.3"];
const PYDANTIC_AI: &[&str] = &["pydantic-ai-slim[mcp]==1.107.10"];
const MODERN_SDK: &[&str] = &["mcp==2.3.0"];

static NPM_SERVERS: LazyLock<PathBuf> = LazyLock::new(|| install("npm-servers", NPM, npm_install));
static CONFORMANCE_SUITE: LazyLock<PathBuf> = LazyLock::new(|| install("npm-conformance", CONFORMANCE, npm_install));
static LEGACY_PYTHON: LazyLock<PathBuf> = LazyLock::new(|| install("python-pydantic-ai", PYDANTIC_AI, pip_install));
static MODERN_PYTHON: LazyLock<PathBuf> = LazyLock::new(|| install("python-mcp-2", MODERN_SDK, pip_install));

/// Installs packages into a directory named after them, unless they are there. A second process waits for the first.
fn install(name: &str, packages: &[&str], how: fn(&Path, &[&str])) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("belljar-client-servers");
    std::fs::create_dir_all(&root).unwrap();
    let directory = root.join(name);
    let done = directory.join("installed");
    let lock = File::create(root.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    if std::fs::read_to_string(&done).is_ok_and(|installed| installed == packages.join("\n")) {
        return directory;
    }
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    how(&directory, packages);
    std::fs::write(done, packages.join("\n")).unwrap();
    directory
}

fn npm_install(directory: &Path, packages: &[&str]) {
    run(Command::new("npm")
        .args(["install", "--no-fund", "--no-audit", "--loglevel=error", "--prefix"])
        .arg(directory)
        .args(packages));
}

fn pip_install(directory: &Path, packages: &[&str]) {
    run(Command::new("python3").args(["-m", "venv"]).arg(directory));
    run(Command::new(directory.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(packages));
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The Python that has pydantic-ai and the SDK of the legacy era.
pub(crate) fn legacy_python() -> String {
    LEGACY_PYTHON.join("bin/python").display().to_string()
}

/// The Python that has the SDK of the modern era.
pub(crate) fn modern_python() -> String {
    MODERN_PYTHON.join("bin/python").display().to_string()
}

/// A script of the tests' own.
pub(crate) fn script(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/python").join(name).display().to_string()
}

/// The JavaScript of one of npm's reference servers.
pub(crate) fn npm_server(name: &str) -> String {
    NPM_SERVERS.join("node_modules/@modelcontextprotocol").join(name).join("dist/index.js").display().to_string()
}

/// Where the conformance suite and its Node are.
pub(crate) fn conformance_suite() -> PathBuf {
    CONFORMANCE_SUITE.join("node_modules")
}

/// npm's `server-everything` on standard streams.
pub(crate) fn everything() -> McpServerStdio {
    McpServerStdio::new("node").arg(npm_server("server-everything")).arg("stdio").timeout(PATIENT)
}

/// A server of the SDK of the legacy era whose tools are in `results.json`.
pub(crate) fn results() -> McpServerStdio {
    McpServerStdio::new(legacy_python()).arg(script("results_server.py")).timeout(PATIENT)
}

/// A server that misbehaves in this way. It needs nothing but Python.
pub(crate) fn faulty(fault: &str) -> McpServerStdio {
    McpServerStdio::new("python3").args(["-u", &script("faulty_server.py"), fault]).timeout(PATIENT)
}

/// How long servers may take to start on a busy machine.
pub(crate) const PATIENT: Duration = Duration::from_secs(60);

/// A server that listens, ended when this is dropped.
pub(crate) struct Listening {
    child: Child,
    pub(crate) port: u16,
}

impl Listening {
    /// Starts a server that takes its port from `PORT`, and waits until it takes connections.
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        Self::start_on(free_port(), program, arguments)
    }

    /// As [`start`](Self::start), with these variables.
    pub(crate) fn start_with(program: &str, arguments: &[&str], variables: &[(&str, String)]) -> Self {
        Self::spawn(free_port(), program, arguments, variables)
    }

    /// As [`start`](Self::start), on this port.
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
        // Nobody reads what it says, but the pipes must not fill up.
        drain(child.stdout.take().unwrap());
        drain(child.stderr.take().unwrap());
        let started = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("{program} {arguments:?} ended with {status}");
            }
            assert!(started.elapsed() < PATIENT, "{program} {arguments:?} does not listen on {port}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, port }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

impl Drop for Listening {
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

/// A port that nobody listens on now, and that no other test was given.
pub(crate) fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    loop {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        if GIVEN.lock().unwrap().insert(port) {
            return port;
        }
    }
}

/// The output of a call, which must be one.
#[track_caller]
pub(crate) fn output(outcome: ToolOutcome) -> ToolOutput {
    match outcome {
        ToolOutcome::Output(output) => output,
        other => panic!("no output: {other:?}"),
    }
}

/// An output in the notation of `oracle.py`.
pub(crate) fn notation(output: &ToolOutput) -> Value {
    match output {
        ToolOutput::Text(text) => json!(text),
        ToolOutput::Json(value) => value.clone(),
        ToolOutput::Binary(binary) => json!({"binary": binary.base64(), "media_type": binary.media_type}),
        ToolOutput::List(parts) => parts.iter().map(notation).collect(),
    }
}

/// Waits until this is so; a test that waits in vain fails.
pub(crate) async fn eventually(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(20), "{what}: never");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
