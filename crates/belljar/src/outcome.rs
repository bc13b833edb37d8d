//! Reports how code ended: as text, as JSON and as an exit status; and errors of commands.

use std::process::ExitCode;
use std::time::Duration;

use belljar_core::{
    Execution, ExitReason, LimitKind, MissingDependency, Obstacle, Outcome, PythonError, RecordedConnections, Value,
};
use belljar_emscripten::console::{OutputChunk, Stream};
use belljar_python::install::InstalledPackages;
use belljar_tools::CallLog;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::command_error::CommandError;
use crate::exit_code::{CRASHED, FAILURE, INTERRUPTED, LIMIT_REACHED, NOT_INSTALLED, NOT_STARTED, TIMED_OUT};
use crate::mount::Mount;
use crate::notices::{self, Level};
use crate::untrusted_text::strip_control_chars;

/// Returns the exit status for an outcome.
pub(crate) fn status(outcome: &Outcome) -> ExitCode {
    ExitCode::from(match outcome {
        Outcome::Success(_) => 0,
        Outcome::Error(error) if error.kind == "KeyboardInterrupt" => INTERRUPTED,
        Outcome::Error(_) => FAILURE,
        Outcome::Exited(ExitReason::Exit(status)) => u8::try_from(*status).unwrap_or(FAILURE),
        Outcome::Exited(ExitReason::Limit(LimitKind::WallTime | LimitKind::CpuTime | LimitKind::WaitTime)) => TIMED_OUT,
        Outcome::Exited(ExitReason::Limit(LimitKind::Output | LimitKind::Stack | LimitKind::Memory)) => LIMIT_REACHED,
        Outcome::Exited(ExitReason::Cancelled) => INTERRUPTED,
        Outcome::Exited(ExitReason::Crash(_) | ExitReason::Signal(_)) => CRASHED,
        Outcome::InstallError(_) => NOT_INSTALLED,
    })
}

/// Returns the text about an outcome for standard error. It ends with a newline unless it is empty.
pub(crate) fn explain(outcome: &Outcome) -> String {
    let limit = match outcome {
        Outcome::Success(_) | Outcome::Exited(ExitReason::Exit(_)) => return String::new(),
        Outcome::Error(error) => return error.traceback.clone(),
        Outcome::InstallError(reason) => return format!("belljar: {}\n", strip_control_chars(reason)),
        Outcome::Exited(ExitReason::Cancelled) => return "belljar: stopped\n".into(),
        Outcome::Exited(ExitReason::Crash(reason)) => {
            return format!("belljar: the code crashed its interpreter: {}\n", strip_control_chars(reason));
        }
        Outcome::Exited(ExitReason::Signal(signal)) => {
            return format!("belljar: the code crashed its interpreter: signal {signal}\n");
        }
        Outcome::Exited(ExitReason::Limit(limit)) => *limit,
    };
    let (what, hint) = match limit {
        LimitKind::WallTime => ("the code ran out of time", "--timeout SECONDS sets the limit"),
        LimitKind::WaitTime => ("the code waited for too long", "--max-wait SECONDS sets the limit"),
        LimitKind::CpuTime => ("the code ran out of processor time", "--cpu SECONDS sets the limit"),
        LimitKind::Output => ("the code wrote too much output", "--max-output SIZE sets the limit"),
        LimitKind::Stack => ("the code ran out of stack", "reduce the depth of recursion"),
        LimitKind::Memory => ("the code ran out of memory", "--memory SIZE sets the limit"),
    };
    format!("belljar: {what}\nhint: {hint}\n")
}

/// Returns what to do about a package that a program lacked.
pub(crate) fn hint_about(missing: &MissingDependency) -> String {
    let MissingDependency { module, package, obstacle } = missing;
    match obstacle {
        Obstacle::DeclaredByCode => {
            format!("add {package}, which provides {module}, to the dependencies of the `# /// script` block")
        }
        Obstacle::Effects => {
            format!("--deps {package} installs {module} ahead of time, and so does `import {module}` in the program")
        }
        Obstacle::NotInstallable(reason) => format!("{module} cannot be installed: {}", strip_control_chars(reason)),
    }
}

/// Returns what to do about a file that a program did not find, if it can see none of this machine.
pub(crate) fn hint_about_files(outcome: &Outcome, mounts: &[Mount]) -> Option<String> {
    match outcome {
        Outcome::Error(error) if error.kind == "FileNotFoundError" && mounts.is_empty() => {
            Some("the code sees no data files of this machine: --mount DIR:/data shows it those of DIR in /data".into())
        }
        _ => None,
    }
}

/// The outcome as printed by `--json`. Fields that do not apply to the status are left out.
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
    /// The installed packages: `humanize 4.15.0 and 2 dependencies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    installed: Option<String>,
    /// The remedy for an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// The calls of tools, if there are servers.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    calls: Option<CallLog>,
    /// The connections of the code, if there are any.
    #[serde(flatten, skip_serializing_if = "RecordedConnections::is_empty")]
    connections: RecordedConnections,
    /// The text of both streams in the order in which it was written.
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

/// Returns the time in milliseconds, rounded to microseconds.
fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

impl<'a> Report<'a> {
    /// Creates the report of an execution with its output.
    pub(crate) fn new(execution: &'a Execution, output: &[OutputChunk]) -> Self {
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
            installed: None,
            hint: None,
            calls: None,
            connections: RecordedConnections::default(),
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
            Outcome::Success(value) => report.value = value.as_ref().and_then(Value::to_strict_json),
            Outcome::Error(error) => (report.status, report.error) = ("error", Some(error)),
            Outcome::Exited(ExitReason::Exit(code)) => (report.status, report.exit_code) = ("exit", Some(*code)),
            Outcome::Exited(ExitReason::Limit(limit)) => (report.status, report.limit) = ("limit", Some(limit.name())),
            Outcome::Exited(ExitReason::Cancelled) => (report.status, report.limit) = ("limit", Some("stopped")),
            Outcome::Exited(ExitReason::Signal(_)) => report.status = "crash",
            Outcome::InstallError(reason) => {
                (report.status, report.reason) = ("install-error", Some(reason.as_str()));
            }
            Outcome::Exited(ExitReason::Crash(reason)) => {
                (report.status, report.reason) = ("crash", Some(reason.as_str()))
            }
        }
        report
    }

    /// Adds the list of installed packages.
    pub(crate) fn with_installed(mut self, installed: &InstalledPackages) -> Self {
        self.installed = (!installed.is_empty()).then(|| installed.to_string());
        self
    }

    /// Adds the remedy for an error.
    pub(crate) fn with_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint;
        self
    }

    /// Adds the connections of the code.
    pub(crate) fn with_connections(mut self, connections: RecordedConnections) -> Self {
        self.connections = connections;
        self
    }

    /// Adds the calls of tools.
    pub(crate) fn with_calls(mut self, calls: Option<CallLog>) -> Self {
        self.calls = calls;
        self
    }
}

/// Prints an error of a command with its hint, and returns the exit status.
pub(crate) fn fail(error: impl Into<CommandError>) -> ExitCode {
    // Errors may name what untrusted servers and packages contain.
    let error = error.into().to_string();
    let error = strip_control_chars(&error);
    notices::write(Level::Error, &format!("belljar: {error}"), &error, &[]);
    ExitCode::from(NOT_STARTED)
}
