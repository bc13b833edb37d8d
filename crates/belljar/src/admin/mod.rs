//! `belljar admin`: the sessions of a running server, over its admin API.

mod output;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use ureq::tls::TlsConfig;

use crate::command_error::CommandError;
use crate::console::print_line;
use crate::outcome::fail;
use crate::run_commands::Scope;
use crate::untrusted_text::{escape_in_json, strip_control_chars};
use output::{items, print_cell, print_outputs, print_sessions, text};

/// The time in which the server must answer a request that is not a stream.
const TIMEOUT: Duration = Duration::from_secs(60);
/// The interval at which a cell is looked at until it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum length of an answer, in bytes.
const MAX_ANSWER: u64 = 64 << 20;

/// A command for a running server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  belljar admin sessions --state running
  belljar admin run 8c1f0a52b7d3e964 'print(x)'
  belljar admin approve 8c1f0a52b7d3e964

The token of an operator is in BELLJAR_ADMIN_TOKEN, or in a file: --token-file FILE.")]
pub(crate) struct AdminArguments {
    /// Address of the server, whose option --console must be set.
    #[arg(long, global = true, env = "BELLJAR_ADMIN_URL", default_value = "http://127.0.0.1:3001")]
    url: String,
    /// File whose first line is the token of an operator [default: the variable BELLJAR_ADMIN_TOKEN].
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: AdminCommand,
}

/// A subcommand of `belljar admin`.
#[derive(Debug, Subcommand)]
enum AdminCommand {
    /// List sessions; those that ask something come first.
    Sessions {
        /// Words that the handle, the owner or the code must contain.
        words: Vec<String>,
        /// States, separated by commas: running, waiting, idle, asleep, ended.
        #[arg(long, default_value = "")]
        state: String,
        /// Maximum number of sessions.
        #[arg(long, default_value_t = 100)]
        limit: u16,
    },
    /// Show the last cells of a session: code, output and calls of tools.
    Show {
        /// Session, by the handle of `belljar admin sessions`.
        session: String,
        /// Number of cells.
        #[arg(long, default_value_t = 10)]
        cells: u8,
    },
    /// Run a cell in a session, or in a new one.
    Run {
        /// Session, or `new`.
        session: String,
        /// Code.
        code: String,
    },
    /// Interrupt the code that a session runs.
    Interrupt {
        /// Session.
        session: String,
    },
    /// Replace the interpreter of a session by a new one. The files stay.
    Restart {
        /// Session.
        session: String,
    },
    /// Create a session with the same variables and files.
    Fork {
        /// Session.
        session: String,
    },
    /// Put a session on the disk until it is used.
    Sleep {
        /// Session.
        session: String,
    },
    /// End a session.
    End {
        /// Session.
        session: String,
    },
    /// Approve the call that a session asks for.
    Approve {
        /// Session.
        session: String,
        /// The calls that are approved.
        #[arg(long = "for", value_enum, default_value_t, value_name = "CALLS")]
        scope: Scope,
    },
    /// Deny the call that a session asks for: it raises ToolDenied in the code.
    Deny {
        /// Session.
        session: String,
    },
    /// Answer input() of a session with a line.
    Answer {
        /// Session.
        session: String,
        /// Line.
        line: String,
    },
    /// Print the events of all sessions, or of one with its output, until interrupted.
    Events {
        /// Session.
        session: Option<String>,
    },
}

/// Runs `belljar admin`.
pub(crate) fn admin(arguments: &AdminArguments) -> ExitCode {
    match Client::new(arguments).and_then(|client| client.run(&arguments.command)) {
        Ok(status) => status,
        Err(error) => fail(error),
    }
}

struct Client {
    agent: ureq::Agent,
    url: String,
    token: String,
    json: bool,
}

impl Client {
    fn new(arguments: &AdminArguments) -> Result<Self, CommandError> {
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
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .build();
        let config = ureq::Agent::config_builder()
            .timeout_connect(Some(TIMEOUT))
            .http_status_as_error(false)
            .max_redirects(0)
            .tls_config(tls)
            .build();
        let url = format!("{}/admin/api/v1", arguments.url.trim_end_matches('/'));
        Ok(Self { agent: config.into(), url, token, json: arguments.json })
    }

