//! Sessions: connections between cells, waits, interrupts, limits, sleep and restarts.

use std::io::{BufRead as _, BufReader};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::network_servers::{Site, TOKEN, site};
use crate::wire::{Wire, text};

/// Returns a server with sessions.
fn serve(isolation: &str, options: &[&str]) -> Wire {
    site().serve_in(isolation, &[&["--toolset", "interpreter"], options].concat())
}

in_both_isolations! {
    connections_stay_open_between_cells
    answers_of_cells_contain_the_connections
    waiting_cells_hold_no_thread
    interrupt_ends_a_blocking_receive
    waits_count_towards_the_limit_on_waits_and_not_on_time
    session_of_a_killed_server_has_reset_connections_and_placeholders_that_work
    session_that_slept_has_reset_connections
    client_narrows_the_network_of_a_session_and_of_a_call
    narrowed_session_and_its_placeholders_are_the_same_after_a_restart
    code_that_has_sent_a_request_is_not_run_again_with_a_package
}

/// Runs a cell and returns the fields of its answer.
fn cell(wire: &mut Wire, session: &str, code: &str) -> Value {
    let arguments = json!({ "code": Site::filled(site(), code), "session_id": session });
    serde_json::from_str(&text(&wire.tool("execute_code", arguments))).unwrap()
}

/// Opens a session and returns its ID.
fn open(wire: &mut Wire) -> String {
    cell(wire, "", "import os, socket, asyncio, urllib.request")["session_info"]["session_id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Asserts that a cell has this value.
fn assert_value(wire: &mut Wire, session: &str, code: &str, value: &str) {
    let answer = cell(wire, session, code);
    assert_eq!(answer["result"], value, "{code}: {answer:#}");
}

const CONNECT: &str = "plain = socket.create_connection(('api.example.com', PORT_echo), timeout=120)";
const GET: &str = "urllib.request.urlopen('https://api.example.com:PORT_https/csv').read(4)";

fn connections_stay_open_between_cells(isolation: &str) {
    let mut wire = serve(isolation, &[]);
    let id = open(&mut wire);
    cell(&mut wire, &id, CONNECT);
    for index in 0..3 {
        assert_value(&mut wire, &id, &format!("plain.sendall(b'{index}'); plain.recv(9)"), &format!("b'{index}'"));
    }
    cell(&mut wire, &id, "reader, writer = await asyncio.open_connection('api.example.com', PORT_tls_echo, ssl=True)");
    assert_value(&mut wire, &id, "writer.write(b'abc'); await reader.readexactly(3)", "b'abc'");
}

fn answers_of_cells_contain_the_connections(isolation: &str) {
    let mut wire = serve(isolation, &[]);
    let id = open(&mut wire);
    wire.follow_output();
    // The first request of a connection is recorded before the second one is answered.
    let code = "import http.client\nconnection = http.client.HTTPSConnection('api.example.com', PORT_https)\n\
                for _ in range(2):\n    connection.request('GET', '/csv')\n    connection.getresponse().read()";
    let answer = wire.tool("execute_code", json!({ "code": site().filled(code), "session_id": id }));
    let structured = &answer["structuredContent"]["connections"];
    assert_eq!(
        (&structured[0]["host"], &structured[0]["status"]),
        (&json!("api.example.com"), &json!(200)),
        "{answer}"
    );
    assert!(wire.notifications("notifications/message").iter().any(|message| message["logger"] == "network"));
}

fn waiting_cells_hold_no_thread(isolation: &str) {
    let mut wire = serve(isolation, &["--max-concurrency", "2"]);
    let ids: Vec<String> = (0..12).map(|_| open(&mut wire)).collect();
    let code = site().filled(
        "reader, writer = await asyncio.open_connection('api.example.com', PORT_silent)\nprint('waits')\nawait reader.read(1)",
    );
    wire.follow_output();
    let waiting: Vec<u64> = ids[1..]
        .iter()
        .map(|id| {
            wire.send("tools/call", json!({ "name": "execute_code", "arguments": { "code": code, "session_id": id } }))
        })
        .collect();
    for _ in &waiting {
        wire.wait_for_output("waits");
    }
    // All of them wait at the same time; another session still runs.
    assert_value(&mut wire, &ids[0], "6 * 7", "42");
    for id in &ids[1..] {
        wire.tool("interrupt_session", json!({ "session_id": id }));
    }
    for id in waiting {
        let answer = wire.answer(id);
        let answer: Value = serde_json::from_str(&text(&answer["result"])).unwrap();
        assert!(answer["error"].as_str().unwrap_or_default().contains("KeyboardInterrupt"), "{answer:#}");
    }
}

fn interrupt_ends_a_blocking_receive(isolation: &str) {
    let mut wire = serve(isolation, &[]);
    let id = open(&mut wire);
    let code = site()
        .filled("plain = socket.create_connection(('api.example.com', PORT_silent))\nprint('waits')\nplain.recv(1)");
    wire.follow_output();
    let call =
        wire.send("tools/call", json!({ "name": "execute_code", "arguments": { "code": code, "session_id": id } }));
    wire.wait_for_output("waits");
    wire.tool("interrupt_session", json!({ "session_id": id }));
    let answer: Value = serde_json::from_str(&text(&wire.answer(call)["result"])).unwrap();
    assert!(answer["error"].as_str().unwrap().contains("KeyboardInterrupt"), "{answer:#}");
    assert_value(&mut wire, &id, GET, "b'name'");
}

#[test]
fn ctrl_c_ends_a_blocking_receive() {
    for (port, secure) in [("silent", false), ("silent_tls", true)] {
        let code = format!(
            "import socket, ssl\nplain = socket.create_connection(('api.example.com', {}))\nif {}:\n    \
             plain = ssl.create_default_context().wrap_socket(plain, server_hostname='api.example.com')\n\
             print('waits')\nplain.recv(1)",
            site().port(port),
            if secure { "True" } else { "False" },
        );
        let mut running = site().belljar("run").args(["-c", &code]).start();
        let mut line = String::new();
        BufReader::new(running.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "waits\n");
        let process = running.child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &process]).status().unwrap().success());
        let run = running.wait();
        assert_eq!(run.status, Some(130), "{run:?}");
        assert!(run.stderr.ends_with("KeyboardInterrupt\n"), "{run:?}");
    }
}

