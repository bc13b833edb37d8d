//! Monty's worker protocol, with pydantic-monty's client and pydantic-ai-harness's CodeMode.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_testing::install::run;
use tempfile::TempDir;

use crate::harness::{cache, python_with, release};
use crate::serve::http::Listening;

/// The packages that pip installs together.
const PACKAGES: &[&str] =
    &["pydantic-monty==1.4.0", "pydantic-ai-harness[code-mode]==0.62.0", "pydantic-ai-slim==2.62.0"];

/// Returns a script of `tests/monty` with the client's Python.
fn script(name: &str) -> Command {
    let mut command = Command::new(python_with("monty", PACKAGES));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/monty").join(name));
    command
}

/// A program that runs the worker with the cache of the tests. The client passes no options and no variables.
struct WorkerProgram {
    directory: TempDir,
}

impl WorkerProgram {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let release = release().map(|release| format!(" --pyodide {release}")).unwrap_or_default();
        let text = format!(
            "#!/bin/sh\nexec {} \"$@\" --cache {}{release}\n",
            env!("CARGO_BIN_EXE_belljar"),
            cache().display()
        );
        let path = directory.path().join("worker");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("worker")
    }
}

/// A server with a token.
struct RemoteWorkers {
    server: Listening,
    _directory: TempDir,
}

impl RemoteWorkers {
    const TOKEN: &str = "a-token-of-this-test";

    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tokens = directory.path().join("tokens");
        std::fs::write(&tokens, Self::TOKEN).unwrap();
        let options = ["--monty", "--auth-token-file", tokens.to_str().unwrap()];
        Self { server: Listening::start("streamable-http", options), _directory: directory }
    }

    fn url(&self) -> String {
        self.server.url.replacen("http", "ws", 1).replace("/mcp", "/monty")
    }
}

#[test]
fn synchronous_client_runs_feeds() {
    run(script("sync_client.py").arg(WorkerProgram::new().path()));
}

#[test]
fn asynchronous_client_runs_feeds_and_continues_dumps() {
    run(script("async_client.py").arg(WorkerProgram::new().path()));
}

#[test]
fn remote_worker_runs_feeds_and_continues_dumps() {
    let workers = RemoteWorkers::start();
    run(script("async_client.py").arg(workers.url()).arg(RemoteWorkers::TOKEN));
}

#[test]
fn code_mode_runs_on_a_local_worker() {
    run(script("code_mode.py").arg("local").env("MONTY_BIN", WorkerProgram::new().path()));
}

#[test]
fn code_mode_runs_on_a_remote_worker() {
    let workers = RemoteWorkers::start();
    run(script("code_mode.py").arg(workers.url()).arg(RemoteWorkers::TOKEN));
}

#[test]
fn requests_that_no_client_sends_are_refused() {
    run(script("attacks.py").arg(WorkerProgram::new().path()));
}

#[test]
fn connection_needs_the_token_and_the_option() {
    let upgrade = [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let workers = RemoteWorkers::start();
    assert_eq!(workers.server.send("GET", "/monty", &upgrade, "").0, 401);
    let foreign =
        [&upgrade[..], &[("Origin", "https://evil.example"), ("Authorization", "Bearer a-token-of-this-test")]];
    assert_eq!(workers.server.send("GET", "/monty", &foreign.concat(), "").0, 403);
    let server = Listening::start("streamable-http", ["--no-install"]);
    assert_eq!(server.send("GET", "/monty", &upgrade, "").0, 404);
}

#[test]
fn shutdown_returns_the_session_to_its_client() {
    let mut server = Listening::start("streamable-http", ["--monty"]);
    let url = server.url.replacen("http", "ws", 1).replace("/mcp", "/monty");
    run(script("draining.py").arg(url).arg(server.child.id().to_string()));
    assert!(server.child.wait().unwrap().success());
}
