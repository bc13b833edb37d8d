//! Clients that others wrote: the Python SDK in both its generations, and an agent of pydantic-ai.
//!
//! Each generation has an environment of its own, made once under the target directory.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use super::http::Listening;
use crate::harness::{cache, release};

/// Makes an environment with these packages, or finds it.
fn environment(name: &str, packages: &[&str]) -> PathBuf {
    static MAKING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = MAKING.lock();
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients").join(name);
    let python = directory.join("bin/python");
    let ready = directory.join("ready");
    if std::fs::read_to_string(&ready).ok().as_deref() == Some(&packages.join(" ")) {
        return python;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&directory));
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages));
    std::fs::write(ready, packages.join(" ")).unwrap();
    python
}

fn generation_1() -> PathBuf {
    environment("1", &["mcp<2", "pydantic-ai-slim[mcp]==1.107.10"])
}

fn generation_2() -> PathBuf {
    environment("2", &["mcp>=2,<3"])
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}\n{}", String::from_utf8_lossy(&text));
}

/// Runs a client against the server on each transport.
fn on_all_transports(python: &Path, script: &str) {
    let client = || {
        let mut command = Command::new(python);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve").join(script));
        command
    };
    let mut stdio = client();
    // The SDKs give a server next to nothing of the environment.
    stdio.arg("stdio").arg(env!("CARGO_BIN_EXE_belljar")).args(["stdio", "--cache"]).arg(cache());
    if let Some(release) = release() {
        stdio.args(["--pyodide", &release]);
    }
    run(&mut stdio);
    for (command, kind) in [("streamable-http", "http"), ("sse", "sse")] {
        let server = Listening::start(command, []);
        run(client().arg(kind).arg(&server.url));
    }
}

#[test]
fn the_python_sdk_of_the_first_generation_works() {
    on_all_transports(&generation_1(), "sdk_client.py");
    let server = Listening::start("streamable-http-stateless", []);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/sdk_client.py");
    run(Command::new(generation_1()).arg(script).arg("stateless").arg(&server.url));
}

#[test]
fn the_python_sdk_of_the_second_generation_works() {
    on_all_transports(&generation_2(), "sdk_client.py");
}

#[test]
fn an_agent_of_pydantic_ai_works() {
    on_all_transports(&generation_1(), "pydantic_ai_client.py");
}

/// Runs a script with the SDK of the first generation, which finds `argument` in `sys.argv`.
pub(crate) fn run_script(script: &str, argument: &str) {
    run(Command::new(generation_1()).arg(script).arg(argument));
}
