//! The server under load, in a process of its own, and raw HTTP requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The options of the server. Its limits are small, so that every one is reached.
const SIZE: [&str; 17] = [
    "streamable-http",
    "--port",
    "0",
    "--no-install",
    "--max-concurrency",
    "4",
    "--max-queue",
    "2",
    "--max-sessions",
    "64",
    "--idle",
    "5",
    "--timeout",
    "2",
    "--memory",
    "256MB",
    "--max-output=1MB",
];

/// The longest time until an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A server process. It is killed when dropped.
pub(super) struct Server {
    child: Child,
    /// `127.0.0.1:PORT`.
    pub(super) address: String,
}

impl Server {
    pub(super) fn start(belljar: &Path) -> Result<Self, String> {
        let cannot = |error: std::io::Error| format!("failed to start {}: {error}", belljar.display());
        let mut command = Command::new(belljar);
        command.args(SIZE).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(cannot)?;
        let mut lines = BufReader::new(child.stderr.take().ok_or("the server has no standard error")?).lines();
        let line = lines.next().and_then(Result::ok).unwrap_or_default();
        // Prints the rest of its standard error, which would otherwise fill the pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(|line| println!("server: {line}")));
        let address = line.split('/').nth(2).map(str::to_owned);
        let server = Self { child, address: address.ok_or(format!("the server does not listen: {line}"))? };
        // The first call prepares Python, which may take a while.
        for _ in 0..600 {
            if server.metric("belljar_live_interpreters").is_ok() {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Err("the server does not answer".into())
    }

    /// Opens a connection and sends the head of a request and its body, or a part of it.
    pub(super) fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
        length: usize,
    ) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {length}\r\n",
            self.address
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        stream.write_all(&[head.as_bytes(), body].concat())?;
        Ok(stream)
    }

    /// Sends a request and returns the status and the rest of the response.
    pub(super) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> std::io::Result<(u16, String)> {
        let mut stream = self.open(method, path, headers, body, body.len())?;
        let (mut bytes, mut piece) = (Vec::new(), [0; 1 << 14]);
        let begin = Instant::now();
        loop {
            let count = stream.read(&mut piece)?;
            bytes.extend_from_slice(&piece[..count]);
            if count == 0 {
                break;
            }
            // Keep-alives do not count as an answer.
            if begin.elapsed() > ANSWER_TIMEOUT {
                return Err(std::io::Error::other(format!(
                    "no end of the answer after {} s",
                    ANSWER_TIMEOUT.as_secs()
                )));
            }
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
        status.map(|status| (status, text)).ok_or_else(|| std::io::Error::other("no HTTP"))
    }

    fn get(&self, path: &str) -> Result<String, String> {
        match self.send("GET", path, &[], b"") {
            Ok((200, text)) => Ok(text),
            Ok((status, text)) => Err(format!("{path} answers {status}: {text}")),
            Err(error) => Err(format!("{path}: {error}")),
        }
    }

    pub(super) fn healthy(&self) -> Result<(), String> {
        self.get("/healthz").map(drop)
    }

    pub(super) fn metric(&self, name: &str) -> Result<f64, String> {
        let text = self.get("/metrics")?;
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.ok_or_else(|| format!("there is no metric {name}"))
    }

    pub(super) fn resident_megabytes(&self) -> Result<u64, String> {
        Ok(self.metric("belljar_resident_memory_bytes")? as u64 >> 20)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
