//! Cells that wait for longer than their client or their server lives.

mod endings;
mod fixture;
mod kills;
mod later_clients;
mod outcomes;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::Belljar;
use crate::wire::{Wire, text};

pub(crate) use fixture::{
    Fixture, MODERN, fields, kill, open, question, reply, result_of_only_run, run, runs, send_cell, wait_for,
    wait_until_waiting,
};

const GATHER: &str = "\
import asyncio, random
from tools import t
drawn = random.random()
file = open('f.txt', 'w')
file.write('before ')
results = await asyncio.gather(t.append(text='a'), asyncio.sleep(0.01, 'slept'), return_exceptions=True)
file.write('after')
file.close()
print('printed after')
(results, open('f.txt').read(), drawn == first[0], kept)";

/// Code that has the cell's drawn number before the cell runs.
const PREPARE: &str =
    "import random\nstate = random.getstate()\nfirst = [random.random()]\nrandom.setstate(state)\nkept = 'kept'";

#[test]
fn approval_is_answered_in_the_next_server() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, PREPARE);
    send_cell(&mut wire, &id, &format!("print('printed before')\n{GATHER}"));
    let asked = question(&mut wire);
    assert!(asked["params"]["message"].as_str().unwrap().contains("append"), "{asked}");
    fixture.wait_until_saved(&id);
    kill(wire);

    let mut wire = fixture.serve();
    let listed = runs(&mut wire);
    assert_eq!(listed.len(), 1, "{listed:?}");
    // The other call of the gather is due.
    let status = listed[0]["status"].as_str().unwrap();
    assert!(["waiting", "running"].contains(&status) && listed[0]["session_id"] == id.as_str(), "{listed:?}");
    let resumed =
        wire.send("tools/call", json!({ "name": "resume_run", "arguments": { "run_id": listed[0]["run_id"] } }));
    let asked = question(&mut wire);
    assert_eq!(fixture.calls(), [""; 0]);
    reply(&mut wire, &asked, "yes");
    let answer = fields(&wire.answer(resumed)["result"]);
    assert_eq!(answer["result"], "(['call 1', 'slept'], 'before after', True, 'kept')", "{answer:#}");
    assert_eq!(answer["output"][0], "printed before\nprinted after\n", "{answer:#}");
    assert_eq!(answer["calls"][0]["status"], "ok", "{answer:#}");
    assert_eq!(fixture.calls(), ["append a"]);
    // The session goes on, and its next cells have the cell's variables.
    assert_eq!(run(&mut wire, &id, "len(results), _[1]")["result"], "(2, 'before after')");
    assert_eq!(runs(&mut wire)[0]["status"], "completed");
}

#[test]
fn approval_is_answered_on_the_command_line() {
    let fixture = Fixture::new(&[]);
    for is_serving in [false, true] {
        let mut wire = fixture.serve();
        let id = open(&mut wire);
        let cell = send_cell(&mut wire, &id, "from tools import t\nawait t.append(text='x')");
        question(&mut wire);
        let run_id = fixture.waiting_run()["run"].as_str().unwrap().to_owned();
        let shown = fixture.belljar(&["show", &run_id]);
        assert!(shown.stdout.contains("tool append of the MCP server t"), "{shown:?}");
        assert!(shown.stdout.contains("from tools import t"), "{shown:?}");
        if is_serving {
            assert!(fixture.belljar(&["deny", &run_id]).status == Some(0));
            let answer = fields(&wire.answer(cell)["result"]);
            assert!(answer["error"].as_str().unwrap().starts_with("ToolDenied: the user denied"), "{answer:#}");
        } else {
            kill(wire);
            let approved = fixture.belljar(&["approve", &run_id]);
            assert!(
                approved.status == Some(0) && approved.stdout.starts_with("approved: The code calls"),
                "{approved:?}"
            );
            // No server has taken the first answer: it stays, and the command reports that.
            let repeated = fixture.belljar(&["approve", &run_id]);
            assert!(repeated.status == Some(0) && repeated.stdout.starts_with("already approved, "), "{repeated:?}");
            let mut wire = fixture.serve();
            wait_for(|| runs(&mut wire)[0]["status"] == "completed");
            assert_eq!(result_of_only_run(&mut wire)["result"], "'call 1'");
            let again = fixture.belljar(&["approve", &run_id]);
            assert!(again.status != Some(0) && again.stderr.contains("does not wait"), "{again:?}");
        }
    }
    assert_eq!(fixture.calls(), ["append x"]);
}

