//! An HTTP server on loopback that serves files of a test.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A server that runs until the test ends and records all requests.
pub(crate) struct Server {
    address: std::net::SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    files: Mutex<HashMap<String, Vec<u8>>>,
    requests: Mutex<Vec<String>>,
    failing: AtomicBool,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server { address: listener.local_addr().unwrap(), state: Arc::default() };
        let state = Arc::clone(&server.state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&state);
                std::thread::spawn(move || answer(stream, &state));
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/full/", self.address)
    }

    /// Adds a file under `/full/`.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) {
        self.state.files.lock().unwrap().insert(format!("/full/{name}"), bytes);
    }

    /// Returns the requested paths so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Makes the server answer all further requests with errors.
    pub(crate) fn fail(&self) {
        self.state.failing.store(true, Ordering::Relaxed);
    }
}

fn answer(mut stream: TcpStream, state: &State) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    let _ = reader.read_line(&mut line);
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    while line.trim() != "" {
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            break;
        }
    }
    state.requests.lock().unwrap().push(path.clone());
    let file = state.files.lock().unwrap().get(&path).cloned();
    let (status, body) = match file {
        _ if state.failing.load(Ordering::Relaxed) => ("503 Service Unavailable", b"later".to_vec()),
        Some(bytes) => ("200 OK", bytes),
        None => ("404 Not Found", b"nothing here".to_vec()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&body);
}
