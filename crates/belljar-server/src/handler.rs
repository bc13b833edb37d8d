//! The server's answers to each request of the protocol, in both eras.

mod apps;
mod notifications;
mod run_python_code;
mod tasks;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use axum::http::request::Parts;
use belljar_core::kernel::OneShotRequest;
use belljar_sessions::{FileAddress, Owner, Sessions};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ContentBlock, CustomRequest,
    CustomResult, DiscoverResult, ErrorData, GetTaskParams, GetTaskResult, Implementation, InitializeRequestParams,
    InitializeResult, JsonObject, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingLevel,
    PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig,
    SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, TASKS_EXTENSION_ID, Tool,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};

use crate::activity::scope_of;
use crate::answer::ReturnMode;
use crate::apps as panels;
use crate::cluster::{Bringer, Named};
use crate::code_tools::{self, ClientTools, CodeTools};
use crate::description::SandboxDescription;
use crate::guard::tenant_key;
use crate::input_rounds::PendingInputs;
use crate::metrics::{CallStatus, McpSessionDurations, Refusals};
use crate::notifier::{ClientNotifier, NotificationFilter};
use crate::runner::{RunClient, Runner};
use crate::session_tools::{self, ProgramAnswers, SessionTools, ToolAnswer};
use crate::task_transport::requests_task;
use crate::tool;

/// Returns the instructions about `run_python_code`.
fn instructions(sandbox: &SandboxDescription) -> String {
    let network = match &sandbox.network {
        Some(allowed) => format!("with network access to {allowed} only"),
        None => "without network access".into(),
    };
    format!(
        "Runs Python code in a sandbox, {network} and without access to this machine's files. Every call has its own \
         interpreter; no state is kept between calls."
    )
}

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
    bringer: Option<Bringer>,
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
        if options.tools.is_some() {
            tools.extend(CodeTools::search_tools());
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
            bringer: None,
        }
    }

    /// Adds the session tools; with `alone`, they replace `run_python_code`.
    #[must_use]
    pub fn with_sessions(self, sessions: Sessions, alone: bool) -> Self {
        self.runner.metrics().add_sessions(&sessions);
        let bringer = Bringer::new(&sessions);
        let answers = ProgramAnswers { mode: self.options.mode, max_bytes: self.options.sandbox.max_answer };
        let session_tools = SessionTools::new(sessions, self.options.html, self.runner.activity().clone())
            .with_program_answers(answers)
            .with_code_tools(self.client_tools.clone());
        let own = self.tools.iter().filter(|own| !alone || own.name != tool::NAME).cloned();
        let tools = own.chain(session_tools.tools(&self.options.sandbox)).collect();
        Self { python: !alone, tools, session_tools: Some(session_tools), bringer, ..self }
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
    /// HTTP have been passed on to the replica that has it.
    ///
    /// # Errors
    /// With the reason why it cannot be used here.
    async fn bring(&self, named: Option<Named>, context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
        let (Some(bringer), Some(named)) = (&self.bringer, named) else { return Ok(()) };
        if context.extensions.get::<Parts>().is_some() {
            return Ok(());
        }
        Box::pin(bringer.bring(named)).await.map_err(|reason| ErrorData::internal_error(reason, None))?;
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
        let session = FileAddress::parse(uri).ok().map(|address| Named::Session(address.session));
        self.bring(session, context).await?;
        Ok(self.found_resource(uri, context).await?.into())
    }

    fn sessions(&self) -> Result<&SessionTools, ErrorData> {
        let missing = || ErrorData::invalid_request("this server does not offer sessions", None);
        self.session_tools.as_ref().ok_or_else(missing)
    }
}