#[test]
fn cancelled_run_is_interrupted() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    send_cell(&mut wire, &id, "from tools import t\nx = 1\nawait t.append(text='x')");
    question(&mut wire);
    let run_id = fixture.waiting_run()["run"].as_str().unwrap().to_owned();
    kill(wire);
    assert!(fixture.belljar(&["cancel", &run_id]).status == Some(0));
    let mut wire = fixture.serve();
    let answer = result_of_only_run(&mut wire);
    assert!(answer["error"].as_str().unwrap().starts_with("KeyboardInterrupt"), "{answer:#}");
    assert_eq!(run(&mut wire, &id, "x")["result"], "1");
    assert_eq!(fixture.calls(), [""; 0]);
}

#[test]
fn calls_that_were_sent_are_not_sent_twice_unless_idempotent() {
    let fixture = Fixture::new(&["--approve", "none"]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let code = "import asyncio, tools\nfrom tools import t\n\
                results = await asyncio.gather(t.hang_append(text='a'), t.hang_put(text='b'), return_exceptions=True)\n\
                print(results[1])\nprint(type(results[0]).__name__, results[0])";
    send_cell(&mut wire, &id, code);
    // In this order: the cell may have been saved while it waited for the names of the tools.
    wait_for(|| fixture.calls().len() == 2);
    fixture.wait_until_saved(&id);
    kill(wire);
    let mut wire = fixture.serve();
    let answer = result_of_only_run(&mut wire);
    let expected = "call 2\nToolInterrupted the server was restarted while the call of t.hang_append was in progress: \
                    it may have been done\n";
    assert_eq!(answer["output"][0], expected, "{answer:#}");
    let statuses: Vec<&Value> = answer["calls"].as_array().unwrap().iter().map(|call| &call["status"]).collect();
    assert!(statuses.contains(&&json!("interrupted")) && statuses.contains(&&json!("ok")), "{answer:#}");
    let mut calls = fixture.calls();
    calls.sort();
    assert_eq!(calls, ["hang_append a", "hang_put b", "hang_put b"]);
}

#[test]
fn call_that_is_sent_after_the_cell_was_saved_is_not_sent_twice() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let code = "import tools\nfrom tools import t\n\
                try:\n    await t.hang_append(text='a')\nexcept tools.ToolInterrupted:\n    print('interrupted')";
    send_cell(&mut wire, &id, code);
    // The cell is saved with the question. The call is sent without another step of the cell.
    let asked = question(&mut wire);
    fixture.wait_until_saved(&id);
    reply(&mut wire, &asked, "yes");
    wait_for(|| fixture.calls().len() == 1);
    kill(wire);
    let mut wire = fixture.serve();
    let answer = result_of_only_run(&mut wire);
    assert_eq!(answer["output"][0], "interrupted\n", "{answer:#}");
    assert_eq!(fixture.calls(), ["hang_append a"]);
}

#[test]
fn timers_of_a_cell_are_due_when_they_would_have_been() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let code = "import asyncio, time\nbegin = time.monotonic(), time.time()\n\
                await asyncio.gather(asyncio.sleep(14), asyncio.sleep(15))\n\
                [round(time.monotonic() - begin[0], 1), round(time.time() - begin[1], 1)]";
    let begin = Instant::now();
    send_cell(&mut wire, &id, code);
    fixture.wait_until_saved(&id);
    kill(wire);
    let mut wire = fixture.serve();
    let answer = result_of_only_run(&mut wire);
    assert!(begin.elapsed() >= Duration::from_secs(15), "{:?}", begin.elapsed());
    let measured: Vec<f64> = serde_json::from_str(answer["result"].as_str().unwrap()).unwrap();
    assert!((measured[0] - measured[1]).abs() < 0.5 && measured[0] >= 15.0, "{measured:?}");
}

