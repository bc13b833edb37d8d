//! Clients that others wrote: versions 1 and 2 of the Python SDK and of pydantic-ai's agents, and fastmcp.

use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_testing::install::run;

use super::http::Listening;
use crate::harness::{python_with as python, server_options};

pub(super) fn generation_1() -> PathBuf {
    python("1", &["mcp<2", "pydantic-ai-slim[mcp]==1.107.10"])
}

pub(super) fn generation_2() -> PathBuf {
    python("2", &["mcp>=2,<3"])
}

pub(super) fn newest() -> PathBuf {
    python("newest", &["pydantic-ai-slim[mcp]==2.68.0", "fastmcp==4.1.2"])
}

/// Returns the Python SDK, for a server that listens.
pub(super) fn sdk(url: &str) -> Command {
    let mut command = Command::new(generation_1());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/sdk_client.py")).arg("http").arg(url);
    command
}

/// Returns a script of `tests/serve`, with a Python.
fn script(python: &Path, name: &str) -> Command {
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve").join(name));
    command
}

/// Runs a client, with these arguments, against a server over standard streams with these options.
pub(super) fn stdio(python: &Path, name: &str, arguments: &[&str], options: &[&str]) {
    let mut client = script(python, name);
    // The SDKs pass few environment variables to a server.
    client.args(arguments).arg("stdio").arg(env!("CARGO_BIN_EXE_belljar")).arg("stdio").args(server_options());
    run(client.args(options));
}

/// Runs a client against a server with these options on each transport.
pub(super) fn on_all_transports(python: &Path, name: &str, options: &[&str]) {
    stdio(python, name, &[], options);
    for (command, kind) in [("streamable-http", "http"), ("sse", "sse")] {
        let server = Listening::start(command, options.iter().copied());
        run(script(python, name).arg(kind).arg(&server.url));
    }
}

#[test]
fn python_sdk_1_works() {
    on_all_transports(&generation_1(), "sdk_client.py", &[]);
    let server = Listening::start("streamable-http-stateless", []);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/serve/sdk_client.py");
    run(Command::new(generation_1()).arg(script).arg("stateless").arg(&server.url));
}

#[test]
fn python_sdk_2_works() {
    on_all_transports(&generation_2(), "sdk_client.py", &[]);
}

#[test]
fn an_agent_of_pydantic_ai_works() {
    on_all_transports(&generation_1(), "pydantic_ai_client.py", &[]);
}

#[test]
fn an_agent_of_pydantic_ai_2_works() {
    on_all_transports(&newest(), "pydantic_ai_toolset.py", &[]);
}

#[test]
fn fastmcp_works() {
    on_all_transports(&newest(), "fastmcp_client.py", &[]);
}

/// Runs a script with version 1 of the SDK and `argument` in `sys.argv`.
pub(crate) fn run_script(script: &str, argument: &str) {
    run(Command::new(generation_1()).arg(script).arg(argument));
}

/// Runs a script that starts its servers itself, with version 1 or 2 of the SDK. Its arguments are the program, and the
/// options of its servers.
pub(crate) fn client_with_servers(version: u32, script: &str, options: &[&str]) {
    let python = if version == 1 { generation_1() } else { generation_2() };
    let mut client = Command::new(python);
    client.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script)).arg(env!("CARGO_BIN_EXE_belljar"));
    run(client.args(server_options()).args(options));
}

/// Runs a script with version 2 of the SDK, over standard streams and HTTP, against a server with these options.
pub(crate) fn modern_client(script: &str, options: &[&str]) {
    on_transports(&generation_2(), script, options, &[("streamable-http", "http")]);
}

/// Runs a script with version 1 of the SDK, on each transport, against a server with these options.
pub(crate) fn legacy_client(script: &str, options: &[&str]) {
    on_transports(&generation_1(), script, options, &[("streamable-http", "http"), ("sse", "sse")]);
}

/// Runs a client over standard streams, and against servers that listen: commands and what the script calls them.
fn on_transports(python: &Path, script: &str, options: &[&str], servers: &[(&str, &str)]) {
    let client = || {
        let mut command = Command::new(python);
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script));
        command
    };
    let mut stdio = client();
    stdio.arg("stdio").arg(env!("CARGO_BIN_EXE_belljar")).arg("stdio").args(server_options()).args(options);
    run(&mut stdio);
    for (command, kind) in servers {
        let server = Listening::start(command, options.iter().copied());
        run(client().arg(kind).arg(&server.url));
    }
}
