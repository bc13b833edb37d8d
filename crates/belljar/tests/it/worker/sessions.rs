//! Sessions in worker processes.

use serde_json::{Value, json};

use super::{busy_worker, wait_for, workers};
use crate::sessions::durable::{
    self, Fixture, fields, kill, open, question, reply, run, runs, send_cell, wait_until_waiting,
};
use crate::tool_client::tool_server;
use crate::wheels::Wheels;
use crate::wire::Wire;

/// Cells of one session, each with another kind of result, or with the traces of those before.
const CELLS: [&str; 18] = [
    "x = [1]\n6 * 7",
    "x.append(_)\nx",
    "print('out')\nimport sys\nprint('error', file=sys.stderr)",
    "1 / 0",
    "def f(): return f()\nf()",
    "open('made.txt', 'w').write('one' * 1000)\nimport os\nos.mkdir('d')\nopen('d/two.txt', 'w').write('2')",
    "open('made.txt').read()[:3], sorted(os.listdir())",
    "from IPython.display import HTML, display\ndisplay(HTML('<b>1</b>'))\nHTML('<i>2</i>')",
    "import asyncio\nawait asyncio.sleep(0.01)\n'awaited'",
    "input('name?')",
    "%who_ls",
    "len([0] * 20_000_000)",
    "import random\nrandom.seed(3)\nrandom.random()",
    "random.random()",
    "print('x' * 300_000)",
    "import sys\nsys.exit(3)",
    "os._exit(4)",
    "'x' in globals(), sorted(os.listdir())",
];

/// Starts a server of sessions.
fn start(isolation: &str, options: &[&str]) -> Wire {
    let own = ["--toolset", "interpreter", "--isolation", isolation];
    Wire::start(own.into_iter().chain(options.iter().copied()))
}

/// Returns an answer without what differs between two sessions.
fn comparable(mut answer: Value, id: &str) -> String {
    answer["session_info"] = Value::Null;
    answer.to_string().replace(id, "ID")
}

fn path(directory: &tempfile::TempDir) -> &str {
    directory.path().to_str().unwrap()
}

fn restart(wire: &mut Wire, id: &str) {
    wire.tool("restart_session", json!({ "session_id": id }));
}

#[test]
fn cells_have_the_same_results_with_and_without_processes() {
    let (mut process, mut thread) = (start("process", &[]), start("thread", &[]));
    let (of_process, of_thread) = (open(&mut process), open(&mut thread));
    for code in CELLS {
        let there = comparable(run(&mut process, &of_process, code), &of_process);
        let here = comparable(run(&mut thread, &of_thread, code), &of_thread);
        assert_eq!(there, here, "{code}");
    }
}

#[test]
fn each_session_has_a_worker_of_its_own() {
    let mut wire = start("process", &[]);
    let server = wire.child.id();
    let ids = [open(&mut wire), open(&mut wire)];
    for (at, id) in ids.iter().enumerate() {
        run(&mut wire, id, &format!("x = {at}"));
    }
    let cells = ids.each_ref().map(|id| send_cell(&mut wire, id, "while True: pass"));
    let busy = wait_for("two workers run code", || {
        let busy: Vec<_> = workers(server).into_iter().filter(|worker| worker.processor_time() > 50).collect();
        (busy.len() == 2).then_some(busy)
    });
    for id in &ids {
        wire.tool("interrupt_session", json!({ "session_id": id }));
    }
    for cell in cells {
        let answer = fields(&wire.answer(cell)["result"]);
        assert!(answer["error"].as_str().unwrap().starts_with("KeyboardInterrupt"), "{answer:#}");
    }
    for (at, id) in ids.iter().enumerate() {
        assert_eq!(run(&mut wire, id, "x")["result"], at.to_string());
    }
    assert!(busy.iter().all(|worker| worker.lives()));
    wire.tool("clear_session", json!({ "session_id": ids[0] }));
    wait_for("the worker of the cleared session ends", || {
        (busy.iter().filter(|worker| worker.lives()).count() == 1).then_some(())
    });
}

#[test]
fn files_stay_when_code_ends_its_interpreter() {
    let mut wire = start("process", &["--timeout", "3"]);
    let id = open(&mut wire);
    for (at, end) in ["import os\nos._exit(4)", "while True:\n    try:\n        while True: pass\n    except: pass"]
        .into_iter()
        .enumerate()
    {
        let file = format!("kept-{at}.txt");
        run(&mut wire, &id, &format!("x = 1\nopen('{file}', 'w').write('kept')"));
        let answer = run(&mut wire, &id, end);
        assert!(answer["error"].as_str().unwrap().contains("its files are kept"), "{answer:#}");
        let found = run(&mut wire, &id, &format!("'x' in globals(), open('{file}').read()"));
        assert_eq!(found["result"], "(False, 'kept')", "{found:#}");
    }
    restart(&mut wire, &id);
    assert_eq!(run(&mut wire, &id, "open('kept-0.txt').read()")["result"], "'kept'");
}

#[test]
fn session_of_a_killed_worker_goes_on_from_its_last_state() {
    let data = tempfile::tempdir().unwrap();
    let mut wire = start("process", &["--data-dir", path(&data)]);
    let (id, other) = (open(&mut wire), open(&mut wire));
    run(&mut wire, &other, "y = 2");
    run(&mut wire, &id, "x = 1\nopen('f.txt', 'w').write('before')");
    let cell = send_cell(&mut wire, &id, "x = 2\nopen('f.txt', 'w').write('after')\nwhile True: pass");
    busy_worker(wire.child.id()).signal("-KILL");
    let answer = fields(&wire.answer(cell)["result"]);
    let error = answer["error"].as_str().unwrap();
    assert!(error.contains("its worker failed") && error.contains("its state before this call"), "{answer:#}");
    assert_eq!(run(&mut wire, &id, "x, open('f.txt').read()")["result"], "(1, 'before')");
    assert_eq!(run(&mut wire, &other, "y")["result"], "2");
}

