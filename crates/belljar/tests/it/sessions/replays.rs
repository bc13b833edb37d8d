//! Cells that hold their thread while they wait, and survive their server: they are replayed.

use serde_json::{Value, json};

use super::durable::{Fixture, fields, kill, open, question, reply, result_of_only_run, run, runs, send_cell, wait_for};
use crate::wire::Wire;

/// Attends the only run, and returns its question and the number of the call.
fn attend(wire: &mut Wire) -> (Value, u64) {
    let listed = runs(wire);
    let [only] = &listed[..] else { panic!("not one run: {listed:?}") };
    let arguments = json!({ "run_id": only["run_id"] });
    let call = wire.send("tools/call", json!({ "name": "resume_run", "arguments": arguments }));
    (question(wire), call)
}

/// Answers the question, and returns the result of the call.
fn answer(wire: &mut Wire, asked: &Value, line: &str, call: u64) -> Value {
    reply(wire, asked, line);
    fields(&wire.answer(call)["result"])
}

/// Code that uses everything that differs in each process, and asks for a name and an age.
const PROGRAM: &str = "\
import os, random, tempfile, time, uuid
print('before')
file = open('notes.txt', 'w')
file.write('first')
file.flush()
drawn = (random.random(), uuid.uuid4().hex, os.urandom(4), time.time(), time.monotonic(), list({'a', 'b', 'c', 'dd'}))
times = os.stat('notes.txt').st_mtime_ns
names = [tempfile.mkdtemp()]
name = input('Name?')
print('between', name)
time.sleep(0.05)
same = times == os.stat('notes.txt').st_mtime_ns and os.path.isdir(names[0])
more = (random.random(), uuid.uuid4().hex)
age = input('Age?')
file.write(' second')
file.close()
print('after', age)
(name, age, open('notes.txt').read(), same, time.monotonic() > drawn[4], time.time() > drawn[3], len(drawn[5]))";

#[test]
fn input_is_answered_in_the_next_server() {
    let fixture = Fixture::new(&[]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, "kept = 'kept'");
    send_cell(&mut wire, &id, PROGRAM);
    let asked = question(&mut wire);
    assert_eq!(asked["params"]["message"], "Name?");
    kill(wire);

    let mut wire = fixture.serve();
    let listed = runs(&mut wire);
    assert_eq!(listed[0]["status"], "waiting", "{listed:?}");
    let (asked, call) = attend(&mut wire);
    assert_eq!(asked["params"]["message"], "Name?");
    reply(&mut wire, &asked, "Ada");
    let asked = question(&mut wire);
    assert_eq!(asked["params"]["message"], "Age?");
    let result = answer(&mut wire, &asked, "36", call);
    assert_eq!(result["result"], "('Ada', '36', 'first second', True, True, True, 4)", "{result:#}");
    assert_eq!(result["output"], json!(["before\nbetween Ada\nafter 36\n"]), "{result:#}");
    assert_eq!(run(&mut wire, &id, "kept, name, len(more), _[1]")["result"], "('kept', 'Ada', 2, '36')");
}
