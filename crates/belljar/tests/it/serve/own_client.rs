//! The client library and `belljar call` against Belljar itself, on each transport and in both protocol eras.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use belljar_mcp_client::{
    CallOptions, LogLevel, McpServer, McpServerSse, McpServerStdio, McpServerStreamableHttp, ProtocolEra,
    ServerBuilder, ToolOutcome,
};
use serde_json::json;

use super::http::Listening;
use crate::harness::{Belljar, server_options};

const START_TIMEOUT: Duration = Duration::from_secs(300);

/// Returns the arguments of `belljar stdio`, whose process gets few environment variables.
fn stdio_arguments() -> Vec<String> {
    let mut arguments = server_options();
    arguments.insert(0, "stdio".to_owned());
    arguments
}

/// Runs code over one connection and checks output, values, errors and cancellation.
fn exercise<T>(server: ServerBuilder<T>, build: fn(ServerBuilder<T>) -> McpServer) {
    let log = Arc::<Mutex<Vec<String>>>::default();
    let lines = log.clone();
    let server = server
        .timeout(START_TIMEOUT)
        .log_level(LogLevel::Info)
        .log_handler(move |message| lines.lock().unwrap().push(message.text()));
    let server = build(server);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let running = server.connect().await.unwrap();
        assert_eq!(server.server_info().await.unwrap().unwrap().name, "belljar");
        let tools = server.list_tools().await.unwrap();
        assert!(tools.iter().any(|tool| tool.name == "run_python_code"), "{tools:?}");

        let steps = Arc::<Mutex<usize>>::default();
        let counter = steps.clone();
        let options = CallOptions::new().progress_handler(move |_| *counter.lock().unwrap() += 1);
        let code = json!({"python_code": "print('hi')\n6 * 7"});
        let outcome = server.call_tool_with("run_python_code", code, options).await.unwrap();
        let ToolOutcome::Output(output) = &outcome else { panic!("{outcome:?}") };
        assert!(output.to_text().contains("42") && output.to_text().contains("hi"), "{output:?}");
        // A slow machine also reports the progress of long steps.
        let lines: Vec<String> = log.lock().unwrap().iter().filter(|line| !line.ends_with(" …")).cloned().collect();
        assert_eq!(lines, ["hi"]);
        assert!(*steps.lock().unwrap() > 0);

        // An error in the code is an error that a model can correct.
        let outcome = server.direct_call_tool("run_python_code", json!({"python_code": "1 / 0"})).await.unwrap();
        assert!(outcome.to_text().contains("ZeroDivisionError"), "{outcome:?}");

        // A call that is dropped is stopped, and the connection stays usable.
        let endless = server.direct_call_tool("run_python_code", json!({"python_code": "while True: pass"}));
        tokio::time::timeout(Duration::from_secs(1), endless).await.unwrap_err();
        let calls = (0..8).map(|number| {
            let server = server.clone();
            let code = json!({"python_code": format!("{number} * 1000")});
            tokio::spawn(async move { server.direct_call_tool("run_python_code", code).await.unwrap().to_text() })
        });
        for (number, call) in calls.collect::<Vec<_>>().into_iter().enumerate() {
            let text = call.await.unwrap();
            assert!(text.contains(&(number * 1000).to_string()), "{text}");
        }
        running.close().await.unwrap();
    });
}

#[test]
fn the_library_runs_code_over_standard_streams() {
    for era in [ProtocolEra::Legacy, ProtocolEra::Modern] {
        let server = McpServerStdio::new(env!("CARGO_BIN_EXE_belljar")).args(stdio_arguments()).era(era);
        exercise(server, |server| server.build());
    }
}

#[test]
fn the_library_runs_code_over_streamable_http() {
    let listening = Listening::start("streamable-http", []);
    for era in [ProtocolEra::Legacy, ProtocolEra::Modern] {
        exercise(McpServerStreamableHttp::new(&listening.url).unwrap().era(era), |server| server.build());
    }
}

#[test]
fn the_library_runs_code_over_server_sent_events() {
    let listening = Listening::start("sse", []);
    exercise(McpServerSse::new(&listening.url).unwrap().era(ProtocolEra::Legacy), |server| server.build());
}

#[test]
fn belljar_call_shows_output_of_a_belljar_server() {
    let stdio = format!("'{}' {}", env!("CARGO_BIN_EXE_belljar"), stdio_arguments().join(" "));
    let (http, sse) = (Listening::start("streamable-http", []), Listening::start("sse", []));
    for target in [stdio.as_str(), &http.url, &sse.url] {
        let code = r#"{"python_code": "print('on the way')\n6 * 7"}"#;
        let run = Belljar::without_cache().args(["call", target, "run_python_code", code]).run();
        assert_eq!(run.status, Some(0), "{target}: {}", run.stderr);
        assert!(run.stdout.contains("42"), "{target}: {}", run.stdout);
        assert!(run.stderr.contains("info: on the way"), "{target}: {}", run.stderr);
        assert!(run.stderr.contains("] "), "{target}: no progress in {}", run.stderr);
        let run = Belljar::without_cache().args(["call", "--quiet", target, "run_python_code", code]).run();
        assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{target}");
        let run = Belljar::without_cache().args(["call", target]).run();
        assert!(run.stdout.contains("python_code (string)"), "{target}: {}", run.stdout);
    }
}