#[test]
fn session_without_a_state_begins_again_when_its_worker_is_killed() {
    let mut wire = start("process", &[]);
    let id = open(&mut wire);
    run(&mut wire, &id, "x = 1");
    let cell = send_cell(&mut wire, &id, "while True: pass");
    busy_worker(wire.child.id()).signal("-KILL");
    let answer = fields(&wire.answer(cell)["result"]);
    assert!(answer["error"].as_str().unwrap().contains("variables and files are lost"), "{answer:#}");
    assert_eq!(run(&mut wire, &id, "'x' in globals()")["result"], "False");
}

#[test]
fn session_continues_in_the_next_server() {
    let data = tempfile::tempdir().unwrap();
    let mut wire = start("process", &["--data-dir", path(&data)]);
    let id = open(&mut wire);
    run(&mut wire, &id, "x = {'a': [1]}\nopen('f.txt', 'w').write('kept')");
    kill(wire);
    let mut wire = start("process", &["--data-dir", path(&data)]);
    assert_eq!(run(&mut wire, &id, "x, open('f.txt').read()")["result"], "({'a': [1]}, 'kept')");
    kill(wire);
    // A worker has chosen the bytes of the state: it is not restored in the server's process.
    let mut wire = start("thread", &["--data-dir", path(&data)]);
    let refused = run(&mut wire, &id, "x");
    assert!(refused["error"].as_str().unwrap().contains("saved by a worker process"), "{refused:#}");
}

#[test]
fn session_that_threads_have_saved_goes_on_in_a_worker() {
    let data = tempfile::tempdir().unwrap();
    let mut wire = start("thread", &["--data-dir", path(&data)]);
    let id = open(&mut wire);
    run(&mut wire, &id, "x = 5");
    kill(wire);
    let mut wire = start("process", &["--data-dir", path(&data)]);
    assert_eq!(run(&mut wire, &id, "x + 1")["result"], "6");
}

#[test]
fn forks_have_other_random_numbers_and_the_same_variables() {
    let mut wire = start("process", &[]);
    let id = open(&mut wire);
    run(&mut wire, &id, "import random\nx = [1]\nopen('f.txt', 'w').write('f')");
    let fork = fields(&wire.tool("fork_session", json!({ "session_id": id })))["session_id"].clone();
    let fork = fork.as_str().unwrap();
    run(&mut wire, fork, "x.append(2)");
    assert_eq!(run(&mut wire, fork, "x, open('f.txt').read()")["result"], "([1, 2], 'f')");
    assert_eq!(run(&mut wire, &id, "x")["result"], "[1]");
    let drawn = |wire: &mut Wire, id: &str| run(wire, id, "random.random()")["result"].clone();
    assert_ne!(drawn(&mut wire, &id), drawn(&mut wire, fork));
}

#[test]
fn cell_that_waits_for_an_answer_goes_on_in_the_next_server() {
    let fixture = Fixture::new(&["--isolation", "process"]);
    let mut wire = fixture.serve();
    let id = open(&mut wire);
    send_cell(&mut wire, &id, "from tools import t\nx = 5\nprint('asked')\nawait t.append(text='a'), x");
    question(&mut wire);
    wait_until_waiting(&mut wire);
    durable::wait_for(|| fixture.data().join(&id).join("waiting").exists());
    kill(wire);
    let mut wire = fixture.serve();
    let listed = runs(&mut wire);
    let [waiting] = &listed[..] else { panic!("not one run: {listed:#?}") };
    let arguments = json!({ "run_id": waiting["run_id"] });
    let resumed = wire.send("tools/call", json!({ "name": "resume_run", "arguments": arguments }));
    let asked = question(&mut wire);
    reply(&mut wire, &asked, "yes");
    assert_eq!(fields(&wire.answer(resumed)["result"])["result"], "('call 1', 5)");
    assert_eq!(fixture.calls(), ["append a"]);
}

#[test]
fn tools_and_timers_are_awaited_without_a_thread() {
    let server = tool_server("t", "plain");
    let options = ["--approve", "none", "--max-concurrency", "1", &server];
    let mut wire = start("process", &options);
    let ids = [open(&mut wire), open(&mut wire), open(&mut wire)];
    let code = "from tools import t\nimport asyncio\nawait asyncio.sleep(1)\nawait t.add(a=40, b=2)";
    let cells = ids.each_ref().map(|id| send_cell(&mut wire, id, code));
    for cell in cells {
        assert_eq!(fields(&wire.answer(cell)["result"])["result"], "42");
    }
}

#[test]
fn cell_is_run_in_a_worker_with_the_packages_that_it_imports() {
    let wheels = Wheels::with_dependency();
    let mut wire = start("process", &["--find-links", wheels.path()]);
    let id = open(&mut wire);
    run(&mut wire, &id, "x = 1\nopen('f.txt', 'w').write('kept')");
    let answer = run(&mut wire, &id, "import gamma\ngamma.beta.name, x, open('f.txt').read()");
    assert_eq!(answer["result"], "('beta', 1, 'kept')", "{answer:#}");
    // The packages are there after a restart, too.
    restart(&mut wire, &id);
    assert_eq!(run(&mut wire, &id, "import gamma\ngamma.beta.name")["result"], "'beta'");
}
