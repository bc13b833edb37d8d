//! The MCP server of one client, which answers each request of the protocol in both eras.

mod apps;
mod notifications;
mod requests;
mod run_python_code;
mod tasks;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use axum::http::request::Parts;
use belljar_core::kernel::OneShotRequest;
use belljar_sessions::{FileAddress, Owner, Sessions};
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ContentBlock, ErrorData, LoggingLevel, ReadResourceResponse, Tool};
use rmcp::service::RequestContext;

use crate::answer::ReturnMode;
use crate::apps as panels;
use crate::cluster::{RequestSubject, SessionTakeover};
use crate::code_tools::{self, ClientTools, CodeTools};
use crate::description::SandboxDescription;
use crate::guard::tenant_key;
use crate::input_rounds::PendingInputs;
use crate::metrics::{McpSessionDurations, Refusals};
use crate::notifier::{ClientNotifier, NotificationFilter};
use crate::runner::{RunClient, Runner};
use crate::session_tools::{self, ProgramAnswers, SessionTools};
use crate::tool;

/// The MCP server of one client. [`Server::for_client`] returns one for another client.
#[derive(Clone)]
pub struct Server {
    pub(crate) runner: Runner,
    pub(crate) options: Arc<ServerOptions>,
    /// Set if `run_python_code` is offered.
    python: bool,
    /// The definitions of the tools.
    tools: Arc<[Tool]>,
    /// The session tools, if they are offered.
    pub(crate) session_tools: Option<SessionTools>,
    /// The tools of MCP servers that the client's code can call.
    client_tools: Option<ClientTools>,
    /// Runs of `run_python_code` that wait for input, of all clients.
    pending_inputs: PendingInputs,
    /// The level from `logging/setLevel`, as a number.
    level: Arc<AtomicU8>,
    calls: Arc<AtomicUsize>,
    /// The client, with authentication.
    owner: Option<Owner>,
    /// Brings sessions of other replicas here, in a cluster.
    takeover: Option<SessionTakeover>,
}

/// The options of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// The format of the text of `run_python_code`.
    pub mode: ReturnMode,
    /// Adds the HTML of values that have plain text, too, to the results of cells.
    pub html: bool,
    /// The settings that the descriptions of the tools state.
    pub sandbox: SandboxDescription,
    /// The tools of MCP servers that code can call. Only for backends that support tools.
    pub tools: Option<CodeTools>,
}

impl Server {
    /// Creates a server whose tool runs code with `runner`.
    pub fn new(runner: Runner, options: ServerOptions) -> Self {
        let level = Arc::new(AtomicU8::new(LoggingLevel::Emergency as u8));
        let mut tools = vec![tool::tool(options.sandbox.run_python_code())];
        if let Some(code_tools) = &options.tools {
            tools.extend(CodeTools::search_tools());
            runner.metrics().add_tool_requests(code_tools.durations());
        }
        let tools = tools.into();
        let client_tools = options.tools.clone().map(ClientTools::new);
        let options = Arc::new(options);
        Self {
            runner,
            options,
            python: true,
            tools,
            session_tools: None,
            client_tools,
            pending_inputs: PendingInputs::default(),
            level,
            calls: Arc::default(),
            owner: None,
            takeover: None,
        }
    }

    /// Adds the session tools; with `alone`, they replace `run_python_code`.
    #[must_use]
    pub fn with_sessions(self, sessions: Sessions, alone: bool) -> Self {
        self.runner.metrics().add_sessions(&sessions);
        let takeover = SessionTakeover::new(&sessions);
        let answers = ProgramAnswers { mode: self.options.mode, max_bytes: self.options.sandbox.max_answer };
        let session_tools = SessionTools::new(sessions, self.options.html, self.runner.activity().clone())
            .with_program_answers(answers)
            .with_code_tools(self.client_tools.clone());
        let own = self.tools.iter().filter(|own| !alone || own.name != tool::NAME).cloned();
        let tools = own.chain(session_tools.tools(&self.options.sandbox)).collect();
        Self { python: !alone, tools, session_tools: Some(session_tools), takeover, ..self }
    }

    /// Starts to look for idle sessions. Must be called once, on the runtime that serves.
    pub(crate) fn start(&self) {
        if let Some(tools) = &self.session_tools {
            tools.start_sweeping();
        }
    }

    /// Notes that the calls in flight are about to be ended. Must be called once, before they are.
    pub(crate) fn begin_shutdown(&self) {
        if let Some(tools) = &self.session_tools {
            tools.begin_shutdown();
        }
    }

    /// Hibernates the sessions that have to survive. Must be called once, after serving.
    pub(crate) async fn shutdown(&self) {
        if let Some(tools) = &self.session_tools {
            tools.hibernate_all().await;
        }
    }

