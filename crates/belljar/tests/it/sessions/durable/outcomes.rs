//! The outcomes of runs, and their calls of tools, in the list of runs and on the command line.

use serde_json::{Value, json};

use super::{Fixture, fields, kill, open, question, reply, runs, send_cell, wait_for, wait_until_waiting};
use crate::wire::Wire;

/// Returns the only run of the list.
fn only(wire: &mut Wire) -> Value {
    let listed = runs(wire);
    let [run] = &listed[..] else { panic!("not one run: {listed:?}") };
    run.clone()
}

/// Runs code that makes two calls, the second of which is approved on the command line, and that has this last line.
fn check(last_line: &str, outcome: &str) {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let code = format!("from tools import t\nawait t.append(text='a')\nawait t.append(text='b')\n{last_line}");
    send_cell(&mut wire, &id, &code);
    let asked = question(&mut wire);
    reply(&mut wire, &asked, "yes");
    question(&mut wire);
    wait_until_waiting(&mut wire);
    let run = only(&mut wire);
    assert_eq!((&run["outcome"], &run["call_count"]), (&json!("paused"), &json!(2)), "{run:#}");
    let run_id = run["run_id"].as_str().unwrap().to_owned();
    let waiting = fixture.waiting_run();
    assert_eq!((&waiting["outcome"], &waiting["call_count"]), (&json!("paused"), &json!(2)), "{waiting:#}");
    let shown = fixture.belljar(&["show", &run_id]).stdout;
    assert!(shown.contains("calls of tools so far: 2\n") && shown.contains("  t.append("), "{shown}");
    assert!(shown.contains("): ok\n") && shown.contains("): running\n"), "{shown}");
    kill(wire);

    // A client that cannot be asked sees what the run has done so far, also before its interpreter was restored.
    let mut wire = Wire::start(fixture.options());
    let paused = fields(&wire.tool("resume_run", json!({ "run_id": run_id })));
    assert_eq!((&paused["status"], &paused["outcome"]), (&json!("paused"), &json!("paused")), "{paused:#}");
    assert_eq!((&paused["call_count"], &paused["calls"][0]["status"]), (&json!(2), &json!("ok")), "{paused:#}");
    assert_eq!(fixture.belljar(&["approve", &run_id]).status, Some(0));
    wait_for(|| only(&mut wire)["status"] == "completed");
    let ended = only(&mut wire);
    assert_eq!((&ended["outcome"], &ended["call_count"]), (&json!(outcome), &json!(2)), "{ended:#}");
    let shown = fixture.belljar(&["show", &run_id]).stdout;
    let end = if outcome == "error" { "ago with an error" } else { "ago without an error" };
    assert!(shown.contains(end) && shown.contains("calls of tools: 2\n") && shown.contains(last_line), "{shown}");
    kill(wire);

    // The list has the outcome of a stored result, too.
    let mut wire = fixture.serve();
    assert_eq!(only(&mut wire), ended);
    assert_eq!(fixture.calls(), ["append a", "append b"]);
}

#[test]
fn run_that_ends_without_an_error_is_completed() {
    check("'done'", "completed");
}

#[test]
fn run_that_ends_with_an_error_has_it_as_its_outcome() {
    check("1 / 0", "error");
}

#[test]
fn run_that_is_lost_has_an_error_as_its_outcome() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    wire.follow_output();
    let id = open(&mut wire);
    send_cell(&mut wire, &id, "from tools import t\nawait t.append(text='a')\nprint('on')\nwhile True: pass");
    let asked = question(&mut wire);
    reply(&mut wire, &asked, "yes");
    wire.wait_for_output("on");
    // Code that runs has no outcome yet.
    let run = only(&mut wire);
    assert_eq!((&run["status"], run.get("outcome"), &run["call_count"]), (&json!("running"), None, &json!(1)));
    kill(wire);
    let mut wire = fixture.serve();
    let run = only(&mut wire);
    assert_eq!((&run["status"], &run["outcome"]), (&json!("completed"), &json!("error")), "{run:#}");
    assert_eq!(run["call_count"], 1, "{run:#}");
}
