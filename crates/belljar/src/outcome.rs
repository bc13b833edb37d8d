//! Tells people, programs and the shell how the code ended.

use std::process::ExitCode;
use std::time::Duration;

use belljar_core::{Execution, LimitKind, Outcome, PythonError, Value};
use belljar_emscripten::console::{Piece, Stream};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::interrupt::INTERRUPTED;

/// Time ran out, as `timeout(1)` says it.
const TIME_OUT: u8 = 124;
/// Another limit was reached.
const LIMIT: u8 = 125;
/// The code's packages could not be had: it cannot be executed, as shells say it.
const NOT_INSTALLED: u8 = 126;
/// The interpreter is broken, as shells show SIGABRT.
const CRASHED: u8 = 134;
/// belljar itself could not do what it was asked.
pub(crate) const FAILED: u8 = 2;

/// The exit status for an outcome.
pub(crate) fn status(outcome: &Outcome) -> ExitCode {
    ExitCode::from(match outcome {
        Outcome::Success(_) => 0,
        Outcome::Error(error) if error.kind == "KeyboardInterrupt" => INTERRUPTED,
        Outcome::Error(_) => 1,
        Outcome::Exit(status) => u8::try_from(*status).unwrap_or(1),
        Outcome::Limit(LimitKind::WallTime | LimitKind::CpuTime) => TIME_OUT,
        Outcome::Limit(LimitKind::Stopped) => INTERRUPTED,
        Outcome::Limit(LimitKind::Output | LimitKind::Stack) => LIMIT,
        Outcome::InstallError(_) => NOT_INSTALLED,
        Outcome::Crash(_) => CRASHED,
    })
}

/// What to print on standard error, beyond what the code wrote there; ends with a newline unless empty.
pub(crate) fn explain(outcome: &Outcome) -> String {
    let (what, hint) = match outcome {
        Outcome::Success(_) | Outcome::Exit(_) => return String::new(),
        Outcome::Error(error) => return error.traceback.clone(),
        Outcome::Limit(LimitKind::WallTime) => ("the code ran out of time", "--timeout SECONDS gives it more"),
        Outcome::Limit(LimitKind::CpuTime) => ("the code ran out of processor time", "--cpu SECONDS gives it more"),
        Outcome::Limit(LimitKind::Output) => ("the code wrote too much output", "--max-output SIZE allows more"),
        Outcome::Limit(LimitKind::Stack) => ("the code ran out of stack", "it recurses too deeply"),
        Outcome::Limit(LimitKind::Stopped) => return "belljar: stopped\n".into(),
        Outcome::InstallError(reason) => return format!("belljar: {reason}\n"),
        Outcome::Crash(reason) => return format!("belljar: the code crashed its interpreter: {reason}\n"),
    };
    format!("belljar: {what}\nhint: {hint}\n")
}

/// The outcome as `--json` prints it. Absent fields do not apply to the status.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a PythonError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// Standard output and error in the order in which they were written.
    output: String,
    stdout: String,
    stderr: String,
    stats: Stats,
}

#[derive(Serialize)]
struct Stats {
    start_ms: f64,
    run_ms: f64,
    peak_memory_bytes: u64,
}

/// Milliseconds, to the microsecond.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

impl<'a> Report<'a> {
    /// Of an execution and what it wrote.
    pub(crate) fn new(execution: &'a Execution, output: &[Piece]) -> Self {
        let text = |wanted: Option<Stream>| {
            let pieces = output.iter().filter(|(stream, _)| wanted.is_none_or(|wanted| wanted == *stream));
            let bytes: Vec<u8> = pieces.flat_map(|(_, bytes)| bytes).copied().collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let statistics = &execution.statistics;
        let mut report = Self {
            status: "success",
            value: None,
            error: None,
            exit_code: None,
            limit: None,
            reason: None,
            output: text(None),
            stdout: text(Some(Stream::Stdout)),
            stderr: text(Some(Stream::Stderr)),
            stats: Stats {
                start_ms: milliseconds(statistics.start),
                run_ms: milliseconds(statistics.run),
                peak_memory_bytes: statistics.peak_memory,
            },
        };
        match &execution.outcome {
            Outcome::Success(value) => report.value = value.as_ref().and_then(Value::strict_json),
            Outcome::Error(error) => (report.status, report.error) = ("error", Some(error)),
            Outcome::Exit(code) => (report.status, report.exit_code) = ("exit", Some(*code)),
            Outcome::Limit(limit) => (report.status, report.limit) = ("limit", Some(limit.name())),
            Outcome::InstallError(reason) => {
                (report.status, report.reason) = ("install-error", Some(reason.as_str()));
            }
            Outcome::Crash(reason) => (report.status, report.reason) = ("crash", Some(reason.as_str())),
        }
        report
    }
}

/// Reports an error of belljar's own; its causes follow on lines of their own.
pub(crate) fn fail(message: &str) -> ExitCode {
    eprintln!("belljar: {message}");
    ExitCode::from(FAILED)
}

/// Reports a failure with its chain of causes.
pub(crate) fn fail_with(error: &dyn std::error::Error) -> ExitCode {
    fail(&words(error))
}

/// A failure with its chain of causes.
pub(crate) fn words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Errors that already say what their cause said need not say it twice.
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(&format!("\n  because {cause_text}"));
        }
        source = cause.source();
    }
    text
}
