//! `--log-format json`: each line of a server's standard error is an object.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use serde_json::{Value, json};

use super::Log;
use crate::harness::Belljar;

/// Returns the object on a line.
fn object(line: &str) -> Value {
    let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert!(event["level"].is_string() && event["timestamp"].is_string(), "{line}");
    event
}

#[test]
fn log_can_be_json() {
    let client = json!({ "name": "tests", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let call = json!({ "name": "run_python_code", "arguments": { "python_code": "1" } });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call });
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let input = format!("{hello}\n{ready}\n{call}\n");
    let belljar = Belljar::new().args(["stdio", "--log-format", "json"]).env("BELLJAR_LOG", "trace");
    let run = belljar.input(input).run();
    assert!(run.stdout.contains("<return_value>"), "{run:?}");
    let lines: Vec<&str> = run.stderr.lines().filter(|line| !line.is_empty()).collect();
    assert!(!lines.is_empty());
    for line in lines {
        object(line);
    }
}

/// A server that ends with its test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn messages_of_a_server_over_http_are_objects() {
    let (log, directory) = (Log::new(), tempfile::tempdir().unwrap());
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "one\n").unwrap();
    let options = ["--port", "0", "--toolset", "all", "--console", "--log-format", "json", "--auth-token-file"];
    let belljar = Belljar::new().arg("streamable-http").args(options).arg(&tokens).args(log.options());
    let mut command = belljar.into_command();
    let server = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut server = Server(server);
    let process = server.0.id().to_string();
    let signal = move |name: &str| {
        let status = Command::new("kill").args([name, &process]).status();
        assert!(status.unwrap().success());
    };
    let mut lines = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut message = |text: &str| loop {
        let event = object(&lines.next().unwrap_or_else(|| panic!("the server has ended before {text:?}")));
        if event["fields"]["message"] == text {
            return event;
        }
    };
    let address = message("listening")["fields"]["address"].as_str().unwrap().to_owned();
    assert!(address.starts_with("http://127.0.0.1:") && address.ends_with("/mcp"), "{address}");
    assert!(message("code runs")["fields"]["place"].as_str().unwrap().starts_with("WebAssembly"));
    let console = message("console")["fields"]["address"].as_str().unwrap().to_owned();
    assert!(console.starts_with(&address.replace("/mcp", "/console#token=")), "{console}");
    // Again and again: the server may not listen for the signal yet.
    let (stop, stopped) = mpsc::channel::<()>();
    let hang_up = signal.clone();
    let signals = std::thread::spawn(move || {
        while stopped.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout) {
            hang_up("-HUP");
        }
    });
    assert_eq!(message("read the tokens and the certificate again")["level"], "INFO");
    std::fs::write(&tokens, "").unwrap();
    let kept = message("kept the tokens and the certificate as they were");
    assert!(kept["level"] == "ERROR" && kept["fields"]["error"].is_string(), "{kept}");
    drop(stop);
    signals.join().unwrap();
    signal("-TERM");
    for line in lines {
        object(&line);
    }
    assert!(server.0.wait().unwrap().success());
    log.assert_intact();
}

#[test]
fn error_of_a_server_that_does_not_start_is_an_object() {
    let options = ["stdio", "--log-format", "json", "--audit", "/nonexistent/audit.log"];
    let run = Belljar::without_cache().args(options).run();
    assert_ne!(run.status, Some(0));
    let errors: Vec<Value> = run.stderr.lines().map(object).collect();
    assert_eq!(errors.len(), 1, "{run:?}");
    let message = errors[0]["fields"]["message"].as_str().unwrap();
    assert!(message.contains("--audit: failed to open /nonexistent/audit.log: "), "{message}");
    // Other programs read the lines for people.
    let run = Belljar::without_cache().args(["stdio", "--audit", "/nonexistent/audit.log"]).run();
    assert!(run.stderr.starts_with("belljar: --audit: failed to open "), "{run:?}");
}
