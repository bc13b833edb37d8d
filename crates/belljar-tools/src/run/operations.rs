//! The host operations `tools:…`: what each does, and the limits of the calls that they make.
//!
//! | operation | arguments | reply |
//! | --- | --- | --- |
//! | `tools:servers` | | the names of the servers, in Python and originally |
//! | `tools:names` | server | the names of its tools |
//! | `tools:function` | server, name | the tool's function |
//! | `tools:call` | server, tool, arguments as JSON, line of code, whether the name is the original one | its result |
//! | `tools:search` | query, limit, detail | found tools |
//! | `tools:describe` | names | stubs |
//! | `tools:resources` | server | its resources |
//! | `tools:read` | server, URI | the contents of a resource |

use std::sync::atomic::Ordering;

use belljar_core::activity::trace::{KeyValue, Span, SpanName};
use belljar_core::{EncodedValue, FunctionError, TOOL_OPERATIONS};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{OperationNumber, Shared};
use crate::call_log::CallInProgress;
use crate::catalogue::{Server, ToolLookupError};
use crate::connection::CallFailure;
use crate::description::Detail;
use crate::durable::CallStage;
use crate::durations;
use crate::error::{ExceededLimit, ToolFailure};
use crate::policy::Effects;
use crate::python_text::shorten;
use crate::values::{encode, encode_plain, size};

/// The name of a server's resources in patterns of the policy.
const RESOURCES: &str = "resources";

/// Returns the positional arguments of an operation.
fn arguments<T: DeserializeOwned>(encoded: &EncodedValue) -> Result<T, FunctionError> {
    let parsed: Result<(T, Map<String, Value>), _> = serde_json::from_str(encoded.json.get());
    parsed.map(|(positional, _)| positional).map_err(|_| FunctionError {
        name: "TypeError".into(),
        message: "the operation of tools has unexpected arguments".into(),
    })
}

impl Shared {
    /// Begins the record of an operation that calls a tool or reads a resource. Returns `None` for all others.
    pub(super) fn begin(&self, name: &str, encoded: &EncodedValue) -> Result<Option<Box<PendingCall>>, FunctionError> {
        let call = match name.strip_prefix(TOOL_OPERATIONS).unwrap_or_default() {
            "call" => {
                let (server, tool, arguments, line, is_original) = arguments(encoded)?;
                Call { server, tool, arguments, line, is_original, resource: None }
            }
            "read" => {
                let (server, uri, line): (String, String, String) = arguments(encoded)?;
                let arguments = serde_json::json!({ "uri": uri }).to_string();
                Call { server, tool: RESOURCES.into(), arguments, line, is_original: false, resource: Some(uri) }
            }
            _ => return Ok(None),
        };
        let record = self.recorder.begin(&call.server, &call.tool, &call.arguments);
        // Boxed: each of the futures that it passes through would reserve room for it.
        Ok(Some(Box::new(PendingCall { call, record })))
    }

    /// Handles an operation other than a call.
    pub(super) async fn operate(&self, name: &str, encoded: &EncodedValue) -> Result<EncodedValue, FunctionError> {
        match name.strip_prefix(TOOL_OPERATIONS).unwrap_or_default() {
            "servers" => {
                let names: Vec<_> = self.tools.servers.iter().map(|server| (&server.name, &server.original)).collect();
                Ok(encode_plain(&names)?)
            }
            "names" => {
                let (server,): (String,) = arguments(encoded)?;
                let listing = self.tools.listing(self.tools.server(&server)?).await?;
                Ok(encode_plain(&listing.tools.iter().map(|tool| &tool.name).collect::<Vec<_>>())?)
            }
            "function" => {
                let (server, name): (String, String) = arguments(encoded)?;
                Box::pin(self.function(&server, &name)).await
            }
            "search" => {
                let (query, limit, detail): (String, usize, String) = arguments(encoded)?;
                let detail = detail.parse::<Detail>();
                let detail = detail.map_err(|message| FunctionError { name: "ValueError".into(), message })?;
                Ok(encode_plain(&Box::pin(self.tools.search_text(&query, limit, detail)).await)?)
            }
            "describe" => {
                let (names,): (Vec<String>,) = arguments(encoded)?;
                Ok(encode_plain(&Box::pin(self.tools.describe(&names)).await?)?)
            }
            "resources" => {
                let (server,): (String,) = arguments(encoded)?;
                Ok(Box::pin(self.resources(&server)).await?)
            }
            _ => {
                let message = format!("there is no operation `{}`", shorten(name, 80));
                Err(FunctionError { name: "NameError".into(), message })
            }
        }
    }

