//! The JSON of sessions and cells.

use belljar_core::kernel::CellError;
use belljar_core::{CellStatus, ConnectionRecord, Limits, Output, Stream};
use belljar_sessions::{CellRecord, CellSnapshot, CellState, SessionOverview};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};

/// The number of hexadecimal digits of a token's digest that identify its bearer.
const TOKEN_DIGITS: usize = 8;
/// The number of characters of code in a list.
const MAX_LISTED_CODE: usize = 120;

/// A session in a list.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SessionView {
    /// The name of the session for operators. It gives no access to the session
    pub(super) handle: String,
    /// The client that may use the session; absent if the session's ID is all that using it takes
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    /// running, waiting (for an answer, a call or a timer), idle, asleep (on the disk), away (given up to the cluster's
    /// store: it is there, or in another replica) or ended
    pub(super) state: &'static str,
    /// The time of the creation, or of the first use since the server's start, in milliseconds since 1970
    pub(super) created: Option<u64>,
    /// The time of the last use, or of the end, in milliseconds since 1970
    pub(super) last_used: Option<u64>,
    /// The number of calls that wait for those before them
    pub(super) waiting_calls: usize,
    /// The number of cells since the server's start
    pub(super) cells: u64,
    /// The number of open questions
    pub(super) questions: usize,
    /// The beginning of the code of the last cell
    pub(super) code: String,
    /// The most bytes of memory that the interpreter has had, as of the last cell
    pub(super) memory: Option<u64>,
    /// True for a call of run_python_code
    pub(super) is_program: bool,
    /// True for a call of run_python_code that cannot wait on the disk: it can be interrupted only
    pub(super) is_run: bool,
    /// True for a session of Monty's protocol: its client runs its feeds, and operators can interrupt them only
    pub(super) is_feeds: bool,
}

impl SessionView {
    pub(super) fn new(overview: SessionOverview) -> Self {
        Self {
            handle: overview.handle.as_str().to_owned(),
            owner: overview.owner.as_deref().map(owner_name),
            state: overview.activity.name(),
            created: overview.created,
            last_used: overview.last_used.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            waiting_calls: overview.waiting_calls,
            cells: overview.cells,
            questions: overview.questions,
            code: overview.last_code.trim_start().chars().take(MAX_LISTED_CODE).collect(),
            memory: overview.memory,
            is_program: overview.is_program,
            is_run: overview.is_run,
            is_feeds: overview.is_feeds,
        }
    }
}

/// Returns the name of a client for operators. Of a token's digest it has only the first digits, since a weak token
/// could be guessed by all of them.
pub(super) fn owner_name(owner: &str) -> String {
    match owner.split_once(':') {
        Some(("token", digest)) => format!("token {}", digest.get(..TOKEN_DIGITS).unwrap_or_default()),
        Some(("oauth", subject)) => subject.split_once(' ').map_or(subject, |(_, subject)| subject).to_owned(),
        _ => owner.to_owned(),
    }
}

/// A cell.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CellView {
    /// The number of the cell in its session, from 1 on
    pub(super) number: u64,
    /// The code
    pub(super) code: String,
    /// queued, running, waiting, ok, error, timed-out, died (the interpreter has ended) or not-run
    pub(super) state: &'static str,
    /// True if an operator has submitted the cell
    pub(super) by_operator: bool,
    /// True if the cell is from a time before the server's start: its times and calls are not known
    pub(super) is_stored: bool,
    /// The time at which the cell was submitted, in milliseconds since 1970
    pub(super) queued: Option<u64>,
    /// The time at which the code began
    pub(super) began: Option<u64>,
    /// The time at which the cell ended
    pub(super) ended: Option<u64>,
    /// The output, in order
    pub(super) outputs: Vec<OutputView>,
    /// The number of bytes and displays that `outputs` lacks
    pub(super) omitted: u64,
    /// The number of bytes of text that the cell has written so far, as in events of output
    pub(super) written: u64,
    /// The error that the cell ended with
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<ErrorView>,
    /// The calls of tools of MCP servers, in the order in which they began
    pub(super) calls: Vec<CallView>,
    /// The number of calls that were not recorded
    pub(super) omitted_calls: u64,
    /// The connections and HTTP requests of the code
    #[schemars(with = "Vec<Value>")]
    pub(super) connections: Vec<ConnectionRecord>,
    /// The packages that were installed
    pub(super) installed: Vec<String>,
    /// The files that the cell created or changed
    pub(super) files: Vec<ChangeView>,
    /// The open questions of the code
    pub(super) questions: Vec<QuestionView>,
    /// The most bytes of memory that the session's interpreter has had
    pub(super) memory: Option<u64>,
    /// The processor time of the code until its last wait or its end, in milliseconds; absent if other processes run it
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu_ms: Option<f64>,
}

/// A piece of output.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum OutputView {
    /// Text that the code has written
    Stream {
        /// stdout or stderr
        name: &'static str,
        /// The text, which may have ANSI escapes
        text: String,
    },
    /// An object that the code has displayed
    Display {
        /// Its representations by MIME type, as Jupyter has them
        data: Map<String, Value>,
    },
    /// The value of the cell's last line
    Result {
        /// Its representations by MIME type
        data: Map<String, Value>,
    },
}

/// An error of a cell.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ErrorView {
    /// The name of the exception's class
    pub(super) name: String,
    /// The exception's text
    pub(super) message: String,
    /// The traceback, which may have ANSI escapes
    pub(super) traceback: Vec<String>,
}