    fn run(&self, command: &AdminCommand) -> Result<ExitCode, CommandError> {
        match command {
            AdminCommand::Sessions { words, state, limit } => {
                let limit = limit.to_string();
                let words = words.join(" ");
                let query = [("q", words.as_str()), ("state", state), ("limit", &limit)];
                let listed = self.send("GET", "/sessions", &query, None)?;
                self.print(&listed, || print_sessions(&listed));
            }
            AdminCommand::Show { session, cells } => {
                let count = cells.to_string();
                let listed = self.send("GET", &path(session, "/cells")?, &[("limit", &count)], None)?;
                self.print(&listed, || items(&listed["cells"]).for_each(print_cell));
            }
            AdminCommand::Run { session, code } => return self.run_cell(session, code),
            AdminCommand::Interrupt { session } => self.done("POST", &path(session, "/interrupt")?, "interrupted")?,
            AdminCommand::Restart { session } => self.done("POST", &path(session, "/restart")?, "restarted")?,
            AdminCommand::Sleep { session } => self.done("POST", &path(session, "/sleep")?, "asleep")?,
            AdminCommand::End { session } => self.done("DELETE", &path(session, "")?, "ended")?,
            AdminCommand::Fork { session } => {
                let forked = self.send("POST", &path(session, "/fork")?, &[], None)?;
                self.print(&forked, || print_line(text(&forked["handle"])));
            }
            AdminCommand::Approve { session, scope } => {
                let decision = match scope {
                    Scope::Call => "approve",
                    Scope::Run => "approve-run",
                    Scope::Session => "approve-session",
                };
                self.answer(session, "approval", &json!({ "decision": decision }), "approved")?;
            }
            AdminCommand::Deny { session } => {
                self.answer(session, "approval", &json!({ "decision": "deny" }), "denied")?;
            }
            AdminCommand::Answer { session, line } => {
                self.answer(session, "input", &json!({ "line": line }), "answered")?;
            }
            AdminCommand::Events { session } => {
                let path = session.as_deref().map_or(Ok("/events".to_owned()), |session| path(session, "/events"))?;
                self.follow(&path)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn run_cell(&self, session: &str, code: &str) -> Result<ExitCode, CommandError> {
        let created = match session {
            "new" => Some(text(&self.send("POST", "/sessions", &[], None)?["handle"])),
            _ => None,
        };
        let session = created.as_deref().unwrap_or(session);
        let submitted = self.send("POST", &path(session, "/cells")?, &[], Some(&json!({ "code": code })))?;
        let path = path(session, &format!("/cells/{}", submitted["cell"]))?;
        if created.is_some() {
            eprintln!("session {session}");
        }
        loop {
            let cell = self.send("GET", &path, &[], None)?;
            let has_questions = items(&cell["questions"]).next().is_some();
            if cell["ended"].is_null() && !has_questions {
                std::thread::sleep(POLL_INTERVAL);
                continue;
            }
            self.print(&cell, || print_outputs(&cell));
            for question in items(&cell["questions"]) {
                eprintln!("the cell asks: {}", strip_control_chars(&text(&question["message"])));
            }
            return Ok(if cell["state"] == "ok" { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }

    /// Answers the first open question of a kind.
    fn answer(&self, session: &str, kind: &str, answer: &Value, what: &str) -> Result<(), CommandError> {
        let open = self.send("GET", "/questions", &[], None)?;
        let asked = items(&open["questions"]).find(|asked| asked["session"] == session && asked["kind"] == kind);
        let asked = asked.ok_or_else(|| {
            CommandError::new(format!("session {session} asks no such question"))
                .with_hint("`belljar admin sessions` lists those that ask something first")
        })?;
        let at = format!("/cells/{}/questions/{}", asked["cell"], asked["number"]);
        self.send("POST", &path(session, &at)?, &[], Some(answer))?;
        let message = text(&asked["message"]);
        print_line(format!("{what}: {}", strip_control_chars(message.lines().next().unwrap_or_default())));
        Ok(())
    }

    fn done(&self, method: &str, path: &str, what: &str) -> Result<(), CommandError> {
        let done = self.send(method, path, &[], None)?;
        let nothing = done["done"] == false;
        print_line(if nothing { "nothing to do" } else { what });
        Ok(())
    }

    fn print(&self, answer: &Value, otherwise: impl FnOnce()) {
        if self.json { print_line(escape_in_json(&answer.to_string()).as_ref()) } else { otherwise() }
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
        let failed = |error: ureq::Error| format!("failed to request {url}: {error}");
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
            401 | 403 => error.with_hint("the token must be one of --admin-token-file of the server"),
            404 if path == "/sessions" => error.with_hint("start the server with --console"),
            _ => error,
        })
    }

    fn send(
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
    fn follow(&self, path: &str) -> Result<(), CommandError> {
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
}

/// Returns the path of an operation on a session, which a user has named.
fn path(session: &str, operation: &str) -> Result<String, CommandError> {
    if session.is_empty() || !session.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(CommandError::new(format!("`{session}` is not the handle of a session")).with_hint(
            "`belljar admin sessions` lists the handles. A session ID is a secret, which is not used here",
        ));
    }
    Ok(format!("/sessions/{session}{operation}"))
}

/// Returns the value of a query's parameter with escapes.
fn escaped(value: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b',' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    value.bytes().map(escape).collect()
}
