//! Tests of the protocol of calls, with a guest that keeps it and one that breaks it.

use std::io::{BufRead as _, BufReader, Read as _};

use belljar_core::Progress;
use belljar_core::kernel::{InputError, InputReply};
use belljar_core::progress::{NoProgress, ProgressStep, StepProgress};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::*;

/// An observer whose function `echo` returns its arguments with a buffer, and whose `hang` does not reply.
#[derive(Default)]
struct Functions {
    hanging: Mutex<Vec<(u64, ReplySender)>>,
    cancelled: Mutex<Vec<u64>>,
}

impl Progress for Functions {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        NoProgress.start(step)
    }
}

impl CellObserver for Functions {
    fn on_stream(&self, _: belljar_core::Stream, _: &[u8]) {}

    fn request_input(&self, _: &str, _: bool) -> Result<Receiver<InputReply>, InputError> {
        Err(InputError::Unavailable)
    }

    fn call_function(&self, call: FunctionCall, replies: &ReplySender) {
        if call.name == "hang" {
            return self.hanging.lock().push((call.id, replies.clone()));
        }
        let json = to_raw_value(&json!({ "arguments": call.arguments.json })).unwrap();
        let result = Ok(EncodedValue { json, buffers: vec![vec![1_u8, b'\n', 2].into()] });
        replies.send(FunctionReply { id: call.id, result }).unwrap();
    }

    fn cancel_function(&self, id: u64) {
        self.cancelled.lock().push(id);
    }
}

fn connection() -> (FunctionSocket, UnixStream) {
    let (host, guest) = UnixStream::pair().unwrap();
    guest.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    (FunctionSocket::new(host, Scrubber::default()).unwrap(), guest)
}

fn functions() -> (Arc<Functions>, Arc<dyn CellObserver>) {
    let functions = Arc::<Functions>::default();
    (functions.clone(), functions)
}

fn call(id: u64, name: &str) -> String {
    format!("{}\n", json!({ "call": { "id": id, "name": name, "arguments": [["x"], {}] } }))
}

#[test]
fn replies_have_the_guests_numbers_and_buffers() {
    let (mut socket, mut guest) = connection();
    let (_, observer) = functions();
    let mut calls = CellCalls::new(&mut socket, &observer);
    guest.write_all(format!("{}{}", call(7, "echo"), &call(3, "echo")[..10]).as_bytes()).unwrap();
    assert!(!calls.serve());
    let mut replies = BufReader::new(&guest);
    let mut line = String::new();
    replies.read_line(&mut line).unwrap();
    let reply: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(reply, json!({ "id": 7, "value": { "arguments": [["x"], {}] }, "buffers": [3] }));
    let mut buffer = [0; 3];
    replies.read_exact(&mut buffer).unwrap();
    assert_eq!(buffer, [1, b'\n', 2]);
    drop(calls);
    assert!(socket.has_effects());
}

#[test]
fn arguments_are_without_secrets() {
    const SECRET: &str = "the-value-of-the-secret";
    let mut secrets = belljar_network::Secrets::new();
    secrets.add("TOKEN", &["api.example"], SECRET.into()).unwrap();
    let (host, mut guest) = UnixStream::pair().unwrap();
    guest.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut socket = FunctionSocket::new(host, secrets.scrubber()).unwrap();
    let (_, observer) = functions();
    let mut calls = CellCalls::new(&mut socket, &observer);
    guest.write_all(call(7, "echo").replace("\"x\"", &format!("\"<{SECRET}>\"")).as_bytes()).unwrap();
    calls.serve();
    let mut line = String::new();
    BufReader::new(&guest).read_line(&mut line).unwrap();
    let reply: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(reply["value"]["arguments"], json!([[format!("<{}>", "*".repeat(SECRET.len()))], {}]));
}