fn waits_count_towards_the_limit_on_waits_and_not_on_time(isolation: &str) {
    let wait = "reader, writer = await asyncio.open_connection('api.example.com', PORT_slow)\n\
                for _ in range(24):\n    writer.write(b'x'); await reader.readexactly(1)\n'done'";
    // Each line takes half a second.
    let mut wire = serve(isolation, &["--timeout", "10"]);
    let id = open(&mut wire);
    assert_value(&mut wire, &id, wait, "'done'");
    let mut wire = serve(isolation, &["--max-wait", "1"]);
    let id = open(&mut wire);
    let answer = cell(
        &mut wire,
        &id,
        "reader, writer = await asyncio.open_connection('api.example.com', PORT_silent)\nawait reader.read(1)",
    );
    assert!(answer["error"].as_str().unwrap_or_default().contains("wait"), "{answer:#}");
}

fn session_of_a_killed_server_has_reset_connections_and_placeholders_that_work(isolation: &str) {
    let data = tempfile::tempdir().unwrap();
    let options = ["--data-dir", data.path().to_str().unwrap()];
    let mut wire = serve(isolation, &options);
    let id = open(&mut wire);
    cell(&mut wire, &id, CONNECT);
    wire.child.kill().unwrap();
    wire.child.wait().unwrap();

    let mut wire = serve(isolation, &options);
    let failure = "try:\n    plain.recv(1)\nexcept OSError as error:\n    print(type(error).__name__)";
    assert_eq!(cell(&mut wire, &id, failure)["output"], json!(["ConnectionResetError\n"]));
    assert_value(&mut wire, &id, GET, "b'name'");
    let hash = "import hashlib\nrequest = urllib.request.Request('https://api.example.com:PORT_https/digest')\n\
                request.add_header('Authorization', os.environ['TOKEN'])\nurllib.request.urlopen(request).read().decode()";
    let digest = format!("'{}'", sha256(TOKEN));
    assert_value(&mut wire, &id, hash, &digest);
}

fn session_that_slept_has_reset_connections(isolation: &str) {
    let data = tempfile::tempdir().unwrap();
    let mut wire = serve(isolation, &["--data-dir", data.path().to_str().unwrap(), "--sleep-after", "1"]);
    let id = open(&mut wire);
    cell(&mut wire, &id, CONNECT);
    let sent = format!("sleep in a {isolation}");
    assert_value(&mut wire, &id, &format!("plain.sendall(b'{sent}'); plain.recv(50)"), &format!("b'{sent}'"));
    // Sleep frees the interpreter, whose connections end with it.
    let has_ended = || site().records().iter().any(|record| record["ended"] == sent);
    let begin = Instant::now();
    while !has_ended() {
        assert!(begin.elapsed() < Duration::from_secs(180), "the session does not sleep");
        std::thread::sleep(Duration::from_millis(50));
    }
    let use_it = "try:\n    plain.recv(1)\nexcept OSError as error:\n    print(type(error).__name__)";
    assert_eq!(cell(&mut wire, &id, use_it)["output"], json!(["ConnectionResetError\n"]));
    assert_value(&mut wire, &id, GET, "b'name'");
}

