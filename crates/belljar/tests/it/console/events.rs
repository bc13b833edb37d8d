//! Streams of events.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::operator::{Operator, TOKEN};

/// A stream of events.
struct Events(BufReader<TcpStream>);

impl Events {
    fn open(operator: &Operator, path: &str) -> Self {
        let authorization = format!("Bearer {TOKEN}");
        let headers = [("Authorization", authorization.as_str())];
        let mut reader = BufReader::new(operator.backend.open("GET", &format!("/admin/api/v1{path}"), &headers, b""));
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).unwrap();
        }
        Self(reader)
    }

    /// Returns the events up to the first of a kind.
    fn until(&mut self, change: &str) -> Vec<Value> {
        let mut events: Vec<Value> = Vec::new();
        while events.last().is_none_or(|event| event["change"] != change) {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended: {events:?}");
            if let Some(data) = line.strip_prefix("data: ") {
                events.push(serde_json::from_str(data).unwrap());
            }
        }
        events
    }
}

fn changes(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["change"].as_str().unwrap()).collect()
}

#[test]
fn output_arrives_while_the_code_runs() {
    let operator = Operator::start(&["--timeout", "600"]);
    let session = operator.create();
    let mut of_session = Events::open(&operator, &format!("/sessions/{session}/events"));
    let mut of_all = Events::open(&operator, "/events");
    let number = operator.submit(&session, "import sys\n_ = sys.stdout.write('é first\\n')\nwhile True: pass");
    let events = of_session.until("output");
    assert_eq!(changes(&events), ["queued", "began", "output"]);
    let expected = json!({
        "change": "output", "session": session, "cell": number, "stream": "stdout", "text": "é first\n", "end": 9,
    });
    assert_eq!(events.last(), Some(&expected));
    operator.send("POST", &format!("/sessions/{session}/interrupt"), None).with_status(200);
    of_session.until("completed");
    operator.send("DELETE", &format!("/sessions/{session}"), None);
    of_session.until("ended");
    // The stream of all sessions has no output.
    assert_eq!(changes(&of_all.until("ended")), ["queued", "began", "completed", "ended"]);
}

#[test]
fn streams_end_with_the_server() {
    let operator = Operator::start(&[]);
    let mut events = Events::open(&operator, "/events");
    operator.create();
    events.until("created");
    operator.backend.terminate();
    let mut rest = String::new();
    assert!(events.0.read_line(&mut rest).is_ok());
}
