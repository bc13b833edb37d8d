//! Spans of connects and requests: their names and attributes, and that they contain nothing secret.

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_mcp_client::{CallOptions, McpServer, McpServerStreamableHttp, ProtocolEra, RunContext};
use opentelemetry::Context;
use opentelemetry::propagation::text_map_propagator::FieldIter;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use parking_lot::Mutex;
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context as LayerContext, Layer, SubscriberExt};

use crate::harness::{START_TIMEOUT, TestServer, faulty, script};

type Fields = BTreeMap<String, String>;

/// Records the fields of all spans of the crate.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<(Id, Fields)>>>);

struct Writer<'a>(&'a mut Fields);

impl Visit for Writer<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl<S: tracing::Subscriber> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: LayerContext<'_, S>) {
        if attributes.metadata().target() == "belljar_mcp_client" {
            let mut fields = Fields::new();
            attributes.record(&mut Writer(&mut fields));
            self.0.lock().push((id.clone(), fields));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: LayerContext<'_, S>) {
        let mut spans = self.0.lock();
        // An ID may be used again after its span is closed.
        if let Some((_, fields)) = spans.iter_mut().rev().find(|(other, _)| other == id) {
            values.record(&mut Writer(fields));
        }
    }
}

impl Recorder {
    /// Returns the attributes of the last span of this name.
    fn span(&self, name: &str) -> Fields {
        let spans = self.0.lock();
        let found = spans.iter().rev().find(|(_, fields)| fields.get("otel.name").is_some_and(|own| own == name));
        found.unwrap_or_else(|| panic!("no `{name}` in {spans:?}")).1.clone()
    }
}

fn record() -> (Recorder, tracing::subscriber::DefaultGuard) {
    let recorder = Recorder::default();
    let subscriber = tracing_subscriber::registry().with(recorder.clone());
    (recorder, tracing::subscriber::set_default(subscriber))
}

#[track_caller]
fn assert_attributes(span: &Fields, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(span.get(*name).map(String::as_str), Some(*value), "{name} in {span:?}");
    }
}

#[tokio::test]
async fn spans_have_the_conventional_names_and_attributes() {
    let listening = TestServer::start("python3", &["-u", &script("identity_server.py")]);
    let (recorder, _guard) = record();
    let server = McpServerStreamableHttp::new(listening.url("/mcp?key=hunter2")).unwrap().timeout(START_TIMEOUT);
    let server: McpServer = server.era(ProtocolEra::Legacy).build();
    let server = server.for_run(&RunContext::new().bearer_token("ada-hunter2").unwrap());
    server.list_tools().await.unwrap();
    let call = json!({"text": "hunter2"});
    server.call_tool_raw("note", call, CallOptions::new()).await.unwrap();
    server.read_resource("notes://ada:hunter2@host/x?key=hunter2").await.unwrap();
    server.get_prompt("who", [("a", "hunter2")]).await.unwrap();
    server.custom_request("example/unknown", json!({}), CallOptions::new()).await.unwrap_err();

    let connect = recorder.span("initialize");
    let port = listening.port.to_string();
    let network = [
        ("otel.kind", "client"),
        ("network.transport", "tcp"),
        ("network.protocol.name", "http"),
        ("server.address", "127.0.0.1"),
        ("server.port", &*port),
        ("mcp.protocol.version", "2025-11-25"),
    ];
    assert_attributes(&connect, &network);
    assert_attributes(&connect, &[("mcp.method.name", "initialize")]);
    let session = connect["mcp.session.id"].clone();
    assert_eq!(session.len(), 32, "{session}");
    let call = recorder.span("tools/call note");
    assert_attributes(&call, &network);
    assert_attributes(
        &call,
        &[
            ("mcp.method.name", "tools/call"),
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", "note"),
            ("mcp.session.id", &session),
        ],
    );
    assert!(call["jsonrpc.request.id"].parse::<u64>().is_ok() && !call.contains_key("error.type"), "{call:?}");
    assert_attributes(&recorder.span("prompts/get who"), &[("gen_ai.prompt.name", "who")]);
    let read = recorder.span("resources/read");
    assert_attributes(&read, &[("mcp.resource.uri", "notes://host/x")]);
    let failed = recorder.span("example/unknown");
    assert_attributes(
        &failed,
        &[
            ("error.type", "-32601"),
            ("rpc.response.status_code", "-32601"),
            ("otel.status_code", "ERROR"),
            ("otel.status_description", "Method not found"),
        ],
    );
    let all = format!("{:?}", recorder.0.lock());
    assert!(!all.contains("hunter2"), "{all}");
}