    async fn function(&self, server: &str, name: &str) -> Result<EncodedValue, FunctionError> {
        let server = self.tools.server(server)?;
        match self.tools.listing(server).await?.find(&server.name, name, false) {
            Ok(tool) => Ok(encode_plain(&tool.function().for_guest())?),
            // Python reports a missing name in a module as this class.
            Err(ToolLookupError::Unknown(message)) => Err(FunctionError { name: "AttributeError".into(), message }),
            Err(denied) => Err(ToolFailure::from(denied).into()),
        }
    }

    fn begin_span(&self, call: &Call) -> Span {
        if !self.scope.is_on() {
            return Span::default();
        }
        let name = format!("{}.{}", shorten(&call.server, 80), shorten(&call.tool, 128));
        self.scope.begin_span(SpanName::ToolCall, &name, || {
            let mut attributes = vec![
                KeyValue::new("gen_ai.operation.name", "execute_tool"),
                KeyValue::new("gen_ai.tool.name", shorten(&call.tool, 128)),
                KeyValue::new("belljar.mcp.server", shorten(&call.server, 80)),
            ];
            // The query may have secrets of the code.
            let uri = call.resource.as_ref().and_then(|uri| uri.split(['?', '#']).next());
            attributes.extend(uri.map(|uri| KeyValue::new("mcp.resource.uri", shorten(uri, 200))));
            attributes
        })
    }

    /// Counts a call, sends it, and records its result.
    pub(super) async fn call(
        &self,
        operation: OperationNumber,
        begun: Box<PendingCall>,
    ) -> Result<EncodedValue, ToolFailure> {
        let call = &begun.call;
        let span = self.begin_span(call);
        let limit = self.tools.limits.calls;
        let result = match self.calls.fetch_add(1, Ordering::Relaxed) {
            count if count < limit => {
                let sent = match &call.resource {
                    Some(uri) => span.trace().run(Box::pin(self.read(operation, call, uri))).await,
                    None => span.trace().run(Box::pin(self.call_tool(operation, call))).await,
                };
                sent.and_then(|value| self.within_size(value))
            }
            _ => {
                // The counter must not wrap around.
                self.calls.fetch_sub(1, Ordering::Relaxed);
                Err(ExceededLimit::Calls(limit).into())
            }
        };
        if let Err(failure) = &result {
            if let ToolFailure::ErrorResponse { code, .. } = failure {
                span.set(KeyValue::new("rpc.response.status_code", code.to_string()));
            }
            span.fail(&failure.error_type(), "the call failed");
        }
        begun.record.end(result.as_ref().map(size));
        result
    }