#[test]
fn run_sleeps_while_it_waits_and_its_interrupt_reaches_it() {
    let fixture = Fixture::new(&["--sleep-after", "0.1"]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let cell = send_cell(&mut wire, &id, "from tools import t\nx = 5\nawait t.append(text='a'), x");
    let asked = question(&mut wire);
    // The maintenance of runs has put it to sleep.
    std::thread::sleep(Duration::from_secs(2));
    reply(&mut wire, &asked, "yes");
    assert_eq!(fields(&wire.answer(cell)["result"])["result"], "('call 1', 5)");
    let cell = send_cell(&mut wire, &id, "await t.append(text='b')");
    question(&mut wire);
    std::thread::sleep(Duration::from_secs(2));
    let interrupted = fields(&wire.tool("interrupt_session", json!({ "session_id": id })));
    assert_eq!(interrupted["message"], "The running code was interrupted");
    let answer = fields(&wire.answer(cell)["result"]);
    assert!(answer["error"].as_str().unwrap().starts_with("KeyboardInterrupt"), "{answer:#}");
    assert_eq!(run(&mut wire, &id, "x")["result"], "5");
    assert_eq!(fixture.calls(), ["append a"]);
}

#[test]
fn fork_of_a_session_that_waits_waits_too() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let code = "import random\nfrom tools import t\nx = await t.append(text='a')\n(x, random.random())";
    let cell = send_cell(&mut wire, &id, code);
    let asked = question(&mut wire);
    let fork = fields(&wire.tool("fork_session", json!({ "session_id": id })))["session_id"].clone();
    let listed = runs(&mut wire);
    let of_fork = listed.iter().find(|run| run["session_id"] == fork).unwrap();
    // The approval is tried in the fork first.
    let arguments = json!({ "run_id": of_fork["run_id"] });
    let resumed = wire.send("tools/call", json!({ "name": "resume_run", "arguments": arguments }));
    let asked_by_fork = question(&mut wire);
    reply(&mut wire, &asked_by_fork, "yes");
    let in_fork = fields(&wire.answer(resumed)["result"]);
    assert!(in_fork["result"].as_str().unwrap().starts_with("('call 1', 0."), "{in_fork:#}");
    reply(&mut wire, &asked, "no");
    let original = fields(&wire.answer(cell)["result"]);
    assert!(original["error"].as_str().unwrap().starts_with("ToolDenied"), "{original:#}");
    let drawn = |wire: &mut Wire, id: &str| run(wire, id, "random.random()")["result"].clone();
    assert_ne!(drawn(&mut wire, &id), drawn(&mut wire, fork.as_str().unwrap()), "both draw the same numbers");
    assert_eq!(fixture.calls(), ["append a"]);
}

#[test]
fn runs_wait_on_when_the_client_or_the_server_ends_regularly() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    send_cell(&mut wire, &id, "from tools import t\nawait t.append(text='a')");
    question(&mut wire);
    fixture.wait_until_saved(&id);
    wire.end_input();
    while wire.next().is_some() {}
    assert!(wire.child.wait().unwrap().success());
    let mut wire = fixture.serve();
    let listed = runs(&mut wire);
    assert_eq!(listed[0]["status"], "waiting", "{listed:?}");
    // A client that cannot be asked learns how to go on.
    drop(wire);
    let mut wire = Wire::start(fixture.options());
    let paused = fields(&wire.tool("resume_run", json!({ "run_id": listed[0]["run_id"] })));
    assert_eq!(paused["status"], "paused", "{paused:#}");
    assert!(paused["hint"].as_str().unwrap().contains("belljar runs show"), "{paused:#}");
    assert!(paused["pending"][0]["message"].as_str().unwrap().contains("append"), "{paused:#}");
    let missing = wire.tool("resume_run", json!({ "run_id": "AAAAAAAAAAAAAAAA" }));
    assert_eq!(missing["isError"], true, "{missing:#}");
    assert_eq!(fixture.calls(), [""; 0]);
}