/// Returns the error of a call that its client has cancelled.
fn cancelled() -> ErrorData {
    ErrorData::internal_error("the call was cancelled", None)
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

// The future of each request has room for the largest of these methods, and thousands of calls may wait: what takes
// much room is boxed.
impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_logging();
        let mut capabilities = match &self.session_tools {
            Some(_) => {
                capabilities.enable_resources().enable_resources_list_changed().enable_resources_subscribe().build()
            }
            None => capabilities.build(),
        };
        if self.client_tools.is_some()
            && let Some(tools) = &mut capabilities.tools
        {
            tools.list_changed = Some(true);
        }
        if self.tasks().is_some() {
            let extensions = capabilities.extensions.get_or_insert_default();
            extensions.insert(TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
        }
        let instructions = match (&self.session_tools, self.python) {
            (None, _) => instructions(&self.options.sandbox),
            (Some(_), false) => session_tools::INSTRUCTIONS.to_owned(),
            (Some(_), true) => {
                let one_shot = instructions(&self.options.sandbox);
                format!("run_python_code: {one_shot} execute_code: {}", session_tools::INSTRUCTIONS)
            }
        };
        let identity = Implementation::new("belljar", env!("CARGO_PKG_VERSION"))
            .with_title("Belljar")
            .with_description("Runs Python code from language models in a sandbox")
            .with_icons(tool::icons());
        ServerConfig::new(capabilities).with_server_info(identity).with_instructions(instructions)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let mut result = self.negotiate_initialize(&request)?;
        if panels::declares(&request.capabilities) {
            panels::declare(&mut result.capabilities);
        }
        Ok(result)
    }

    async fn discover(&self, context: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let mut config = self.get_info();
        if panels::shows_panels(&context) {
            panels::declare(&mut config.capabilities);
        }
        Ok(DiscoverResult::from_server_info(self.supported_protocol_versions().into_owned(), config))
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let listing = async { Ok::<_, ErrorData>(ListToolsResult::with_all_items(self.listed_tools(&context).await)) };
        self.traced("tools/list", &context, Box::pin(listing)).await
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        mut context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // The name alone: a copy of the definition takes kilobytes, and the call may wait for long.
        let of_panels = self.panel_tool(&context).map(|tool| tool.name).filter(|name| *name == request.name);
        let own = || self.tools.iter().map(|tool| &tool.name).find(|name| **name == request.name).cloned();
        let Some(name) = of_panels.or_else(own) else {
            let names: Vec<String> = self.tools.iter().map(|tool| format!("`{}`", tool.name)).collect();
            let message = format!("unknown tool `{}`; this server offers {}", request.name, names.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        };
        let _in_flight = self.begin_call();
        let subject = Named::by_call(request.arguments.as_ref(), request.request_state.as_deref());
        self.bring(subject.clone(), &context).await?;
        let recorded = self.begin_activity(&name, &mut context);
        let scope = scope_of(&context);
        if let Some(Named::Session(session)) = &subject {
            scope.set_session(session.as_str());
        }
        let mut record = self.runner.metrics().begin_call(name.clone(), scope);
        if let Some(tools) = self.client_tools.as_ref().filter(|_| code_tools::is_search(&name)) {
            let answer = match Box::pin(tools.code_tools.call_search(&name, request.arguments)).await {
                Ok(answer) => ToolAnswer::from_text(answer),
                Err(error) => ToolAnswer::invalid(error),
            };
            record.status = answer.status;
            recorded.end(answer.status);
            return Ok(answer.response);
        }
        if let Some(tools) = self.tasks().filter(|_| requests_task(&context)) {
            let begun = Box::pin(tools.begin_task(request, &context)).await;
            record.status = if begun.is_ok() { CallStatus::Task } else { CallStatus::Invalid };
            recorded.end(record.status);
            return begun.map(Into::into).map_err(|error| recorded.refuse(error));
        }
        if let Some(tools) = self.session_tools.as_ref().filter(|_| name != tool::NAME) {
            let call = Box::pin(self.with_notifications(&context, |notifier| tools.call(request, notifier, &context)));
            // When the future of `call` is dropped, the cell is interrupted.
            let result = tokio::select! {
                result = call => result,
                () = context.ct.cancelled() => return Err(recorded.refuse(cancelled())),
            };
            let ToolAnswer { response, status } = result.unwrap_or_else(ToolAnswer::invalid);
            record.status = status;
            recorded.end(status);
            return Ok(response);
        }
        let CallToolRequestParams { arguments, input_responses, request_state, .. } = request;
        if let Some(state) = request_state {
            let (arguments, responses) = (arguments.as_ref(), input_responses.as_ref());
            let resume = async |notifier| match &self.session_tools {
                // The state names a run.
                Some(tools) if state.contains('.') => {
                    tools.answer_run(&state, arguments, responses, notifier, &context).await
                }
                _ => self.pending_inputs.resume(&state, arguments, responses, notifier).await,
            };
            let result = tokio::select! {
                result = Box::pin(self.with_notifications(&context, resume)) => result,
                () = context.ct.cancelled() => return Err(recorded.refuse(cancelled())),
            };
            let ToolAnswer { response, status } = result.unwrap_or_else(ToolAnswer::invalid);
            record.status = status;
            recorded.end(status);
            return Ok(response);
        }
        let (request, wants_report) = match self.one_shot_request(arguments.clone(), &context) {
            Ok(request) => request,
            Err(error) => {
                let ToolAnswer { response, status } = ToolAnswer::invalid(error);
                record.status = status;
                recorded.end(status);
                return Ok(response);
            }
        };
        // When the future of `run` is dropped, the code is stopped.
        let ToolAnswer { response, status } = tokio::select! {
            answer = Box::pin(self.run(request, wants_report, arguments, &context)) => answer,
            () = context.ct.cancelled() => return Err(recorded.refuse(cancelled())),
        };
        record.status = status;
        recorded.end(status);
        Ok(response)
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.bring(Some(Named::Run(request.task_id.clone())), &context).await?;
        self.sessions()?.get_task(&request.task_id, &context)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.bring(Some(Named::Run(request.task_id.clone())), &context).await?;
        self.sessions()?.update_task(&request.task_id, &request.input_responses, &context)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.bring(Some(Named::Run(request.task_id.clone())), &context).await?;
        self.sessions()?.cancel_task(&request.task_id)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        tokio::select! {
            answer = Box::pin(self.answer_task_request(request, &context)) => answer.map(CustomResult::new),
            () = context.ct.cancelled() => Err(ErrorData::internal_error("the request was cancelled", None)),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.traced("resources/list", &context, Box::pin(self.listed_resources(&context))).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let listed = self.sessions().map(SessionTools::list_templates);
        self.traced("resources/templates/list", &context, std::future::ready(listed)).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        self.traced("resources/read", &context, Box::pin(self.resource(&request.uri, &context))).await
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
        let sessions = self.session_tools.as_ref().map(|tools| tools.accept(requested));
        if self.client_tools.is_none() {
            return sessions;
        }
        let mut accepted = sessions.unwrap_or_default();
        accepted.tools_list_changed = requested.tools_list_changed;
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let wants_tools = context.sink().accepted().tools_list_changed == Some(true);
        let tools = self.client_tools.as_ref().filter(|_| wants_tools);
        let _changes = tools.map(|tools| tools.code_tools.listen(context.sink().clone())).transpose()?;
        match &self.session_tools {
            Some(sessions) => Box::pin(sessions.listen(context)).await,
            None => {
                context.cancelled().await;
                Ok(())
            }
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if let Some(tools) = &self.client_tools {
            tools.code_tools.notify_changes(context.peer);
        }
    }

    async fn set_level(&self, request: SetLevelRequestParams, _: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.level.store(request.level as u8, Ordering::Relaxed);
        Ok(())
    }
}
