//! The result of a call: streams, an exit status, and the files that the call made.

use belljar_core::kernel::CellError;
use belljar_core::mime::text_plain;
use belljar_core::{CellStatus, ExitReason, Limits, Output, Stream};
use belljar_sessions::CellReport;
use serde::Serialize;

use crate::session_tools::text_or_types;

/// The exit status of code that an exception ended.
const FAILED: i32 = 1;
/// The exit status of code that reached its limit of time: that of `timeout(1)`.
const TIMED_OUT: i32 = 124;
/// The exit status of code whose interpreter ended without one: that of a shell for SIGKILL.
const KILLED: i32 = 137;
/// The number that a shell adds to that of a signal.
const SIGNAL_BASE: i32 = 128;

/// The answer to `POST /sessions/ID/exec`.
#[derive(Debug, Serialize)]
pub(super) struct ExecResponse {
    pub(super) tool_use_id: String,
    pub(super) execution_time_ms: u64,
    pub(super) result_block: ResultBlock,
}

/// The outcome of a call, as Anthropic's `code_execution_20250825` has it.
#[derive(Debug, Serialize)]
pub(super) struct ResultBlock {
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    pub(super) tool_use_id: String,
    pub(super) content: CallResult,
}

/// The payload of a result block.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct CallResult {
    #[serde(rename = "type")]
    kind: &'static str,
    pub(super) stdout: String,
    pub(super) stderr: String,
    pub(super) return_code: i32,
    content: Vec<OutputFile>,
}

/// A file that a call made or changed.
#[derive(Debug, PartialEq, Serialize)]
struct OutputFile {
    #[serde(rename = "type")]
    kind: &'static str,
    /// The path, by which the file can be fetched.
    file_id: String,
    filename: String,
}

impl CallResult {
    /// Creates the result of a call that made no files.
    pub(super) fn new(stdout: impl Into<String>, stderr: impl Into<String>, return_code: i32) -> Self {
        let (stdout, stderr) = (stdout.into(), stderr.into());
        Self { kind: "code_execution_result", stdout, stderr, return_code, content: Vec::new() }
    }

    /// Creates the result of a call that failed for this reason.
    pub(super) fn failed(reason: &str) -> Self {
        Self::new("", format!("{reason}\n"), FAILED)
    }

    /// Creates the result of a cell that ran with these limits.
    pub(super) fn from_cell(report: CellReport, limits: &Limits) -> Self {
        Self::from_report(&report, limits, traceback)
    }

    fn from_report(report: &CellReport, limits: &Limits, describe: impl Fn(&CellError) -> String) -> Self {
        let mut result = Self::new("", "", exit_status(&report.status));
        for output in &report.outputs {
            match output {
                Output::Text { stream: Stream::Stdout, text } => result.stdout.push_str(text),
                Output::Text { stream: Stream::Stderr, text } => result.stderr.push_str(text),
                Output::Display(bundle) | Output::ExecuteResult(bundle) => {
                    push_line(&mut result.stdout, &text_or_types(bundle).unwrap_or_default());
                }
            }
        }
        if let Some(error) = report.status.error(limits) {
            push_line(&mut result.stderr, &describe(&error));
            if matches!(report.status, CellStatus::KernelDied(_)) {
                push_line(&mut result.stderr, report.after_death.consequence());
            }
        }
        result.set_files(report);
        result
    }

    /// Creates the result of a cell that ran a shell, and whose value is the shell's exit status.
    pub(super) fn from_shell(mut report: CellReport, limits: &Limits) -> Self {
        let status = report.outputs.iter().rposition(|output| matches!(output, Output::ExecuteResult(_)));
        let status = status.map(|position| report.outputs.remove(position));
        // A traceback would show the program that runs the shell.
        let mut result = Self::from_report(&report, limits, CellError::to_string);
        if let Some(Output::ExecuteResult(bundle)) = &status {
            result.return_code = text_plain(bundle).and_then(|text| text.trim().parse().ok()).unwrap_or(FAILED);
        }
        result
    }

    fn set_files(&mut self, report: &CellReport) {
        let file = |path: &str| OutputFile {
            kind: "code_execution_output",
            file_id: path.to_owned(),
            filename: path.to_owned(),
        };
        self.content = report.files.iter().map(|change| file(&change.file.path)).collect();
        if report.more_files > 0 {
            push_line(&mut self.stderr, &format!("{} more files were made or changed", report.more_files));
        }
    }
}

fn exit_status(status: &CellStatus) -> i32 {
    match status {
        CellStatus::Ok => 0,
        CellStatus::Error(_) => FAILED,
        CellStatus::TimedOut { .. } => TIMED_OUT,
        CellStatus::KernelDied(ExitReason::Exit(status)) => *status,
        CellStatus::KernelDied(ExitReason::Signal(signal)) => SIGNAL_BASE.saturating_add(*signal),
        CellStatus::KernelDied(_) => KILLED,
    }
}

/// Returns the traceback of an error, and the error if the traceback does not end with it.
fn traceback(error: &CellError) -> String {
    let mut text = error.traceback.join("\n");
    if text.is_empty() || !text.contains(&error.message) {
        push_line(&mut text, &error.to_string());
    }
    text
}

/// Appends text as lines of their own.
fn push_line(stream: &mut String, text: &str) {
    if text.is_empty() {
        return;
    }
    if !stream.is_empty() && !stream.ends_with('\n') {
        stream.push('\n');
    }
    stream.push_str(text);
    if !text.ends_with('\n') {
        stream.push('\n');
    }
}
