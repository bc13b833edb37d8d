//! Cells that hold their thread while they wait, and survive their server: they are replayed.

mod calls;
mod generator;
mod not_durable;
mod programs;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::durable::{
    Fixture, MODERN, fields, kill, open, question, reply, result_of_only_run, run, runs, send_cell, wait_for,
    wait_until_waiting,
};
use crate::wire::{Wire, text};

/// Attends the only run, and returns its question and the number of the call.
fn attend(wire: &mut Wire) -> (Value, u64) {
    let call = resume(wire);
    (question(wire), call)
}

/// Sends the call that waits for the only run.
fn resume(wire: &mut Wire) -> u64 {
    let listed = runs(wire);
    let [only] = &listed[..] else { panic!("not one run: {listed:?}") };
    wire.send("tools/call", json!({ "name": "resume_run", "arguments": { "run_id": only["run_id"] } }))
}

/// Answers the question, and returns the result of the call.
fn answer(wire: &mut Wire, asked: &Value, line: &str, call: u64) -> Value {
    reply(wire, asked, line);
    fields(&wire.answer(call)["result"])
}

fn message(question: &Value) -> String {
    question["params"]["message"].as_str().unwrap().to_owned()
}

/// Code that uses everything that differs in each process, and asks twice.
const PROGRAM: &str = "\
import os, random, tempfile, time, uuid
print('before')
file = open('notes.txt', 'w')
file.write('first')
file.flush()
drawn = (random.random(), uuid.uuid4().hex, os.urandom(4), time.time(), time.monotonic(), list({'a', 'b', 'c', 'dd'}))
times = os.stat('notes.txt').st_mtime_ns
names = [tempfile.mkdtemp()]
name = input(repr((drawn, times, names)))
print('between', name)
time.sleep(0.05)
same = times == os.stat('notes.txt').st_mtime_ns and os.path.isdir(names[0])
more = (random.random(), uuid.uuid4().hex)
age = input('Age?')
file.write(' second')
file.close()
print('after', age)
shown = repr((drawn, times, names))
(name, age, open('notes.txt').read(), same, time.monotonic() > drawn[4], time.time() > drawn[3])";

in_both_isolations! {
    input_is_answered_in_the_next_server
    wait_survives_several_servers_and_is_a_sessions_first_cell
    input_is_answered_on_the_command_line
    awaited_and_held_waits_follow_each_other
    packages_and_libraries_of_the_cell_are_there_again
    sleep_is_continued_in_the_next_server
    cell_goes_to_sleep_while_it_holds_its_thread_and_interrupts_reach_it
    interrupted_and_cleared_cells_do_not_come_back
    input_is_answered_by_the_state_of_the_modern_era
    cell_waits_on_when_the_server_ends_regularly
    time_of_a_replay_does_not_count
}

fn input_is_answered_in_the_next_server(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, "kept = 'kept'");
    send_cell(&mut wire, &id, PROGRAM);
    let first = message(&question(&mut wire));
    kill(wire);

    let mut wire = fixture.serve();
    wire.follow_output();
    let listed = runs(&mut wire);
    assert_eq!(listed[0]["status"], "waiting", "{listed:?}");
    let (asked, call) = attend(&mut wire);
    assert_eq!(message(&asked), first);
    reply(&mut wire, &asked, "Ada");
    let asked = question(&mut wire);
    assert_eq!(message(&asked), "Age?");
    let result = answer(&mut wire, &asked, "36", call);
    assert_eq!(result["result"], "('Ada', '36', 'first second', True, True, True)", "{result:#}");
    assert_eq!(result["output"][0], "before\nbetween Ada\nafter 36\n", "{result:#}");
    let shown = wire.received.iter().filter(|message| message["method"] == "notifications/message");
    let shown: Vec<&Value> = shown.map(|message| &message["params"]["data"]).collect();
    assert_eq!(shown, ["between Ada", "after 36"], "what was shown before is shown again");
    assert_eq!(run(&mut wire, &id, "kept, name, len(more), _[1]")["result"], "('kept', 'Ada', 2, '36')");
    assert_eq!(run(&mut wire, &id, "print(shown)")["output"][0], format!("{first}\n"));
}

fn wait_survives_several_servers_and_is_a_sessions_first_cell(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation]);
    let mut wire = fixture.serve();
    let code = "import random\ndrawn = random.random()\nfirst = input(str(drawn))\nsecond = input(first)\n\
                (first, second, str(drawn))";
    wire.send("tools/call", json!({ "name": "execute_code", "arguments": { "code": code } }));
    let drawn = message(&question(&mut wire));
    for _ in 0..2 {
        kill(wire);
        wire = fixture.serve();
        let (asked, _) = attend(&mut wire);
        assert_eq!(message(&asked), drawn);
    }
    kill(wire);
    wire = fixture.serve();
    let (asked, _) = attend(&mut wire);
    reply(&mut wire, &asked, "one");
    assert_eq!(message(&question(&mut wire)), "one");
    for _ in 0..2 {
        kill(wire);
        wire = fixture.serve();
        let (asked, _) = attend(&mut wire);
        assert_eq!(message(&asked), "one");
    }
    kill(wire);
    wire = fixture.serve();
    let (asked, call) = attend(&mut wire);
    let result = answer(&mut wire, &asked, "two", call);
    assert_eq!(result["result"], format!("('one', 'two', '{drawn}')"), "{result:#}");
}

