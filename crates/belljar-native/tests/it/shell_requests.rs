//! Tests of shell requests other than cells, which frontends send while the user types.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use belljar_core::CellStatus;
use belljar_core::kernel::{CellRequest, KernelError, ShellRequest};
use belljar_testing::Trial;
use serde_json::{Value, json};

use crate::trials::harness::{Session, in_each, text_of};

pub(crate) fn trials() -> Vec<Trial> {
    [
        in_each("names_and_attributes_are_completed", completions),
        in_each("names_are_inspected_with_source", inspections),
        in_each("completeness_of_cells_is_reported", completeness),
        in_each("user_expressions_and_pages_follow_a_cell", user_expressions),
        in_each("help_is_printed_without_a_pager", help_without_a_pager),
        in_each("unanswered_request_leaves_session_usable", unanswered),
        in_each("exit_during_a_request_is_reported", exit_during_a_request),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn complete(session: &mut Session, code: &str) -> Result<Value, KernelError> {
    session.kernel.shell_request(&ShellRequest::Complete { code: code.into(), cursor: code.chars().count() })
}

fn matches(session: &mut Session, code: &str) -> Vec<String> {
    let answer = complete(session, code).unwrap();
    answer["matches"].as_array().unwrap().iter().map(|found| found.as_str().unwrap().to_owned()).collect()
}

fn completions(session: &mut Session) {
    session.text("import pandas\ntable = pandas.DataFrame({'price': [1]})\nlong_name = 1");
    assert_eq!(matches(session, "long_n"), ["long_name"]);
    assert!(matches(session, "table.pri").iter().any(|found| found.ends_with("price")));
    assert!(matches(session, "import colle").iter().any(|found| found == "collections"));
    // Positions count characters.
    let answer = complete(session, "é = 'ü'; long_n").unwrap();
    assert_eq!((answer["cursor_start"].as_u64(), answer["cursor_end"].as_u64()), (Some(9), Some(15)));
    let outside =
        session.kernel.shell_request(&ShellRequest::Complete { code: "long_n".into(), cursor: 1_000_000 }).unwrap();
    assert_eq!(outside["matches"], json!(["long_name"]));
    // The request did not run a cell.
    assert_eq!(session.run("1").execution_count, 2);
}

fn inspections(session: &mut Session) {
    session.text("def f(x: int) -> int:\n    \"\"\"Doubles.\"\"\"\n    return 2 * x");
    let mut inspect = |code: &str, detail| {
        session.kernel.shell_request(&ShellRequest::Inspect { code: code.into(), cursor: code.len(), detail }).unwrap()
    };
    let brief = inspect("f", 0);
    assert_eq!(brief["found"], true);
    let text = |answer: &Value| answer["data"]["text/plain"].as_str().unwrap().to_owned();
    assert!(text(&brief).contains("Doubles."), "{brief}");
    assert!(!text(&brief).contains("return 2 * x"), "{brief}");
    assert!(text(&inspect("f", 1)).contains("return 2 * x"));
    assert_eq!(inspect("nothing_of_this_name", 0)["found"], false);
}

fn completeness(session: &mut Session) {
    for (code, status) in [("1 + 1", "complete"), ("def f():", "incomplete"), ("1 +* 1", "invalid")] {
        let answer = session.kernel.shell_request(&ShellRequest::IsComplete { code: code.into() }).unwrap();
        assert_eq!(answer["status"], status, "{code}");
    }
}

fn user_expressions(session: &mut Session) {
    let cell = CellRequest { code: "x = 6\nprint?\nNone".into(), collect_payloads: true, ..CellRequest::default() };
    let executed = session.kernel.execute(&cell, session.listener.clone());
    assert!(!text_of(&executed).contains("Docstring"), "{executed:?}");
    let expressions = [("good", "x * 7"), ("bad", "y")].map(|(name, code)| (name.to_owned(), code.to_owned()));
    let answer =
        session.kernel.shell_request(&ShellRequest::UserExpressions { expressions: expressions.into() }).unwrap();
    assert_eq!(answer["payload"][0]["source"], "page", "{answer}");
    assert!(answer["payload"][0]["data"]["text/plain"].as_str().unwrap().contains("Docstring"), "{answer}");
    assert_eq!(answer["user_expressions"]["good"]["data"]["text/plain"], "42", "{answer}");
    assert_eq!(answer["user_expressions"]["bad"]["ename"], "NameError", "{answer}");
    // The payload is returned once.
    let answer = session.kernel.shell_request(&ShellRequest::UserExpressions { expressions: BTreeMap::new() }).unwrap();
    assert_eq!(answer, json!({ "payload": [], "user_expressions": {} }));
    assert_eq!(session.run("1").execution_count, 2);
}

fn help_without_a_pager(session: &mut Session) {
    let executed = session.run("len?");
    assert_eq!(executed.status, CellStatus::Ok);
    assert!(text_of(&executed).contains("Return the number of items in a container."), "{executed:?}");
}

/// The guest replaces the shell's completer.
fn unanswered(session: &mut Session) {
    session.text("kept = 1\nkernel = get_ipython().kernel\nimport time");
    let mut ask_of = |answers: &str, beginning: &str| {
        session.text(&format!("def do_complete(code, cursor):\n    {answers}\nkernel.do_complete = do_complete"));
        let begun = Instant::now();
        let refused = complete(session, "ke").unwrap_err().to_string();
        assert!(refused.starts_with(beginning), "{answers}: {refused}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{answers}");
        assert_eq!(session.text("kept"), "1", "{answers}");
    };
    ask_of("while True: time.sleep(1)", "TimeoutError: the kernel did not reply in time");
    ask_of("while True: pass", "TimeoutError: the kernel did not reply in time");
    ask_of("raise KeyError('x')", "the kernel sent an invalid reply");
    ask_of("return {'status': 'ok', 'x': 'y' * 30_000_000} and {'matches': []}", "the kernel sent an invalid reply");
    ask_of("return ['not', 'an', 'answer']", "the kernel sent an invalid reply");
    ask_of("return {'status': 'error', 'ename': 'E', 'evalue': 'v'}", "E: v");
    session.text("del kernel.do_complete");
    assert_eq!(matches(session, "kep"), ["kept"]);
}

fn exit_during_a_request(session: &mut Session) {
    session.text("import os\nkernel = get_ipython().kernel\nkernel.do_complete = lambda code, cursor: os._exit(4)");
    let refused = complete(session, "ke").unwrap_err().to_string();
    assert!(refused.contains("ended"), "{refused}");
    session.kernel.restart().unwrap();
    assert!(matches(session, "import colle").iter().any(|found| found == "collections"));
}