    /// Returns a server for another client, with its own log level and its own list of sessions. With authentication,
    /// `owner` identifies the client, and it can use no session of another one.
    #[must_use]
    pub fn for_client(&self, owner: Option<Owner>) -> Self {
        let client_tools = self.options.tools.clone().map(ClientTools::new);
        let tenant = self.runner.find_tenant(tenant_key(owner.as_ref()));
        let runner = self.runner.for_tenant(tenant.clone());
        let session_tools = self.session_tools.as_ref().map(|tools| tools.for_new_client(owner.clone(), tenant));
        let session_tools = session_tools.map(|tools| tools.with_code_tools(client_tools.clone()));
        let level = Arc::new(AtomicU8::new(LoggingLevel::Emergency as u8));
        Self { runner, level, session_tools, client_tools, owner, ..self.clone() }
    }

    /// Runs `code` and returns the tool's answer as text.
    pub async fn answer(&self, code: &str) -> String {
        let request = OneShotRequest { code: code.to_owned(), ..OneShotRequest::default() };
        let (notifier, _) = ClientNotifier::new(NotificationFilter { level: None, progress: false });
        match self.runner.run(request, RunClient::new(notifier), None, None, None).await {
            Ok(mut answer) => {
                answer.truncate(self.options.sandbox.max_answer);
                answer.text(self.options.mode)
            }
            Err(error) => error.to_string(),
        }
    }

    /// Returns the server's metrics in OpenMetrics' text format, which Prometheus reads. May block for milliseconds.
    pub fn metrics(&self) -> String {
        self.runner.metrics().text()
    }

    /// Returns the numbers of refused requests, which the transport adds to.
    pub(crate) fn refusals(&self) -> Refusals {
        self.runner.metrics().refusals.clone()
    }

    /// Returns the durations of MCP sessions, which the transport adds to.
    pub(crate) fn session_durations(&self) -> McpSessionDurations {
        self.runner.metrics().mcp_sessions.clone()
    }

    /// Returns the number of calls in flight, of all clients.
    pub fn calls_in_flight(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Counts a call as in flight until the returned guard is dropped.
    pub(crate) fn begin_call(&self) -> InFlight<'_> {
        InFlight::new(&self.calls)
    }

    /// Returns the client, with authentication.
    pub(crate) fn owner(&self) -> Option<&str> {
        self.owner.as_deref()
    }

    /// Has what a request names be active in this replica, if the request has come over standard streams: those over
    /// HTTP have been forwarded to the replica that has it.
    ///
    /// # Errors
    /// Fails with the reason why the session or run cannot be used here.
    async fn take_over(
        &self,
        subject: Option<RequestSubject>,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let (Some(takeover), Some(subject)) = (&self.takeover, subject) else { return Ok(()) };
        if context.extensions.get::<Parts>().is_some() {
            return Ok(());
        }
        Box::pin(takeover.take_over(subject)).await.map_err(|reason| ErrorData::internal_error(reason, None))?;
        if let Some(tools) = &self.session_tools {
            tools.follow_adopted();
        }
        Ok(())
    }

    /// Returns the tool of panels, if the client of a request shows them and runs can wait for its user.
    fn panel_tool(&self, context: &RequestContext<RoleServer>) -> Option<Tool> {
        self.session_tools.as_ref().filter(|_| panels::shows_panels(context))?.panel_tool()
    }

    /// Returns the tools that the client of a request can call.
    async fn listed_tools(&self, context: &RequestContext<RoleServer>) -> Vec<Tool> {
        let mut tools = self.tools.to_vec();
        if let Some(client_tools) = &self.client_tools {
            let (text, must_search) = client_tools.code_tools.description().await;
            if !must_search {
                tools.retain(|tool| tool.name != code_tools::SEARCH && tool.name != code_tools::DESCRIBE);
            }
            for tool in tools.iter_mut().filter(|tool| session_tools::runs_code(&tool.name)) {
                let description = tool.description.take().unwrap_or_default();
                tool.description = Some(format!("{description}{text}").into());
            }
        }
        self.mark_task_tools(&mut tools, context);
        if panels::shows_panels(context) {
            panels::link_tools(&mut tools, self.panel_tool(context));
        }
        tools
    }

    /// Reads a resource, whose session may have to be brought to this replica.
    ///
    /// # Errors
    /// Fails if the resource does not exist, or cannot be read.
    async fn resource(
        &self,
        uri: &str,
        context: &RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let session = FileAddress::parse(uri).ok().map(|address| RequestSubject::Session(address.session));
        self.take_over(session, context).await?;
        Ok(self.found_resource(uri, context).await?.into())
    }

    fn sessions(&self) -> Result<&SessionTools, ErrorData> {
        let missing = || ErrorData::invalid_request("this server does not offer sessions", None);
        self.session_tools.as_ref().ok_or_else(missing)
    }
}

/// A guard that counts a call as in flight until it is dropped.
pub(crate) struct InFlight<'a>(&'a AtomicUsize);

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

/// Returns a tool's error as a result, so that the model can read it.
pub(crate) fn tool_error(text: impl Into<String>) -> CallToolResult {
    CallToolResult::error(vec![ContentBlock::text(text.into())])
}
