//! Code that waits without a thread: cells and calls of `run_python_code` that await timers.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Session, fields, joined, open, run, serve};
use crate::tool_client::tool_server;
use crate::wire::{Wire, text};

/// The number of programs that the differential test draws.
const PROGRAMS: usize = 300;
/// The number of programs that run at the same time.
const AT_ONCE: usize = 30;

fn serve_all<'a>(options: impl IntoIterator<Item = &'a str>) -> Wire {
    Wire::start(["--toolset", "all"].into_iter().chain(options))
}

fn send_cell(wire: &mut Wire, code: &str, session: Option<&str>) -> u64 {
    let mut arguments = json!({ "code": code });
    if let Some(session) = session {
        arguments["session_id"] = session.into();
    }
    wire.send("tools/call", json!({ "name": "execute_code", "arguments": arguments }))
}

fn send_run(wire: &mut Wire, code: &str) -> u64 {
    wire.send("tools/call", json!({ "name": "run_python_code", "arguments": { "python_code": code } }))
}

/// Two threads would take five hundred seconds for these waits.
#[test]
fn waiting_code_holds_no_thread() {
    let mut wire = serve_all(["--max-concurrency", "2"]);
    let code = "import asyncio\nawait asyncio.sleep(10)\n'waited'";
    // Images are loaded.
    let first = [send_cell(&mut wire, "1", None), send_run(&mut wire, "1")];
    for id in first {
        wire.answer(id);
    }
    let start = Instant::now();
    let cells: Vec<u64> = (0..50).map(|_| send_cell(&mut wire, code, None)).collect();
    let runs: Vec<u64> = (0..50).map(|_| send_run(&mut wire, code)).collect();
    for id in cells {
        let answer = fields(&wire.answer(id)["result"]);
        assert_eq!(answer["result"], "'waited'", "{answer:#}");
    }
    for id in runs {
        let answer = text(&wire.answer(id)["result"]);
        assert!(answer.contains("waited"), "{answer}");
    }
    let elapsed = start.elapsed();
    assert!(elapsed < Duration::from_secs(300), "{elapsed:?}");
}

#[test]
fn next_cell_waits_for_the_cell_before() {
    let mut wire = serve([]);
    let id = open(&mut wire);
    let slow =
        send_cell(&mut wire, "import asyncio\nlog = []\nawait asyncio.sleep(0.5)\nlog.append('slow')", Some(&id));
    let next = send_cell(&mut wire, "log.append('next'); log", Some(&id));
    assert_eq!(fields(&wire.answer(next)["result"])["result"], "['slow', 'next']");
    assert_eq!(fields(&wire.answer(slow)["result"])["success"], true);
}

#[test]
fn waiting_cell_is_interrupted_where_it_waits() {
    let mut session = Session::start([]);
    let code = "import asyncio\nkept = 7\nasync def wait():\n    try:\n        await asyncio.sleep(600)\n    finally:\n\
                \x20       await asyncio.sleep(0.01)\n        print('cleaned up')\n\
                asyncio.get_running_loop().call_later(0.3, print, 'waits')\nawait wait()";
    session.wire.follow_output();
    let cell = send_cell(&mut session.wire, code, Some(&session.id));
    session.wire.wait_for_output("waits");
    let answer = session.tool("interrupt_session", json!({}));
    assert_eq!(answer["message"], "The running code was interrupted", "{answer:#}");
    let answer = fields(&session.wire.answer(cell)["result"]);
    assert!(answer["error"].as_str().unwrap().starts_with("KeyboardInterrupt"), "{answer:#}");
    let traceback = answer["traceback"].to_string();
    assert!(traceback.contains("in wait()"), "{answer:#}");
    assert!(!traceback.contains("_belljar"), "{answer:#}");
    assert!(answer["output"].to_string().contains("cleaned up"), "{answer:#}");
    assert_eq!(session.value("kept"), "7");
}

