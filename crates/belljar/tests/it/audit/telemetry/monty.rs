//! The spans of feeds of Monty's protocol.

use std::io::{Read as _, Write as _};
use std::process::{Child, Stdio};

use belljar_testing::install::run;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;

use super::super::Log;
use super::{PARENT, TRACE, exporting, has, hex, named};
use crate::harness::Belljar;
use crate::monty_worker::script;
use crate::otlp_receiver::Receiver;
use crate::serve::http::Listening;

#[test]
fn feeds_of_monty_are_spans() {
    let receiver = Receiver::start();
    let belljar = Belljar::new().args(["streamable-http", "--port", "0", "--monty"]);
    let server = Listening::spawn(exporting(belljar, &receiver));
    let url = server.url.replacen("http", "ws", 1).replace("/mcp", "/monty");
    run(script("async_client.py").arg(url).arg("no token is needed"));
    server.end();
    let spans = receiver.spans(|spans| has(spans, &["feed", "run"]));
    let feed = named(&spans, "feed");
    assert_eq!(feed.kind, SpanKind::Server as i32);
    assert!(spans.iter().any(|span| span.name == "run" && span.parent_span_id == feed.span_id), "{spans:#?}");
}

#[test]
fn feeds_of_monty_continue_the_traces_of_their_requests() {
    let receiver = Receiver::start();
    let belljar = Belljar::new().args(["streamable-http", "--port", "0", "--monty"]);
    let server = Listening::spawn(exporting(belljar, &receiver));
    let url = server.url.replacen("http", "ws", 1).replace("/mcp", "/monty");
    run(script("trace_parent.py").arg(url).arg(format!("00-{TRACE}-{PARENT}-01")));
    server.end();
    let spans = receiver.spans(|spans| has(spans, &["feed", "run"]));
    let feed = named(&spans, "feed");
    assert_eq!((hex(&feed.trace_id).as_str(), hex(&feed.parent_span_id).as_str()), (TRACE, PARENT));
    assert_eq!(named(&spans, "run").parent_span_id, feed.span_id);
}

/// Returns a field of a message of Monty's protocol, with a number below 32 and less than 128 bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let key = (number << 3) | 2;
    let key = if key < 128 { vec![key] } else { vec![(key & 0x7f) | 0x80, key >> 7] };
    [key, vec![u8::try_from(content.len()).unwrap()], content.to_vec()].concat()
}

/// Sends a request to a worker of Monty's protocol, and returns the number of the event that ends its turn.
fn ask_worker(worker: &mut Child, request: &[u8]) -> u8 {
    const OUTPUT: u8 = 1;
    let frame = [&u32::try_from(request.len()).unwrap().to_le_bytes()[..], request].concat();
    worker.stdin.as_mut().unwrap().write_all(&frame).unwrap();
    loop {
        let mut length = [0; 4];
        let events = worker.stdout.as_mut().unwrap();
        events.read_exact(&mut length).unwrap();
        let mut event = vec![0; u32::from_le_bytes(length) as usize];
        events.read_exact(&mut event).unwrap();
        if event[0] >> 3 != OUTPUT {
            return event[0] >> 3;
        }
    }
}

#[test]
fn local_workers_of_monty_have_an_audit_log_and_spans() {
    const OK: u8 = 10;
    const COMPLETE: u8 = 6;
    let receiver = Receiver::start();
    let log = Log::new();
    let mut command = exporting(Belljar::new().arg("monty").args(log.options()), &receiver).into_command();
    let mut worker = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let create = field(1, &[field(1, b"main.py"), vec![9 << 3, 6]].concat());
    assert_eq!(ask_worker(&mut worker, &create), OK);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let feed = [field(3, &field(1, b"1 + 1")), field(20, parent.as_bytes())].concat();
    assert_eq!(ask_worker(&mut worker, &feed), COMPLETE);
    drop(worker.stdin.take());
    assert!(worker.wait().unwrap().success());
    log.assert_intact();
    let cell = log.one("cell.end");
    assert_eq!((&cell["protocol"], &cell["outcome"]), (&json!("monty"), &json!("success")), "{cell}");
    assert_eq!((&cell["trace_id"], &cell["code_sha256"]), (&json!(TRACE), &json!(belljar_audit::sha256("1 + 1"))));
    let spans = receiver.spans(|spans| has(spans, &["feed", "run"]));
    let feed = named(&spans, "feed");
    assert_eq!((hex(&feed.trace_id).as_str(), hex(&feed.parent_span_id).as_str()), (TRACE, PARENT));
}
