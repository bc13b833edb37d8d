//! `belljar admin`: the sessions of a running server, over its admin API.

mod client;
mod connection;
mod output;
mod questions;
mod sessions;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::command_error::CommandError;
use crate::console::print_line;
use crate::outcome::fail;
use crate::run_commands::Scope;
use crate::untrusted_text::{escape_in_json, strip_control_chars};
use client::Client;
use output::{items, print_cell, print_files, print_outputs, print_questions, print_sessions, print_variables, text};
use questions::{OpenQuestion, QuestionName};
use sessions::SessionFilter;

/// The interval at which a cell is looked at until it has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A command for a running server.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  belljar admin sessions --state running,waiting
  belljar admin run 8c1f0a52b7d3e964 'print(x)'
  belljar admin approve 8c1f0a52b7d3e964 --question 3.1")]
pub(crate) struct AdminArguments {
    /// Address of the server, whose option --console must be set.
    #[arg(long, global = true, env = "BELLJAR_ADMIN_URL", default_value = "http://127.0.0.1:3001")]
    url: String,
    /// File whose first line is the token of an operator [default: the variable BELLJAR_ADMIN_TOKEN].
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with the certificate authorities that an https server may have, in PEM format [default: Mozilla's].
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "BELLJAR_ADMIN_CA",
        hide_env_values = true,
        hide_short_help = true
    )]
    ca: Option<PathBuf>,
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
    #[command(after_help = "\
Examples:
  belljar admin sessions --state running,waiting
  belljar admin sessions pandas --sort memory --limit 10
  belljar admin --json sessions --limit 100000")]
    Sessions(SessionFilter),
    /// Show the last cells of a session: code, output and calls of tools.
    Show {
        /// Session, by the handle of `belljar admin sessions`.
        session: String,
        /// Number of cells.
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
        cells: u8,
    },
    /// Run a cell in a session, or in a new one.
    ///
    /// The status is 0 if the cell has succeeded. A cell that asks something goes on after the command has ended.
    #[command(after_help = "\
Examples:
  belljar admin run new 'import sys; sys.version'
  belljar admin run 8c1f0a52b7d3e964 'print(x)'")]
    Run {
        /// Session, or `new`.
        session: String,
        /// Code.
        code: String,
    },
    /// List the files of a session that runs no code, which wakes it.
    Files {
        /// Session.
        session: String,
    },
    /// Download a file of a session that runs no code.
    Download {
        /// Session.
        session: String,
        /// Path of the file, as `belljar admin files` prints it.
        path: String,
        /// File to write [default: standard output].
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// List the variables of a session that is awake and runs no code.
    Variables {
        /// Session.
        session: String,
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
    /// List the open questions of all sessions.
    Questions,
    /// Approve the call that a session asks for.
    ///
    /// On a terminal, a question that --question does not name is shown first, and has to be confirmed.
    #[command(after_help = "\
Examples:
  belljar admin questions
  belljar admin approve 8c1f0a52b7d3e964
  belljar admin approve 8c1f0a52b7d3e964 --question 3.1 --for session")]
    Approve {
        /// Session.
        session: String,
        /// Question, by the name in `belljar admin questions` [default: the only one].
        #[arg(long, value_name = "CELL.NUMBER")]
        question: Option<QuestionName>,
        /// The calls that are approved.
        #[arg(long = "for", value_enum, default_value_t, value_name = "CALLS")]
        scope: Scope,
    },
    /// Deny the call that a session asks for: it raises ToolDenied in the code.
    Deny {
        /// Session.
        session: String,
        /// Question, by the name in `belljar admin questions` [default: the only one].
        #[arg(long, value_name = "CELL.NUMBER")]
        question: Option<QuestionName>,
    },
    /// Answer input() of a session with a line.
    #[command(after_help = "\
Examples:
  belljar admin answer 8c1f0a52b7d3e964 Ada
  belljar admin answer 8c1f0a52b7d3e964 'Ada Lovelace' --question 4.1")]
    Answer {
        /// Session.
        session: String,
        /// Line.
        line: String,
        /// Question, by the name in `belljar admin questions` [default: the only one].
        #[arg(long, value_name = "CELL.NUMBER")]
        question: Option<QuestionName>,
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

impl Client {
    fn run(&self, command: &AdminCommand) -> Result<ExitCode, CommandError> {
        match command {
            AdminCommand::Sessions(filter) => {
                let listed = self.list_sessions(filter)?;
                self.print(&listed, || print_sessions(&listed));
            }
            AdminCommand::Show { session, cells } => {
                let count = cells.to_string();
                let listed = self.send("GET", &path(session, "/cells")?, &[("limit", &count)], None)?;
                self.print(&listed, || items(&listed["cells"]).for_each(print_cell));
            }
            AdminCommand::Run { session, code } => return self.run_cell(session, code),
            AdminCommand::Files { session } => {
                let listed = self.send("GET", &path(session, "/files")?, &[], None)?;
                self.print(&listed, || print_files(&listed));
            }
            AdminCommand::Download { session, path: file, output } => {
                self.download(&path(session, "/files/content")?, &[("path", file)], output.as_deref())?;
            }
            AdminCommand::Variables { session } => {
                let listed = self.send("GET", &path(session, "/variables")?, &[], None)?;
                self.print(&listed, || print_variables(&listed));
            }
            AdminCommand::Questions => {
                let open = self.send("GET", "/questions", &[], None)?;
                self.print(&open, || print_questions(&open));
            }
            AdminCommand::Interrupt { session } => self.done("POST", &path(session, "/interrupt")?, "interrupted")?,
            AdminCommand::Restart { session } => self.done("POST", &path(session, "/restart")?, "restarted")?,
            AdminCommand::Sleep { session } => self.done("POST", &path(session, "/sleep")?, "asleep")?,
            AdminCommand::End { session } => self.done("DELETE", &path(session, "")?, "ended")?,
            AdminCommand::Fork { session } => {
                let forked = self.send("POST", &path(session, "/fork")?, &[], None)?;
                self.print(&forked, || print_line(text(&forked["handle"])));
            }
            AdminCommand::Approve { session, question, scope } => {
                let decision = match scope {
                    Scope::Call => "approve",
                    Scope::Run => "approve-run",
                    Scope::Session => "approve-session",
                };
                let asked = self.open_question(session, "approval", *question)?;
                if question.is_none() {
                    // It may be another question than the one that the operator has seen in a list.
                    asked.confirm(*scope)?;
                }
                self.answer(session, &asked, &json!({ "decision": decision }), "approved")?;
            }
            AdminCommand::Deny { session, question } => {
                let asked = self.open_question(session, "approval", *question)?;
                self.answer(session, &asked, &json!({ "decision": "deny" }), "denied")?;
            }
            AdminCommand::Answer { session, line, question } => {
                let asked = self.open_question(session, "input", *question)?;
                self.answer(session, &asked, &json!({ "line": line }), "answered")?;
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
                let name = QuestionName::new(&cell["number"], &question["number"]);
                eprintln!("the cell asks {name}: {}", strip_control_chars(&text(&question["message"])));
            }
            return Ok(if cell["state"] == "ok" { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
    }

    fn answer(&self, session: &str, asked: &OpenQuestion, answer: &Value, what: &str) -> Result<(), CommandError> {
        self.send("POST", &path(session, &asked.path())?, &[], Some(answer))?;
        print_line(format!("{what} {}", asked.line()));
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
