//! Spans of connects and requests, with the names and attributes of [OpenTelemetry's semantic conventions for
//! MCP](https://opentelemetry.io/docs/specs/semconv/gen-ai/mcp/). Arguments, results and headers are not recorded.

use rmcp::model::{ClientRequest, RequestId, ServerResult};
use tracing::Span;
use tracing::field::Empty;

use super::connection::Connection;
use crate::error::McpError;
use crate::transport::network::Network;

/// The subject of a request: the tool, the prompt or the resource.
enum Subject<'a> {
    Tool(&'a str),
    Prompt(&'a str),
    Resource(&'a str),
    None,
}

fn subject(request: &ClientRequest) -> Subject<'_> {
    match request {
        ClientRequest::CallToolRequest(request) => Subject::Tool(&request.params.name),
        ClientRequest::GetPromptRequest(request) => Subject::Prompt(&request.params.name),
        ClientRequest::ReadResourceRequest(request) => Subject::Resource(&request.params.uri),
        ClientRequest::SubscribeRequest(request) => Subject::Resource(&request.params.uri),
        ClientRequest::UnsubscribeRequest(request) => Subject::Resource(&request.params.uri),
        // A call as a task of 2025-11-25.
        ClientRequest::CustomRequest(request) if request.method == "tools/call" => {
            request.params.as_ref().and_then(|params| params.get("name")?.as_str()).map_or(Subject::None, Subject::Tool)
        }
        _ => Subject::None,
    }
}

/// Creates the span of an attempt to connect. The era, and with it the method, is known at the end: see
/// [`record_connected`].
pub(super) fn for_connect() -> Span {
    new()
}

/// Creates the span of a request.
pub(super) fn for_request(network: &Network, protocol_version: &str, request: &ClientRequest) -> Span {
    let span = new();
    if span.is_disabled() {
        return span;
    }
    let method = request.method();
    record_network(&span, network);
    span.record("mcp.method.name", method);
    span.record("mcp.protocol.version", protocol_version);
    let target = match subject(request) {
        Subject::Tool(name) => {
            span.record("gen_ai.operation.name", "execute_tool");
            span.record("gen_ai.tool.name", name);
            Some(name)
        }
        Subject::Prompt(name) => {
            span.record("gen_ai.prompt.name", name);
            Some(name)
        }
        Subject::Resource(uri) => {
            span.record("mcp.resource.uri", without_secrets(uri).as_str());
            None
        }
        Subject::None => None,
    };
    match target {
        Some(target) => span.record("otel.name", format!("{method} {target}").as_str()),
        None => span.record("otel.name", method),
    };
    span
}

fn new() -> Span {
    tracing::info_span!(
        target: "belljar_mcp_client",
        "mcp.client",
        otel.name = Empty,
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        mcp.method.name = Empty,
        mcp.protocol.version = Empty,
        mcp.session.id = Empty,
        mcp.resource.uri = Empty,
        gen_ai.operation.name = Empty,
        gen_ai.tool.name = Empty,
        gen_ai.prompt.name = Empty,
        jsonrpc.request.id = Empty,
        rpc.response.status_code = Empty,
        "error.type" = Empty,
        network.transport = Empty,
        network.protocol.name = Empty,
        server.address = Empty,
        server.port = Empty,
    )
}

fn record_network(span: &Span, network: &Network) {
    if span.is_disabled() {
        return;
    }
    if let Some(transport) = network.transport {
        span.record("network.transport", transport);
    }
    if let Some(protocol) = network.protocol {
        span.record("network.protocol.name", protocol);
    }
    if let Some(address) = &network.address {
        span.record("server.address", address.as_str());
    }
    if let Some(port) = network.port {
        span.record("server.port", port);
    }
    if let Some(session) = network.session.get() {
        span.record("mcp.session.id", &*session);
    }
}

/// Records the ID that a request got.
pub(super) fn record_id(span: &Span, id: &RequestId) {
    if !span.is_disabled() {
        span.record("jsonrpc.request.id", id.to_string().as_str());
    }
}

/// Records the outcome of an attempt to connect, and the method that initialized the connection.
pub(super) fn record_connected(span: &Span, connected: Result<&Connection, &McpError>) {
    if span.is_disabled() {
        return;
    }
    let is_modern = connected.is_ok_and(Connection::is_modern);
    let method = if is_modern { "server/discover" } else { "initialize" };
    span.record("mcp.method.name", method);
    span.record("otel.name", method);
    match connected {
        Ok(connection) => {
            record_network(span, connection.network());
            span.record("mcp.protocol.version", connection.info().protocol_version.as_str());
        }
        Err(error) => record_error(span, error),
    }
}

/// Records the outcome of a request.
pub(super) fn record_result(span: &Span, result: Result<&ServerResult, &McpError>) {
    if span.is_disabled() {
        return;
    }
    match result {
        Ok(ServerResult::CallToolResult(result)) if result.is_error == Some(true) => {
            span.record("error.type", "tool_error");
            span.record("otel.status_code", "ERROR");
        }
        Ok(_) => {}
        Err(error) => record_error(span, error),
    }
}

fn record_error(span: &Span, error: &McpError) {
    span.record("otel.status_code", "ERROR");
    match error {
        McpError::Protocol { code, message, .. } => {
            let code = code.to_string();
            span.record("error.type", code.as_str());
            span.record("rpc.response.status_code", code.as_str());
            span.record("otel.status_description", message.as_str());
        }
        McpError::Unreachable { status: Some(status), .. } | McpError::Connect { status: Some(status), .. } => {
            span.record("error.type", status.to_string().as_str());
        }
        other => {
            span.record("error.type", kind(other));
        }
    }
}

/// Returns the class of an error that is not the server's own.
fn kind(error: &McpError) -> &'static str {
    match error {
        McpError::Spawn { .. } => "spawn_failed",
        McpError::Connect { .. } => "connect_failed",
        McpError::Closed { .. } => "connection_closed",
        McpError::Unreachable { .. } => "unreachable",
        McpError::Timeout { .. } => "timeout",
        McpError::InvalidResponse { .. } => "invalid_response",
        McpError::Unauthorized { .. } => "unauthorized",
        _ => "_OTHER",
    }
}