    /// Records that a call is about to be sent, so that it is not sent again after a restart.
    fn before_sending(&self, operation: OperationNumber, is_repeatable: bool) -> Result<(), ToolFailure> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let sent = CallStage::Sent { is_repeatable };
        let record = || {
            if let Some(saved) =
                self.operations.lock().get_mut(&operation.id).and_then(|operation| operation.saved.as_mut())
            {
                saved.stage = sent;
            }
        };
        let recorded = journal.before_sending(operation.id, is_repeatable, &record);
        recorded.map_err(|error| ToolFailure::Failed(format!("the call was not sent: its record failed: {error}")))
    }

    /// Counts the size of a result.
    fn within_size(&self, value: EncodedValue) -> Result<EncodedValue, ToolFailure> {
        let (size, limits) = (size(&value), &self.tools.limits);
        if size > limits.result_bytes {
            return Err(ExceededLimit::ResultBytes { size, limit: limits.result_bytes }.into());
        }
        let total = self.bytes.fetch_add(size, Ordering::Relaxed).saturating_add(size);
        if total > limits.total_bytes {
            self.bytes.fetch_sub(size, Ordering::Relaxed);
            return Err(ExceededLimit::TotalBytes(limits.total_bytes).into());
        }
        Ok(value)
    }

    async fn call_tool(&self, operation: OperationNumber, call: &Call) -> Result<EncodedValue, ToolFailure> {
        if operation.stage == (CallStage::Sent { is_repeatable: false }) {
            return Err(ToolFailure::Interrupted(format!("{}.{}", call.server, call.tool)));
        }
        let server = self.tools.server(&call.server)?;
        let listing = self.tools.listing(server).await?;
        let tool = listing.find(&server.name, &call.tool, call.is_original)?;
        let given = serde_json::from_str(&call.arguments);
        let given = given.map_err(|error| ToolFailure::Failed(format!("the arguments are not JSON: {error}")))?;
        let checked = if call.is_original { tool.check_schema(given)? } else { tool.check(given)? };
        self.authorize(operation, &tool, call).await?;
        let timeout = self.tools.limits.timeout;
        let _permit = self.permits.acquire().await;
        self.before_sending(operation, tool.definition.effects.is_repeatable())?;
        let record = self.tools.durations.begin(&server.name, durations::CALL);
        let sent = server.connection.call(&tool.definition.name, checked);
        encode(record.end(in_time(|| tool.path(), timeout, sent).await)?)
    }

    async fn resources(&self, server: &str) -> Result<EncodedValue, ToolFailure> {
        let server = self.tools.server(server)?;
        self.allow_resources(server)?;
        let listed = server.connection.resources();
        let links = in_time(|| format!("{}.{RESOURCES}", server.name), self.tools.limits.timeout, listed).await?;
        self.within_size(encode_plain(&links)?)
    }

    async fn read(&self, operation: OperationNumber, call: &Call, uri: &str) -> Result<EncodedValue, ToolFailure> {
        let server = self.tools.server(&call.server)?;
        self.allow_resources(server)?;
        let effects = Effects { read_only: true, destructive: false, idempotent: true };
        if self.tools.policy.approval.requires_approval(effects) && !operation.is_sent() {
            // A grant is for one server's resources, not for one URI: its identity has no schema.
            let fingerprint = resources_fingerprint(&server.original);
            self.ask(operation, call, &server.name, RESOURCES, fingerprint).await?;
        }
        let timeout = self.tools.limits.timeout;
        let _permit = self.permits.acquire().await;
        self.before_sending(operation, true)?;
        let record = self.tools.durations.begin(&server.name, durations::READ);
        let sent = server.connection.read(uri);
        encode(record.end(in_time(|| format!("{}.{RESOURCES}", server.name), timeout, sent).await)?)
    }

    fn allow_resources(&self, server: &Server) -> Result<(), ToolFailure> {
        let names = [&server.name, &server.original].map(|name| format!("{name}.{RESOURCES}"));
        if self.tools.policy.allows(&names) {
            return Ok(());
        }
        Err(ToolFailure::Denied(format!("the policy denies `{}.{RESOURCES}`", server.name)))
    }
}

/// A call by code.
pub(super) struct Call {
    server: String,
    tool: String,
    /// JSON.
    pub(super) arguments: String,
    pub(super) line: String,
    is_original: bool,
    /// The URI of the resource that it reads, if it calls no tool.
    resource: Option<String>,
}

/// A call that is recorded from when the code has made it.
pub(super) struct PendingCall {
    call: Call,
    record: CallInProgress,
}

/// Waits for a request for at most `timeout`. `tool` returns the name of the tool for an error.
async fn in_time<T>(
    tool: impl FnOnce() -> String,
    timeout: std::time::Duration,
    request: impl Future<Output = Result<T, CallFailure>>,
) -> Result<T, ToolFailure> {
    match tokio::time::timeout(timeout, request).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(CallFailure::Failed(failure))) => Err(failure),
        Ok(Err(CallFailure::TimedOut)) | Err(_) => Err(ToolFailure::TimedOut { tool: tool(), timeout }),
    }
}

fn resources_fingerprint(server: &str) -> crate::approval::Fingerprint {
    use sha2::Digest as _;
    sha2::Sha256::digest(format!("resources\0{server}")).into()
}
