//! Notifications while code runs, and cancellation.

use serde_json::json;

use crate::wheels::Wheels;
use crate::wire::{Wire, text};

const LOG: &str = "notifications/message";
const PROGRESS: &str = "notifications/progress";

#[test]
fn no_log_messages_before_a_level_is_set() {
    let mut wire = Wire::start(["--no-install"]);
    wire.run("print('hi')");
    assert!(wire.received.is_empty(), "{:?}", wire.received);
}

#[test]
fn output_lines_are_sent_while_code_runs() {
    // The code runs for longer than the wire waits for a message.
    let mut wire = Wire::start(["--no-install", "--timeout", "600"]);
    wire.ask("logging/setLevel", json!({ "level": "info" }));
    let id = wire.send_call(json!({ "python_code": "
import sys
print('first', flush=True)
print('oops', file=sys.stderr)
while True: pass
" }));
    // A slow machine also reports the progress of long steps.
    let mut next_line =
        || std::iter::from_fn(|| wire.next()).find(|message| message["params"]["logger"] == "python").unwrap();
    let first = next_line();
    assert_eq!(first["params"], json!({ "level": "info", "logger": "python", "data": "first" }));
    let second = next_line();
    assert_eq!(second["params"], json!({ "level": "warning", "logger": "python", "data": "oops" }));
    wire.notify("notifications/cancelled", json!({ "requestId": id }));
}

#[test]
fn messages_below_the_set_level_are_not_sent() {
    let mut wire = Wire::start(["--no-install"]);
    wire.ask("logging/setLevel", json!({ "level": "warning" }));
    wire.run("import sys\nprint('a')\nprint('b', file=sys.stderr)\nprint('c', end='', file=sys.stderr)\n1 / 0");
    let sent = wire.notifications(LOG);
    let levels: Vec<_> = sent.iter().map(|message| message["level"].as_str().unwrap()).collect();
    assert_eq!(levels, ["warning", "warning", "error"], "{sent:?}");
    assert!(sent[2]["data"].as_str().unwrap().contains("ZeroDivisionError"));
}

#[test]
fn installed_packages_are_logged_with_their_versions() {
    let wheels = Wheels::new().with("belljar_made_delta", "1.5", &[("belljar_made_delta.py", "name = 'delta'")]);
    let mut wire = Wire::start(["--find-links", wheels.path()]);
    wire.ask("logging/setLevel", json!({ "level": "info" }));
    let answer = wire.run("import belljar_made_delta as delta\ndelta.name");
    // The format of the answer has names only.
    let wanted = "<status>success</status>\n<dependencies>[\"belljar-made-delta\"]</dependencies>\n<return_value>\ndelta\n\
                  </return_value>";
    assert_eq!(answer, wanted);
    let message = json!({ "level": "info", "logger": "belljar", "data": "installed belljar-made-delta 1.5" });
    // A slow machine also reports the progress of long steps.
    let mut sent = wire.notifications(LOG);
    sent.retain(|sent| !sent["data"].as_str().is_some_and(|text| text.ends_with(" …")));
    assert_eq!(sent, [&message]);
}

#[test]
fn steps_and_bars_become_progress() {
    let mut wire = Wire::start(["--no-install"]);
    let code = "
import sys
for done in range(0, 11):
    print(f'\\rload: {done * 10:3}%|{\"#\" * done:10}| {done}/10 [00:00<00:00, 9.9it/s]', end='', file=sys.stderr)
";
    let call = json!({
        "name": "run_python_code", "arguments": { "python_code": code }, "_meta": { "progressToken": "t" },
    });
    wire.ask("tools/call", call);
    let sent = wire.notifications(PROGRESS);
    let numbers: Vec<f64> = sent.iter().map(|message| message["progress"].as_f64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, other| one < other), "{sent:?}");
    assert!(sent.iter().any(|message| message["message"] == "running"), "{sent:?}");
    let last = sent.last().unwrap();
    assert_eq!((last["progress"].as_f64(), last["message"].as_str()), (last["total"].as_f64(), Some("load")));
}

#[test]
fn installation_is_reported_from_its_start_and_while_it_lasts() {
    let slow = "for number in range(60_000_000): pass";
    let wheels = Wheels::new().with("belljar_made_slow", "1.0", &[("belljar_made_slow.py", slow)]);
    let mut wire = Wire::start(["--find-links", wheels.path()]);
    let call = json!({
        "name": "run_python_code", "arguments": { "python_code": "import belljar_made_slow" },
        "_meta": { "progressToken": "t" },
    });
    wire.ask("tools/call", call);
    let sent = wire.notifications(PROGRESS);
    let numbers: Vec<f64> = sent.iter().map(|message| message["progress"].as_f64().unwrap()).collect();
    assert!(numbers.is_sorted_by(|one, other| one < other), "{sent:?}");
    let messages: Vec<&str> = sent.iter().filter_map(|message| message["message"].as_str()).collect();
    let place = |begin: &str| messages.iter().position(|message| message.starts_with(begin));
    let (start, again) = (place("resolving belljar-made-slow"), place("building the image of these packages ("));
    assert!(start.is_some() && again.is_some() && start < again, "{messages:?}");
}

#[test]
fn cancellation_stops_code() {
    // With one thread, the next call starts only when the first has released it: by its cancellation, since the wire
    // does not wait for as long as the code may run.
    let mut wire = Wire::start(["--no-install", "--max-concurrency", "1", "--timeout", "600"]);
    wire.ask("logging/setLevel", json!({ "level": "info" }));
    let id = wire.send_call(json!({ "python_code": "print('go', flush=True)\nwhile True: pass" }));
    wire.wait_for_output("go");
    wire.notify("notifications/cancelled", json!({ "requestId": id, "reason": "enough" }));
    let next = wire.call(json!({ "python_code": "'next'" }));
    assert!(text(&next).contains("next"));
    assert!(!wire.received.iter().any(|message| message["id"] == id), "a cancelled request has no answer");
}
