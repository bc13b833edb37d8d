//! Calls of tools: `POST /sessions/ID/exec`.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use belljar_core::activity::trace::{KeyValue, Span, SpanName, Trace};
use belljar_core::kernel::{CellObserver, CellRequest, NullObserver};
use belljar_core::{Limits, Scope};
use belljar_sessions::{CellReport, SessionError, SessionId, Sessions};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::CodeExecution;
use super::error::ApiError;
use super::result_block::{CallResult, ExecResponse, ResultBlock};
use super::text_editor::EditorCommand;
use crate::activity::end_span;
use crate::arguments::MAX_CODE;
use crate::code_tools::{CancelOnDrop, ClientTools};
use crate::description::SandboxKind;
use crate::guard::current_owner;
use crate::metrics::CallStatus;

/// The maximum length of a call's ID, in bytes. The answer has it twice.
const MAX_TOOL_USE_ID: usize = 256;
/// The program that runs a command in a shell.
const SHELL: &str = include_str!("guest/shell.py");
/// The program that does so in WebAssembly, for the commands that are emulated.
const EMULATED_SHELL: &str = include_str!("guest/emulated_shell.py");

/// The body of a request.
#[derive(Debug, Deserialize)]
struct ExecRequest<'a> {
    tool: String,
    #[serde(borrow)]
    input: &'a RawValue,
    timeout_seconds: Option<NonZeroU64>,
    tool_use_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct CodeInput {
    code: String,
}

#[derive(Debug, Deserialize)]
struct CommandInput {
    command: String,
}

/// A call of a tool.
#[derive(Debug)]
enum Call {
    Code(String),
    Shell(String),
    Edit(EditorCommand),
}

impl Call {
    fn parse(tool: &str, input: &RawValue) -> Result<Self, ApiError> {
        match tool {
            "code_execution" => Ok(Self::Code(source("code", parse_input::<CodeInput>(input)?.code)?)),
            "bash_code_execution" => Ok(Self::Shell(source("command", parse_input::<CommandInput>(input)?.command)?)),
            "text_editor_code_execution" => Ok(Self::Edit(EditorCommand::parse(parse_input(input)?)?)),
            _ => {
                let tool: String = tool.chars().take(64).filter(|c| !c.is_control()).collect();
                let kinds = "code_execution, bash_code_execution and text_editor_code_execution";
                Err(ApiError::new(StatusCode::BAD_REQUEST, format!("unknown tool `{tool}`; the tools are {kinds}")))
            }
        }
    }

    fn tool(&self) -> &'static str {
        match self {
            Self::Code(_) => "code_execution",
            Self::Shell(_) => "bash_code_execution",
            Self::Edit(_) => "text_editor_code_execution",
        }
    }

    fn result_type(&self) -> &'static str {
        match self {
            Self::Code(_) => "code_execution_tool_result",
            Self::Shell(_) => "bash_code_execution_tool_result",
            Self::Edit(_) => "text_editor_code_execution_tool_result",
        }
    }
}

fn parse_input<T: DeserializeOwned>(input: &RawValue) -> Result<T, ApiError> {
    serde_json::from_str(input.get()).map_err(|error| ApiError::malformed(format!("input: {error}")))
}

fn source(name: &str, text: String) -> Result<String, ApiError> {
    match text.len() {
        0 => Err(ApiError::malformed(format!("input.{name}: it is empty"))),
        length if length > MAX_CODE => {
            Err(ApiError::malformed(format!("input.{name}: {length} bytes are more than the maximum of {MAX_CODE}")))
        }
        _ => Ok(text),
    }
}

