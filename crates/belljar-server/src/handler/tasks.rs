//! Requests of the protocol version 2025-11-25 about tasks: `task_transport` says how they arrive.

use rmcp::RoleServer;
use rmcp::model::{CustomRequest, ErrorCode, ErrorData, Tool};
use rmcp::service::RequestContext;
use serde_json::Value;

use super::Server;
use crate::session_tools::SessionTools;
use crate::task_transport::{TASK, in_core};

impl Server {
    /// Returns the session tools if their runs can be tasks.
    pub(super) fn tasks(&self) -> Option<&SessionTools> {
        self.session_tools.as_ref().filter(|tools| tools.offer_tasks())
    }

    /// Marks the tools that can be called as tasks, for a client whose protocol version has such marks.
    pub(super) fn mark_task_tools(&self, tools: &mut [Tool], context: &RequestContext<RoleServer>) {
        let Some(sessions) = self.tasks().filter(|_| in_core(context)) else { return };
        for tool in tools.iter_mut().filter(|tool| sessions.can_be_task(&tool.name)) {
            tool.meta.get_or_insert_default().insert(TASK.to_owned(), "optional".into());
        }
    }

    /// Answers a request about a task.
    pub(super) async fn answer_task_request(
        &self,
        request: CustomRequest,
        context: &RequestContext<RoleServer>,
    ) -> Result<Value, ErrorData> {
        let CustomRequest { method, params, .. } = request;
        match self.tasks().filter(|_| in_core(context)) {
            Some(tools) => tools.answer_task_request(&method, params, context).await,
            None => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)),
        }
    }
}
