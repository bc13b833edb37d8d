//! `belljar audit`: verifies and shows audit logs.

use std::path::PathBuf;
use std::process::ExitCode;

use belljar_audit::{Filter, Verification, earliest_time, records, verify};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::command_error::CommandError;
use crate::console::print_line;
use crate::outcome::fail;
use crate::untrusted_text::strip_control_chars;

/// The number of characters of a digest in a line for people.
const SHOWN_DIGEST: usize = 12;
/// The least number of characters of digests in records.
const MIN_DIGEST: usize = 32;

/// A subcommand of `belljar audit`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum AuditCommand {
    /// Verify that no record was changed, removed, added or moved.
    ///
    /// The status is 0 if the chain of hashes holds, and 1 if it is broken.
    #[command(after_help = "\
Examples:
  belljar audit verify audit.log audit.log.*
  belljar audit verify audit.log --head 3f1c…   the hash that an earlier verification has printed")]
    Verify {
        /// Files of one log, in any order.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Hash of a record that the log must have, as noted earlier: it shows that nothing before it was replaced.
        #[arg(long, value_name = "HASH")]
        head: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Show records.
    #[command(after_help = "\
Examples:
  belljar audit show audit.log --since 1h
  belljar audit show audit.log --run 2.17
  belljar audit show audit.log --session SESSION --event tool --json")]
    Show(ShowArguments),
}

/// The options of `belljar audit show`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ShowArguments {
    /// Files of one log, in any order.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Session, by its ID, by its name in the console, or by its digest or the beginning of that.
    #[arg(long)]
    session: Option<String>,
    /// Run or cell: `run` of its records, or the ID of a run that waits.
    #[arg(long)]
    run: Option<String>,
    /// Earliest time: 2026-11-23, 2026-11-23T10:00:00Z, or the time until now: 90s, 10m, 2h, 7d.
    #[arg(long, value_name = "TIME", value_parser = earliest_time)]
    since: Option<String>,
    /// Event: tool.end, or all whose names begin with it: tool. May be repeated.
    #[arg(long = "event", value_name = "EVENT")]
    events: Vec<String>,
    /// Print the records as they are, one on each line.
    #[arg(long)]
    json: bool,
}

/// Runs a subcommand of `belljar audit`.
pub(crate) fn audit(command: &AuditCommand) -> ExitCode {
    let result = match command {
        AuditCommand::Verify { files, head, json } => {
            verify(files, head.as_deref()).map(|found| if *json { report_json(&found) } else { report(&found) })
        }
        AuditCommand::Show(arguments) => show(arguments).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| fail(CommandError::new(error.to_string())))
}

fn status(found: &Verification) -> ExitCode {
    if found.is_intact() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(found: &Verification) -> ExitCode {
    for problem in &found.problems {
        print_line(strip_control_chars(&problem.to_string()));
    }
    if found.has_known_hash == Some(false) {
        print_line("no record has the hash of --head: the log is another one, or it was cut before that record");
    }
    let verdict = match (found.is_intact(), found.records) {
        (_, 0) => "the files have no records",
        (true, _) => "the chain holds",
        (false, _) => "the chain is broken",
    };
    let range = found.first.zip(found.last).map(|(first, last)| format!(" ({first} to {last})")).unwrap_or_default();
    print_line(format!("{} records{range}: {verdict}", found.records));
    if let Some(head) = &found.head {
        print_line(format!("head {head}"));
    }
    let notes = [
        found.first.filter(|first| *first > 1).map(|first| format!("the records before {first} are in other files")),
        (found.recovered > 0).then(|| format!("{} parts of lines of crashes, which the log reports", found.recovered)),
        found.cut_bytes.map(|bytes| format!("the last line is incomplete ({bytes} bytes), as after a crash")),
        (!found.is_complete && found.records > 0).then(|| {
            "the last record is not server.stop: the server runs, or it has crashed, or later records were removed"
                .to_owned()
        }),
    ];
    for note in notes.into_iter().flatten() {
        print_line(format!("note: {note}"));
    }
    status(found)
}

fn report_json(found: &Verification) -> ExitCode {
    let problem = |problem: &belljar_audit::Problem| json!({ "file": problem.file, "line": problem.line, "message": problem.to_string() });
    let report = json!({
        "intact": found.is_intact(),
        "records": found.records,
        "first": found.first,
        "last": found.last,
        "head": found.head,
        "problems": found.problems.iter().map(problem).collect::<Vec<_>>(),
        "recovered": found.recovered,
        "cut_bytes": found.cut_bytes,
        "complete": found.is_complete,
        "has_head": found.has_known_hash,
    });
    print_line(report.to_string());
    status(found)
}

fn show(arguments: &ShowArguments) -> std::io::Result<()> {
    let ShowArguments { files, session, run, since, events, json } = arguments;
    let (session, run) = (session.clone(), run.clone());
    let filter = Filter { session, run, events: events.clone(), since: since.clone() };
    records(files, &filter, |line, record| {
        if *json {
            print_line(line);
        } else {
            print_line(record_line(record));
        }
        Ok(())
    })
}

/// Returns the beginning of a digest, and other texts as they are.
fn shorten_digest(text: &str) -> &str {
    let is_digest = text.len() >= MIN_DIGEST && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    text.get(..SHOWN_DIGEST).filter(|_| is_digest).unwrap_or(text)
}

/// Returns a record as a line for people. Texts in it may come from code.
fn record_line(record: &Map<String, Value>) -> String {
    let text = |name: &str| record.get(name).and_then(Value::as_str);
    let mut words = vec![text("time").unwrap_or_default().to_owned(), text("event").unwrap_or_default().to_owned()];
    words.extend(text("name").map(str::to_owned));
    words.extend(text("arguments").map(str::to_owned));
    words.extend(text("outcome").map(|outcome| format!("→ {outcome}")));
    words.extend(text("error").map(|error| format!("({error})")));
    words.extend(record.get("duration_ms").map(|duration| format!("{duration} ms")));
    words.extend(record.get("cpu_ms").map(|cpu| format!("cpu {cpu} ms")));
    words.extend(record.get("bytes").map(|bytes| format!("{bytes} bytes")));
    words.extend(record.get("count").map(|count| format!("count={count}")));
    for name in ["by", "target", "session", "run", "owner"] {
        words.extend(text(name).map(|value| format!("{name}={}", shorten_digest(value))));
    }
    strip_control_chars(&words.join(" ")).replace('\n', " ")
}
