//! What the server answers to each request of the protocol, in both its eras.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use belljar_sessions::Sessions;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingLevel, LoggingMessageNotificationParam,
    PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ProtocolVersion, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{Peer, RoleServer, ServerHandler};
use tokio::sync::mpsc;

use crate::answer::ReturnMode;
use crate::arguments::Arguments;
use crate::interpreter::{self, Interpreter};
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
    /// Whether `run_python_code` is offered.
    python: bool,
    /// The tools of sessions, if they are offered.
    interpreter: Option<Interpreter>,
    /// The level that `logging/setLevel` set, as a number.
    level: Arc<AtomicU8>,
    calls: Arc<AtomicUsize>,
}

impl Server {
    /// A server whose tool runs code with `runner` and answers in the shape of `mode`.
    pub fn new(runner: Runner, mode: ReturnMode) -> Self {
        let level = Arc::new(AtomicU8::new(LoggingLevel::Emergency as u8));
        Self { runner, mode, python: true, interpreter: None, level, calls: Arc::default() }
    }

    /// The same with the tools of these sessions; `alone` says that they are the only ones.
    #[must_use]
    pub fn with_sessions(self, sessions: Sessions, alone: bool) -> Self {
        Self { python: !alone, interpreter: Some(Interpreter::new(sessions)), ..self }
    }

    /// To be called once, on the runtime that serves: sessions that are idle are looked for from now on.
    pub(crate) fn begin(&self) {
        if let Some(interpreter) = &self.interpreter {
            interpreter.start_sweeping();
        }
    }

    /// To be called at the end: sessions that are to survive are put where they do.
    pub(crate) async fn end(&self) {
        if let Some(interpreter) = &self.interpreter {
            interpreter.end().await;
        }
    }

    /// The same for another client: what one sets does not change what another gets.
    #[must_use]
    pub fn session(&self) -> Self {
        let interpreter = self.interpreter.as_ref().map(Interpreter::for_another);
        Self { level: Arc::new(AtomicU8::new(LoggingLevel::Emergency as u8)), interpreter, ..self.clone() }
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
        let report = self.heard(context, |listener| self.runner.run(arguments, listener)).await;
        Ok(report?.result(self.mode))
    }

    /// Does `work`, whose listener passes on to the client what it wants to hear.
    async fn heard<F: Future>(
        &self,
        context: &RequestContext<RoleServer>,
        work: impl FnOnce(Listener) -> F,
    ) -> F::Output {
        let token = context.meta.get_progress_token();
        let interest = Interest { level: self.level_for(context), progress: token.is_some() };
        let (listener, events) = Listener::new(interest);
        let wanted = interest.level.is_some_and(|level| level as u8 <= LoggingLevel::Error as u8) || interest.progress;
        let telling = wanted.then(|| tokio::spawn(tell(context.peer.clone(), token, events)));
        let result = work(listener).await;
        if let Some(telling) = telling {
            let abort = telling.abort_handle();
            if tokio::time::timeout(DRAIN, telling).await.is_err() {
                abort.abort();
            }
        }
        result
    }

    fn tools(&self) -> Vec<Tool> {
        let python = self.python.then(tool::tool);
        let sessions = self.interpreter.iter().flat_map(Interpreter::tools);
        python.into_iter().chain(sessions).collect()
    }

    fn sessions(&self) -> Result<&Interpreter, ErrorData> {
        let missing = || ErrorData::invalid_request("there are no sessions here (--toolset interpreter)", None);
        self.interpreter.as_ref().ok_or_else(missing)
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
        let capabilities = ServerCapabilities::builder().enable_tools().enable_logging();
        let capabilities = match &self.interpreter {
            Some(_) => {
                capabilities.enable_resources().enable_resources_list_changed().enable_resources_subscribe().build()
            }
            None => capabilities.build(),
        };
        let instructions = match (&self.interpreter, self.python) {
            (None, _) => INSTRUCTIONS.to_owned(),
            (Some(_), false) => interpreter::INSTRUCTIONS.to_owned(),
            (Some(_), true) => format!("run_python_code: {INSTRUCTIONS} execute_code: {}", interpreter::INSTRUCTIONS),
        };
        let identity = Implementation::new("belljar", env!("CARGO_PKG_VERSION"))
            .with_title("Belljar")
            .with_description("Runs the Python that language models write, in a sandbox")
            .with_icons(tool::icons());
        ServerConfig::new(capabilities).with_server_info(identity).with_instructions(instructions)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(named) = self.get_tool(&request.name) else {
            let names: Vec<String> = self.tools().iter().map(|tool| format!("`{}`", tool.name)).collect();
            let message = format!("there is no tool `{}`; there is {}", request.name, names.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        };
        let _in_flight = InFlight::new(&self.calls);
        if let Some(interpreter) = self.interpreter.as_ref().filter(|_| named.name != tool::NAME) {
            let call = self.heard(&context, |listener| interpreter.call(request, listener, &context));
            // When the future of `call` is dropped, the cell is interrupted.
            let result = tokio::select! {
                result = call => result,
                () = context.ct.cancelled() => return Err(ErrorData::internal_error("the call was cancelled", None)),
            };
            return Ok(result.unwrap_or_else(|reason| tool_error(reason).into()));
        }
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

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(self.sessions()?.list_resources().await)
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(self.sessions()?.list_templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(self.sessions()?.read_resource(&request.uri).await?.into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.sessions()?.subscribe(request.uri, context.peer).await
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.sessions()?.unsubscribe(&request.uri, &context.peer);
        Ok(())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        self.interpreter.as_ref().map(|interpreter| interpreter.accept(requested))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        self.sessions()?.listen(context).await
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.level.store(request.level as u8, Ordering::Relaxed);
        Ok(())
    }
}
