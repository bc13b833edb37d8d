//! Approval of calls, and the grants that answers leave.

use belljar_tools::{Approval, ApprovalMode, ToolLimits, ToolPolicy};
use serde_json::json;

use crate::harness::{Answers, Session, error, one, server};

fn session(mode: &str, approve: ApprovalMode, answers: &[Approval]) -> Session {
    let policy = ToolPolicy::new(&[], &[], approve).unwrap();
    let session = Session::new(&[server("t", mode)], policy, ToolLimits::default());
    Session { approver: Answers::new(answers), ..session }
}

#[test]
fn answer_holds_for_a_call_a_run_or_a_session() {
    let answers = [Approval::ToolForSession, Approval::ToolForRun, Approval::Denied, Approval::Once];
    let session = session("plain", ApprovalMode::Writes, &answers);
    let run = session.run();
    let note = |run: &crate::harness::TestRun| run.call("note", json!({"text": "x"}));
    let asked = || session.approver.questions.lock().len();
    // Read-only tools need no approval.
    assert_eq!(one(run.call("add", json!({"a": 1}))), json!(2));
    assert_eq!(asked(), 0);
    assert_eq!(one(note(&run)), json!("noted x"));
    let question = session.approver.questions.lock()[0].clone();
    assert_eq!((question.server.as_str(), question.tool.as_str()), ("t", "note"));
    assert_eq!((question.arguments.as_str(), question.line.as_str()), (r#"{"text":"x"}"#, "main.py:1: line"));
    let denied = error(note(&run));
    assert_eq!(denied, ("tools.ToolDenied".into(), "the user denied the call of `t.note`".into()));
    // For this run.
    assert_eq!((one(note(&run)), one(note(&run)), asked()), (json!("noted x"), json!("noted x"), 3));
    // For the session.
    let next = session.run();
    assert_eq!((one(note(&next)), asked()), (json!("noted x"), 4));
    assert_eq!((one(note(&session.run())), asked()), (json!("noted x"), 4));
}

#[test]
fn denial_contains_the_reason_why_the_user_was_not_asked() {
    let session = session("plain", ApprovalMode::All, &[]);
    let run = session.run();
    let (class, message) = error(run.call("add", json!({"a": 1})));
    assert_eq!(class, "tools.ToolDenied");
    assert_eq!(message, "the call of `t.add` needs approval: there is no answer");
    assert_eq!(error(run.operate("read", json!(["t", "test://note", ""]))).0, "tools.ToolDenied");
}

#[test]
fn invalid_call_is_not_put_to_the_user() {
    let session = session("plain", ApprovalMode::All, &[Approval::Once]);
    assert_eq!(error(session.run().call("note", json!({"text": 1}))).0, "tools.ToolError");
    assert!(session.approver.questions.lock().is_empty());
}

#[test]
fn calls_at_the_same_time_ask_once() {
    let session = session("plain", ApprovalMode::Writes, &[Approval::ToolForRun]);
    let run = session.run();
    for id in 0..5 {
        run.start_call(id, "note", json!({"text": "x"}));
    }
    for _ in 0..5 {
        run.replies.recv().unwrap().result.unwrap();
    }
    assert_eq!(session.approver.questions.lock().len(), 1);
}

#[test]
fn changed_tool_must_be_approved_again() {
    let session = session("changing", ApprovalMode::Writes, &[Approval::Denied, Approval::ToolForSession]);
    let note = || session.run().call("note", json!({"text": "x"}));
    assert_eq!(one(note()), json!("noted x"));
    assert_eq!(one(session.run().call("change", json!({}))), json!("changed"));
    // The list is at most a second old.
    while note().is_ok() {
        std::thread::yield_now();
    }
    let questions = session.approver.questions.lock();
    assert_eq!(questions.iter().map(|question| question.has_changed).collect::<Vec<_>>(), [false, true]);
}
