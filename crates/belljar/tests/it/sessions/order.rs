//! Calls to one session run in the order in which they arrive, on every transport.

use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use belljar_testing::install;
use serde_json::{Value, json};

use super::{fields, open, run, serve};
use crate::harness::names_in;
use crate::serve::http::Listening;
use crate::wire::Wire;

const ROUNDS: usize = 10;
const CELLS_PER_ROUND: usize = 1000;

fn send(wire: &mut Wire, name: &str, arguments: Value) -> u64 {
    wire.send("tools/call", json!({ "name": name, "arguments": arguments }))
}

/// Answers arrive in the order in which the calls were sent, so that waiting for each does not search a long list.
fn answers(wire: &mut Wire, sent: Vec<u64>) -> Vec<Value> {
    sent.into_iter().map(|id| fields(&wire.answer(id)["result"])).collect()
}

#[test]
fn ten_thousand_pipelined_cells_run_in_order_with_forks_and_interrupts_between() {
    let mut wire = serve(["--no-install"]);
    let id = open(&mut wire);
    run(&mut wire, &id, "order = []");
    for round in 0..ROUNDS {
        // The interrupt follows the endless cell, and must not reach the cells behind.
        let endless = send(&mut wire, "execute_code", json!({ "session_id": id, "code": "while True: pass" }));
        let interrupt = send(&mut wire, "interrupt_session", json!({ "session_id": id }));
        let cells = (0..CELLS_PER_ROUND).map(|number| {
            let code = format!("order.append({})", round * CELLS_PER_ROUND + number);
            send(&mut wire, "execute_code", json!({ "session_id": id, "code": code }))
        });
        let cells: Vec<u64> = cells.collect();
        let fork = send(&mut wire, "fork_session", json!({ "session_id": id }));
        let after = send(&mut wire, "execute_code", json!({ "session_id": id, "code": "len(order)" }));
        let length = ((round + 1) * CELLS_PER_ROUND).to_string();

        assert_eq!(fields(&wire.answer(interrupt)["result"])["message"], "The running code was interrupted");
        let ended = fields(&wire.answer(endless)["result"]);
        assert!(ended["error"].as_str().is_some_and(|error| error.starts_with("KeyboardInterrupt")), "{ended:#}");
        for answer in answers(&mut wire, cells) {
            assert_eq!(answer["success"], true, "{answer:#}");
        }
        let fork = fields(&wire.answer(fork)["result"])["session_id"].as_str().unwrap().to_owned();
        assert_eq!(fields(&wire.answer(after)["result"])["result"], length);
        assert_eq!(run(&mut wire, &fork, "len(order)")["result"], length);
        wire.tool("clear_session", json!({ "session_id": fork }));
    }
    let all = run(&mut wire, &id, "order == list(range(10_000))");
    assert_eq!(all["result"], "True", "{all:#}");
}

#[test]
fn pipelined_operations_keep_their_places_between_cells() {
    let mut wire = serve(["--no-install"]);
    let id = open(&mut wire);
    let with = |mut arguments: Value| {
        arguments["session_id"] = id.clone().into();
        arguments
    };
    let before = send(&mut wire, "list_session_files", with(json!({})));
    let write = send(&mut wire, "execute_code", with(json!({ "code": "open('a.txt', 'w').write('cell')" })));
    let listed = send(&mut wire, "list_session_files", with(json!({})));
    let read = wire.send("resources/read", json!({ "uri": format!("kernel://{id}/a.txt") }));
    let upload = send(&mut wire, "upload_file", with(json!({ "name": "a.txt", "content": "upload" })));
    let cell = send(&mut wire, "execute_code", with(json!({ "code": "open('a.txt').read()" })));
    let clear = send(&mut wire, "clear_session", with(json!({})));
    let late = send(&mut wire, "execute_code", with(json!({ "code": "1" })));
    assert_eq!(fields(&wire.answer(before)["result"])["files"], json!([]));
    assert_eq!(fields(&wire.answer(write)["result"])["success"], true);
    assert_eq!(fields(&wire.answer(listed)["result"])["files"][0]["size"], 4);
    assert_eq!(wire.answer(read)["result"]["contents"][0]["text"], "cell");
    assert_eq!(fields(&wire.answer(upload)["result"])["success"], true);
    assert_eq!(fields(&wire.answer(cell)["result"])["result"], "'upload'");
    assert_eq!(fields(&wire.answer(clear)["result"])["success"], true);
    let late = fields(&wire.answer(late)["result"]);
    assert!(late["error"].as_str().is_some_and(|error| error.starts_with("SessionExpiredError")), "{late:#}");
}

