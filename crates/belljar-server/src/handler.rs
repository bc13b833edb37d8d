//! What the server answers to each request of the protocol, in both its eras.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation, ListToolsResult,
    LoggingLevel, LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam, ProgressToken,
    ProtocolVersion, ServerCapabilities, ServerConfig, SetLevelRequestParams, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer, ServerHandler};
use tokio::sync::mpsc;

use crate::answer::ReturnMode;
use crate::arguments::Arguments;
use crate::listener::{Event, Interest, Listener};
use crate::runner::{RunError, Runner};
use crate::tool;

/// How long an answer waits for the messages before it to be sent, when the client does not take them.
const DRAIN: Duration = Duration::from_secs(2);

const INSTRUCTIONS: &str = "Runs Python code in a sandbox: no network, no files of this machine. Every call has an \
     interpreter of its own; nothing is kept between calls.";

/// One client's server. [`Server::session`] makes another for the next client.
#[derive(Clone)]
pub struct Server {
    runner: Runner,
    mode: ReturnMode,
    /// The level that `logging/setLevel` set, as a number.
    level: Arc<AtomicU8>,
    calls: Arc<AtomicUsize>,
}

impl Server {
    /// A server whose tool runs code with `runner` and answers in the shape of `mode`.
    pub fn new(runner: Runner, mode: ReturnMode) -> Self {
        Self { runner, mode, level: Arc::new(AtomicU8::new(LoggingLevel::Emergency as u8)), calls: Arc::default() }
    }

    /// The same for another client: what one sets does not change what another gets.
    #[must_use]
    pub fn session(&self) -> Self {
        Self { level: Arc::new(AtomicU8::new(LoggingLevel::Emergency as u8)), ..self.clone() }
    }

    /// What the tool answers to `code`, as text.
    pub async fn answer(&self, code: &str) -> String {
        let arguments = Arguments { code: code.to_owned(), ..Arguments::default() };
        let (listener, _) = Listener::new(Interest { level: None, progress: false });
        match self.runner.run(arguments, listener).await {
            Ok(report) => report.text(self.mode),
            Err(error) => error.to_string(),
        }
    }

    /// The server's numbers, as Prometheus reads them.
    pub(crate) fn metrics(&self) -> String {
        self.runner.metrics().text()
    }

    /// Calls that are being answered now, of all clients.
    pub fn calls_in_flight(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    async fn run(
        &self,
        arguments: Arguments,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, RunError> {
        let token = context.meta.get_progress_token();
        let interest = Interest { level: self.level_for(context), progress: token.is_some() };
        let (listener, events) = Listener::new(interest);
        let wanted = interest.level.is_some_and(|level| level as u8 <= LoggingLevel::Error as u8) || interest.progress;
        let telling = wanted.then(|| tokio::spawn(tell(context.peer.clone(), token, events)));
        let report = self.runner.run(arguments, listener).await;
        if let Some(telling) = telling {
            let abort = telling.abort_handle();
            if tokio::time::timeout(DRAIN, telling).await.is_err() {
                abort.abort();
            }
        }
        Ok(report?.result(self.mode))
    }

    /// The least level of messages that are to be sent: in the modern era the request says it, before that the session.
    fn level_for(&self, context: &RequestContext<RoleServer>) -> Option<LoggingLevel> {
        let version = context.protocol_version();
        if version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str()) {
            return context.meta.log_level();
        }
        LEVELS.into_iter().find(|level| *level as u8 == self.level.load(Ordering::Relaxed))
    }
}

const LEVELS: [LoggingLevel; 8] = [
    LoggingLevel::Debug,
    LoggingLevel::Info,
    LoggingLevel::Notice,
    LoggingLevel::Warning,
    LoggingLevel::Error,
    LoggingLevel::Critical,
    LoggingLevel::Alert,
    LoggingLevel::Emergency,
];

/// Sends events in their order until the call has no more.
async fn tell(peer: Peer<RoleServer>, token: Option<ProgressToken>, mut events: mpsc::Receiver<Event>) {
    while let Some(event) = events.recv().await {
        let sent = match event {
            Event::Log { level, logger, text } => {
                let message = LoggingMessageNotificationParam::new(level, text.into()).with_logger(logger);
                peer.notify_logging_message(message).await
            }
            Event::Progress { done, total, message } => {
                let Some(token) = token.clone() else { continue };
                let mut progress = ProgressNotificationParam::new(token, done);
                progress.total = total;
                progress.message = Some(message).filter(|message| !message.is_empty());
                peer.notify_progress(progress).await
            }
            Event::End => return,
        };
        if sent.is_err() {
            // The client is gone; nobody need wait for it.
            return;
        }
    }
}

/// Counts a call while it lives.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A tool's error, for the model to read.
fn tool_error(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text.into())])
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_logging().build();
        let identity = Implementation::new("belljar", env!("CARGO_PKG_VERSION"))
            .with_title("Belljar")
            .with_description("Runs the Python that language models write, sealed in WebAssembly")
            .with_icons(tool::icons());
        ServerConfig::new(capabilities).with_server_info(identity).with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![tool::tool()]))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        (name == tool::NAME).then(tool::tool)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if request.name != tool::NAME {
            let message = format!("there is no tool `{}`; there is `{}`", request.name, tool::NAME);
            return Err(ErrorData::invalid_params(message, None));
        }
        let _in_flight = InFlight::new(&self.calls);
        let arguments = match Arguments::read(request.arguments) {
            Ok(arguments) => arguments,
            Err(reason) => return Ok(tool_error(reason).into()),
        };
        // When the future of `run` is dropped, the code is stopped.
        let result = tokio::select! {
            result = self.run(arguments, &context) => result,
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("the call was cancelled", None)),
        };
        Ok(result.unwrap_or_else(|error| tool_error(error.to_string())).into())
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.level.store(request.level as u8, Ordering::Relaxed);
        Ok(())
    }
}
