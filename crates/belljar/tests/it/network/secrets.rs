//! Secrets: the code has a placeholder, the server receives the value, and what comes back does not contain it.

use serde_json::{Value, json};

use super::cases::check;
use crate::network_servers::{KEY, TOKEN, site};
use crate::serve::http::Listening;
use crate::tool_client::tool_server;
use crate::wire::Wire;

/// The key of a report in `_meta`.
const REPORT: &str = "io.github.belljar/report";
/// An expression of Python for the value of `TOKEN`, which code could have from elsewhere.
const VALUE: &str = "('s3cret/V' + 'alue+of=the\"tests\"?&%~42')";

#[test]
fn servers_receive_the_value_and_the_code_does_not() {
    check("secrets.py");
    let records = site().records();
    let has = |record: &Value, value: &str| record["headers"]["authorization"] == format!("Bearer {value}");
    for (value, name) in [(TOKEN, "api.example.com"), (KEY, "keys.example.com")] {
        assert!(records.iter().any(|record| has(record, value)), "{name} did not receive its secret");
    }
}

#[test]
fn output_and_errors_of_commands_are_without_secrets() {
    let code = "import os, sys, urllib.request\nprint(os.environ['TOKEN'])\n\
                request = urllib.request.Request('https://api.example.com:PORT_https/return/plain')\n\
                request.add_header('Authorization', 'Bearer ' + os.environ['TOKEN'])\n\
                print(urllib.request.urlopen(request).read())\nraise RuntimeError(urllib.request.urlopen(request).read())";
    let run = site().run(code);
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(run.stderr.contains("RuntimeError: b'["), "{}", run.stderr);
    assert!(!format!("{run:?}").contains("s3cret"), "{run:?}");
}

/// Runs code for a caller that wants a report, and returns the value in it.
fn reported(wire: &mut Wire, code: &str) -> Value {
    let call = json!({ "name": "run_python_code", "arguments": { "python_code": code }, "_meta": { REPORT: {} } });
    let answer = wire.ask("tools/call", call);
    let value = answer["result"]["_meta"][REPORT]["value"].clone();
    assert!(value["json"].is_string(), "{code}: {answer:#}");
    value
}

in_both_isolations! {
    large_values_and_arguments_of_tools_are_without_secrets
    prompts_are_without_secrets
    parts_of_files_are_without_secrets_that_cross_their_ends
}

fn large_values_and_arguments_of_tools_are_without_secrets(isolation: &str) {
    let mut wire = site().serve_in(isolation, &["--approve", "none", &tool_server("t", "plain")]);
    let mask = format!("('*' * {})", TOKEN.len());
    for large in ["('.' * 5000 + {}).encode()", "{'a': [bytearray(({} + '.' * 5000).encode())]}"] {
        let code = |value: &str| large.replace("{}", value);
        let masked = reported(&mut wire, &code(&mask));
        assert!(masked["buffers"][0].as_str().is_some_and(|buffer| buffer.len() > 5000), "{masked}");
        assert_eq!(reported(&mut wire, &code(VALUE)), masked, "{large}");
    }
    // The tool returns its argument.
    let code = format!("from tools import t\nset((await t.echo(value={VALUE} + '.' * 5000))['value']) == set('*.')");
    assert_eq!(reported(&mut wire, &code)["json"], "true");
}

fn prompts_are_without_secrets(isolation: &str) {
    let options = ["--toolset", "interpreter", "--isolation", isolation];
    let mut command = site().belljar("stdio").args(options).into_command();
    command.stderr(std::process::Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize_with(json!({ "elicitation": {} }));
    let cell = json!({ "name": "execute_code", "arguments": { "code": format!("input({VALUE})") } });
    let id = wire.send("tools/call", cell);
    let question = loop {
        let message = wire.next().unwrap();
        if message["method"] == "elicitation/create" {
            break message;
        }
    };
    assert!(question["params"]["message"].as_str().unwrap().contains(&"*".repeat(TOKEN.len())), "{question}");
    let reply = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" } });
    wire.write(format!("{reply}\n").as_bytes());
    wire.answer(id);
}

fn parts_of_files_are_without_secrets_that_cross_their_ends(isolation: &str) {
    let data = tempfile::tempdir().unwrap();
    let start = || {
        let options = ["--port", "0", "--toolset", "interpreter", "--code-execution", "--isolation", isolation];
        let command = site().belljar("streamable-http").args(options);
        Listening::spawn(command.args(["--data-dir", data.path().to_str().unwrap()]))
    };
    let body = |text: &str| text.split_once("\r\n\r\n").unwrap().1.to_owned();
    let server = start();
    let json_body = [("Content-Type", "application/json")];
    let created = body(&server.send("POST", "/sessions", &json_body, "{}").1);
    let session = serde_json::from_str::<Value>(&created).unwrap()["session_id"].as_str().unwrap().to_owned();
    // Downloads read parts of 4 MB.
    let code = format!("open('a.txt', 'w').write('.' * ((4 << 20) - 10) + {VALUE} + '.')");
    let call = json!({ "tool": "code_execution", "input": { "code": code } }).to_string();
    let (status, answer) = server.send("POST", &format!("/sessions/{session}/exec"), &json_body, &call);
    assert!(status == 200 && answer.contains("\"return_code\":0"), "{answer}");
    let check = |server: &Listening| {
        let (status, text) = server.send("GET", &format!("/sessions/{session}/files?path=a.txt"), &[], "");
        assert_eq!(status, 200);
        let content = body(&text);
        assert_eq!(content.matches('*').count(), TOKEN.len());
        assert!(
            !content.contains(&TOKEN[..8]) && !content.contains(&TOKEN[12..]),
            "{}",
            &content[content.len() - 200..]
        );
    };
    check(&server);
    server.end();
    // Before the first cell of a session that another server has saved.
    check(&start());
}
