//! A server over HTTP, whose tools a benchmark calls.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::Finding;

/// A server without MCP sessions.
pub(crate) struct HttpServer {
    child: Child,
    address: String,
}

impl HttpServer {
    /// Starts `belljar streamable-http-stateless` with options.
    pub(crate) fn start(options: &[&str]) -> Finding<Self> {
        let mut command = Command::new(super::program());
        command.args(["streamable-http-stateless", "--port", "0"]).args(super::isolation(options)).args(options);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().ok_or("no pipe")?).lines();
        let line = lines.next().ok_or("no address")??;
        // Reads on, or the server would fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let address = line.split('/').nth(2).ok_or("no address")?.to_owned();
        Ok(Self { child, address })
    }

    /// Opens a connection for calls with a token.
    pub(crate) fn client(&self, token: Option<&'static str>) -> Finding<Client> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, token, address: self.address.clone() })
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        // Fails if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection that is kept open.
pub(crate) struct Client {
    stream: TcpStream,
    token: Option<&'static str>,
    address: String,
}

impl Client {
    /// Runs code in an interpreter of its own.
    pub(crate) fn run(&mut self, code: &str) -> Finding<()> {
        let fields = self.call("run_python_code", &json!({ "python_code": code }))?;
        if fields["status"] == "success" { Ok(()) } else { Err(fields.to_string().into()) }
    }

    /// Calls a tool, and returns the structured content of its result.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Finding<Value> {
        let params = json!({ "name": tool, "arguments": arguments });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
        let authorization = self.token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\n{authorization}Content-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        self.stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
        let mut answer = Vec::new();
        let mut piece = [0; 8192];
        loop {
            let length = self.stream.read(&mut piece)?;
            if length == 0 {
                return Err("the server closed the connection".into());
            }
            answer.extend_from_slice(&piece[..length]);
            let text = String::from_utf8_lossy(&answer);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let wanted = head
                .to_ascii_lowercase()
                .lines()
                .find_map(|line| line.strip_prefix("content-length: ").and_then(|length| length.parse::<usize>().ok()));
            if body.len() < wanted.ok_or("no length")? {
                continue;
            }
            let mut message: Value = serde_json::from_str(body)?;
            return Ok(message["result"]["structuredContent"].take());
        }
    }
}
