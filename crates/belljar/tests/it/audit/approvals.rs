//! Approvals: the party that has answered, for each way to answer.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Log, end};
use crate::operator::Operator;
use crate::sessions::durable::{Fixture, open, question, reply, send_cell};
use crate::tool_client::tool_server;
use crate::wire::Wire;

const NOTE: &str =
    "from tools import t\ntry:\n    print(await t.note(text='hello'))\nexcept Exception as error:\n    print(error)";

/// Returns the event, the outcome and the party of each answer in a log.
fn answers(log: &Log) -> Vec<[String; 3]> {
    log.assert_intact();
    let events = ["approval.grant", "approval.deny", "approval.answer"];
    let records = log.records().into_iter().filter(|record| events.contains(&record["event"].as_str().unwrap()));
    records
        .map(|record| ["event", "outcome", "by"].map(|field| record[field].as_str().unwrap_or_default().to_owned()))
        .collect()
}

/// Returns the options of servers with tools and this log: without a data directory, and with one.
fn all_options(log: &Log, data: &TempDir, is_durable: bool) -> Vec<String> {
    let mut options = log.options().to_vec();
    options.push(tool_server("t", "plain"));
    if is_durable {
        options.extend(["--data-dir".to_owned(), data.path().display().to_string()]);
    }
    options
}

fn is_asking(cell: &Value) -> bool {
    cell["questions"].as_array().is_some_and(|questions| !questions.is_empty())
}

fn has_ended(cell: &Value) -> bool {
    !cell["ended"].is_null()
}

#[test]
fn answers_of_clients_are_recorded_as_theirs() {
    for is_durable in [false, true] {
        let (log, data) = (Log::new(), tempfile::tempdir().unwrap());
        let options = all_options(&log, &data, is_durable);
        let arguments = ["--toolset", "interpreter"].into_iter().chain(options.iter().map(String::as_str));
        let mut wire = Wire::start_with(arguments, json!({ "elicitation": {} }));
        let session = open(&mut wire);
        for line in ["yes", "no", "session"] {
            let cell = send_cell(&mut wire, &session, NOTE);
            let asked = question(&mut wire);
            reply(&mut wire, &asked, line);
            wire.answer(cell);
        }
        end(wire);
        let expected = [
            ["approval.grant", "once", "client"],
            ["approval.deny", "denied", "client"],
            ["approval.grant", "session", "client"],
        ];
        assert_eq!(answers(&log), expected, "durable: {is_durable}");
        let digest = belljar_audit::digest(&session);
        assert!(
            log.of("approval.grant").iter().all(|record| record["session"] == digest && record["name"] == "t.note")
        );
    }
}

#[test]
fn answers_of_operators_are_recorded_as_theirs() {
    for is_durable in [false, true] {
        let (log, data) = (Log::new(), tempfile::tempdir().unwrap());
        let options = all_options(&log, &data, is_durable);
        let operator = Operator::start(&options.iter().map(String::as_str).collect::<Vec<_>>());
        let session = operator.create();
        for decision in ["approve", "deny"] {
            let number = operator.submit(&session, NOTE);
            let cell = operator.wait_for_cell(&session, number, is_asking);
            let path = format!("/sessions/{session}/cells/{number}/questions/{}", cell["questions"][0]["number"]);
            assert_eq!(operator.send("POST", &path, Some(&json!({ "decision": decision }))).status, 204);
            operator.wait_for_cell(&session, number, has_ended);
        }
        let Operator { backend, .. } = operator;
        backend.terminate();
        let expected = [["approval.grant", "once", "operator"], ["approval.deny", "denied", "operator"]];
        assert_eq!(answers(&log), expected, "durable: {is_durable}");
        for event in ["approval.grant", "approval.deny"] {
            let shown = log.show(&["--event", event]);
            assert!(shown.contains(" t.note ") && shown.contains(" by=operator "), "{shown}");
        }
    }
}

#[test]
fn answers_on_the_command_line_are_those_of_operators() {
    for (command, answered, outcome) in [
        ("approve", "answer", ["approval.grant", "once", "operator"]),
        ("deny", "deny", ["approval.deny", "denied", "operator"]),
    ] {
        let log = Log::new();
        let audit = log.options();
        let fixture = Fixture::new(&[audit[0].as_str(), audit[1].as_str()]);
        let mut wire = fixture.serve();
        let session = open(&mut wire);
        let cell = send_cell(&mut wire, &session, "from tools import t\nawait t.append(text='x')");
        question(&mut wire);
        let run = fixture.waiting_run()["run"].as_str().unwrap().to_owned();
        assert_eq!(fixture.belljar(&[command, &run]).status, Some(0));
        wire.answer(cell);
        end(wire);
        assert_eq!(answers(&log), [["approval.answer", answered, "operator"], outcome], "{command}");
        assert_eq!(log.one("approval.answer")["run"], belljar_audit::digest(&run));
    }
}

#[test]
fn question_of_a_cell_that_has_ended_has_no_answer() {
    for is_durable in [false, true] {
        let (log, data) = (Log::new(), tempfile::tempdir().unwrap());
        let options = all_options(&log, &data, is_durable);
        let operator = Operator::start(&options.iter().map(String::as_str).collect::<Vec<_>>());
        let session = operator.create();
        // The server of tools runs before the question.
        operator.run(&session, "from tools import t\nawait t.add(a=1)");
        // On a busy machine, a cell may end before its question is seen.
        let asks = |seconds: &u32| {
            let note = "import asyncio\ntask = asyncio.ensure_future(t.note(text='hello'))";
            let number = operator.submit(&session, &format!("{note}\nawait asyncio.sleep({seconds})"));
            let cell = operator.wait_for_cell(&session, number, |cell| is_asking(cell) || has_ended(cell));
            operator.wait_for_cell(&session, number, has_ended);
            is_asking(&cell)
        };
        let attempts = 1 + [3, 15, 60].iter().position(asks).unwrap();
        let Operator { backend, .. } = operator;
        backend.terminate();
        assert_eq!(answers(&log), [[""; 3]; 0], "durable: {is_durable}");
        assert!((1..=attempts).contains(&log.of("approval.ask").len()), "{attempts}: {}", log.text());
    }
}
