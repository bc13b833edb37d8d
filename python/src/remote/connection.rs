//! Connections to a server, and calls of its tools.
//!
//! Log messages do not name the call that they belong to. A call whose output is wanted while its code runs therefore
//! has a connection to itself, which later calls of that kind use again.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use belljar_core::kernel::CellObserver as _;
use belljar_core::{NETWORK_KEY, REPORT_KEY, RecordedConnections, Report, ReportRequest, Stream};
use belljar_mcp_client::protocol::CallToolResult;
use belljar_mcp_client::{
    CallOptions, ConnectionGuard, LogLevel, LogMessage, McpError, McpServer, McpServerStreamableHttp,
};
use parking_lot::Mutex;
use serde::Deserialize as _;
use serde_json::Value;

use super::{Settings, argument, seconds};
use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::job::PythonUser;
use crate::results::HostUses;

/// The number of idle connections for calls with output that are kept.
const MAX_IDLE: usize = 8;
/// The codes of the protocol's error for a resource that does not exist: in the legacy era, and in the modern era.
const RESOURCE_NOT_FOUND: [i32; 2] = [-32002, -32602];

/// A server, with connections that are opened when they are needed.
pub(super) struct Server {
    /// The settings of all connections.
    builder: McpServerStreamableHttp,
    server: McpServer,
    /// Keeps the connection open.
    guard: tokio::sync::Mutex<Option<ConnectionGuard>>,
    idle: Mutex<Vec<OutputConnection>>,
}

/// A connection whose log messages belong to one call at a time.
struct OutputConnection {
    server: McpServer,
    _guard: ConnectionGuard,
    receiver: OutputReceiver,
}

impl Drop for OutputConnection {
    fn drop(&mut self) {
        // Ends the thread that delivers output, if the call was cancelled.
        *self.receiver.lock() = None;
    }
}

/// The receiver of the output of a call.
type OutputReceiver = Arc<Mutex<Option<Sender<(Stream, String)>>>>;

/// A call of a tool that runs code.
pub(super) struct CodeCall {
    pub(super) tool: &'static str,
    pub(super) arguments: Value,
    pub(super) report: ReportRequest,
    /// The policy that narrows the network of the code.
    pub(super) network: Option<Value>,
    /// The receiver of output while the code runs.
    pub(super) client: Option<Arc<Client>>,
}

/// The result of code.
pub(super) struct Answer {
    pub(super) report: Report,
    /// The calls of the tools of MCP servers that the server is configured with, and the connections.
    pub(super) uses: HostUses,
}

impl Server {
    pub(super) fn new(settings: &Settings) -> Result<Self, Error> {
        let invalid = |name: &str, error: McpError| argument(format!("{name}: {error}"));
        let builder = McpServerStreamableHttp::new(&settings.url);
        let mut builder = builder.map_err(|error| invalid("url", error))?;
        if let Some(token) = &settings.token {
            builder = builder.bearer_token(token);
        }
        for (name, value) in &settings.headers {
            builder = builder.header(name, value).map_err(|error| invalid("headers", error))?;
        }
        let builder = builder
            .timeout(seconds(settings.timeout, "timeout")?)
            .read_timeout(seconds(settings.read_timeout, "read_timeout")?)
            .client_info("belljar-python", env!("CARGO_PKG_VERSION"));
        let server = builder.clone().build();
        Ok(Self { builder, server, guard: tokio::sync::Mutex::new(None), idle: Mutex::default() })
    }

    /// Connects, unless that was done before.
    pub(super) async fn connect(&self) -> Result<(), Error> {
        let mut guard = self.guard.lock().await;
        if guard.is_none() {
            *guard = Some(self.server.connect().await?);
        }
        Ok(())
    }

    /// Closes the connections. The next call opens another one.
    pub(super) async fn close(&self) -> Result<(), Error> {
        self.idle.lock().clear();
        match self.guard.lock().await.take() {
            Some(guard) => Ok(guard.close().await?),
            None => Ok(()),
        }
    }

    /// Calls a tool that runs no code, and returns its structured content.
    pub(super) async fn call(&self, tool: &str, arguments: Value) -> Result<Value, Error> {
        self.call_with(tool, arguments, CallOptions::new()).await
    }

    /// Does the same with options.
    pub(super) async fn call_with(&self, tool: &str, arguments: Value, options: CallOptions) -> Result<Value, Error> {
        self.connect().await?;
        let result = self.server.call_tool_raw(tool, arguments, options).await?;
        if result.is_error == Some(true) {
            return Err(failure(&result));
        }
        Ok(result.structured_content.unwrap_or_default())
    }

    /// Reads a resource.
    pub(super) async fn read(&self, uri: &str) -> Result<Vec<u8>, Error> {
        self.connect().await?;
        let contents = self.server.read_resource(uri).await.map_err(|error| match error {
            McpError::Protocol { code, message, .. } if RESOURCE_NOT_FOUND.contains(&code) => {
                Error::new(ErrorKind::FileMissing, message)
            }
            error => error.into(),
        })?;
        Ok(match contents {
            belljar_mcp_client::ToolOutput::Binary(binary) => binary.data.into(),
            text => text.to_text().into_bytes(),
        })
    }