/// The stream raises what an interrupt raises that arrives while the output of a cell is flushed which waits.
#[test]
fn interrupt_during_the_flush_of_a_waiting_cell_is_raised_where_it_waits() {
    let mut session = Session::start([]);
    session.run(
        "import asyncio, sys\nclass Interrupted:\n    count = 0\n    def write(self, text):\n        return len(text)\n\
         \x20   def flush(self):\n        try:\n            asyncio.get_running_loop()\n        except RuntimeError:\n\
         \x20           self.count += 1\n            if self.count == 1:\n                raise KeyboardInterrupt",
    );
    let code = "usual, stream = sys.stdout, Interrupted()\nsys.stdout = stream\ntry:\n    await asyncio.sleep(600)\n\
                finally:\n    sys.stdout = usual\n    print('cleaned up')";
    let cell = send_cell(&mut session.wire, code, Some(&session.id));
    let answer = fields(&session.wire.answer(cell)["result"]);
    assert!(answer["error"].as_str().unwrap().starts_with("KeyboardInterrupt"), "{answer:#}");
    assert!(answer["output"].to_string().contains("cleaned up"), "{answer:#}");
    assert_eq!(session.value("stream.count"), "1");
}

#[test]
fn timeout_of_the_caller_ends_a_wait() {
    let mut session = Session::start([]);
    session.run("import asyncio\nx = 1");
    let arguments = json!({ "code": "await asyncio.sleep(600)", "session_id": session.id, "timeout": 0.3 });
    let answer = fields(&session.wire.tool("execute_code", arguments));
    assert_eq!(answer["error"], "TimeoutError: the cell ran longer than 0.3 s and was interrupted", "{answer:#}");
    assert_eq!(session.value("x"), "1");
    let mut wire = serve_all([]);
    let code = "import asyncio\nawait asyncio.sleep(600)";
    let answer = text(&wire.tool("run_python_code", json!({ "python_code": code, "timeout": 0.3 })));
    assert!(answer.contains("Limit reached: time. The code ran longer than 0.3 s"), "{answer}");
}

#[test]
fn waiting_has_a_limit_of_its_own() {
    let mut wire = serve_all(["--max-wait", "0.5", "--timeout", "100"]);
    let answer =
        text(&wire.tool("run_python_code", json!({ "python_code": "import asyncio\nawait asyncio.sleep(600)" })));
    assert!(answer.contains("Limit reached: wait. The code waited for longer than 0.5 s"), "{answer}");
    let stubborn = "import asyncio\nwhile True:\n    try:\n        await asyncio.sleep(600)\n    except BaseException:\n        pass";
    let answer = fields(&wire.tool("execute_code", json!({ "code": stubborn })));
    let error = answer["error"].as_str().unwrap();
    // The code ends where it is interrupted again, or its interpreter is ended.
    assert!(["TimeoutError", "TimeLimit", "WaitLimit"].iter().any(|name| error.starts_with(name)), "{answer:#}");
    let answer = fields(&wire.tool("execute_code", json!({ "code": "import asyncio\nawait asyncio.sleep(600)" })));
    assert_eq!(answer["error"], "TimeoutError: the cell waited longer than 0.5 s and was interrupted", "{answer:#}");
    // Waiting does not count as running.
    let mut wire = serve_all(["--timeout", "6"]);
    let answer =
        text(&wire.tool("run_python_code", json!({ "python_code": "import asyncio\nawait asyncio.sleep(8)\n42" })));
    assert!(answer.contains("42"), "{answer}");
}

#[test]
fn limit_of_running_time_counts_all_steps() {
    let mut wire = serve_all(["--timeout", "1"]);
    let code = "import asyncio, time\nfor _ in range(600):\n    await asyncio.sleep(0.001)\n    end = time.monotonic() + 0.1\n\
                \x20   while time.monotonic() < end: pass";
    let answer = text(&wire.tool("run_python_code", json!({ "python_code": code })));
    assert!(answer.contains("Limit reached: time."), "{answer}");
    let answer = fields(&wire.tool("execute_code", json!({ "code": code })));
    assert!(answer["error"].as_str().unwrap().starts_with("TimeoutError: the cell ran longer than 1 s"), "{answer:#}");
}

#[test]
fn cancelled_call_ends_its_wait() {
    let mut wire = serve_all(["--max-concurrency", "1"]);
    let id = open(&mut wire);
    let code = "import asyncio\ntry:\n    await asyncio.sleep(600)\nfinally:\n    ended = True";
    for request in [send_cell(&mut wire, code, Some(&id)), send_run(&mut wire, code)] {
        // A call that is answered later than this one has begun before it, since there is one thread.
        wire.tool("run_python_code", json!({ "python_code": "1" }));
        wire.notify("notifications/cancelled", json!({ "requestId": request }));
    }
    let answer = run(&mut wire, &id, "ended");
    assert_eq!(answer["result"], "True", "{answer:#}");
}

