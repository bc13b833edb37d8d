//! Cells that wait on the disk go on in the trace of the call that began them, and are recorded by its protocol.

use std::process::Stdio;

use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;

use super::telemetry::{PARENT, TRACE, exporting, hex};
use super::{Log, end};
use crate::harness::Belljar;
use crate::operator::Operator;
use crate::otlp_receiver::Receiver;
use crate::sessions::durable::{Fixture, fields, kill, open, question, reply, wait_for};
use crate::wire::Wire;

const CODE: &str = "from tools import t\nawait t.append(text='a')\nawait t.append(text='b')";
const TOOL: &str = "execute_tool t.append";

/// Starts a server that exports to a receiver, for a client that can be asked.
fn serve(fixture: &Fixture, receiver: &Receiver) -> Wire {
    let mut command = exporting(Belljar::new().arg("stdio").args(fixture.options()), receiver).into_command();
    command.stderr(Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize_with(json!({ "elicitation": {} }));
    wire
}

/// Sends a cell that asks twice, and returns the ID of the request.
fn send(wire: &mut Wire, session: &str) -> u64 {
    let arguments = json!({ "code": CODE, "session_id": session });
    let meta = json!({ "traceparent": format!("00-{TRACE}-{PARENT}-01"), "tracestate": "vendor=1" });
    wire.send("tools/call", json!({ "name": "execute_code", "arguments": arguments, "_meta": meta }))
}

/// Answers two questions, and checks the result of the cell, which is the answer to this request.
fn answer_both(wire: &mut Wire, request: u64) {
    for _ in 0..2 {
        let asked = question(wire);
        reply(wire, &asked, "yes");
    }
    assert_eq!(fields(&wire.answer(request)["result"])["result"], "'call 2'");
}

/// Returns the spans of the trace with this name, the earliest first.
fn of_trace<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    let mut found: Vec<_> = spans.iter().filter(|span| span.name == name && hex(&span.trace_id) == TRACE).collect();
    found.sort_by_key(|span| span.start_time_unix_nano);
    found
}

/// Checks that the calls of tools in a log are in the trace, and returns their outcomes.
fn recorded_calls(log: &Log) -> Vec<String> {
    log.assert_intact();
    let ends = log.of("tool.end");
    for record in &ends {
        assert_eq!((&record["trace_id"], &record["protocol"]), (&json!(TRACE), &json!("mcp")), "{record}");
    }
    ends.iter().map(|record| record["outcome"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn calls_after_a_sleep_are_in_the_trace_of_the_cell() {
    let (receiver, log) = (Receiver::start(), Log::new());
    let audit = log.options();
    let fixture = Fixture::new(&["--sleep-after", "0.1", &audit[0], &audit[1]]);
    let mut wire = serve(&fixture, &receiver);
    let session = open(&mut wire);
    let request = send(&mut wire, &session);
    // The stage ends when the interpreter is on the disk.
    receiver.spans(|spans| of_trace(spans, "run").len() == 1);
    answer_both(&mut wire, request);
    end(wire);
    let is_complete = |spans: &[Span]| {
        of_trace(spans, "tools/call execute_code").len() == 1
            && of_trace(spans, TOOL).len() >= 3
            && of_trace(spans, "run").len() >= 2
    };
    let spans = receiver.spans(is_complete);
    let call = of_trace(&spans, "tools/call execute_code")[0];
    assert_eq!(hex(&call.parent_span_id), PARENT);
    for name in ["queue", "restore", "run", TOOL] {
        for span in of_trace(&spans, name) {
            assert_eq!((&span.parent_span_id, span.trace_state.as_str()), (&call.span_id, "vendor=1"), "{span:?}");
        }
    }
    let slept = of_trace(&spans, "run")[0].end_time_unix_nano;
    let woken = of_trace(&spans, "restore").into_iter().find(|span| span.start_time_unix_nano >= slept);
    let woken = woken.unwrap_or_else(|| panic!("the cell was not restored: {spans:#?}"));
    assert!(of_trace(&spans, "run")[1].start_time_unix_nano >= woken.start_time_unix_nano, "{spans:#?}");
    assert_eq!(recorded_calls(&log), ["ok", "ok"]);
}

#[test]
fn calls_after_a_restart_are_in_the_trace_of_the_cell() {
    let (receiver, log) = (Receiver::start(), Log::new());
    let audit = log.options();
    let fixture = Fixture::new(&[audit[0].as_str(), audit[1].as_str()]);
    let mut wire = serve(&fixture, &receiver);
    let session = open(&mut wire);
    send(&mut wire, &session);
    question(&mut wire);
    let run = fixture.waiting_run()["run"].as_str().unwrap().to_owned();
    // The span of the call ends with the process, and is not exported.
    let spans = receiver.spans(|spans| !of_trace(spans, "queue").is_empty());
    let call = of_trace(&spans, "queue")[0].parent_span_id.clone();
    kill(wire);

    let mut wire = serve(&fixture, &receiver);
    let request = wire.send("tools/call", json!({ "name": "resume_run", "arguments": { "run_id": run } }));
    answer_both(&mut wire, request);
    end(wire);
    let names = ["restore", "run", TOOL];
    let spans =
        receiver.spans(|spans| names.iter().zip([1, 1, 2]).all(|(name, count)| of_trace(spans, name).len() >= count));
    for span in names.iter().flat_map(|name| of_trace(&spans, name)) {
        assert_eq!((&span.parent_span_id, span.trace_state.as_str()), (&call, "vendor=1"), "{span:?}");
    }
    assert_eq!(recorded_calls(&log), ["ok", "ok"]);
}

#[test]
fn cell_of_an_operator_is_recorded_as_that_after_a_restart() {
    let log = Log::new();
    let audit = log.options();
    let fixture = Fixture::new(&[audit[0].as_str(), audit[1].as_str()]);
    let operator = Operator::start(&fixture.options().collect::<Vec<_>>());
    let session = operator.create();
    let number = operator.submit(&session, "from tools import t\nawait t.append(text='a')");
    let is_asking = |cell: &serde_json::Value| cell["questions"].as_array().is_some_and(|asked| !asked.is_empty());
    operator.wait_for_cell(&session, number, is_asking);
    let run = fixture.waiting_run()["run"].as_str().unwrap().to_owned();
    let Operator { backend, .. } = operator;
    backend.terminate();

    let wire = fixture.serve();
    assert_eq!(fixture.belljar(&["approve", &run]).status, Some(0));
    let is_done = |event: &str, outcome: &str| log.of_complete(event).iter().any(|record| record["outcome"] == outcome);
    wait_for(|| is_done("tool.end", "ok") && is_done("cell.end", "success"));
    end(wire);
    for record in ["tool.start", "tool.end", "cell.end"].iter().flat_map(|event| log.of(event)) {
        assert_eq!(record["protocol"], "admin", "{record}");
    }
}
