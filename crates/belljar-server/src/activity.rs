//! The context of calls by MCP, for the audit log and for traces.

use axum::http::request::Parts;
use belljar_audit::digest;
use belljar_core::Scope;
use belljar_core::activity::trace::{Attributes, KeyValue, Span, SpanName, Trace};
use belljar_sessions::SessionId;
use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::RequestContext;

use crate::apps;
use crate::handler::Server;
use crate::metrics::CallStatus;

/// The name of the protocol in records.
pub(crate) const PROTOCOL: &str = "mcp";

/// The maximum length of a URI in a span, in characters.
const MAX_URI: usize = 200;

/// A call that is being answered, with its span.
pub(crate) struct CallActivity(Span);

impl CallActivity {
    /// Records how the call was answered.
    pub(crate) fn end(&self, status: CallStatus) {
        if self.0.is_on() {
            end_span(&self.0, status);
        }
    }

    /// Records the error of JSON-RPC by which a call is answered, and returns it.
    pub(crate) fn refuse(&self, error: ErrorData) -> ErrorData {
        fail_span(&self.0, &error);
        error
    }
}

/// Records the error of JSON-RPC by which a request was answered. Its message may name a session, and is left out.
fn fail_span(span: &Span, error: &ErrorData) {
    if span.is_on() {
        let code = error.code.0.to_string();
        span.set(KeyValue::new("rpc.response.status_code", code.clone()));
        span.fail(&code, "the request was answered by an error");
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

/// Returns the place of a request in its sender's trace.
fn parent_of(context: &RequestContext<RoleServer>) -> Trace {
    let parts = context.extensions.get::<Parts>();
    let header = |name: &str| parts.and_then(|parts| parts.headers.get(name)?.to_str().ok());
    let meta = |name: &str| context.meta.0.0.get(name).and_then(|value| value.as_str());
    let value = |name| meta(name).or_else(|| header(name));
    match meta("traceparent") {
        Some(parent) => Trace::from_headers(Some(parent), meta("tracestate")),
        None => Trace::from_headers(value("traceparent"), value("tracestate")),
    }
}

/// Returns the attributes that the spans of all requests have.
fn attributes_of(method: &'static str, context: &RequestContext<RoleServer>) -> Attributes {
    let transport = if context.extensions.get::<Parts>().is_some() { "tcp" } else { "pipe" };
    let mut attributes = vec![
        KeyValue::new("mcp.method.name", method),
        KeyValue::new("jsonrpc.request.id", context.id.to_string()),
        KeyValue::new("network.transport", transport),
    ];
    let version = context.protocol_version();
    attributes.extend(version.map(|version| KeyValue::new("mcp.protocol.version", version.as_str().to_owned())));
    attributes
}

/// Returns the URI of a resource for a span: without its query, and with the digest of the session's ID in place of the
/// ID, which gives access. A URI of another form may contain an ID anywhere, and is left out.
fn shown_uri(uri: &str) -> Option<String> {
    if uri == apps::URI {
        return Some(uri.to_owned());
    }
    let (session, rest) = uri.strip_prefix("kernel://")?.split_once('/')?;
    let path = rest.split(['?', '#']).next()?;
    SessionId::parse(session).filter(|_| !path.contains(session))?;
    Some(format!("kernel://{}/{path}", digest(session)).chars().take(MAX_URI).collect())
}

impl Server {
    /// Does the work of a request other than a call of a tool, in a span of its own. `resource` is the URI of the
    /// resource that it reads.
    ///
    /// # Errors
    /// Those of `work`.
    pub(crate) async fn traced<T>(
        &self,
        method: &'static str,
        resource: Option<&str>,
        context: &RequestContext<RoleServer>,
        work: impl Future<Output = Result<T, ErrorData>>,
    ) -> Result<T, ErrorData> {
        let activity = self.runner.activity();
        let parent = if activity.is_on() { parent_of(context) } else { Trace::default() };
        let span = activity.begin_call(SpanName::Request, method, &parent, || {
            let mut attributes = attributes_of(method, context);
            attributes.extend(resource.and_then(shown_uri).map(|uri| KeyValue::new("mcp.resource.uri", uri)));
            attributes
        });
        let result = work.await;
        if let Err(error) = &result {
            fail_span(&span, error);
        }
        result
    }

    /// Begins a call of a tool: its span, and its context, which [`scope_of`] returns from now on.
    pub(crate) fn begin_activity(&self, tool: &str, context: &mut RequestContext<RoleServer>) -> CallActivity {
        let activity = self.runner.activity();
        if !activity.is_on() {
            return CallActivity(Span::default());
        }
        let parent = parent_of(context);
        let span = activity.begin_call(SpanName::Call, tool, &parent, || {
            let mut attributes = attributes_of("tools/call", context);
            attributes.push(KeyValue::new("gen_ai.operation.name", "execute_tool"));
            attributes.push(KeyValue::new("gen_ai.tool.name", tool.to_owned()));
            attributes
        });
        let trace = if span.is_on() { span.trace() } else { parent };
        let scope = activity.scope(PROTOCOL, self.owner(), trace);
        context.extensions.insert(scope);
        CallActivity(span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_in_spans_have_no_session_ids() {
        let id = "0123456789abcdef";
        let shown = shown_uri(&format!("kernel://{id}/plots/a%20b.png?offset=1")).unwrap();
        assert_eq!(shown, format!("kernel://{}/plots/a%20b.png", digest(id)));
        assert_eq!(shown_uri(apps::URI).as_deref(), Some(apps::URI));
        for uri in [format!("kernel:/{id}/a"), format!("kernel://x{id}/a"), format!("kernel://{id}/{id}"), id.into()] {
            assert_eq!(shown_uri(&uri), None, "{uri}");
        }
        let long = shown_uri(&format!("kernel://{id}/{}", "é".repeat(1000))).unwrap();
        assert_eq!(long.chars().count(), MAX_URI);
    }
}