#[test]
fn state_of_a_cell_survives_its_waits() {
    let mut session = Session::start([]);
    let output = session.output(
        "import asyncio, contextlib, io, contextvars\n\
         value = contextvars.ContextVar('value')\nvalue.set('kept')\nbuffer = io.StringIO()\n\
         with contextlib.redirect_stdout(buffer):\n    print('first')\n    await asyncio.sleep(0.05)\n    print('second')\n\
         print(repr(buffer.getvalue()), value.get())",
    );
    assert_eq!(output, "'first\\nsecond\\n' kept\n");
    // Tasks of earlier cells go on while a later one waits.
    session.run("log = []\nasync def tick():\n    while True:\n        await asyncio.sleep(0.02)\n        log.append(1)\ntask = asyncio.create_task(tick())\nawait asyncio.sleep(0)");
    assert_eq!(
        session.value("for _ in range(600):\n    await asyncio.sleep(0.1)\n    if len(log) > 2: break\nlen(log) > 2"),
        "True"
    );
    assert_eq!(session.value("task.cancel()"), "True");
    // Code on top of the stack waits with its thread.
    assert_eq!(session.value("import time\nasync def block():\n    time.sleep(0.05)\n    await asyncio.sleep(0.05)\n    return 5\nawait block()"), "5");
    assert_eq!(session.value("asyncio.run(block())"), "5");
    let error = session.error("await asyncio.Event().wait()");
    assert!(error.contains("asyncio is waiting for something that cannot happen"), "{error}");
    let error = session.error("asyncio.get_running_loop().stop()\nawait asyncio.sleep(600)");
    assert!(error.contains("Event loop stopped before Future completed."), "{error}");
    assert_eq!(session.value("await asyncio.sleep(0.01, 'after')"), "'after'");
}

/// The same program waits in steps, and with its thread in a loop of its own.
#[test]
fn programs_have_the_same_output_with_and_without_a_thread() {
    let program = include_str!("../../sessions/waits.py");
    let mut wire = serve_all([]);
    let last = |wait: &str, seed: usize| format!("{program}\n{wait}(steps(0, {seed}))");
    for first in (0..PROGRAMS).step_by(AT_ONCE) {
        let seeds = first..first + AT_ONCE;
        let sent: Vec<[u64; 3]> = seeds
            .map(|seed| {
                [
                    send_run(&mut wire, &last("asyncio.run", seed)),
                    send_run(&mut wire, &last("await ", seed)),
                    send_cell(
                        &mut wire,
                        &format!("{}\nimport json; print(json.dumps(_value))", last("_value = await ", seed)),
                        None,
                    ),
                ]
            })
            .collect();
        for (seed, [blocking, stepped, cell]) in sent.into_iter().enumerate() {
            let seed = first + seed;
            let blocking = wire.answer(blocking)["result"]["structuredContent"].clone();
            let stepped = wire.answer(stepped)["result"]["structuredContent"].clone();
            assert_eq!(blocking["status"], "success", "seed {seed}: {blocking:#}");
            assert_eq!(blocking["return_value"], stepped["return_value"], "seed {seed}");
            let cell = fields(&wire.answer(cell)["result"]);
            let value: Value =
                serde_json::from_str(&joined(&cell["output"])).unwrap_or_else(|_| panic!("seed {seed}: {cell:#}"));
            assert_eq!(value, blocking["return_value"], "seed {seed}");
            let id = cell["session_info"]["session_id"].clone();
            wire.tool("clear_session", json!({ "session_id": id }));
        }
    }
}

/// The tool responds once all calls have arrived, which would never happen if each of them held one of two threads.
#[test]
fn code_that_waits_for_tools_holds_no_thread() {
    let mut wire = serve_all(["--max-concurrency", "2", "--approve", "none", &tool_server("t", "plain")]);
    let code = "from tools import t\nawait t.meet(count=60)";
    let cells: Vec<u64> = (0..30).map(|_| send_cell(&mut wire, code, None)).collect();
    let runs: Vec<u64> = (0..30).map(|_| send_run(&mut wire, code)).collect();
    for id in cells {
        let answer = &wire.answer(id)["result"]["structuredContent"];
        assert_eq!(answer["success"], true, "{answer:#}");
        assert_eq!(answer["calls"][0]["status"], "ok", "{answer:#}");
    }
    for id in runs {
        let answer = &wire.answer(id)["result"]["structuredContent"];
        assert_eq!(answer["status"], "success", "{answer:#}");
        assert_eq!(answer["calls"][0]["status"], "ok", "{answer:#}");
    }
}
