//! `/metrics`: each family moves with what happens. Prometheus's own library parses the text.

use std::io::Write;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use serde_json::{Value, json};

use super::http::Listening;
use crate::harness::python_with;
use crate::wheels::Wheels;

/// A family of metrics, as Prometheus's library reads it.
#[derive(Debug, Deserialize)]
struct MetricFamily {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    unit: String,
    help: String,
    /// The name, labels and value of each series.
    samples: Vec<(String, serde_json::Map<String, Value>, f64)>,
}

/// The metrics of a server at one moment.
struct Scrape(Vec<MetricFamily>);

impl Scrape {
    fn of(server: &Listening) -> Self {
        Self::with_headers(server, &[])
    }

    fn with_headers(server: &Listening, headers: &[(&str, &str)]) -> Self {
        let (status, response) = server.send("GET", "/metrics", headers, "");
        assert_eq!(status, 200, "{response}");
        let (head, text) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
        let python = python_with("prometheus", &["prometheus-client==0.26.0"]);
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/serve/metric_families.py");
        let mut command = Command::new(python);
        let mut parser = command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        parser.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = parser.wait_with_output().unwrap();
        assert!(output.status.success(), "the parser refuses {text}");
        Self(serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Returns the sum of the series of this name that have these labels.
    fn sum(&self, series: &str, labels: &[(&str, &str)]) -> f64 {
        let samples = self.0.iter().flat_map(|family| &family.samples);
        let matching = samples.filter(|(name, given, _)| {
            name == series && labels.iter().all(|(label, value)| given.get(*label) == Some(&json!(value)))
        });
        matching.map(|(_, _, value)| value).sum()
    }
}

/// Calls a tool and returns the text of the response.
fn tool(server: &Listening, name: &str, arguments: &Value) -> String {
    let params = json!({ "name": name, "arguments": arguments });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let (status, text) = server.post(&[], &message);
    assert_eq!(status, 200, "{text}");
    text
}

/// Returns the ID of a new session.
fn session(server: &Listening, code: &str) -> String {
    let text = tool(server, "execute_code", &json!({ "code": code }));
    let (_, body) = text.split_once("\r\n\r\n").unwrap();
    let answer: Value = serde_json::from_str(body).unwrap();
    let info = &answer["result"]["structuredContent"]["session_info"];
    info["session_id"].as_str().unwrap_or_else(|| panic!("{text}")).to_owned()
}

/// Sends a call of `run_python_code`, whose code runs until the stream is closed.
fn open_call(server: &Listening, code: &str) -> TcpStream {
    let message = super::http::call(code);
    let headers = [("Content-Type", "application/json"), ("Accept", "application/json, text/event-stream")];
    server.open("POST", "/mcp", &headers, &message.to_string())
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(180), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn calls_of_every_tool_are_counted_by_status() {
    let server = Listening::start("streamable-http-stateless", ["--toolset", "all"]);
    let python = |code: &str| tool(&server, "run_python_code", &json!({ "python_code": code }));
    python("1");
    python("1 / 0");
    tool(&server, "run_python_code", &json!({ "python_code": 5 }));
    tool(&server, "run_python_code", &json!({ "python_code": "1", "dependencies": ["belljar-no-such-package"] }));
    let id = session(&server, "x = 1");
    let in_session = |code: &str| tool(&server, "execute_code", &json!({ "session_id": id, "code": code }));
    in_session("x");
    in_session("1 / 0");
    tool(&server, "execute_code", &json!({ "session_id": "AAAAAAAAAAAAAAAA", "code": "1" }));
    let only = json!({ "session_id": id });
    tool(&server, "upload_file", &json!({ "session_id": id, "name": "a.txt", "content": "a" }));
    for name in ["list_session_files", "interrupt_session", "fork_session", "restart_session", "clear_session"] {
        tool(&server, name, &only);
    }
    tool(&server, "list_session_files", &only);
    // A call is in flight until its answer was sent.
    server.wait_for_metric("belljar_calls_in_flight 0");

    let scrape = Scrape::of(&server);
    for (name, status, count) in [
        ("run_python_code", "success", 1.0),
        ("run_python_code", "run-error", 1.0),
        ("run_python_code", "invalid", 1.0),
        ("run_python_code", "install-error", 1.0),
        ("execute_code", "success", 2.0),
        ("execute_code", "run-error", 1.0),
        ("execute_code", "unknown-session", 1.0),
        ("upload_file", "success", 1.0),
        ("list_session_files", "success", 1.0),
        ("list_session_files", "unknown-session", 1.0),
        ("interrupt_session", "success", 1.0),
        ("fork_session", "success", 1.0),
        ("restart_session", "success", 1.0),
        ("clear_session", "success", 1.0),
    ] {
        let labels = [("tool", name), ("status", status)];
        assert_eq!(scrape.sum("belljar_calls_total", &labels), count, "{name} {status}");
    }
    assert_eq!(scrape.sum("belljar_calls_total", &[]), 15.0);
    assert_eq!(scrape.sum("belljar_call_duration_seconds_count", &[("tool", "execute_code")]), 4.0);
    let failed = [("tool", "execute_code"), ("status", "run-error")];
    assert_eq!(scrape.sum("belljar_call_duration_seconds_count", &failed), 1.0);
    assert!(scrape.sum("belljar_call_duration_seconds_sum", &[("tool", "execute_code")]) > 0.0);
    assert_eq!(scrape.sum("belljar_calls_in_flight", &[]), 0.0);
    // Calls with invalid arguments or of an unknown session do not wait.
    assert!(scrape.sum("belljar_queue_wait_seconds_count", &[]) >= 10.0);
    assert_eq!(scrape.sum("belljar_sessions", &[("state", "awake")]), 1.0, "the fork");
}

#[test]
fn names_follow_the_conventions_and_labels_are_bounded() {
    let server = Listening::start("streamable-http-stateless", ["--toolset", "all"]);
    let id = session(&server, "secret_code = 1");
    let unknown = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "secret_tool" } });
    server.post(&[], &unknown);
    let scrape = Scrape::of(&server);
    assert!(scrape.0.len() > 15);
    for family in &scrape.0 {
        let MetricFamily { name, kind, unit, help, samples } = family;
        assert!(name.starts_with("belljar_") && !help.is_empty(), "{name}");
        assert!(matches!(kind.as_str(), "counter" | "gauge" | "histogram" | "info"), "{name}: {kind}");
        assert!(name.ends_with(unit.as_str()) && ["", "seconds", "bytes"].contains(&unit.as_str()), "{name}: {unit}");
        assert!(kind == "histogram" || samples.len() <= 100, "{name}: {}", samples.len());
        for (_, labels, _) in samples {
            let text = serde_json::to_string(labels).unwrap();
            assert!(!text.contains(&id) && !text.contains("secret"), "{name}: {text}");
        }
    }
    assert_eq!(scrape.sum("belljar_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    assert!(scrape.sum("belljar_resident_memory_bytes", &[]) > 1e6);
    for reason in ["host", "token", "queue-full", "sessions-full"] {
        assert!(
            scrape.0.iter().flat_map(|family| &family.samples).any(|(name, labels, value)| {
                name == "belljar_refusals_total" && labels["reason"] == *reason && *value == 0.0
            }),
            "{reason} has no series before the first refusal"
        );
    }
}

#[test]
fn limits_that_code_reaches_are_counted() {
    let options = ["--toolset", "all", "--max-output", "1MB", "--memory", "300MB"];
    let server = Listening::start("streamable-http-stateless", options);
    // A limit of its own, since other calls may take long on a busy machine.
    tool(&server, "run_python_code", &json!({ "python_code": "while True: pass", "timeout": 1 }));
    for code in ["print('x' * (4 << 20))", "bytearray(1 << 30)", "1"] {
        tool(&server, "run_python_code", &json!({ "python_code": code }));
    }
    let id = session(&server, "1");
    tool(&server, "execute_code", &json!({ "session_id": id, "code": "while True: pass", "timeout": 1 }));
    let scrape = Scrape::of(&server);
    for (limit, count) in [("time", 2.0), ("output", 1.0), ("memory", 1.0), ("cpu", 0.0), ("stack", 0.0)] {
        assert_eq!(scrape.sum("belljar_limits_reached_total", &[("limit", limit)]), count, "{limit}");
    }
    assert_eq!(scrape.sum("belljar_calls_total", &[("status", "run-error")]), 4.0);
}

#[test]
fn refused_requests_are_counted_by_reason() {
    let directory = tempfile::tempdir().unwrap();
    let tokens = directory.path().join("tokens");
    std::fs::write(&tokens, "one\ntwo\n").unwrap();
    let options = ["--no-install", "--max-http-sessions", "1", "--max-body", "10KB", "--auth-token-file"];
    let server = Listening::start("streamable-http", options.into_iter().chain([tokens.to_str().unwrap()]));
    let one = ("Authorization", "Bearer one");
    let refused = |headers: &[(&str, &str)], message: &Value| server.post(headers, message).0;
    let hello = super::http::hello();
    assert_eq!(refused(&[], &hello), 401);
    assert_eq!(refused(&[("Authorization", "Bearer three")], &hello), 401);
    assert_eq!(refused(&[one, ("Host", "evil.example")], &hello), 403);
    assert_eq!(refused(&[one, ("Origin", "https://evil.example")], &hello), 403);
    assert_eq!(refused(&[one], &json!("x".repeat(20_000))), 413);
    let (status, text) = server.post(&[one], &hello);
    assert_eq!(status, 200, "{text}");
    assert_eq!(refused(&[one], &hello), 503);
    let lines = text.lines().map(str::to_ascii_lowercase);
    let id = lines.into_iter().find_map(|line| line.strip_prefix("mcp-session-id: ").map(str::to_owned)).unwrap();
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    assert_eq!(refused(&[("Authorization", "Bearer two"), ("Mcp-Session-Id", &id)], &list), 404);
    let scrape = Scrape::with_headers(&server, &[one]);
    assert_eq!(scrape.sum("belljar_mcp_session_duration_seconds_count", &[]), 0.0, "the session is open");
    let ended = server.send("DELETE", "/mcp", &[one, ("Mcp-Session-Id", &id)], "").0;
    assert_eq!(ended, 200);
    let closed = Scrape::with_headers(&server, &[one]);
    assert_eq!(closed.sum("belljar_mcp_session_duration_seconds_count", &[("transport", "tcp")]), 1.0);
    for (reason, count) in [
        ("token", 2.0),
        ("host", 1.0),
        ("origin", 1.0),
        ("body-too-long", 1.0),
        ("http-sessions-full", 1.0),
        ("foreign-session", 1.0),
        ("queue-full", 0.0),
    ] {
        assert_eq!(scrape.sum("belljar_refusals_total", &[("reason", reason)]), count, "{reason}");
    }
}

#[test]
fn queue_and_refused_calls_are_counted() {
    let options = ["--toolset", "all", "--max-concurrency", "1", "--max-queue", "1", "--max-sessions", "1"];
    let server = Listening::start("streamable-http-stateless", options);
    wait_for("the preparation of Python", || Scrape::of(&server).sum("belljar_running", &[]) == 0.0);
    let id = session(&server, "import time");
    std::thread::scope(|scope| {
        let busy = open_call(&server, "import time; time.sleep(250)");
        wait_for("a call", || Scrape::of(&server).sum("belljar_running", &[]) == 1.0);
        scope.spawn(|| tool(&server, "execute_code", &json!({ "session_id": id, "code": "1" })));
        wait_for("a queued call", || Scrape::of(&server).sum("belljar_queue_length", &[]) == 1.0);
        let queued = Instant::now();
        let scrape = Scrape::of(&server);
        assert_eq!(scrape.sum("belljar_session_queue_length", &[]), 1.0);
        assert_eq!(scrape.sum("belljar_calls_in_flight", &[]), 2.0);
        assert_eq!(scrape.sum("belljar_live_interpreters", &[]), 1.0);
        let text = tool(&server, "run_python_code", &json!({ "python_code": "1" }));
        assert!(text.contains("the server is busy"), "{text}");
        // The call in the queue waits for a second at least.
        std::thread::sleep(Duration::from_secs(1).saturating_sub(queued.elapsed()));
        drop(busy);
    });
    let text = tool(&server, "execute_code", &json!({ "code": "1" }));
    assert!(text.contains("TooManySessionsError"), "{text}");
    let scrape = Scrape::of(&server);
    for (reason, count) in [("queue-full", 1.0), ("sessions-full", 1.0)] {
        assert_eq!(scrape.sum("belljar_refusals_total", &[("reason", reason)]), count, "{reason}");
    }
    assert_eq!(scrape.sum("belljar_calls_total", &[("status", "refused")]), 2.0);
    assert_eq!(scrape.sum("belljar_queue_length", &[]), 0.0);
    assert_eq!(scrape.sum("belljar_session_queue_length", &[]), 0.0);
    let waited = scrape.sum("belljar_queue_wait_seconds_sum", &[]);
    assert!(waited > 0.5, "{waited}");
    let long = scrape.sum("belljar_queue_wait_seconds_bucket", &[("le", "+Inf")])
        - scrape.sum("belljar_queue_wait_seconds_bucket", &[("le", "0.25")]);
    assert!(long >= 1.0, "{long}");
}

in_both_isolations! {
    threads_that_waiting_code_holds_are_counted_and_named
}

/// Calls that wait in synchronous code use up the threads, and the error of the next call says so.
fn threads_that_waiting_code_holds_are_counted_and_named(isolation: &str) {
    let options = ["--toolset", "all", "--max-concurrency", "2", "--max-queue", "0", "--isolation", isolation];
    let server = Listening::start("streamable-http-stateless", options);
    wait_for("the preparation of Python", || Scrape::of(&server).sum("belljar_running", &[]) == 0.0);
    let id = session(&server, "import asyncio");
    let call = |tool_name: &str, arguments: Value| tool(&server, tool_name, &arguments);
    let execute = |code: &str| call("execute_code", json!({ "session_id": id, "code": code }));
    std::thread::scope(|scope| {
        let awaiting = open_call(&server, "import asyncio; await asyncio.sleep(250)");
        wait_for("code that awaits", || {
            let scrape = Scrape::of(&server);
            scrape.sum("belljar_live_interpreters", &[]) == 1.0 && scrape.sum("belljar_running", &[]) == 0.0
        });
        scope.spawn(|| execute("asyncio.run(asyncio.sleep(250))"));
        let sleeping = open_call(&server, "import time; time.sleep(250)");
        wait_for("two waits", || Scrape::of(&server).sum("belljar_held_threads", &[]) == 2.0);
        for (tool_name, argument) in [("execute_code", "code"), ("run_python_code", "python_code")] {
            let text = call(tool_name, json!({ argument: "1" }));
            let reason = "2 pieces of code run, 2 of which hold their thread while they wait in synchronous code";
            assert!(text.contains(reason) && text.contains("--max-concurrency"), "{text}");
        }
        drop((awaiting, sleeping));
        call("interrupt_session", json!({ "session_id": id }));
    });
    wait_for("the end of the waits", || Scrape::of(&server).sum("belljar_held_threads", &[]) == 0.0);
}

#[test]
fn call_of_a_client_that_disconnects_counts_as_cancelled() {
    let server = Listening::start("streamable-http-stateless", ["--no-install"]);
    let stream = open_call(&server, "while True: pass");
    wait_for("the call", || Scrape::of(&server).sum("belljar_calls_in_flight", &[]) == 1.0);
    drop(stream);
    wait_for("the end of the call", || {
        Scrape::of(&server).sum("belljar_calls_total", &[("status", "cancelled")]) == 1.0
    });
    server.wait_for_metric("belljar_calls_in_flight 0");
}

#[test]
fn sessions_are_awake_or_asleep() {
    let options = ["--toolset", "interpreter", "--sleep-after", "1"];
    let server = Listening::start("streamable-http-stateless", options);
    let states = || {
        let scrape = Scrape::of(&server);
        ["awake", "asleep"].map(|state| scrape.sum("belljar_sessions", &[("state", state)]))
    };
    assert_eq!(states(), [0.0, 0.0]);
    let first = session(&server, "x = 1");
    session(&server, "x = 2");
    wait_for("the sleep of both sessions", || states() == [0.0, 2.0]);
    tool(&server, "execute_code", &json!({ "session_id": first, "code": "x" }));
    tool(&server, "clear_session", &json!({ "session_id": first }));
    wait_for("the end of a session", || states() == [0.0, 1.0]);
}

#[test]
fn installations_and_the_cache_are_counted() {
    // Wheels that no earlier run has put into the cache, and that no index has.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let wheels =
        Wheels::new().with("belljar_test_beta", "1.0", &[("belljar_test_beta.py", &format!("name = 'beta'  # {now}"))]);
    let gamma = format!("import belljar_test_beta  # {now}");
    let wheels =
        wheels.with_requirements("belljar_test_gamma", &["belljar-test-beta"], &[("belljar_test_gamma.py", &gamma)]);
    let options = ["--toolset", "all", "--find-links", wheels.path()];
    let server = Listening::start("streamable-http-stateless", options);
    let before = Scrape::of(&server);
    assert_eq!(before.sum("belljar_installs_total", &[]), 0.0);
    let text = tool(&server, "run_python_code", &json!({ "python_code": "import belljar_test_gamma" }));
    assert!(text.contains("success"), "{text}");
    tool(&server, "run_python_code", &json!({ "python_code": "1", "dependencies": ["belljar-no-such-package"] }));
    let installed = Scrape::of(&server);
    assert_eq!(installed.sum("belljar_installs_total", &[("result", "success")]), 1.0);
    assert_eq!(installed.sum("belljar_installs_total", &[("result", "error")]), 1.0);
    assert_eq!(installed.sum("belljar_install_duration_seconds_count", &[]), 2.0);
    // An image with the modules, and a layer for each of the two new wheels.
    for (kind, builds) in [("image", 1.0), ("layer", 2.0)] {
        assert_eq!(installed.sum("belljar_cache_builds_total", &[("kind", kind)]), builds, "{kind}");
        assert!(installed.sum("belljar_cache_lookups_total", &[("kind", kind), ("result", "miss")]) >= builds);
    }
    assert!(installed.sum("belljar_cache_lookups_total", &[("kind", "program"), ("result", "hit")]) >= 1.0);
    assert!(installed.sum("belljar_cache_entries", &[]) > 4.0);
    assert!(installed.sum("belljar_cache_size_bytes", &[]) > 1e6);

    let id = session(&server, "%pip install belljar-test-gamma");
    let again = json!({ "session_id": id, "code": "%pip install belljar-test-gamma" });
    tool(&server, "execute_code", &again);
    tool(&server, "execute_code", &json!({ "session_id": id, "code": "%pip install belljar-no-such-package" }));
    let sessions = Scrape::of(&server);
    assert_eq!(sessions.sum("belljar_installs_total", &[("result", "success")]), 2.0, "the second found it installed");
    assert_eq!(sessions.sum("belljar_installs_total", &[("result", "error")]), 2.0);
    let hits = |scrape: &Scrape| scrape.sum("belljar_cache_lookups_total", &[("result", "hit")]);
    assert!(hits(&sessions) > hits(&before));
}