fn input_is_answered_on_the_command_line(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    send_cell(&mut wire, &id, "name = input('Name?')\nname.upper()");
    question(&mut wire);
    let waiting = fixture.waiting_run();
    assert_eq!(waiting["questions"][0]["message"], "Name?", "{waiting:#}");
    let run_id = waiting["run"].as_str().unwrap();
    kill(wire);
    let answered = fixture.belljar(&["answer", run_id, "Ada"]);
    assert!(answered.status == Some(0) && answered.stdout.starts_with("answered: Name?"), "{answered:?}");
    let mut wire = fixture.serve();
    wait_for(|| runs(&mut wire)[0]["status"] == "completed");
    assert_eq!(result_of_only_run(&mut wire)["result"], "'ADA'");
}

fn awaited_and_held_waits_follow_each_other(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let code = "import asyncio, random\nfrom tools import t\nlog = [random.random()]\n\
                log.append(input('one'))\nlog.append(await t.append(text=log[-1]))\nawait asyncio.sleep(0.01)\n\
                log.append(input('two'))\nlog.append(random.random())\nlog.append(t.append(text=log[2]).result())\n\
                log.append(await t.append(text='end'))\n[type(each) is float or each for each in log]";
    send_cell(&mut wire, &id, code);
    question(&mut wire);
    let mut call = 0;
    for (at, line) in ["one", "yes", "two", "yes", "yes"].into_iter().enumerate() {
        wait_until_waiting(&mut wire);
        kill(wire);
        wire = fixture.serve();
        let asked;
        (asked, call) = attend(&mut wire);
        reply(&mut wire, &asked, line);
        if at < 4 {
            question(&mut wire);
        }
    }
    let result = fields(&wire.answer(call)["result"]);
    assert_eq!(result["result"], "[True, 'one', 'call 1', 'two', True, 'call 2', 'call 3']", "{result:#}");
    assert_eq!(fixture.calls(), ["append one", "append call 1", "append end"]);
}

fn packages_and_libraries_of_the_cell_are_there_again(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let code = "import humanize, inflection\nfrom pydantic import BaseModel\n\
                class Point(BaseModel):\n    x: int\n\
                line = input(str(Point(x='4')))\n\
                (line, humanize.intcomma(1234567), inflection.pluralize('session'), Point(x='5').x)";
    send_cell(&mut wire, &id, code);
    question(&mut wire);
    kill(wire);
    let mut wire = fixture.serve();
    let (asked, call) = attend(&mut wire);
    let result = answer(&mut wire, &asked, "x", call);
    assert_eq!(result["result"], "('x', '1,234,567', 'sessions', 5)", "{result:#}");
}

fn sleep_is_continued_in_the_next_server(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation]);
    for sleep in ["time.sleep(12)", "asyncio.run(asyncio.sleep(12))", "select.poll().poll(12_000)"] {
        let mut wire = fixture.serve();
        let id = open(&mut wire);
        let code = format!(
            "import asyncio, random, select, time\nx = random.random()\nbegin = time.monotonic(), time.time()\n\
             print('begins')\n{sleep}\nprint('slept')\n\
             [round(time.monotonic() - begin[0], 1), round(time.time() - begin[1], 1)]"
        );
        send_cell(&mut wire, &id, &code);
        wait_for(|| fixture.data().join(&id).join("waiting").exists());
        kill(wire);
        let mut wire = fixture.serve();
        let call = resume(&mut wire);
        let result = fields(&wire.answer(call)["result"]);
        assert_eq!(result["output"][0], "begins\nslept\n", "{sleep}: {result:#}");
        let measured: Vec<f64> = serde_json::from_str(result["result"].as_str().unwrap()).unwrap();
        assert!((measured[0] - measured[1]).abs() < 0.5 && measured[0] >= 12.0, "{sleep}: {measured:?}");
        wire.tool("clear_session", json!({ "session_id": id }));
        let listed = runs(&mut wire);
        assert_eq!(listed[0]["status"], "completed", "{listed:?}");
        std::fs::remove_dir_all(fixture.data().join("runs")).unwrap();
    }
}