/// Returns the URI of a resource without user information and query, which may contain credentials.
fn without_secrets(uri: &str) -> String {
    let uri = uri.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = uri.split_once("://") else { return uri.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

/// Adds the current context of OpenTelemetry to the metadata of a request, unless the run has set one. Within the span
/// of the request and with `tracing-opentelemetry`, it is that of the span.
#[cfg(feature = "opentelemetry")]
pub(super) fn inject_context(meta: &mut serde_json::Map<String, serde_json::Value>) {
    struct Entries<'a>(&'a mut serde_json::Map<String, serde_json::Value>);
    impl opentelemetry::propagation::Injector for Entries<'_> {
        fn set(&mut self, key: &str, value: String) {
            self.0.insert(key.to_owned(), value.into());
        }
    }
    if !meta.contains_key("traceparent") {
        opentelemetry::global::get_text_map_propagator(|propagator| propagator.inject(&mut Entries(meta)));
    }
}

#[cfg(test)]
mod tests {
    use super::without_secrets;

    #[cfg(feature = "opentelemetry")]
    #[test]
    fn current_context_is_injected_unless_the_run_has_one() {
        use opentelemetry::Context;
        use opentelemetry::propagation::text_map_propagator::FieldIter;
        use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
        use opentelemetry::trace::TraceContextExt;
        use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

        #[derive(Debug)]
        struct Parent;
        impl TextMapPropagator for Parent {
            fn inject_context(&self, context: &Context, injector: &mut dyn Injector) {
                let span = context.span().span_context().clone();
                injector.set("traceparent", format!("00-{}-{}-01", span.trace_id(), span.span_id()));
            }
            fn extract_with_context(&self, context: &Context, _: &dyn Extractor) -> Context {
                context.clone()
            }
            fn fields(&self) -> FieldIter<'_> {
                FieldIter::new(&[])
            }
        }
        opentelemetry::global::set_text_map_propagator(Parent);
        let (trace, span) = (TraceId::from_bytes([1; 16]), SpanId::from_bytes([2; 8]));
        let context = SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::default());
        let _attached = Context::new().with_remote_span_context(context).attach();
        let mut meta = serde_json::Map::new();
        super::inject_context(&mut meta);
        assert_eq!(meta["traceparent"], format!("00-{}-{}-01", "01".repeat(16), "02".repeat(8)));
        meta.insert("traceparent".to_owned(), "the run's".into());
        super::inject_context(&mut meta);
        assert_eq!(meta["traceparent"], "the run's");
    }

    #[test]
    fn uris_are_recorded_without_credentials() {
        assert_eq!(without_secrets("https://ada:secret@example.org/x?key=secret"), "https://example.org/x");
        assert_eq!(without_secrets("file:///home/ada/notes.txt"), "file:///home/ada/notes.txt");
        assert_eq!(without_secrets("not a URI"), "not a URI");
    }
}
