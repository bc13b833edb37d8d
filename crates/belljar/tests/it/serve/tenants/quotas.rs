//! Each quota: how it is reached, its error, and how it frees.

use std::thread;
use std::time::Duration;

use serde_json::json;

use super::{Shared, assert_refused, assert_success, log, session_of, wait_for, wait_until};
use crate::harness::Belljar;
use crate::isolations::ISOLATIONS;
use crate::network_servers::site;
use crate::wire::Wire;

#[test]
fn runs_beyond_the_quota_wait_and_calls_beyond_the_queue_are_refused() {
    let shared = Shared::start("[owner.alice]\nruns = 1\nqueue = 1\n", &["--max-concurrency", "8"]);
    let blocked = format!("{}{}", wait_for("go"), log("ended"));
    thread::scope(|scope| {
        let first = scope.spawn(|| shared.run("token-a", &blocked));
        wait_until("it runs", || shared.metric("belljar_running") == 1.0);
        let second = scope.spawn(|| shared.run("token-a", &log("second")));
        shared.wait_for_queue(1);
        // There are seven free threads, but none for this owner.
        let refused = shared.run("token-a", "1");
        let details = assert_refused(&refused, "queue");
        assert_eq!((&details["used"], &details["limit"]), (&json!(1.0), &json!(1.0)));
        assert_eq!(refused["isError"], true);
        // The other token of the same name shares the quota; other owners do not.
        assert_refused(&shared.run("token-c", "1"), "queue");
        assert_success(&shared.run("token-b", "1"));
        assert!(shared.logged().is_empty());
        shared.release("go");
        assert_success(&first.join().unwrap());
        assert_success(&second.join().unwrap());
    });
    assert_eq!(shared.logged(), ["ended", "second"]);
    assert_success(&shared.run("token-a", "1"));
    assert_eq!(shared.metric("belljar_refusals_total{reason=\"quota-queue\"}"), 2.0);
}

#[test]
fn caller_that_leaves_gives_its_place_in_the_queue_back() {
    let shared = Shared::start("[owner.alice]\nruns = 1\nqueue = 1\n", &[]);
    let blocked = wait_for("go");
    thread::scope(|scope| {
        let first = scope.spawn(|| shared.run("token-a", &blocked));
        wait_until("it runs", || shared.metric("belljar_running") == 1.0);
        let params = json!({ "name": "run_python_code", "arguments": { "python_code": log("left") } });
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
        let headers = [
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("Authorization", "Bearer token-a"),
        ];
        let stream = shared.server.open_for("POST", "/mcp", &headers, message.as_bytes(), message.len());
        shared.wait_for_queue(1);
        assert_refused(&shared.run("token-a", "1"), "queue");
        drop(stream);
        let last = scope.spawn(|| {
            let mut answer = shared.run("token-a", "1");
            wait_until("there is room", || {
                let is_refused = answer["structuredContent"]["refusal"].is_object();
                if is_refused {
                    answer = shared.run("token-a", "1");
                }
                !is_refused
            });
            answer
        });
        // Two entries: one of them is that of the client that has left, whose code does not run.
        shared.wait_for_queue(2);
        shared.release("go");
        assert_success(&first.join().unwrap());
        assert_success(&last.join().unwrap());
    });
    assert!(shared.logged().is_empty());
}

#[test]
fn sessions_are_limited_for_both_protocols() {
    let shared = Shared::start("[owner.alice]\nsessions = 2\n", &["--toolset", "interpreter", "--code-execution"]);
    let create = |token: &str| {
        let authorization = format!("Bearer {token}");
        shared.server.send("POST", "/sessions", &[("Authorization", &authorization)], "")
    };
    let first = shared.open("token-a");
    assert_eq!(create("token-a").0, 201);
    let details = assert_refused(&shared.cell("token-a", "", "1"), "sessions");
    assert_eq!((&details["used"], &details["limit"]), (&json!(2.0), &json!(2.0)));
    assert_refused(&shared.call("token-a", "fork_session", &json!({ "session_id": first })), "sessions");
    let (status, text) = create("token-a");
    assert_eq!(status, 429, "{text}");
    assert!(text.contains("\"quota\":\"sessions\"") && text.contains("your quota `sessions`"), "{text}");
    assert_eq!(create("token-b").0, 201);
    // Sessions that exist can be used, and those that end make room.
    assert_success(&shared.cell("token-a", &first, "x"));
    assert_success(&shared.call("token-a", "clear_session", &json!({ "session_id": first })));
    shared.open("token-a");
}

#[test]
fn panicking_and_failing_code_gives_its_place_back() {
    let shared = Shared::start("[default]\nruns = 1\nqueue = 0\n", &["--toolset", "all", "--timeout", "5"]);
    let id = shared.open("token-a");
    for code in ["1 / 0", "import os\nos._exit(3)", "while True: pass", "import sys\nsys.exit(1)"] {
        let answer = shared.run("token-a", code);
        assert!(answer["structuredContent"]["refusal"].is_null(), "{code}: {answer}");
        let answer = shared.cell("token-a", &id, code);
        assert!(answer["structuredContent"]["refusal"].is_null(), "{code}: {answer}");
    }
    assert_success(&shared.run("token-a", "1"));
}

