//! Servers that end in an orderly way while calls to them are in flight: the runs of the calls go on in the next one.

use std::process::Command;

use serde_json::{Value, json};

use super::{Fixture, fields, open, question, reply, run, runs, send_cell, wait_for};
use crate::serve::http::Listening;
use crate::wire::Wire;

const APPEND: &str = "from tools import t\nawait t.append(text='a')";

/// Ends a server as a service manager does.
fn terminate(mut wire: Wire) {
    assert!(Command::new("kill").arg(wire.child.id().to_string()).status().unwrap().success());
    assert!(wire.wait_for_exit().success());
}

fn resume(wire: &mut Wire, run: &Value) -> u64 {
    wire.send("tools/call", json!({ "name": "resume_run", "arguments": { "run_id": run["run_id"] } }))
}

#[test]
fn runs_wait_on_when_their_server_is_terminated() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    // The server saves the idle session, too, before it ends.
    let [asking, sleeping, idle] = [(); 3].map(|()| open(&mut wire));
    run(&mut wire, &idle, "x = 1");
    send_cell(&mut wire, &asking, APPEND);
    question(&mut wire);
    // Its timer is due while the server ends.
    let code = |seconds: u64| format!("import asyncio\nawait asyncio.sleep({seconds})\n'slept'");
    fixture.send_sleeping_cell(&mut wire, &sleeping, code);
    terminate(wire);

    let mut wire = fixture.serve();
    let listed = runs(&mut wire);
    let of =
        |session: &str| listed.iter().find(|run| run["session_id"] == session).unwrap_or_else(|| panic!("{listed:?}"));
    let resumed = resume(&mut wire, of(&sleeping));
    assert_eq!(fields(&wire.answer(resumed)["result"])["result"], "'slept'");
    assert_eq!(of(&asking)["outcome"], "paused", "{listed:?}");
    let resumed = resume(&mut wire, of(&asking));
    let asked = question(&mut wire);
    reply(&mut wire, &asked, "yes");
    assert_eq!(fields(&wire.answer(resumed)["result"])["result"], "'call 1'");
    assert_eq!(run(&mut wire, &idle, "x")["result"], "1");
    assert_eq!(fixture.calls(), ["append a"]);
}

#[test]
fn run_of_a_call_over_http_waits_on_when_its_server_is_terminated() {
    let fixture = Fixture::new(&[]);
    let server = Listening::start("streamable-http", fixture.options());
    let client = json!({ "name": "tests", "version": "1" });
    let params =
        json!({ "protocolVersion": "2025-06-18", "capabilities": { "elicitation": {} }, "clientInfo": client });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let (_, hello) = server.post(&[], &hello);
    let session = hello.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap().trim().to_owned();
    let headers = [("Mcp-Session-Id", session.as_str())];
    server.post(&headers, &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let params = json!({ "name": "execute_code", "arguments": { "code": APPEND } });
    let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
    std::thread::scope(|scope| {
        let call = scope.spawn(|| server.post(&headers, &call));
        wait_for(|| !fixture.belljar(&["list"]).stdout.is_empty());
        server.terminate();
        // It ends with the server, without a result.
        let _ = call.join();
    });
    server.end();

    let mut wire = fixture.serve();
    let listed = runs(&mut wire);
    assert_eq!((listed.len(), &listed[0]["outcome"]), (1, &json!("paused")), "{listed:?}");
    let resumed = resume(&mut wire, &listed[0]);
    let asked = question(&mut wire);
    assert_eq!(fixture.calls(), [""; 0]);
    reply(&mut wire, &asked, "yes");
    assert_eq!(fields(&wire.answer(resumed)["result"])["result"], "'call 1'");
}