#[test]
fn calls_end_with_their_cell() {
    let (mut socket, mut guest) = connection();
    let (functions, observer) = functions();
    let mut calls = CellCalls::new(&mut socket, &observer);
    guest.write_all(format!("{}{}", call(1, "hang"), call(2, "hang")).as_bytes()).unwrap();
    calls.serve();
    assert!(calls.is_busy() && calls.elapsed() > Duration::ZERO);
    guest.write_all(b"{\"cancel\": {\"id\": 1}}\n").unwrap();
    calls.serve();
    assert_eq!(*functions.cancelled.lock(), [0]);
    drop(calls);
    assert_eq!(*functions.cancelled.lock(), [0, 1]);
    // The reply of a call that was cancelled is not written.
    for (id, replies) in functions.hanging.lock().drain(..) {
        let result = Err(FunctionError { name: "late".into(), message: String::new() });
        let _ = replies.send(FunctionReply { id, result });
    }
    drop(socket);
    let mut text = String::new();
    guest.read_to_string(&mut text).unwrap();
    let reply: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&reply["id"], &reply["error"]["name"]), (&json!(2), &json!("RuntimeError")), "{text}");
}

#[test]
fn time_in_which_replies_are_not_read_is_that_of_the_code() {
    let (mut socket, mut guest) = connection();
    let (functions, observer) = functions();
    let mut calls = CellCalls::new(&mut socket, &observer);
    let mut writer = guest.try_clone().unwrap();
    let text = "x".repeat(1 << 20);
    let writing = std::thread::spawn(move || {
        for id in 0..8 {
            writer.write_all(call(id, "echo").replace("\"x\"", &format!("\"{text}\"")).as_bytes()).unwrap();
        }
        writer.write_all(call(8, "hang").as_bytes()).unwrap();
    });
    while functions.hanging.lock().is_empty() {
        calls.serve();
    }
    writing.join().unwrap();
    // The host waits until the guest has read the first replies.
    while calls.is_busy() {
        std::thread::yield_now();
    }
    let elapsed = calls.elapsed();
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(calls.elapsed(), elapsed);
    guest.set_nonblocking(true).unwrap();
    let mut part = vec![0; 1 << 20];
    // Until only the call that hangs is left.
    while calls.state.lock().pending > 1 {
        let _ = guest.read(&mut part);
    }
    assert!(calls.is_busy());
}

#[test]
fn guest_that_breaks_the_protocol_makes_no_calls() {
    let repeated = format!("{}{}", call(1, "hang"), call(1, "hang"));
    // Of the repeated call, the first is made.
    for request in ["{}\n", "not json\n", "{\"call\": {\"id\": -1}}\n", &repeated] {
        let (mut socket, mut guest) = connection();
        let (functions, observer) = functions();
        let mut calls = CellCalls::new(&mut socket, &observer);
        guest.write_all(format!("{request}{}", call(9, "hang")).as_bytes()).unwrap();
        calls.serve();
        assert!(calls.poll_fd().is_none(), "{request}");
        drop(calls);
        let before = usize::from(request == repeated);
        assert_eq!(functions.hanging.lock().len(), before, "a call after the broken request was made: {request}");
        assert!(socket.is_closed, "{request}");
    }
}

#[test]
fn line_without_an_end_is_refused() {
    let (mut socket, mut guest) = connection();
    let writer = std::thread::spawn(move || {
        let part = vec![b'x'; 1 << 20];
        // Until the host closes its end.
        while guest.write_all(&part).is_ok() {}
    });
    let (_, observer) = functions();
    let mut calls = CellCalls::new(&mut socket, &observer);
    while calls.poll_fd().is_some() {
        calls.serve();
    }
    writer.join().unwrap();
    drop(calls);
    assert!(socket.received.len() <= MAX_REQUEST + (1 << 20), "{}", socket.received.len());
}

#[test]
fn number_of_pending_calls_is_bounded() {
    let (mut socket, mut guest) = connection();
    let (functions, observer) = functions();
    let mut calls = CellCalls::new(&mut socket, &observer);
    let mut next = 0;
    while calls.poll_fd().is_some() {
        for _ in 0..100 {
            guest.write_all(call(next, "hang").as_bytes()).unwrap();
            next += 1;
        }
        calls.serve();
    }
    assert_eq!(functions.hanging.lock().len(), MAX_PENDING);
}