#[test]
fn memory_of_running_code_is_limited_and_freed() {
    let shared = Shared::start("[owner.alice]\nmemory = \"340MB\"\n", &[]);
    let large = "x = bytearray(400 << 20)\nlen(x)";
    let refused = shared.run("token-a", large);
    assert!(refused["structuredContent"]["error"].as_str().unwrap().contains("MemoryError"), "{refused}");
    assert_success(&shared.run("token-b", large));
    // Code that has ended has freed its memory.
    let small = "x = bytearray(150 << 20)\nlen(x)";
    assert_success(&shared.run("token-a", small));
    assert_success(&shared.run("token-a", small));
    let blocked = format!("x = bytearray(200 << 20)\n{}{}", log("has it"), wait_for("go"));
    thread::scope(|scope| {
        let first = scope.spawn(|| shared.run("token-a", &blocked));
        shared.wait_for_log(1);
        // The sum counts.
        let second = shared.run("token-a", small);
        assert!(second["structuredContent"]["error"].as_str().unwrap().contains("MemoryError"), "{second}");
        shared.release("go");
        assert_success(&first.join().unwrap());
    });
    assert_success(&shared.run("token-a", small));
}

#[test]
fn interpreters_beyond_the_quota_of_memory_are_refused() {
    let shared = Shared::start("[owner.alice]\nmemory = \"1MB\"\n", &["--toolset", "all"]);
    // The memory of an interpreter is known once there was one.
    wait_until("it is refused", || shared.run("token-a", "1")["structuredContent"]["refusal"]["quota"] == "memory");
    for refused in [shared.run("token-a", "1"), shared.cell("token-a", "", "1")] {
        let details = assert_refused(&refused, "memory");
        assert_eq!(details["limit"].as_f64(), Some(f64::from(1 << 20)), "{details}");
        let text = refused["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("0 bytes of 1 MB; it is less than an interpreter needs"), "{text}");
    }
    assert_success(&shared.run("token-b", "1"));
}

#[test]
fn idle_sessions_sleep_when_their_owner_is_short_of_memory() {
    let shared = Shared::start("[owner.alice]\nmemory = \"200MB\"\n", &["--toolset", "interpreter"]);
    let first = shared.open("token-a");
    assert_success(&shared.cell("token-a", &first, "x = bytearray(150 << 20)"));
    let second = shared.cell("token-a", "", "1");
    if second["structuredContent"]["success"] == true {
        // The interpreter itself has room; what it needs has not.
        let third = shared.cell("token-a", &session_of(&second), "y = bytearray(150 << 20)");
        assert!(third.to_string().contains("MemoryError"), "{third}");
    }
    let opened = |answer: &serde_json::Value| answer["structuredContent"]["success"] == true;
    wait_until("there is room", || opened(&shared.cell("token-a", "", "y = bytearray(100 << 20)")));
    // The first session wakes when there is room for it again.
    wait_until("it wakes", || {
        let answer = shared.cell("token-a", &first, "len(x)");
        opened(&answer) && answer["structuredContent"]["result"] == "157286400"
    });
}

#[test]
fn processor_time_is_limited_per_minute() {
    let quotas = "[owner.alice]\nprocessor = 1\n";
    let shared = Shared::start(quotas, &["--toolset", "all"]);
    let id = shared.open("token-a");
    let burn = "import time\nwhile time.process_time() < 2: pass";
    assert_success(&shared.run("token-a", burn));
    // On a busy machine, the code gets less than a processor.
    let mut refused = shared.run("token-a", "1");
    wait_until("the quota is used up", || {
        let is_refused = refused["structuredContent"]["refusal"].is_object();
        if !is_refused {
            refused = shared.run("token-a", burn);
        }
        is_refused
    });
    let details = assert_refused(&refused, "processor");
    assert!(details["used"].as_f64().unwrap() > 1.0, "{details}");
    let retry = details["retry_after"].as_u64().unwrap();
    assert!((1..120).contains(&retry), "{details}");
    assert!(refused["content"][0]["text"].as_str().unwrap().contains("it is free again in"), "{refused}");
    assert_refused(&shared.cell("token-a", &id, "1"), "processor");
    // Files can be read, and sessions ended.
    assert_success(&shared.call("token-a", "clear_session", &json!({ "session_id": id })));
    assert_success(&shared.run("token-b", burn));
    // A larger quota pays it back sooner.
    shared.replace_quotas("[owner.alice]\nprocessor = 600\n");
    wait_until("it is free", || shared.run("token-a", "1")["structuredContent"]["status"] == "success");
}

#[test]
fn stored_bytes_are_limited_and_survive_a_restart() {
    let data = tempfile::tempdir().unwrap();
    let data = data.path().to_str().unwrap();
    let options = ["--toolset", "interpreter", "--data-dir", data];
    let quotas = "[owner.alice]\nstorage = \"1MB\"\n";
    let first = {
        let shared = Shared::start(quotas, &options);
        let id = shared.open("token-a");
        assert_success(&shared.cell("token-a", &id, "import os\nx = os.urandom(2 << 20)"));
        assert_refused(&shared.cell("token-a", &id, "1"), "storage");
        shared.open("token-b");
        id
    };
    let shared = Shared::start(quotas, &options);
    let details = assert_refused(&shared.cell("token-a", &first, "1"), "storage");
    assert!(details["used"].as_f64().unwrap() > f64::from(2 << 20), "{details}");
    assert_success(&shared.call("token-a", "clear_session", &json!({ "session_id": first })));
    shared.open("token-a");
}

#[test]
fn calls_that_wait_for_too_long_are_refused() {
    let shared = Shared::start("", &["--max-concurrency", "1", "--queue-timeout", "3", "--toolset", "all"]);
    let id = shared.open("token-a");
    let blocked = wait_for("go");
    thread::scope(|scope| {
        let first = scope.spawn(|| shared.run("token-a", &blocked));
        wait_until("it runs", || shared.metric("belljar_running") == 1.0);
        for answer in [shared.run("token-b", &log("late")), shared.cell("token-a", &id, &log("late"))] {
            assert_eq!(answer["structuredContent"]["refusal"]["status"], "queue-timeout", "{answer}");
        }
        shared.release("go");
        assert_success(&first.join().unwrap());
    });
    assert_success(&shared.cell("token-a", &id, "x"));
    assert!(shared.logged().is_empty());
    assert_eq!(shared.metric("belljar_refusals_total{reason=\"queue-timeout\"}"), 2.0);
}

#[test]
fn quotas_are_read_again() {
    let shared = Shared::start("[default]\nsessions = 1\n", &["--toolset", "interpreter"]);
    shared.open("token-a");
    assert_refused(&shared.cell("token-a", "", "1"), "sessions");
    // A file with a mistake changes nothing.
    shared.replace_quotas("[default]\nsessiosn = 2\n");
    thread::sleep(Duration::from_millis(300));
    assert_refused(&shared.cell("token-a", "", "1"), "sessions");
    shared.replace_quotas("[default]\nsessions = 2\n");
    wait_until("there is room", || shared.cell("token-a", "", "1")["structuredContent"]["success"] == true);
    assert_refused(&shared.cell("token-a", "", "1"), "sessions");
}

#[test]
fn options_are_defaults_that_a_file_replaces() {
    let quotas = "[owner.bob]\nsessions = 2\n";
    let shared = Shared::start(quotas, &["--toolset", "interpreter", "--quota", "sessions=1", "--quota", "runs=3"]);
    shared.open("token-a");
    assert_refused(&shared.cell("token-a", "", "1"), "sessions");
    shared.open("plain");
    assert_refused(&shared.cell("plain", "", "1"), "sessions");
    shared.open("token-b");
    shared.open("token-b");
    assert_refused(&shared.cell("token-b", "", "1"), "sessions");
}

#[test]
fn mistakes_in_quotas_end_the_command() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("quotas.toml");
    std::fs::write(&file, "[owner.alice]\nmemroy = \"1GB\"\n").unwrap();
    let run = Belljar::new().args(["stdio", "--quotas", file.to_str().unwrap()]).run();
    assert_ne!(run.status, Some(0));
    assert!(run.stderr.contains("[owner.\"alice\"]: unknown quota `memroy`; did you mean `memory`?"), "{run:?}");
    let run = Belljar::new().args(["stdio", "--quota", "cores=2"]).run();
    assert!(run.stderr.contains("unknown quota `cores`"), "{run:?}");
    let run = Belljar::new().args(["stdio", "--quotas", "/no/such/file"]).run();
    assert!(run.stderr.contains("--quotas: failed to read /no/such/file"), "{run:?}");
}

#[test]
fn bytes_over_the_network_are_limited_per_hour() {
    let get = "import urllib.request\nlen(urllib.request.urlopen('https://api.example.com:PORT_https/csv').read())";
    let call = |wire: &mut Wire| wire.tool("run_python_code", json!({ "python_code": site().filled(get) }));
    for isolation in ISOLATIONS {
        let mut free = site().serve_in(isolation, &["--quota", "network=1MB"]);
        assert_success(&call(&mut free));
        assert_success(&call(&mut free));
        let mut limited = site().serve_in(isolation, &["--quota", "network=50"]);
        // The request is sent, and the response is more than what is left.
        let first = call(&mut limited);
        assert_eq!(first["structuredContent"]["status"], "run-error", "{first}");
        let details = assert_refused(&call(&mut limited), "network");
        assert!(details["used"].as_f64().unwrap() > 50.0 && details["retry_after"].as_u64().unwrap() > 60, "{details}");
    }
}