/// Answers `POST /sessions/ID/exec`. If the client disconnects, its call is interrupted.
pub(super) async fn execute(
    State(state): State<CodeExecution>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<ExecResponse>, ApiError> {
    let request: ExecRequest<'_> =
        serde_json::from_slice(&body).map_err(|error| ApiError::malformed(error.to_string()))?;
    let call = Call::parse(&request.tool, request.input)?;
    let timeout = request.timeout_seconds.map(|seconds| Duration::from_secs(seconds.get()));
    let tool_use_id = match request.tool_use_id {
        Some(given) if given.len() > MAX_TOOL_USE_ID => {
            return Err(ApiError::malformed(format!("tool_use_id: it is longer than {MAX_TOOL_USE_ID} bytes")));
        }
        Some(given) => given,
        None => {
            let random = SessionId::random().map_err(|error| ApiError::internal(&error))?;
            format!("srvtoolu_{}", random.as_str())
        }
    };
    let (sessions, id) = state.find(&id)?;
    let (kind, begin) = (call.result_type(), Instant::now());
    let (span, scope) = state.begin_activity(&call, &headers, &id)?;
    let _in_flight = state.server.begin_call();
    let mut record = state.server.runner.metrics().begin_call(call.tool().into(), scope.clone());
    let (content, status) = match call {
        Call::Code(code) => {
            let cell = CellRequest { code, timeout, scope, ..CellRequest::default() };
            state.run_cell(&sessions, &id, cell, CallResult::from_cell).await
        }
        Call::Shell(command) => state.run_shell(&sessions, &id, &command, timeout, scope).await,
        Call::Edit(command) => command.run(&sessions, &id, &state.histories).await.map(|content| {
            let status = if content.return_code == 0 { CallStatus::Success } else { CallStatus::RunError };
            (content, status)
        }),
    }
    .inspect_err(|error| {
        record.status = error.into();
        end_span(&span, record.status);
    })?;
    record.status = status;
    end_span(&span, status);
    let execution_time_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    let result_block = ResultBlock { kind, tool_use_id: tool_use_id.clone(), content };
    Ok(Json(ExecResponse { tool_use_id, execution_time_ms, result_block }))
}

impl CodeExecution {
    /// Begins a call: its span, and its context.
    fn begin_activity(&self, call: &Call, headers: &HeaderMap, id: &SessionId) -> Result<(Span, Scope), ApiError> {
        let activity = self.server.runner.activity();
        if !activity.is_on() {
            return Ok((Span::default(), Scope::default()));
        }
        let owner = current_owner().map_err(|error| ApiError::internal(&error))?;
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let parent = Trace::from_headers(header("traceparent"), header("tracestate"));
        let span = activity.begin_call(SpanName::Execute, call.tool(), &parent, || {
            vec![
                KeyValue::new("gen_ai.operation.name", "execute_tool"),
                KeyValue::new("gen_ai.tool.name", call.tool()),
                KeyValue::new("network.transport", "tcp"),
            ]
        });
        let trace = if span.is_on() { span.trace() } else { parent };
        let scope = activity.scope("code-execution", owner.as_deref(), trace);
        scope.set_session(id.as_str());
        Ok((span, scope))
    }

    /// Runs a cell, of whose report `result` makes the result of the call.
    async fn run_cell(
        &self,
        sessions: &Sessions,
        id: &SessionId,
        cell: CellRequest,
        result: impl FnOnce(CellReport, &Limits) -> CallResult,
    ) -> Result<(CallResult, CallStatus), SessionError> {
        let limits = sessions.limits().with_timeout(cell.timeout);
        let tools = self.server.options.tools.clone().map(ClientTools::new);
        let observer: Arc<dyn CellObserver> = Arc::new(NullObserver);
        let (_tool_run, observer) = match &tools {
            Some(tools) => {
                let (run, observer) = tools.for_cell(observer, cell.scope.clone());
                (Some(CancelOnDrop(run)), observer)
            }
            None => (None, observer),
        };
        let cell = CellRequest { tools: tools.is_some(), ..cell };
        let report = sessions.execute(id, cell, observer).await?;
        let status = CallStatus::from(&report.status);
        Ok((result(report, &limits), status))
    }

    /// Runs a command in a shell of the session's sandbox. In WebAssembly, a few commands are emulated.
    async fn run_shell(
        &self,
        sessions: &Sessions,
        id: &SessionId,
        command: &str,
        timeout: Option<Duration>,
        scope: Scope,
    ) -> Result<(CallResult, CallStatus), SessionError> {
        let shell = match self.server.options.sandbox.kind {
            SandboxKind::Wasm => EMULATED_SHELL,
            SandboxKind::Native | SandboxKind::Unsandboxed => SHELL,
        };
        // JSON's strings are also Python's, on one line.
        let [program, command] = [shell, command].map(|text| serde_json::Value::from(text).to_string());
        // An expression, so that the session gets no variables of it.
        let code = format!(
            "(lambda scope: (__import__('builtins').exec({program}, scope), scope['run']({command}))[1])\
             ({{'__name__': 'shell'}})"
        );
        let cell = CellRequest { code, timeout, scope, store_history: false, ..CellRequest::default() };
        let (result, status) = self.run_cell(sessions, id, cell, CallResult::from_shell).await?;
        let status =
            if status == CallStatus::Success && result.return_code != 0 { CallStatus::RunError } else { status };
        Ok((result, status))
    }
}
