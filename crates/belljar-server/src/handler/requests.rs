//! The methods of [`ServerHandler`]: one for each request.

use std::sync::atomic::Ordering;

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, CustomRequest, CustomResult, DiscoverResult, ErrorData,
    GetTaskParams, GetTaskResult, Implementation, InitializeRequestParams, InitializeResult, JsonObject,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities, ServerConfig, SetLevelRequestParams,
    SubscribeRequestParams, SubscriptionFilter, TASKS_EXTENSION_ID, Tool, UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};

use super::Server;
use crate::activity::scope_of;
use crate::apps as panels;
use crate::cluster::RequestSubject;
use crate::code_tools;
use crate::description::SandboxDescription;
use crate::metrics::CallStatus;
use crate::session_tools::{self, SessionTools, ToolAnswer};
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

/// Returns the error of a call that its client has cancelled.
fn cancelled() -> ErrorData {
    ErrorData::internal_error("the call was cancelled", None)
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
        self.traced("tools/list", None, &context, Box::pin(listing)).await
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
        let panel_tool = self.panel_tool(&context).map(|tool| tool.name).filter(|name| *name == request.name);
        let own = || self.tools.iter().map(|tool| &tool.name).find(|name| **name == request.name).cloned();
        let Some(name) = panel_tool.or_else(own) else {
            let names: Vec<String> = self.tools.iter().map(|tool| format!("`{}`", tool.name)).collect();
            let message = format!("unknown tool `{}`; this server offers {}", request.name, names.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        };
        let _in_flight = self.begin_call();
        let subject = RequestSubject::by_call(request.arguments.as_ref(), request.request_state.as_deref());
        self.take_over(subject.clone(), &context).await?;
        let recorded = self.begin_activity(&name, &mut context);
        let scope = scope_of(&context);
        if let Some(RequestSubject::Session(session)) = &subject {
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
        self.take_over(Some(RequestSubject::Run(request.task_id.clone())), &context).await?;
        self.sessions()?.get_task(&request.task_id, &context)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.take_over(Some(RequestSubject::Run(request.task_id.clone())), &context).await?;
        self.sessions()?.update_task(&request.task_id, &request.input_responses, &context)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.take_over(Some(RequestSubject::Run(request.task_id.clone())), &context).await?;
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
        self.traced("resources/list", None, &context, Box::pin(self.listed_resources(&context))).await
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let listed = self.sessions().map(SessionTools::list_templates);
        self.traced("resources/templates/list", None, &context, std::future::ready(listed)).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let resource = Box::pin(self.resource(&request.uri, &context));
        self.traced("resources/read", Some(request.uri.as_str()), &context, resource).await
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