/// A call of a tool.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CallView {
    number: u64,
    server: String,
    tool: String,
    /// The arguments as JSON, shortened
    arguments: String,
    /// running, ok, error, denied, timeout, unavailable, limit, cancelled or interrupted
    status: &'static str,
    /// The time at which the call began, in milliseconds since 1970
    began: u64,
    duration_ms: f64,
    result_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A file that a cell created or changed.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ChangeView {
    path: String,
    size: u64,
    is_new: bool,
}

/// A question that waits for an answer.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct QuestionView {
    /// The number of the question in its cell
    pub(super) number: u64,
    /// approval (of a call of a tool) or input (a line for `input()`)
    pub(super) kind: &'static str,
    /// The text. Code and servers have written parts of it
    pub(super) message: String,
}

impl CellView {
    /// Creates the view of a cell, for which `limits` held.
    pub(super) fn new(record: &CellRecord, limits: &Limits) -> Self {
        let CellSnapshot {
            state,
            began,
            ended,
            outputs,
            omitted,
            written,
            files,
            calls,
            omitted_calls,
            connections,
            installed,
            questions,
            memory,
            cpu,
        } = record.snapshot();
        let (name, error) = name_and_error(&state, limits);
        let call = |call: belljar_sessions::RecordedCall| CallView {
            number: call.number,
            server: call.server,
            tool: call.tool,
            arguments: call.arguments,
            status: call.status,
            began: call.began,
            duration_ms: call.duration_ms,
            result_bytes: call.result_bytes,
            error: call.error,
        };
        let change = |change: belljar_sessions::FileChange| ChangeView {
            path: change.file.path,
            size: change.file.size,
            is_new: change.is_new,
        };
        Self {
            number: record.number,
            code: record.code.to_string(),
            state: name,
            by_operator: record.by_operator,
            is_stored: false,
            queued: Some(record.queued),
            began,
            ended,
            outputs: outputs.into_iter().map(output_view).collect(),
            omitted,
            written,
            error: error.map(error_view),
            calls: calls.into_iter().map(call).collect(),
            omitted_calls,
            connections,
            installed,
            files: files.into_iter().map(change).collect(),
            questions: questions.into_iter().map(question_view).collect(),
            memory,
            cpu_ms: cpu.map(|cpu| cpu.as_secs_f64() * 1e3),
        }
    }
}

/// Returns the name of a state, and the error that it has.
fn name_and_error(state: &CellState, limits: &Limits) -> (&'static str, Option<CellError>) {
    match state {
        CellState::Pending => ("queued", None),
        CellState::Running => ("running", None),
        CellState::Waiting => ("waiting", None),
        CellState::NotRun(reason) => {
            ("not-run", Some(CellError { name: String::new(), message: reason.clone(), traceback: Vec::new() }))
        }
        CellState::Completed(status) => {
            let name = match status {
                CellStatus::Ok => "ok",
                CellStatus::Error(_) => "error",
                CellStatus::TimedOut { .. } => "timed-out",
                CellStatus::KernelDied(_) => "died",
            };
            (name, status.error(limits))
        }
    }
}

fn output_view(output: Output) -> OutputView {
    match output {
        Output::Text { stream, text } => OutputView::Stream { name: stream_name(stream), text },
        Output::Display(bundle) => OutputView::Display { data: bundle.into_iter().collect() },
        Output::ExecuteResult(bundle) => OutputView::Result { data: bundle.into_iter().collect() },
    }
}

pub(super) fn stream_name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}

fn error_view(CellError { name, message, traceback }: CellError) -> ErrorView {
    ErrorView { name, message, traceback }
}

pub(super) fn question_view(question: belljar_sessions::CellQuestion) -> QuestionView {
    let kind = if question.is_approval { "approval" } else { "input" };
    QuestionView { number: question.number, kind, message: question.message }
}

/// Creates the view of a cell in the form of a notebook.
pub(super) fn stored_cell(number: u64, cell: &Value) -> CellView {
    let joined = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    };
    let data = |output: &Value| {
        let bundle = output["data"].as_object().cloned().unwrap_or_default();
        let whole = |(mime, value): (String, Value)| match value {
            Value::Array(_) => (mime, joined(&value).into()),
            value => (mime, value),
        };
        bundle.into_iter().map(whole).collect()
    };
    let (mut outputs, mut error) = (Vec::new(), None);
    for output in cell["outputs"].as_array().into_iter().flatten() {
        match output["output_type"].as_str() {
            Some("stream") => {
                let name = if output["name"] == "stderr" { "stderr" } else { "stdout" };
                outputs.push(OutputView::Stream { name, text: joined(&output["text"]) });
            }
            Some("display_data") => outputs.push(OutputView::Display { data: data(output) }),
            Some("execute_result") => outputs.push(OutputView::Result { data: data(output) }),
            Some("error") => {
                let text = |name: &str| output[name].as_str().unwrap_or_default().to_owned();
                let traceback = output["traceback"].as_array().into_iter().flatten();
                let traceback = traceback.filter_map(|line| line.as_str().map(str::to_owned)).collect();
                error = Some(ErrorView { name: text("ename"), message: text("evalue"), traceback });
            }
            _ => {}
        }
    }
    CellView {
        number,
        code: joined(&cell["source"]),
        state: if error.is_some() { "error" } else { "ok" },
        by_operator: false,
        is_stored: true,
        queued: None,
        began: None,
        ended: None,
        outputs,
        omitted: 0,
        written: 0,
        error,
        calls: Vec::new(),
        omitted_calls: 0,
        connections: Vec::new(),
        installed: Vec::new(),
        files: Vec::new(),
        questions: Vec::new(),
        memory: None,
        cpu_ms: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_named_without_secrets() {
        assert_eq!(owner_name("token:0123456789abcdef"), "token 01234567");
        assert_eq!(owner_name("oauth:https://issuer.example alice"), "alice");
        assert_eq!(owner_name("other"), "other");
    }
}
