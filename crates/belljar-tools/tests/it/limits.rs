//! Limits of a run, each with an error of its own.

use std::time::Duration;

use belljar_tools::{ApprovalMode, ToolLimits, ToolPolicy};
use serde_json::json;

use crate::harness::{Session, TestRun, error, one, server};

fn session(limits: ToolLimits) -> Session {
    let policy = ToolPolicy::new(&[], &[], ApprovalMode::None).unwrap();
    Session::new(&[server("t", "plain")], policy, limits)
}

fn limited(run: &TestRun, tool: &str, arguments: serde_json::Value) -> String {
    let (class, message) = error(run.call(tool, arguments));
    assert_eq!(class, "tools.ToolLimitExceeded", "{message}");
    message
}

#[test]
fn number_of_calls_is_limited() {
    let session = session(ToolLimits { calls: 2, ..ToolLimits::default() });
    let run = session.run();
    for _ in 0..2 {
        one(run.call("add", json!({"a": 1})));
    }
    assert_eq!(limited(&run, "add", json!({"a": 1})), "the run has made 2 tool calls, the maximum");
    assert_eq!(run.statuses(), ["ok", "ok", "limit"]);
    one(session.run().call("add", json!({"a": 1})));
}

#[test]
fn size_of_results_is_limited() {
    let session = session(ToolLimits { result_bytes: 1_000, total_bytes: 1_500, ..ToolLimits::default() });
    let run = session.run();
    let message = limited(&run, "large", json!({"size": 2_000}));
    assert!(message.starts_with("the result has 20") && message.ends_with("and the maximum is 1000"), "{message}");
    one(run.call("large", json!({"size": 900})));
    assert_eq!(limited(&run, "large", json!({"size": 900})), "the results of the run's tool calls exceed 1500 bytes");
    one(run.call("add", json!({"a": 1})));
}

#[test]
fn result_of_100_megabytes_is_an_error() {
    let session = session(ToolLimits::default());
    let run = session.run();
    let (class, _) = error(run.call("large", json!({"size": 100_000_000})));
    assert!(["tools.ToolLimitExceeded", "tools.ToolUnavailable"].contains(&class.as_str()), "{class}");
    one(run.call("add", json!({"a": 1})));
}

#[test]
fn server_that_hangs_is_a_timeout() {
    // Long enough for calls that are answered, also on a busy machine.
    let session = session(ToolLimits { timeout: Duration::from_secs(8), ..ToolLimits::default() });
    let run = session.run();
    one(run.call("add", json!({"a": 1})));
    let hung = error(run.call("hang", json!({})));
    assert_eq!(hung, ("tools.ToolTimeout".into(), "t.hang did not respond within 8 s".into()));
    one(run.call("add", json!({"a": 1})));
    assert_eq!(run.statuses(), ["ok", "timeout", "ok"]);
}

#[test]
fn time_of_waiting_is_limited() {
    let session = session(ToolLimits { wait: Duration::from_millis(1_500), ..ToolLimits::default() });
    let run = session.run();
    let message = limited(&run, "hang", json!({}));
    assert_eq!(message, "the run has waited 1.5 s for tools, the maximum");
    assert_eq!(limited(&run, "add", json!({"a": 1})), message);
}

#[test]
fn concurrency_is_limited_to_the_number_of_permits() {
    // Each group of two calls is answered when both have arrived, so that fewer permits would wait for ever, and the
    // server reports no group of three.
    let session = session(ToolLimits { concurrency: 2, ..ToolLimits::default() });
    let run = session.run();
    for id in 0..6 {
        run.start_call(id, "meet", json!({"count": 2}));
    }
    for _ in 0..6 {
        run.replies.recv().unwrap().result.unwrap();
    }
    let one_permit =
        self::session(ToolLimits { concurrency: 1, timeout: Duration::from_millis(300), ..ToolLimits::default() });
    let run = one_permit.run();
    for id in 0..2 {
        run.start_call(id, "meet", json!({"count": 2}));
    }
    let first = run.replies.recv().unwrap().result.unwrap_err();
    assert_eq!(first.name, "tools.ToolTimeout");
}

#[test]
fn cancelled_call_is_recorded() {
    let session = session(ToolLimits::default());
    let run = session.run();
    one(run.call("add", json!({"a": 1})));
    run.start_call(7, "hang", json!({}));
    run.start_call(8, "hang", json!({}));
    while run.statuses().len() < 3 {
        std::thread::yield_now();
    }
    run.run.cancel(7);
    run.run.cancel_all();
    while run.statuses() != ["ok", "cancelled", "cancelled"] {
        std::thread::yield_now();
    }
}