#[test]
fn changed_byte_of_a_saved_run_is_refused() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, "x = 1");
    send_cell(&mut wire, &id, "from tools import t\nx = 2\nawait t.append(text='a')");
    question(&mut wire);
    let run_id = fixture.waiting_run()["run"].as_str().unwrap().to_owned();
    kill(wire);
    let path = fixture.data().join(&id).join("waiting");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 40;
    bytes[last] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(fixture.belljar(&["approve", &run_id]).status == Some(0));
    let mut wire = fixture.serve();
    let answer = result_of_only_run(&mut wire);
    assert!(answer["error"].as_str().unwrap().contains("it does not match its checksum"), "{answer:#}");
    // The session continues from before the cell.
    assert_eq!(run(&mut wire, &id, "x")["result"], "1");
    assert_eq!(fixture.calls(), [""; 0]);
}

#[test]
fn run_whose_server_ended_while_its_code_ran_is_listed_as_lost() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    wire.follow_output();
    let id = open(&mut wire);
    run(&mut wire, &id, "x = 1");
    send_cell(&mut wire, &id, "from tools import t\nawait t.append(text='a')\nx = 2\nprint('on')\nwhile True: pass");
    let asked = question(&mut wire);
    reply(&mut wire, &asked, "yes");
    wire.wait_for_output("on");
    kill(wire);
    let mut wire = fixture.serve();
    let answer = result_of_only_run(&mut wire);
    assert!(answer["error"].as_str().unwrap().contains("the server ended while the code ran"), "{answer:#}");
    assert_eq!(run(&mut wire, &id, "x")["result"], "1");
    assert_eq!(fixture.calls(), ["append a"]);
}

#[test]
fn run_is_resumed_by_the_state_of_the_modern_era_once() {
    let fixture = Fixture::new(&[]);
    let arguments = json!({ "code": "from tools import t\nawait t.append(text='a')" });
    let call = |more: Value| {
        let mut params = json!({ "name": "execute_code", "arguments": arguments });
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": { "name": "tests", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let mut wire = Wire::silent(fixture.options());
    let asked = wire.ask("tools/call", call(json!({})))["result"].take();
    assert_eq!(asked["resultType"], "input_required", "{asked:#}");
    kill(wire);
    let mut wire = Wire::silent(fixture.options());
    let responses = json!({ "input": { "action": "accept", "content": { "value": "yes" } } });
    let answered = call(json!({ "requestState": asked["requestState"], "inputResponses": responses }));
    let done = wire.ask("tools/call", answered.clone())["result"].take();
    assert_eq!(fields(&done)["result"], "'call 1'", "{done:#}");
    let again = wire.ask("tools/call", answered)["result"].take();
    assert!(text(&again).contains("no cell waits for this answer"), "{again:#}");
    assert_eq!(fixture.calls(), ["append a"]);
}

#[test]
fn tools_of_runs_are_offered_with_a_data_directory_only() {
    let data = tempfile::tempdir().unwrap();
    let names = |options: &[&str]| {
        let mut wire = Wire::start(["--toolset", "interpreter"].iter().chain(options).copied());
        let tools = wire.ask("tools/list", json!({}))["result"]["tools"].take();
        tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let durable = names(&["--data-dir", data.path().to_str().unwrap()]);
    assert!(durable.contains(&"list_runs".to_owned()) && durable.contains(&"resume_run".to_owned()));
    assert!(!names(&[]).iter().any(|name| name == "list_runs"));
    let missing = Belljar::new().args(["runs", "list", "--data-dir", "/nowhere"]).run();
    assert!(missing.status != Some(0) && missing.stderr.contains("is not a directory"), "{missing:?}");
}

#[test]
fn cancelled_cell_that_does_not_end_loses_no_variables() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, "x = 1\nopen('kept.txt', 'w').write('kept')");
    let code = "import signal\nsignal.signal(2, signal.SIG_IGN)\nx = 2\nprint('begun')\nwhile True: pass";
    wire.follow_output();
    let cell = send_cell(&mut wire, &id, code);
    wire.wait_for_output("begun");
    wire.notify("notifications/cancelled", json!({ "requestId": cell }));
    // The code ignores the interrupt, and is killed after a while. The session goes on from before it.
    assert_eq!(run(&mut wire, &id, "x, open('kept.txt').read()")["result"], "(1, 'kept')");
}
