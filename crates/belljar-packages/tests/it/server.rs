//! A web server on loopback for files that a test made.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Serves files until the test ends. Every request is remembered.
pub(crate) struct Server {
    address: std::net::SocketAddr,
    files: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server =
            Server { address: listener.local_addr().unwrap(), files: Arc::default(), requests: Arc::default() };
        let (files, requests) = (Arc::clone(&server.files), Arc::clone(&server.requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (files, requests) = (Arc::clone(&files), Arc::clone(&requests));
                std::thread::spawn(move || answer(stream, &files, &requests));
            }
        });
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/full/", self.address)
    }

    /// Puts a file under `/full/`.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) {
        self.files.lock().unwrap().insert(format!("/full/{name}"), bytes);
    }

    /// The paths asked for so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn answer(mut stream: TcpStream, files: &Mutex<HashMap<String, Vec<u8>>>, requests: &Mutex<Vec<String>>) {
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
    requests.lock().unwrap().push(path.clone());
    let file = files.lock().unwrap().get(&path).cloned();
    let (status, body) = match file {
        Some(bytes) => ("200 OK", bytes),
        None => ("404 Not Found", b"nothing here".to_vec()),
    };
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(&body);
}
