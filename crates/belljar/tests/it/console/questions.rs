//! Questions of code, and the answers of operators.

use serde_json::{Value, json};

use crate::operator::{Operator, written};
use crate::tool_client::tool_server;

const NOTE: &str =
    "from tools import t\ntry:\n    print(await t.note(text='hello'))\nexcept Exception as error:\n    print(error)";

pub(super) fn is_asking(cell: &Value) -> bool {
    cell["questions"].as_array().is_some_and(|questions| !questions.is_empty())
}

fn answer(operator: &Operator, session: &str, cell: &Value, answer: &Value) -> u16 {
    let (number, question) = (&cell["number"], &cell["questions"][0]["number"]);
    let path = format!("/sessions/{session}/cells/{number}/questions/{question}");
    operator.send("POST", &path, Some(answer)).status
}

/// Checks approvals and denials of calls on a server with these options.
fn check_approvals(options: &[&str]) {
    let server = tool_server("t", "plain");
    let operator = Operator::start(&[&[server.as_str()], options].concat());
    let session = operator.create();
    for (decision, shown, status) in [("approve", "hello", "ok"), ("deny", "denied", "denied")] {
        let number = operator.submit(&session, NOTE);
        let cell = operator.wait_for_cell(&session, number, is_asking);
        assert_eq!((&cell["state"], &cell["questions"][0]["kind"]), (&json!("waiting"), &json!("approval")), "{cell}");
        let message = cell["questions"][0]["message"].as_str().unwrap();
        assert!(message.contains("the tool note of the MCP server t"), "{message}");
        assert_eq!(operator.get("/questions?session=0123456789abcdef")["questions"], json!([]));
        let open = operator.get(&format!("/questions?session={session}"));
        assert_eq!(
            (&open["questions"][0]["session"], &open["questions"][0]["cell"]),
            (&json!(session), &json!(number))
        );
        assert_eq!(operator.get("/sessions?asking=true")["matching"], 1);
        assert_eq!(answer(&operator, &session, &cell, &json!({ "line": "yes" })), 422);
        assert_eq!(answer(&operator, &session, &cell, &json!({})), 422);
        assert_eq!(answer(&operator, &session, &cell, &json!({ "decision": decision })), 204);
        assert_eq!(answer(&operator, &session, &cell, &json!({ "decision": decision })), 409);
        let cell = operator.wait_for_cell(&session, number, |cell| !cell["ended"].is_null());
        assert!(written(&cell, "stdout").contains(shown), "{cell:#}");
        let call = &cell["calls"][0];
        assert_eq!((&call["server"], &call["tool"], &call["status"]), (&json!("t"), &json!("note"), &json!(status)));
        assert!(call["arguments"].as_str().unwrap().contains("hello"), "{call}");
    }
    // An approval for the session is for the next cell, too.
    let number = operator.submit(&session, NOTE);
    let cell = operator.wait_for_cell(&session, number, is_asking);
    assert_eq!(answer(&operator, &session, &cell, &json!({ "decision": "approve-session" })), 204);
    operator.wait_for_cell(&session, number, |cell| !cell["ended"].is_null());
    assert!(written(&operator.run(&session, NOTE), "stdout").contains("hello"));
    assert_eq!(operator.get("/questions"), json!({ "questions": [], "has_more": false }));
}

#[test]
fn calls_are_approved_and_denied() {
    check_approvals(&[]);
}

#[test]
fn calls_of_runs_that_survive_the_server_are_approved_and_denied() {
    let directory = tempfile::tempdir().unwrap();
    check_approvals(&["--data-dir", directory.path().to_str().unwrap()]);
}

#[test]
fn operators_answer_for_clients_that_cannot_be_asked() {
    let server = tool_server("t", "plain");
    let operator = Operator::start(&[&server]);
    let id = operator.backend.create();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| operator.backend.run(&id, NOTE));
        let session = loop {
            let asking = operator.get("/questions");
            match asking["questions"][0]["session"].as_str() {
                Some(session) => break session.to_owned(),
                None => std::thread::sleep(std::time::Duration::from_millis(20)),
            }
        };
        let cell = operator.wait_for_cell(&session, 1, is_asking);
        assert_eq!(answer(&operator, &session, &cell, &json!({ "decision": "approve" })), 204);
        let content = client.join().unwrap();
        assert!(content["stdout"].as_str().unwrap().contains("hello"), "{content}");
    });
}

#[test]
fn input_of_operators_cells_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    for options in [&[][..], &["--data-dir", directory.path().to_str().unwrap()]] {
        let operator = Operator::start(options);
        let session = operator.create();
        let number = operator.submit(&session, "name = input('Who? ')\nprint('hello', name)");
        let cell = operator.wait_for_cell(&session, number, is_asking);
        let question = &cell["questions"][0];
        assert_eq!((&question["kind"], &question["message"]), (&json!("input"), &json!("Who? ")), "{options:?}");
        assert_eq!(answer(&operator, &session, &cell, &json!({ "decision": "approve" })), 422);
        assert_eq!(answer(&operator, &session, &cell, &json!({ "line": "two\nlines" })), 422);
        assert_eq!(answer(&operator, &session, &cell, &json!({ "line": "Ada <b>" })), 204);
        let cell = operator.wait_for_cell(&session, number, |cell| !cell["ended"].is_null());
        assert!(written(&cell, "stdout").contains("hello Ada <b>\n"), "{cell:#}");
    }
}

#[test]
fn questions_of_stored_runs_are_answered_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let server = tool_server("t", "plain");
    let options = ["--data-dir", directory.path().to_str().unwrap(), &server];
    let operator = Operator::start(&options);
    let session = operator.create();
    let number = operator.submit(&session, NOTE);
    operator.wait_for_cell(&session, number, is_asking);
    let Operator { backend, .. } = operator;
    backend.terminate();
    let operator = Operator::start(&options);
    let cell = operator.wait_for_cell(&session, 1, is_asking);
    assert_eq!(operator.get(&format!("/sessions/{session}"))["state"], "waiting");
    assert_eq!(answer(&operator, &session, &cell, &json!({ "decision": "approve" })), 204);
    let cell = operator.wait_for_cell(&session, 1, |cell| !cell["ended"].is_null());
    assert!(written(&cell, "stdout").contains("hello"), "{cell:#}");
}
