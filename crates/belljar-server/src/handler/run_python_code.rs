//! Calls of the tool `run_python_code`.

use std::sync::Arc;

use belljar_core::kernel::OneShotRequest;
use belljar_core::{NETWORK_KEY, Report};
use rmcp::RoleServer;
use rmcp::model::JsonObject;
use rmcp::service::RequestContext;
use tokio_util::task::AbortOnDropHandle;

use super::Server;
use crate::activity::scope_of;
use crate::apps::{self, Panel};
use crate::arguments::{self, ArgumentError, RunPythonCode};
use crate::code_tools::PreparedCalls;
use crate::input_rounds::RunningCode;
use crate::metrics::CallStatus;
use crate::refusals;
use crate::report::{self, Recording};
use crate::runner::{RunClient, RunError};
use crate::session_tools::ToolAnswer;

impl Server {
    /// Answers a call of `run_python_code`, which may need a further call if it has to ask the client.
    pub(super) async fn run(
        &self,
        request: OneShotRequest,
        wants_report: bool,
        arguments: Option<JsonObject>,
        context: &RequestContext<RoleServer>,
    ) -> ToolAnswer {
        if !wants_report
            && let Some(sessions) = self.session_tools.as_ref().filter(|sessions| sessions.runs_durably(&request))
        {
            let (request, arguments) = (request.clone(), arguments.clone());
            let work = |notifier| sessions.run_program(request, arguments, notifier, context);
            if let Some(answer) = self.with_notifications(context, work).await {
                return answer;
            }
        }
        let (tools, prompts) = match &self.client_tools {
            Some(tools) => {
                let (calls, prompts) = tools.for_run(context);
                (Some(calls), prompts)
            }
            None => (None, None),
        };
        let shows_panel = apps::shows_panels(context);
        let work = async |notifier| {
            let client = RunClient::new(notifier);
            let (this, run_client) = (self.clone(), client.clone());
            let work = async move {
                let answered = this.answer_run(request, wants_report, shows_panel, run_client, tools).await;
                answered.unwrap_or_else(|error| ToolAnswer {
                    response: refusals::not_run(&error).into(),
                    status: CallStatus::from(&error),
                })
            };
            let Some(prompts) = prompts else { return work.await };
            // The run may outlast this call.
            let task = AbortOnDropHandle::new(tokio::spawn(work));
            let running = RunningCode { arguments, client: Arc::new(client), prompts, task };
            self.pending_inputs.answer(running).await
        };
        self.with_notifications(context, work).await
    }

    async fn answer_run(
        &self,
        request: OneShotRequest,
        wants_report: bool,
        shows_panel: bool,
        client: RunClient,
        tools: Option<PreparedCalls>,
    ) -> Result<ToolAnswer, RunError> {
        let is_encoded = request.exchange.is_some();
        let recording = wants_report.then(Arc::<Recording>::default);
        let sessions = self.session_tools.as_ref().map(|tools| &tools.sessions);
        let mut answer = self.runner.run(request, client, recording.clone(), tools, sessions).await?;
        let status = CallStatus::from(&answer.report.outcome);
        let whole =
            recording.map(|recording| Report::from_run(answer.report.clone(), is_encoded, recording.take_output()));
        answer.truncate(self.options.sandbox.max_answer);
        let result = answer.result(self.options.mode);
        let result = if shows_panel { apps::attach(result, &Panel::from_run(&answer)) } else { result };
        let result = match whole {
            Some(report) => report::attach(result, report),
            None => result,
        };
        Ok(ToolAnswer { response: result.into(), status })
    }

    /// Returns the request of a call of `run_python_code`, and whether its client wants a report. An error names the
    /// invalid argument.
    pub(super) fn one_shot_request(
        &self,
        arguments: Option<JsonObject>,
        context: &RequestContext<RoleServer>,
    ) -> Result<(OneShotRequest, bool), ArgumentError> {
        let mut request = arguments::parse::<RunPythonCode>(arguments).and_then(RunPythonCode::into_request)?;
        request.network = context.meta.0.0.get(NETWORK_KEY).cloned();
        request.scope = scope_of(context);
        let Some(wanted) = report::requested(context)? else { return Ok((request, false)) };
        report::add_to_run(wanted, &mut request, self.runner.supports_exchange())?;
        Ok((request, true))
    }
}
