//! Approval of calls, and the grants that answers leave.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use belljar_audit::{Audit, AuditOptions, Details, Event, FileSink, Record};
use belljar_core::activity::trace::Trace;
use belljar_core::kernel::{CellObserver, NullObserver};
use belljar_core::{Activity, CellWatcher, OperatorAnswer, ToolCallEvent};
use belljar_tools::{
    Approval, ApprovalMode, ApprovalRequest, Approver, NoToolEvents, ToolLimits, ToolObserver, ToolPolicy,
    ToolRunContext,
};
use serde_json::{Value, json};

use crate::harness::{Answers, START_TIMEOUT, Session, error, one, runtime, server};

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

/// The operators of a cell, who give an answer.
struct Operators(OperatorAnswer);

impl CellWatcher for Operators {
    fn on_call(&self, _: &ToolCallEvent<'_>) {}

    fn ask(&self, _: String) -> Pin<Box<dyn Future<Output = OperatorAnswer> + Send + '_>> {
        Box::pin(async { self.0.clone() })
    }
}

/// A user who does not answer.
struct SilentUser;

#[async_trait]
impl Approver for SilentUser {
    async fn approve(&self, _: ApprovalRequest) -> Result<Approval, String> {
        std::future::pending().await
    }
}

/// Waits for an event in an audit log, and returns the records.
fn wait_for_record(path: &Path, event: &str) -> Vec<Value> {
    let begin = Instant::now();
    loop {
        let text = std::fs::read_to_string(path).unwrap();
        if text.ends_with('\n') && text.contains(&format!("\"event\":\"{event}\"")) {
            return text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        assert!(begin.elapsed() < START_TIMEOUT, "no {event}: {text}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the records of a call that operators are asked about, after the event `tool.start`.
fn records_of_a_call(answer: OperatorAnswer) -> Vec<Value> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let options = AuditOptions { file: Some(FileSink::open(&path, None).unwrap()), ..AuditOptions::default() };
    let audit = Audit::start(options, Record::new(Event::ServerStart, Details::default())).unwrap();
    let session = session("plain", ApprovalMode::Writes, &[]);
    let run = session.run_in(ToolRunContext {
        scope: Activity::new(audit, false).scope("mcp", None, Trace::default()),
        runtime: runtime().handle().clone(),
        approver: Arc::new(SilentUser),
        grants: session.grants.clone(),
        events: Arc::new(NoToolEvents),
    });
    let is_withdrawn = answer == OperatorAnswer::Withdrawn;
    let observer = ToolObserver::new(Arc::new(NullObserver), run.run.clone());
    let operators: Arc<dyn CellWatcher> = Arc::new(Operators(answer));
    observer.watch(&operators);
    run.start_call(1, "note", json!({"text": "x"}));
    if is_withdrawn {
        wait_for_record(&path, "approval.ask");
        assert!(run.replies.recv_timeout(Duration::from_millis(200)).is_err(), "a withdrawn question has an answer");
        // The code has ended.
        drop(observer);
    }
    let records = wait_for_record(&path, "tool.end");
    records.into_iter().skip_while(|record| record["event"] != "tool.start").skip(1).collect()
}

#[test]
fn records_name_the_operator_who_answered_and_no_answer_of_a_withdrawn_question() {
    let granted = records_of_a_call(OperatorAnswer::Line("session".into()));
    let events = |records: &[Value]| records.iter().map(|record| record["event"].clone()).collect::<Vec<_>>();
    assert_eq!(events(&granted), ["approval.ask", "approval.grant", "tool.end"]);
    assert_eq!((&granted[1]["by"], &granted[1]["outcome"]), (&json!("operator"), &json!("session")));
    let denied = records_of_a_call(OperatorAnswer::Declined);
    assert_eq!(events(&denied), ["approval.ask", "approval.deny", "tool.end"]);
    assert_eq!((&denied[1]["by"], &denied[1]["outcome"]), (&json!("operator"), &json!("denied")));
    let withdrawn = records_of_a_call(OperatorAnswer::Withdrawn);
    assert_eq!(events(&withdrawn), ["approval.ask", "tool.end"]);
    assert_eq!(withdrawn[1]["outcome"], "cancelled");
}
