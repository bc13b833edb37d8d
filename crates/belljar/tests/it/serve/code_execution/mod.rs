//! The code-execution protocol over HTTP: its points of conformance, sessions, and results.

mod files;
mod refusals;

use std::io::Read;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::code_execution::{Backend, check_conformance};
use crate::harness::Belljar;
use crate::serve::http::Listening;
use crate::tool_client::tool_server;

fn start() -> Backend {
    Backend::start([])
}

/// Waits until the server has no sessions. Its metrics are no use of a session.
fn wait_for_no_sessions(backend: &Backend) {
    let begin = Instant::now();
    loop {
        let metrics = backend.get("/metrics").text();
        let count = |state| metrics.contains(&format!("belljar_sessions{{state=\"{state}\"}} 0\n"));
        if count("awake") && count("asleep") {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(180), "{metrics}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn conformance_points_hold_on_every_transport() {
    for transport in ["streamable-http", "streamable-http-stateless", "sse"] {
        check_conformance(&Backend::start_transport(transport, []));
    }
}

#[test]
fn sessions_keep_variables_and_files() {
    let backend = start();
    let (one, other) = (backend.create(), backend.create());
    assert_eq!(backend.run(&one, "x = 41\nopen('a.txt', 'w').write('a')")["return_code"], 0);
    assert_eq!(backend.run(&one, "print(x + 1, open('a.txt').read())")["stdout"], "42 a\n");
    let content = backend.run(&other, "import os\nprint(os.path.exists('a.txt'))\nx");
    assert_eq!(content["stdout"], "False\n", "{content}");
    assert!(content["stderr"].as_str().unwrap().contains("NameError"), "{content}");
}

#[test]
fn commands_are_emulated_in_webassembly() {
    let backend = start();
    let session = backend.create();
    assert_eq!(backend.run(&session, "x = 1\nopen('a.txt', 'w').write('a\\n')")["return_code"], 0);
    for (command, status, stdout, stderr) in [
        ("cat a.txt", 0, "a\n", ""),
        ("# a comment\necho \"it's\" ünï && ls", 0, "it's ünï\na.txt\n", ""),
        ("python -c 'x = 2; print(x); raise SystemExit(3)'", 3, "2\n", ""),
        ("cat b.txt", 1, "", "No such file"),
        ("echo before\ncurl http://example.com", 127, "before\n", "`curl` is a program"),
        ("ls | wc -l", 127, "", "no processes; there are cat, cd, echo"),
        ("echo 'a", 2, "", "No closing quotation"),
    ] {
        let content = backend.shell(&session, command);
        assert_eq!((&content["return_code"], &content["stdout"]), (&json!(status), &json!(stdout)), "{content}");
        let error = content["stderr"].as_str().unwrap();
        assert!(if stderr.is_empty() { error.is_empty() } else { error.contains(stderr) }, "{command}: {content}");
    }
    // The session has the files of the commands, and no variables of theirs.
    assert_eq!(backend.shell(&session, "python -c \"open('c.txt', 'w')\"")["content"][0]["file_id"], "c.txt");
    let seen = backend.run(&session, "print(x)\nsorted(set(dir()) & {'run', 'scope', 'shell_commands', '_exit_code'})");
    assert_eq!(seen["stdout"], "1\n[]\n", "{seen}");
    let input = json!({ "command": "python -c 'while True: pass'" });
    let call = json!({ "tool": "bash_code_execution", "input": input, "timeout_seconds": 1 });
    let answer = backend.post(&format!("/sessions/{session}/exec"), &call).with_status(200);
    assert_eq!(answer["result_block"]["content"]["return_code"], 124, "{answer}");
    assert_eq!(backend.run(&session, "print(x)")["stdout"], "1\n");
}

#[test]
fn failures_of_code_are_results() {
    let backend = start();
    let session = backend.create();
    for (code, status, stderr) in [
        ("print('before')\n1 / 0", 1, "ZeroDivisionError: division by zero"),
        ("def (", 1, "SyntaxError"),
        ("input('name? ')", 1, "Error"),
        ("import os\nos._exit(3)", 3, "variables are lost"),
        ("import os\nos.abort()", 137, "variables are lost"),
    ] {
        let content = backend.run(&session, code);
        assert_eq!(content["return_code"], status, "{code}: {content}");
        assert!(content["stderr"].as_str().unwrap().contains(stderr), "{code}: {content}");
    }
    assert_eq!(backend.run(&session, "print('alive')")["stdout"], "alive\n");
}

#[test]
fn calls_end_at_their_limit_of_time() {
    let backend = start();
    let session = backend.create();
    let input = json!({ "code": "x = 1\nprint('begun')\nwhile True: pass" });
    let call = json!({ "tool": "code_execution", "input": input, "timeout_seconds": 5 });
    let answer = backend.post(&format!("/sessions/{session}/exec"), &call).with_status(200);
    let content = &answer["result_block"]["content"];
    assert_eq!((&content["return_code"], &content["stdout"]), (&json!(124), &json!("begun\n")), "{content}");
    assert!(content["stderr"].as_str().unwrap().contains("longer than 5 s"), "{content}");
    assert_eq!(backend.run(&session, "print(x)")["stdout"], "1\n");
    // Longer times than any clock has are no error.
    let call = json!({ "tool": "code_execution", "input": { "code": "1" }, "timeout_seconds": u64::MAX });
    backend.post(&format!("/sessions/{session}/exec"), &call).with_status(200);
}

#[test]
fn results_have_output_values_and_files() {
    let backend = start();
    let session = backend.create();
    let code = "import sys\nprint('out')\nprint('err', file=sys.stderr)\n\
                import os\nos.mkdir('d')\nopen('d/new.csv', 'w').write('1,2')\n[1, 2]";
    let content = backend.run(&session, code);
    assert_eq!((&content["stdout"], &content["stderr"]), (&json!("out\n[1, 2]\n"), &json!("err\n")), "{content}");
    let file = json!({ "type": "code_execution_output", "file_id": "d/new.csv", "filename": "d/new.csv" });
    assert_eq!(content["content"], json!([file]));
    assert_eq!(backend.get(&format!("/sessions/{session}/files?path=d/new.csv")).text(), "1,2");
    // A run without output has a complete result.
    let empty = json!({
        "type": "code_execution_result", "stdout": "", "stderr": "", "return_code": 0, "content": [],
    });
    assert_eq!(backend.run(&session, "y = 2"), empty);
    let answer = backend.exec(&session, "code_execution", &json!({ "code": "y" })).with_status(200);
    let id = answer["tool_use_id"].as_str().unwrap();
    assert!(id.starts_with("srvtoolu_") && answer["result_block"]["tool_use_id"] == id, "{answer}");
}

#[test]
fn idle_sessions_and_old_sessions_end() {
    /// Longer than the pause between the creation of a session and its first call on a busy machine.
    const SECONDS: u64 = 6;
    let backend = start();
    for lifetime in ["idle_timeout_seconds", "max_lifetime_seconds"] {
        let handle = backend.post("/sessions", &json!({ lifetime: SECONDS })).with_status(201);
        assert_eq!(handle[lifetime], SECONDS, "{handle}");
        let session = handle["session_id"].as_str().unwrap();
        // A call may outlast the time without use.
        let begun = backend.run(session, "import time\ntime.sleep(7)\nprint('awake')");
        let is_idle_limit = lifetime == "idle_timeout_seconds";
        assert_eq!(begun["return_code"], if is_idle_limit { 0 } else { 1 }, "{lifetime}: {begun}");
        wait_for_no_sessions(&backend);
        backend.exec(session, "code_execution", &json!({ "code": "1" })).refusal(404);
    }
    // The server's own limit holds for longer times.
    let backend = Backend::start(["--session-timeout", "60"]);
    let handle = backend.post("/sessions", &json!({ "idle_timeout_seconds": 3600 })).with_status(201);
    assert_eq!((&handle["idle_timeout_seconds"], &handle["max_lifetime_seconds"]), (&json!(60), &Value::Null));
    let handle = backend.send("POST", "/sessions", &[], b"").with_status(201);
    assert_eq!(handle["idle_timeout_seconds"], 60);
}

#[test]
fn ended_session_stops_its_code() {
    let backend = Backend::start(["--timeout", "600"]);
    let session = backend.create();
    let code = json!({ "tool": "code_execution", "input": { "code": "open('begun', 'w')\nwhile True: pass" } });
    let path = format!("/sessions/{session}/exec");
    let mut running = backend.open("POST", &path, &[], code.to_string().as_bytes());
    // The metrics count the call, once it runs.
    let begin = Instant::now();
    while !backend.get("/metrics").text().contains("belljar_calls_in_flight 1\n") {
        assert!(begin.elapsed() < Duration::from_secs(180), "the call does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(backend.delete(&session).status, 204);
    let mut answer = String::new();
    running.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("KeyboardInterrupt") || answer.starts_with("HTTP/1.1 404"), "{answer}");
    wait_for_no_sessions(&backend);
}

#[test]
fn call_of_a_client_that_disconnects_is_interrupted() {
    let backend = Backend::start(["--timeout", "600"]);
    let session = backend.create();
    let code = json!({ "tool": "code_execution", "input": { "code": "x = 1\nwhile True: pass" } });
    let path = format!("/sessions/{session}/exec");
    let running = backend.open("POST", &path, &[], code.to_string().as_bytes());
    let begin = Instant::now();
    while !backend.get("/metrics").text().contains("belljar_calls_in_flight 1\n") {
        assert!(begin.elapsed() < Duration::from_secs(180), "the call does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(running);
    // Runs when the endless loop has ended, long before its limit of time.
    assert_eq!(backend.run(&session, "print('next')")["stdout"], "next\n");
}

#[test]
fn many_clients_at_once_have_their_own_results() {
    let backend = start();
    std::thread::scope(|scope| {
        for client in 0..12 {
            let backend = &backend;
            scope.spawn(move || {
                let session = backend.create();
                backend.put(&session, "own.txt", None, format!("{client}").as_bytes()).with_status(201);
                for round in 0..5 {
                    let code =
                        format!("total = globals().get('total', 0) + {round}\nprint(open('own.txt').read(), total)");
                    let total: i32 = (0..=round).sum();
                    assert_eq!(backend.run(&session, &code)["stdout"], format!("{client} {total}\n"));
                }
                assert_eq!(backend.delete(&session).status, 204);
            });
        }
    });
    // Calls to one session run one after the other.
    let session = backend.create();
    backend.run(&session, "count = 0");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (backend, session) = (&backend, &session);
            scope.spawn(move || backend.run(session, "seen = count\nimport time\ntime.sleep(0.01)\ncount = seen + 1"));
        }
    });
    assert_eq!(backend.run(&session, "count")["stdout"], "8\n");
}

#[test]
fn sessions_survive_the_server_with_a_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    let options = ["--data-dir", directory.path().to_str().unwrap()];
    let backend = Backend::start(options);
    let session = backend.create();
    backend.run(&session, "x = 41");
    let created = json!({ "command": "create", "path": "a.txt", "file_text": "a" });
    assert_eq!(backend.edit(&session, &created)["return_code"], 0);
    backend.terminate();
    let backend = Backend::start(options);
    assert_eq!(backend.run(&session, "print(x + 1, open('a.txt').read())")["stdout"], "42 a\n");
    assert_eq!(backend.delete(&session).status, 204);
    backend.get(&format!("/sessions/{session}/files/list")).refusal(404);
}

#[test]
fn code_calls_tools_that_need_no_approval() {
    let backend = Backend::start([&*tool_server("t", "plain")]);
    let session = backend.create();
    let code = "from tools import t, ToolDenied\nprint(await t.add(a=1))\ntry:\n    await t.note(text='a')\n\
                except ToolDenied as error:\n    print('denied')";
    assert_eq!(backend.run(&session, code)["stdout"], "2\ndenied\n");
}

#[test]
fn protocol_needs_its_option_and_sessions() {
    let run = Belljar::new().args(["streamable-http", "--port", "0", "--code-execution"]).run();
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stderr.contains("--toolset interpreter"), "{run:?}");
    let server = Listening::start("streamable-http", ["--toolset", "interpreter"]);
    assert_eq!(server.send("POST", "/sessions", &[], "{}").0, 404);
}