/// Returns the hash of a text in hexadecimal digits, by Python.
fn sha256(text: &str) -> String {
    let code = "import hashlib, sys; print(hashlib.sha256(sys.argv[1].encode()).hexdigest())";
    let run = std::process::Command::new("python3").args(["-c", code, text]).output().unwrap();
    String::from_utf8(run.stdout).unwrap().trim().to_owned()
}

fn client_narrows_the_network_of_a_session_and_of_a_call(isolation: &str) {
    const CODE: &str = "import urllib.request\n\
        def status(url):\n    \
            try: return urllib.request.urlopen(url).status\n    \
            except OSError as error: return str(error)\n\
        [status('https://api.example.com:PORT_https/csv'), status('http://api.example.com:PORT_http/csv')]";
    let mut wire = site().serve_in(isolation, &["--toolset", "all"]);
    let narrowed = json!({ "io.github.belljar/network": { "allow": [site().filled("api.example.com:PORT_https")] } });
    let mut call = |name: &str, arguments: Value, meta: &Value| {
        let answer = wire.ask("tools/call", json!({ "name": name, "arguments": arguments, "_meta": meta }));
        text(&answer["result"])
    };
    let is_narrowed = |answer: &str| answer.contains("[200,") && answer.contains("is not allowed");
    let code = site().filled(CODE);
    let answer = call("run_python_code", json!({ "python_code": code }), &json!({}));
    assert!(answer.contains("200,\n  200"), "{answer}");
    let answer = call("run_python_code", json!({ "python_code": code }), &narrowed);
    assert!(answer.contains("200,") && answer.contains("is not allowed"), "{answer}");

    let answer = call("execute_code", json!({ "code": code }), &narrowed);
    assert!(is_narrowed(&answer), "{answer}");
    let first: Value = serde_json::from_str(&answer).unwrap();
    let id = first["session_info"]["session_id"].as_str().unwrap().to_owned();
    // Later cells, and copies of the session, have the same policy, whatever they ask for.
    let cell = json!({ "code": code, "session_id": id });
    assert!(is_narrowed(&call("execute_code", cell.clone(), &json!({}))));
    let wider = json!({ "io.github.belljar/network": { "allow": ["*", site().filled("api.example.com:PORT_http")] } });
    let answer = call("execute_code", cell, &wider);
    assert!(answer.contains("the first cell of a session sets its policy"), "{answer}");
    let answer = call("fork_session", json!({ "session_id": id }), &json!({}));
    let fork: Value = serde_json::from_str(&answer).unwrap();
    let copy = json!({ "code": code, "session_id": fork["session_id"] });
    let answer = call("execute_code", copy, &json!({}));
    assert!(is_narrowed(&answer), "{answer}");

    let invalid = json!({ "io.github.belljar/network": { "alow": [] } });
    let answer = call("run_python_code", json!({ "python_code": "1" }), &invalid);
    assert!(answer.contains("alow"), "{answer}");
}

fn narrowed_session_and_its_placeholders_are_the_same_after_a_restart(isolation: &str) {
    let data = tempfile::tempdir().unwrap();
    let options = ["--toolset", "interpreter", "--data-dir", data.path().to_str().unwrap()];
    let narrowed = json!({ "io.github.belljar/network": { "allow": [site().filled("api.example.com:PORT_https")] } });
    let code = "import os, urllib.request\nplaceholder = os.environ['TOKEN']";
    let arguments = json!({ "code": code });
    let mut wire = site().serve_in(isolation, &options);
    let answer = wire.ask("tools/call", json!({ "name": "execute_code", "arguments": arguments, "_meta": narrowed }));
    let first: Value = serde_json::from_str(&text(&answer["result"])).unwrap();
    let id = first["session_info"]["session_id"].as_str().unwrap().to_owned();
    drop(wire);
    let mut wire = site().serve_in(isolation, &options);
    assert_value(&mut wire, &id, "placeholder == os.environ['TOKEN']", "True");
    assert_value(&mut wire, &id, GET, "b'name'");
    let refused = "try:\n    urllib.request.urlopen('http://api.example.com:PORT_http/csv')\n\
                   except OSError as error:\n    print('is not allowed' in str(error))";
    assert_eq!(cell(&mut wire, &id, refused)["output"], json!(["True\n"]));
}

fn code_that_has_sent_a_request_is_not_run_again_with_a_package(isolation: &str) {
    const LACKING: &str = "import importlib\nimportlib.import_module('humanize').__name__";
    let mut wire = site().serve_in(isolation, &[]);
    // Without a request, the package is installed, and the code runs again.
    assert!(wire.run(LACKING).contains("humanize"));
    let request = "import urllib.request\nurllib.request.urlopen('https://api.example.com:PORT_https/csv').read()\n";
    let answer = wire.run(&site().filled(&format!("{request}{LACKING}")));
    assert!(answer.contains("<status>run-error</status>") && answer.contains("ModuleNotFoundError"), "{answer}");
}