    /// Runs code and returns its result.
    pub(super) async fn run_code(&self, call: CodeCall) -> Result<Answer, Error> {
        let CodeCall { tool, arguments, report, network, client } = call;
        let wanted = serde_json::to_value(report).map_err(|error| argument(error.to_string()))?;
        let options = network_options(network).metadata(REPORT_KEY, wanted);
        let Some(client) = client else {
            self.connect().await?;
            return answer_of(self.server.call_tool_raw(tool, arguments, options).await?);
        };
        let connection = self.output_connection().await?;
        let (sender, output) = channel::<(Stream, String)>();
        *connection.receiver.lock() = Some(sender);
        // The caller's functions may block, and may use this sandbox. They run on if the call is cancelled meanwhile.
        let user = PythonUser::new();
        let delivery = tokio::task::spawn_blocking(move || {
            for (stream, line) in output {
                client.on_stream(stream, line.as_bytes());
            }
            client.release();
            drop(user);
        });
        let result = connection.server.call_tool_raw(tool, arguments, options).await;
        // Messages of a call arrive before its result.
        *connection.receiver.lock() = None;
        let delivered = delivery.await;
        if result.is_ok() && self.idle.lock().len() < MAX_IDLE {
            self.idle.lock().push(connection);
        }
        delivered.map_err(|error| Error::new(ErrorKind::Failed, error.to_string()))?;
        answer_of(result?)
    }

    async fn output_connection(&self) -> Result<OutputConnection, Error> {
        let idle = self.idle.lock().pop();
        if let Some(connection) = idle {
            return Ok(connection);
        }
        let receiver = OutputReceiver::default();
        let log = receiver.clone();
        let server = self.builder.clone().log_level(LogLevel::Info);
        let server = server.log_handler(move |message| forward(message, &log)).build();
        let guard = server.connect().await?;
        Ok(OutputConnection { server, _guard: guard, receiver })
    }
}

/// Returns the options of a call that narrows the network of its code, if a policy is given.
pub(super) fn network_options(network: Option<Value>) -> CallOptions {
    match network {
        Some(policy) => CallOptions::new().metadata(NETWORK_KEY, policy),
        None => CallOptions::new(),
    }
}

/// Passes a line of output on. Servers log standard output as information, and standard error as warnings.
fn forward(message: LogMessage, receiver: &OutputReceiver) {
    let stream = match (message.logger.as_deref(), message.level) {
        (Some("python"), LogLevel::Info) => Stream::Stdout,
        (Some("python"), LogLevel::Warning) => Stream::Stderr,
        _ => return,
    };
    if let Some(receiver) = &*receiver.lock() {
        // Ignore send errors: the call may have ended.
        let _ = receiver.send((stream, message.text() + "\n"));
    }
}

/// Returns the result of a call, or the reason why its code was not run.
fn answer_of(result: CallToolResult) -> Result<Answer, Error> {
    let report = result.meta.as_ref().and_then(|meta| meta.0.get(REPORT_KEY));
    if let Some(report) = report {
        let invalid = |error| Error::new(ErrorKind::Server, format!("the server sent an invalid report: {error}"));
        let report = Report::deserialize(report).map_err(invalid)?;
        let field = |name| result.structured_content.as_ref().and_then(|content| content.get(name));
        let calls = field("calls").map(Vec::deserialize).transpose().map_err(invalid)?;
        let connections = field("connections").map(Vec::deserialize).transpose().map_err(invalid)?;
        let connections =
            RecordedConnections { connections: connections.unwrap_or_default(), ..RecordedConnections::default() };
        return Ok(Answer { report, uses: HostUses { calls: calls.unwrap_or_default(), connections } });
    }
    let is_failure = |content: &Value| content.get("success") == Some(&Value::Bool(false));
    if result.is_error == Some(true) || result.structured_content.as_ref().is_some_and(is_failure) {
        return Err(failure(&result));
    }
    let message = "the server is not a Belljar server, or its version is too old: its answer contains no report";
    Err(Error::new(ErrorKind::Server, message))
}

/// Returns the error that a tool reports.
fn failure(result: &CallToolResult) -> Error {
    let error = result.structured_content.as_ref().and_then(|content| content.get("error")?.as_str());
    let message = error.map(str::to_owned).unwrap_or_else(|| {
        let texts = result.content.iter().filter_map(|part| part.as_text()).map(|part| part.text.as_str());
        texts.collect::<Vec<_>>().join("\n")
    });
    Error::new(ErrorKind::Server, message)
}

impl From<McpError> for Error {
    fn from(error: McpError) -> Self {
        let hint = match &error {
            McpError::Unauthorized { .. } => Some("pass a valid token=…".to_owned()),
            McpError::Protocol { message, .. } if message.starts_with("unknown tool") => {
                Some("start the server with --toolset all".to_owned())
            }
            error => error.hint(),
        };
        let hint = hint.map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
        Self::new(ErrorKind::Server, format!("{error}{hint}"))
    }
}