fn cell_goes_to_sleep_while_it_holds_its_thread_and_interrupts_reach_it(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation, "--sleep-after", "0.2", "--max-concurrency", "1"]);
    let mut wire = fixture.serve();
    let (id, other) = (open(&mut wire), open(&mut wire));
    let code = "import random\nx = random.random()\nprint('once')\nline = input(str(x))\n(line, str(x))";
    let cell = send_cell(&mut wire, &id, code);
    let asked = question(&mut wire);
    std::thread::sleep(Duration::from_millis(600));
    // Its thread is free.
    assert_eq!(run(&mut wire, &other, "1 + 1")["result"], "2");
    let result = answer(&mut wire, &asked, "a", cell);
    assert_eq!(result["result"], format!("('a', '{}')", message(&asked)), "{result:#}");
    assert_eq!(result["output"], json!(["once\n"]), "{result:#}");
    let cell = send_cell(&mut wire, &id, "y = 5\ntry:\n    input('again')\nfinally:\n    print('ended')");
    question(&mut wire);
    std::thread::sleep(Duration::from_millis(600));
    let interrupted = fields(&wire.tool("interrupt_session", json!({ "session_id": id })));
    assert_eq!(interrupted["message"], "The running code was interrupted");
    let result = fields(&wire.answer(cell)["result"]);
    assert!(result["error"].as_str().unwrap().starts_with("KeyboardInterrupt"), "{result:#}");
    assert_eq!(result["output"][0], "ended\n", "{result:#}");
    assert_eq!(run(&mut wire, &id, "y")["result"], "5");
}

fn interrupted_and_cleared_cells_do_not_come_back(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    run(&mut wire, &id, "x = 1");
    let cell = send_cell(&mut wire, &id, "x = 2\ninput('?')");
    question(&mut wire);
    wire.tool("interrupt_session", json!({ "session_id": id }));
    let result = fields(&wire.answer(cell)["result"]);
    assert!(result["error"].as_str().unwrap().starts_with("KeyboardInterrupt"), "{result:#}");
    assert!(!fixture.data().join(&id).join("waiting").exists());
    send_cell(&mut wire, &id, "x = 3\ninput('?')");
    question(&mut wire);
    kill(wire);
    // A run that waits in the next server is interrupted there, and what its code does then counts.
    let mut wire = fixture.serve();
    wire.tool("interrupt_session", json!({ "session_id": id }));
    let result = result_of_only_run(&mut wire);
    assert!(result["error"].as_str().unwrap().starts_with("KeyboardInterrupt"), "{result:#}");
    assert_eq!(run(&mut wire, &id, "x")["result"], "3");
    send_cell(&mut wire, &id, "input('?')");
    let asked = question(&mut wire);
    // A session is cleared after its cells.
    let cleared = wire.send("tools/call", json!({ "name": "clear_session", "arguments": { "session_id": id } }));
    reply(&mut wire, &asked, "a");
    wire.answer(cleared);
    wait_for(|| !fixture.data().join(&id).exists());
    drop(wire);
    let mut wire = fixture.serve();
    assert!(runs(&mut wire).iter().all(|run| run["status"] == "completed"), "{:?}", runs(&mut wire));
}

fn input_is_answered_by_the_state_of_the_modern_era(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation]);
    let arguments = json!({ "code": "import random\nx = random.random()\n(input('one'), input(str(x)), str(x))" });
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
    let answer = |state: &Value, line: &str| {
        let responses = json!({ "input": { "action": "accept", "content": { "value": line } } });
        call(json!({ "requestState": state, "inputResponses": responses }))
    };
    let mut wire = Wire::silent(fixture.options());
    let asked = wire.ask("tools/call", call(json!({})))["result"].take();
    assert_eq!(asked["resultType"], "input_required", "{asked:#}");
    kill(wire);
    let mut wire = Wire::silent(fixture.options());
    let next = wire.ask("tools/call", answer(&asked["requestState"], "a"))["result"].take();
    assert_eq!(next["resultType"], "input_required", "{next:#}");
    assert_ne!(next["requestState"], asked["requestState"]);
    kill(wire);
    let mut wire = Wire::silent(fixture.options());
    let again = wire.ask("tools/call", answer(&asked["requestState"], "a"))["result"].take();
    assert!(text(&again).contains("no cell waits for this answer"), "{again:#}");
    let done = wire.ask("tools/call", answer(&next["requestState"], "b"))["result"].take();
    let drawn = next["inputRequests"].to_string();
    let drawn = drawn.split("\"message\":\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(fields(&done)["result"], format!("('a', 'b', '{drawn}')"), "{done:#}");
}

fn cell_waits_on_when_the_server_ends_regularly(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    send_cell(&mut wire, &id, "x = input('?')\nx * 2");
    question(&mut wire);
    wire.end_input();
    while wire.next().is_some() {}
    assert!(wire.child.wait().unwrap().success());
    let mut wire = fixture.serve();
    let (asked, call) = attend(&mut wire);
    assert_eq!(answer(&mut wire, &asked, "ab", call)["result"], "'abab'");
}

fn time_of_a_replay_does_not_count(isolation: &str) {
    let fixture = Fixture::new(&["--isolation", isolation, "--session-timeout", "600"]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    let code = "import time\nend = time.process_time() + 3\nn = 0\nwhile n < 60_000_000: n += 1\n\
                line = input('?')\n(line, n)";
    let call = json!({ "code": code, "session_id": id });
    wire.send("tools/call", json!({ "name": "execute_code", "arguments": call }));
    question(&mut wire);
    kill(wire);
    let mut wire = fixture.serve();
    let (asked, call) = attend(&mut wire);
    let begin = Instant::now();
    let result = answer(&mut wire, &asked, "a", call);
    assert_eq!(result["result"], "('a', 60000000)", "{result:#} {:?}", begin.elapsed());
}
