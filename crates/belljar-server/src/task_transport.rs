//! Tasks of the protocol version 2025-11-25, between a transport and rmcp.
//!
//! rmcp has the tasks of the modern era only: it does not read the field `task` of a call, refuses other versions'
//! requests of the same names, and has no types for this version's results. So messages are changed on their way:
//!
//! | message | on its way |
//! | --- | --- |
//! | `tools/call` with `params.task` | has the mark [`RequestsTask`] |
//! | `tasks/get`, `tasks/update`, `tasks/cancel` of the legacy era | are custom requests, like `tasks/result` and `tasks/list` |
//! | results of `initialize` | declare `tasks` instead of the extension |
//! | tools and results with the entry [`TASK`] in `_meta` | have `execution.taskSupport`, or `task` |
//!
//! Requests of stateless HTTP pass through no such transport: this version's tasks are not available there.

use std::borrow::Cow;

use axum::http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, CustomRequest, CustomResult, Extensions, GetExtensions as _, GetMeta as _,
    JsonRpcMessage, MetaObject, ProtocolVersion, ServerJsonRpcMessage, ServerResult, TASKS_EXTENSION_ID,
};
use rmcp::service::RequestContext;
use rmcp::transport::Transport;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The entry in `_meta` of a result with a task, and of a tool that can be called as a task. Clients do not receive it.
pub(crate) const TASK: &str = "io.github.belljar/task";

/// The mark of a call that is to become a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestsTask;

impl RequestsTask {
    /// Returns the mark for a message that requests a task: its parameters have the field `task`.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        const FIELD: &[u8] = b"\"task\"";
        #[derive(Deserialize)]
        struct Message<'a> {
            #[serde(borrow)]
            params: Params<'a>,
        }
        #[derive(Deserialize)]
        struct Params<'a> {
            #[serde(borrow)]
            task: Option<&'a RawValue>,
        }
        // Most messages are not read a second time.
        message.windows(FIELD.len()).find(|bytes| *bytes == FIELD)?;
        let Message { params } = serde_json::from_slice(message).ok()?;
        params.task.filter(|task| task.get().starts_with('{')).map(|_| Self)
    }
}

/// The mark of every request that has passed through a [`TaskTransport`].
#[derive(Debug, Clone, Copy)]
struct Translated;

/// Returns whether a request is a call that is to become a task.
pub(crate) fn requests_task(context: &RequestContext<RoleServer>) -> bool {
    in_core(context) && context.extensions.get::<RequestsTask>().is_some()
}

/// Returns whether a request belongs to a protocol version that has tasks in its core, and its messages are translated.
pub(crate) fn in_core(context: &RequestContext<RoleServer>) -> bool {
    let is_translated = context.extensions.get::<Translated>().is_some();
    is_translated && context.protocol_version().is_some_and(|version| has_tasks(&version))
}

fn has_tasks(version: &ProtocolVersion) -> bool {
    let versions = ProtocolVersion::V_2025_11_25.as_str()..ProtocolVersion::V_2026_07_28.as_str();
    versions.contains(&version.as_str())
}

/// A transport that changes the messages about tasks.
pub(crate) struct TaskTransport<T>(pub(crate) T);

impl<T: Transport<RoleServer>> Transport<RoleServer> for TaskTransport<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        message: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.0.send(outgoing(message))
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.0.receive().await.map(incoming)
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.0.close().await
    }
}

fn incoming(message: ClientJsonRpcMessage) -> ClientJsonRpcMessage {
    let JsonRpcMessage::Request(mut message) = message else { return message };
    let extensions = message.request.extensions_mut();
    extensions.insert(Translated);
    if let Some(mark) = extensions.get::<Parts>().and_then(|parts| parts.extensions.get::<RequestsTask>()).copied() {
        extensions.insert(mark);
    }
    if message.request.get_meta().protocol_version().is_none() {
        message.request = match message.request {
            ClientRequest::GetTaskRequest(request) => custom("tasks/get", &request.params, request.extensions),
            ClientRequest::UpdateTaskRequest(request) => custom("tasks/update", &request.params, request.extensions),
            ClientRequest::CancelTaskRequest(request) => custom("tasks/cancel", &request.params, request.extensions),
            other => other,
        };
    }
    JsonRpcMessage::Request(message)
}

fn custom(method: &str, params: &impl Serialize, extensions: Extensions) -> ClientRequest {
    let mut request = CustomRequest::new(method, serde_json::to_value(params).ok());
    request.extensions = extensions;
    ClientRequest::CustomRequest(request)
}

fn outgoing(message: ServerJsonRpcMessage) -> ServerJsonRpcMessage {
    let JsonRpcMessage::Response(mut response) = message else { return message };
    let has_task = |meta: &Option<MetaObject>| meta.as_ref().is_some_and(|meta| meta.contains_key(TASK));
    response.result = match response.result {
        ServerResult::InitializeResult(result) if result.capabilities.supports_tasks() => {
            let has_tasks = has_tasks(&result.protocol_version);
            edited(&result, |fields| {
                let capabilities = &mut fields["capabilities"];
                if let Some(Value::Object(extensions)) = capabilities.get_mut("extensions") {
                    extensions.remove(TASKS_EXTENSION_ID);
                    if extensions.is_empty() {
                        remove(capabilities, "extensions");
                    }
                }
                if has_tasks {
                    capabilities["tasks"] =
                        json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } });
                }
            })
        }
        ServerResult::ListToolsResult(result) if result.tools.iter().any(|tool| has_task(&tool.meta)) => {
            edited(&result, |fields| {
                for tool in fields["tools"].as_array_mut().into_iter().flatten() {
                    if let Some(support) = take_task(tool) {
                        tool["execution"] = json!({ "taskSupport": support });
                    }
                }
            })
        }
        ServerResult::CallToolResult(mut result) if has_task(&result.meta) => {
            let task = result.meta.as_mut().and_then(|meta| meta.remove(TASK));
            ServerResult::CustomResult(CustomResult::new(json!({ "task": task })))
        }
        other => other,
    };
    JsonRpcMessage::Response(response)
}

/// Returns a result with changed fields.
fn edited(result: &impl Serialize, edit: impl FnOnce(&mut Value)) -> ServerResult {
    let mut fields = serde_json::to_value(result).unwrap_or_default();
    edit(&mut fields);
    ServerResult::CustomResult(CustomResult::new(fields))
}

/// Removes [`TASK`] from the `_meta` of an object, and returns its value.
fn take_task(object: &mut Value) -> Option<Value> {
    let meta = object.get_mut("_meta")?;
    let task = remove(meta, TASK)?;
    if meta.as_object().is_some_and(|meta| meta.is_empty()) {
        remove(object, "_meta");
    }
    Some(task)
}

fn remove(object: &mut Value, key: &str) -> Option<Value> {
    object.as_object_mut()?.remove(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_request_a_task_are_recognized() {
        let call = |params: Value| json!({ "method": "tools/call", "params": params }).to_string();
        for (message, requests_task) in [
            (call(json!({ "name": "execute_code", "task": {} })), true),
            (call(json!({ "name": "execute_code", "task": { "ttl": 1 } })), true),
            (call(json!({ "name": "execute_code", "task": null })), false),
            (call(json!({ "name": "execute_code", "arguments": { "task": {}, "code": "\"task\"" } })), false),
            (r#"{"method": "ping", "task": {}}"#.to_owned(), false),
            ("{\"task\"".to_owned(), false),
        ] {
            assert_eq!(RequestsTask::parse(message.as_bytes()).is_some(), requests_task, "{message}");
        }
    }
}