/// The propagator of the W3C trace context, as far as a client needs it.
#[derive(Debug)]
struct TraceParent;

impl TextMapPropagator for TraceParent {
    fn inject_context(&self, context: &Context, injector: &mut dyn Injector) {
        let span = context.span().span_context().clone();
        if span.is_valid() {
            let flags = span.trace_flags().to_u8();
            injector.set("traceparent", format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id()));
        }
    }

    fn extract_with_context(&self, context: &Context, _: &dyn Extractor) -> Context {
        context.clone()
    }

    fn fields(&self) -> FieldIter<'_> {
        FieldIter::new(&[])
    }
}

#[tokio::test]
async fn current_context_of_opentelemetry_reaches_the_server() {
    let listening = TestServer::start("python3", &["-u", &script("identity_server.py")]);
    opentelemetry::global::set_text_map_propagator(TraceParent);
    let server = McpServerStreamableHttp::new(listening.url("/mcp")).unwrap().timeout(START_TIMEOUT);
    let server = server.bearer_token("ada").era(ProtocolEra::Legacy).build();
    let running = server.connect().await.unwrap();
    let own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let look = json!({});
    server.call_tool_raw("look", look.clone(), CallOptions::new()).await.unwrap();
    {
        let (trace, span) = (TraceId::from_bytes([1; 16]), SpanId::from_bytes([2; 8]));
        let remote = SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::default());
        let _attached = Context::new().with_remote_span_context(remote).attach();
        server.call_tool_raw("look", look.clone(), CallOptions::new()).await.unwrap();
        // The context of the run takes precedence.
        let run = RunContext::new().traceparent(own);
        server.call_tool_raw("look", look, CallOptions::from_run(&run)).await.unwrap();
    }
    let seen: Vec<BTreeMap<String, String>> = reqwest::get(listening.url("/seen")).await.unwrap().json().await.unwrap();
    let calls = seen.iter().filter(|request| request["method"] == "tools/call");
    let parents: Vec<&str> = calls.map(|call| call["traceparent"].as_str()).collect();
    let current = format!("00-{}-{}-01", "01".repeat(16), "02".repeat(8));
    assert_eq!(parents, ["", &current, own]);
    running.close().await.unwrap();
}

#[tokio::test]
async fn failures_have_a_type() {
    let (recorder, _guard) = record();
    let server = faulty("dies").read_timeout(std::time::Duration::from_secs(60)).build();
    let running = server.connect().await.unwrap();
    assert_attributes(&recorder.span("initialize"), &[("network.transport", "pipe")]);
    server.direct_call_tool("fails", json!({})).await.unwrap();
    assert_attributes(
        &recorder.span("tools/call fails"),
        &[("error.type", "tool_error"), ("otel.status_code", "ERROR")],
    );
    server.call_tool_raw("act", json!({}), CallOptions::new()).await.unwrap_err();
    assert_attributes(&recorder.span("tools/call act"), &[("error.type", "connection_closed")]);
    running.close().await.unwrap();
    belljar_mcp_client::McpServerStdio::new("no-such-program").build().connect().await.err().unwrap();
    assert_attributes(&recorder.span("initialize"), &[("error.type", "spawn_failed")]);
    faulty("dies_at_start").build().connect().await.err().unwrap();
    assert_attributes(&recorder.span("initialize"), &[("error.type", "connect_failed")]);
}
