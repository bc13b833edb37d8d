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
fn one_stream_has_all_sessions_and_the_output_of_one() {
    let operator = Operator::start(&[]);
    let (session, other) = (operator.create(), operator.create());
    let mut events = Events::open(&operator, &format!("/events?session={session}"));
    for (handle, expected) in [
        (&other, &["queued", "began", "completed"][..]),
        (&session, &["queued", "began", "output", "completed"][..]),
        (&other, &["queued", "began", "completed"][..]),
    ] {
        operator.run(handle, "import sys\n_ = sys.stdout.write('out\\n')");
        let received = events.until("completed");
        assert_eq!(changes(&received), expected);
        assert!(received.iter().all(|event| event["session"] == json!(handle)), "{received:?}");
    }
    operator.send("GET", "/events?session=0123456789abcdef", None).refusal(404);
}

#[test]
fn updates_and_connections_are_shown_while_the_code_runs() {
    let operator = Operator::start(&["--timeout", "600", "--allow-net", "api.example.com"]);
    let session = operator.create();
    let mut events = Events::open(&operator, &format!("/sessions/{session}/events"));
    let shown = |number: u64| {
        let cell = operator.get(&format!("/sessions/{session}/cells/{number}"));
        assert!(cell["ended"].is_null(), "{cell:#}");
        cell
    };
    let stop = |events: &mut Events| {
        operator.send("POST", &format!("/sessions/{session}/interrupt"), None).with_status(200);
        events.until("completed");
    };
    let code = "import socket\ntry:\n    socket.create_connection(('other.example.com', 443))\n\
                except OSError:\n    pass\nwhile True: pass";
    let number = operator.submit(&session, code);
    assert_eq!(changes(&events.until("called")), ["queued", "began", "called"]);
    assert_eq!(shown(number)["connections"][0]["host"], "other.example.com");
    stop(&mut events);

    let code = "import itertools, time\nbar = display(0, display_id=True)\n\
                for step in itertools.count():\n    bar.update(step)\n    time.sleep(0.01)";
    let number = operator.submit(&session, code);
    let mut step = || {
        events.until("displayed");
        let cell = shown(number);
        assert_eq!(cell["outputs"].as_array().unwrap().len(), 1, "{cell:#}");
        cell["outputs"][0]["data"]["text/plain"].as_str().unwrap().parse::<u64>().unwrap()
    };
    let first = step();
    while step() < first + 3 {}
    stop(&mut events);
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
