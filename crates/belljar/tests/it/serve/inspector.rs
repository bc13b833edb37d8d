//! The Inspector's command line in both protocol eras, over pipes and over HTTP.

use std::process::Command;

use serde_json::{Value, json};

use belljar_testing::install::run;

use super::fetched::inspector;
use super::http::Listening;
use crate::harness::server_options;

/// Runs one method and returns the result. `server` is an entry of a client's configuration.
fn ask(server: &Value, era: &str, method: &[&str]) -> Value {
    let directory = tempfile::tempdir().unwrap();
    let configuration = directory.path().join("servers.json");
    std::fs::write(&configuration, json!({ "mcpServers": { "belljar": server } }).to_string()).unwrap();
    let modules = inspector();
    let mut command = Command::new(modules.join(".bin/node"));
    command.arg(modules.join("@modelcontextprotocol/inspector/clients/launcher/build/index.js")).arg("--cli");
    command.arg("--config").arg(configuration).args(["--server", "belljar", "--protocol-era", era]).args(method);
    let text = run(command.env("MCP_INSPECTOR_SECRET_STORE", "memory"));
    let start = text.find('{').unwrap_or_else(|| panic!("no JSON: {text}"));
    // Its standard error follows the JSON.
    let answer = serde_json::Deserializer::from_str(&text[start..]).into_iter().next();
    answer.unwrap().unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn works(server: &Value) {
    for era in ["legacy", "modern", "auto"] {
        let tools = ask(server, era, &["--method", "tools/list", "--strict"]);
        assert_eq!(tools["tools"][0]["name"], "run_python_code", "{era}: {tools}");
        let call = [
            "--method",
            "tools/call",
            "--tool-name",
            "run_python_code",
            "--tool-arg",
            "python_code=print('hi'); 6 * 7",
        ];
        let answer = ask(server, era, &call);
        assert_eq!(answer["structuredContent"]["return_value"], 42, "{era}: {answer}");
        assert!(answer["content"][0]["text"].as_str().unwrap().contains("<output>\nhi\n</output>"), "{era}: {answer}");
    }
}

#[test]
fn inspector_works_over_http() {
    let server = Listening::start("streamable-http", ["--no-install"]);
    works(&json!({ "type": "streamable-http", "url": server.url }));
}

#[test]
fn inspector_works_over_pipes() {
    let mut arguments = vec!["stdio".to_owned(), "--no-install".to_owned()];
    arguments.extend(server_options());
    works(&json!({ "command": env!("CARGO_BIN_EXE_belljar"), "args": arguments }));
}
