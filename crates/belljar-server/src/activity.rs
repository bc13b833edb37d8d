//! The context of calls by MCP, for the audit log and for traces.

use belljar_core::Scope;
use belljar_core::activity::trace::{KeyValue, Span, SpanName, Trace};
use rmcp::RoleServer;
use rmcp::service::RequestContext;

use crate::handler::Server;
use crate::metrics::CallStatus;

/// The name of the protocol in records.
pub(crate) const PROTOCOL: &str = "mcp";

/// A call that is being answered, with its span.
pub(crate) struct CallActivity(Span);

impl CallActivity {
    /// Records how the call was answered.
    pub(crate) fn end(&self, status: CallStatus) {
        if self.0.is_on() {
            end_span(&self.0, status);
        }
    }
}

/// Records how a call was answered.
pub(crate) fn end_span(span: &Span, status: CallStatus) {
    span.set(KeyValue::new("belljar.status", status.name()));
    match status {
        CallStatus::Success | CallStatus::InputRequired | CallStatus::Task => {}
        // The result is one of the tool, and not of the protocol.
        CallStatus::RunError | CallStatus::LimitReached(_) | CallStatus::InstallError => {
            span.fail("tool_error", status.name());
        }
        _ => span.fail(status.name(), status.name()),
    }
}

/// Returns the context of the call that a request makes.
pub(crate) fn scope_of(context: &RequestContext<RoleServer>) -> Scope {
    context.extensions.get::<Scope>().cloned().unwrap_or_default()
}

impl Server {
    /// Begins a call of a tool: its span, and its context, which [`scope_of`] returns from now on.
    pub(crate) fn begin_activity(&self, tool: &str, context: &mut RequestContext<RoleServer>) -> CallActivity {
        let activity = self.runner.activity();
        if !activity.is_on() {
            return CallActivity(Span::default());
        }
        let parts = context.extensions.get::<axum::http::request::Parts>();
        let header = |name: &str| parts.and_then(|parts| parts.headers.get(name)?.to_str().ok());
        let meta = |name: &str| context.meta.0.0.get(name).and_then(|value| value.as_str());
        let value = |name| meta(name).or_else(|| header(name));
        let parent = match meta("traceparent") {
            Some(parent) => Trace::from_headers(Some(parent), meta("tracestate")),
            None => Trace::from_headers(value("traceparent"), value("tracestate")),
        };
        let transport = if parts.is_some() { "tcp" } else { "pipe" };
        let span = activity.begin_call(SpanName::Call, tool, &parent, || {
            let mut attributes = vec![
                KeyValue::new("mcp.method.name", "tools/call"),
                KeyValue::new("gen_ai.operation.name", "execute_tool"),
                KeyValue::new("gen_ai.tool.name", tool.to_owned()),
                KeyValue::new("jsonrpc.request.id", context.id.to_string()),
                KeyValue::new("network.transport", transport),
            ];
            let version = context.protocol_version();
            attributes
                .extend(version.map(|version| KeyValue::new("mcp.protocol.version", version.as_str().to_owned())));
            attributes
        });
        let trace = if span.is_on() { span.trace() } else { parent };
        let scope = activity.scope(PROTOCOL, self.owner(), trace);
        context.extensions.insert(scope);
        CallActivity(span)
    }
}
