//! Requests to the admin API of a running server.

use std::fs::File;
use std::io::{BufRead as _, BufReader, IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use super::{AdminArguments, connection};
use crate::command_error::CommandError;
use crate::console::{print, print_line};
use crate::health_check::reason;
use crate::untrusted_text::{escape_in_json, strip_control_chars};

/// The time in which the server must answer a request that is not a stream.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum length of an answer, in bytes.
const MAX_ANSWER: u64 = 64 << 20;
/// The number of bytes of a file that are read at once.
const CHUNK: usize = 64 << 10;

/// The client of a server.
pub(super) struct Client {
    agent: ureq::Agent,
    url: String,
    token: String,
    pub(super) json: bool,
}

impl Client {
    pub(super) fn new(arguments: &AdminArguments) -> Result<Self, CommandError> {
        let token = match &arguments.token_file {
            Some(file) => {
                let text = std::fs::read_to_string(file)
                    .map_err(|error| format!("--token-file: failed to read {}: {error}", file.display()))?;
                let mut tokens = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
                tokens.next().map(str::to_owned)
            }
            None => std::env::var("BELLJAR_ADMIN_TOKEN").ok(),
        };
        let token = token.filter(|token| !token.is_empty() && token.chars().all(|c| c.is_ascii_graphic()));
        let token = token.ok_or_else(|| {
            CommandError::new("the token of an operator is missing, or not one line of ASCII")
                .with_hint("set BELLJAR_ADMIN_TOKEN, or name a file with --token-file")
        })?;
        let agent = connection::agent(&arguments.url, arguments.ca.as_deref(), TIMEOUT)?;
        let url = format!("{}/admin/api/v1", arguments.url.trim_end_matches('/'));
        Ok(Self { agent, url, token, json: arguments.json })
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
        timeout: Option<Duration>,
    ) -> Result<ureq::Body, CommandError> {
        let url = format!("{}{path}", self.url);
        let failed = |error: ureq::Error| {
            let failed = CommandError::new(format!("failed to request {url}: {}", reason(&error)));
            match connection::hint(&error) {
                Some(hint) => failed.with_hint(hint),
                None => failed,
            }
        };
        let authorization = format!("Bearer {}", self.token);
        let body = body.map(Value::to_string).unwrap_or_default();
        let mut request = ureq::http::Request::builder().method(method).header("Authorization", authorization);
        if !body.is_empty() {
            request = request.header("Content-Type", "application/json");
        }
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let address = if query.is_empty() { url.clone() } else { format!("{url}?{}", query.join("&")) };
        let request = request.uri(address).body(body).map_err(|error| format!("--url: {error}"))?;
        let request = self.agent.configure_request(request).timeout_global(timeout).build();
        let response = self.agent.run(request).map_err(failed)?;
        let (status, mut body) = (response.status(), response.into_body());
        if status.is_success() {
            return Ok(body);
        }
        let text = body.read_to_string().unwrap_or_default();
        let detail = serde_json::from_str::<Value>(&text).ok();
        let detail = detail.and_then(|body| body["detail"].as_str().map(str::to_owned)).unwrap_or(text);
        let error = CommandError::new(format!("{}: {}", status.as_u16(), strip_control_chars(&detail)));
        Err(match status.as_u16() {
            401 => error.with_hint("the token must be one of --admin-token-file of the server"),
            404 if path == "/sessions" => error.with_hint("start the server with --console"),
            // All other operations name a session and nothing else that could be missing, except for downloads.
            404 if !path.ends_with("/files/content") => error.with_hint("`belljar admin sessions` lists the sessions"),
            _ => error,
        })
    }

    pub(super) fn send(
        &self,
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Value, CommandError> {
        let answer = self.request(method, path, query, body, Some(TIMEOUT))?;
        let mut text = String::new();
        let read = answer.into_reader().take(MAX_ANSWER).read_to_string(&mut text);
        read.map_err(|error| format!("failed to read the answer: {error}"))?;
        if text.is_empty() {
            return Ok(Value::Null);
        }
        Ok(serde_json::from_str(&text).map_err(|error| format!("the answer is not JSON: {error}"))?)
    }

    /// Prints the events of a stream, one JSON object per line.
    pub(super) fn follow(&self, path: &str) -> Result<(), CommandError> {
        let stream = self.request("GET", path, &[], None, None)?;
        let mut reader = BufReader::new(stream.into_reader());
        loop {
            let mut line = String::new();
            let length = reader.by_ref().take(MAX_ANSWER).read_line(&mut line);
            match length.map_err(|error| format!("failed to read the events: {error}"))? {
                0 => return Ok(()),
                _ => {
                    if let Some(data) = line.strip_prefix("data:") {
                        print_line(escape_in_json(data.trim()).as_ref());
                    }
                }
            }
        }
    }

    /// Writes the bytes of an answer to a file, or to standard output.
    pub(super) fn download(
        &self,
        path: &str,
        query: &[(&str, &str)],
        output: Option<&Path>,
    ) -> Result<(), CommandError> {
        if output.is_none() && std::io::stdout().is_terminal() {
            // It could control the terminal.
            return Err(CommandError::new("standard output is a terminal").with_hint("name a file with --output"));
        }
        let mut reader = self.request("GET", path, query, None, None)?.into_reader();
        let failed = |path: &Path, error: std::io::Error| format!("failed to write {}: {error}", path.display());
        let mut file = output.map(|path| File::create(path).map_err(|error| failed(path, error))).transpose()?;
        let mut chunk = vec![0; CHUNK];
        loop {
            let length = reader.read(&mut chunk).map_err(|error| format!("failed to read the file: {error}"))?;
            let bytes = chunk.get(..length).unwrap_or_default();
            match (&mut file, output) {
                _ if bytes.is_empty() => return Ok(()),
                (Some(file), Some(path)) => file.write_all(bytes).map_err(|error| failed(path, error))?,
                _ => print(bytes),
            }
        }
    }
}

/// Returns the value of a query's parameter with escapes.
fn escaped(value: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b',' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    value.bytes().map(escape).collect()
}