#[test]
fn saved_session_that_was_cleared_is_gone_while_its_last_cell_runs() {
    let data = tempfile::tempdir().unwrap();
    let shared = tempfile::tempdir().unwrap();
    let mount = format!("{}:/shared", shared.path().display());
    let mut wire = serve(["--no-install", "--data-dir", data.path().to_str().unwrap(), "--mount", &mount]);
    let id = open(&mut wire);
    // The cell ends once the file exists.
    let code = "import os, time\nopen('a.txt', 'w').write('1')\n\
                while not os.path.exists('/shared/end'): time.sleep(0.01)\n'done'";
    let cell = send(&mut wire, "execute_code", json!({ "session_id": id, "code": code }));
    let clear = send(&mut wire, "clear_session", json!({ "session_id": id }));
    let late = send(&mut wire, "execute_code", json!({ "session_id": id, "code": "1" }));
    let late = fields(&wire.answer(late)["result"]);
    assert!(late["error"].as_str().is_some_and(|error| error.starts_with("SessionExpiredError")), "{late:#}");
    assert!(!wire.received.iter().any(|message| message["id"] == cell), "the cell has ended");
    std::fs::write(shared.path().join("end"), "").unwrap();
    assert_eq!(fields(&wire.answer(cell)["result"])["result"], "'done'");
    assert_eq!(fields(&wire.answer(clear)["result"])["success"], true);
    // The image of sessions stays for the server's next session.
    let mut left = names_in(data.path());
    left.retain(|name| name != "bases");
    assert_eq!(left, [""; 0], "files are left");
}

#[test]
fn new_sessions_do_not_wait_for_one_another() {
    let mut wire = serve(["--no-install"]);
    let slow = send(&mut wire, "execute_code", json!({ "code": "while True: pass", "timeout": 60 }));
    let fast = send(&mut wire, "execute_code", json!({ "code": "6 * 7" }));
    assert_eq!(fields(&wire.answer(fast)["result"])["result"], "42");
    assert!(!wire.received.iter().any(|message| message["id"] == slow));
}

/// Runs a client that sends many calls over one HTTP/2 connection.
fn pipelined(command: &str, mode: &str, count: usize) {
    let server = Listening::start(command, ["--toolset", "interpreter", "--no-install"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sessions/pipelined.mjs");
    install::run(Command::new("node").arg(script).arg(&server.address).arg(mode).arg(count.to_string()));
}

#[test]
fn ten_thousand_pipelined_cells_over_http_run_in_order_in_both_eras() {
    // Ten thousand cells altogether.
    pipelined("streamable-http", "legacy", 5000);
    pipelined("streamable-http", "modern", 5000);
}

#[test]
fn pipelined_cells_over_server_sent_events_run_in_order() {
    pipelined("sse", "sse", 1000);
}

#[test]
fn interrupt_waits_for_the_body_of_the_cell_before_it() {
    let server = Listening::start("streamable-http", ["--toolset", "interpreter"]);
    let hello = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "tests", "version": "1" },
    });
    let (_, opened) = server.post(&[], &json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }));
    let session = opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
    let headers = [("mcp-session-id", &*session)];
    server.post(&headers, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let call = |id: u64, name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })
    };
    let (_, first) = server.post(&headers, &call(2, "execute_code", json!({ "code": "pass" })));
    let id = first.split("\"session_id\":\"").nth(1).and_then(|rest| rest.split('"').next());
    let id = id.unwrap_or_else(|| panic!("{first}"));

    let cell = call(3, "execute_code", json!({ "code": "while True: pass", "session_id": id })).to_string();
    let usual = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    let asks = [("Expect", "100-continue")];
    let mut cell_stream = server.open_for("POST", "/mcp", &[&usual[..], &asks, &headers].concat(), &[], cell.len());
    // The server has read the head, and waits for the body.
    let mut goes_on = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    cell_stream.read_exact(&mut goes_on).unwrap();
    assert_eq!(&goes_on, b"HTTP/1.1 100 Continue\r\n\r\n");
    let message = call(4, "interrupt_session", json!({ "session_id": id }));
    std::thread::scope(|scope| {
        let interrupt = scope.spawn(|| server.post(&headers, &message));
        // It most often arrives meanwhile; if it arrives later, it interrupts the cell as well.
        std::thread::sleep(Duration::from_millis(200));
        cell_stream.write_all(cell.as_bytes()).unwrap();
        let (_, interrupted) = interrupt.join().unwrap();
        assert!(interrupted.contains("The running code was interrupted"), "{interrupted}");
    });
    let mut ended = String::new();
    cell_stream.read_to_string(&mut ended).unwrap();
    assert!(ended.contains("KeyboardInterrupt"), "{ended}");
}
