//! OpenTelemetry: a receiver of OTLP gets the spans, log records and metrics of servers.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, Stdio};

use belljar_testing::install::run;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, metric};
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;

use super::documentation::table;
use super::{Log, end};
use crate::harness::Belljar;
use crate::monty_worker::script;
use crate::network_servers::site;
use crate::otlp_receiver::{Receiver, attribute};
use crate::serve::http::Listening;
use crate::tool_client::tool_server;
use crate::wheels::Wheels;
use crate::wire::{Wire, text};

/// The caller's place in its trace.
pub(super) const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
pub(super) const PARENT: &str = "b7ad6b7169203331";

/// Returns a command line whose telemetry goes to the receiver.
pub(super) fn exporting(belljar: Belljar, receiver: &Receiver) -> Belljar {
    belljar
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url)
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-team=a%20b")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "100")
        .env("OTEL_BSP_SCHEDULE_DELAY", "100")
        .env("OTEL_BLRP_SCHEDULE_DELAY", "100")
}

fn serve(belljar: Belljar) -> Wire {
    let mut command = belljar.into_command();
    command.stderr(Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    wire
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name}: {spans:#?}"))
}

fn has(spans: &[Span], names: &[&str]) -> bool {
    names.iter().all(|name| spans.iter().any(|span| span.name == *name))
}

#[test]
fn spans_of_a_call_continue_the_trace_of_its_caller() {
    let receiver = Receiver::start();
    let log = Log::new();
    let belljar = Belljar::new().args(["stdio", "--toolset", "all", &tool_server("t", "plain")]).args(log.options());
    let mut wire = serve(exporting(belljar, &receiver));
    let code = "from tools import t\nprint(await t.add(a=1))";
    for (tool, arguments) in
        [("run_python_code", json!({ "python_code": code })), ("execute_code", json!({ "code": code }))]
    {
        let meta = json!({ "traceparent": format!("00-{TRACE}-{PARENT}-01") });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let answer = wire.ask("tools/call", params);
        assert_ne!(answer["result"]["isError"], true, "{answer}");
    }
    wire.run("1 / 0");
    end(wire);
    let names =
        ["tools/call run_python_code", "tools/call execute_code", "queue", "restore", "run", "execute_tool t.add"];
    let spans =
        receiver.spans(|spans| has(spans, &names) && spans.iter().filter(|span| span.name == "run").count() == 3);
    for name in ["tools/call run_python_code", "tools/call execute_code"] {
        let call = named(&spans, name);
        assert_eq!((hex(&call.trace_id).as_str(), hex(&call.parent_span_id).as_str()), (TRACE, PARENT), "{name}");
        assert_eq!(call.kind, SpanKind::Server as i32);
        for (key, value) in [
            ("mcp.method.name", "tools/call"),
            ("gen_ai.operation.name", "execute_tool"),
            ("gen_ai.tool.name", name.split(' ').nth(1).unwrap()),
            ("network.transport", "pipe"),
            ("belljar.status", "success"),
        ] {
            assert_eq!(attribute(&call.attributes, key).as_deref(), Some(value), "{key} of {name}");
        }
        let within: Vec<&str> =
            spans.iter().filter(|span| span.parent_span_id == call.span_id).map(|span| span.name.as_str()).collect();
        for stage in ["queue", "restore", "run", "execute_tool t.add"] {
            assert!(within.contains(&stage), "{name} has {within:?}");
        }
    }
    let tool = named(&spans, "execute_tool t.add");
    assert_eq!(attribute(&tool.attributes, "belljar.mcp.server").as_deref(), Some("t"));
    let failed = spans.iter().find(|span| span.parent_span_id.is_empty()).unwrap();
    assert_eq!(failed.name, "tools/call run_python_code");
    assert_eq!(attribute(&failed.attributes, "error.type").as_deref(), Some("tool_error"));
    // The audit log names the trace.
    assert_eq!(log.of("run.end")[0]["trace_id"], TRACE);
    assert!(
        receiver.headers().iter().all(|head| head.to_lowercase().contains("x-team: a b")),
        "{:?}",
        receiver.headers()
    );
    let resources = receiver.resources();
    assert!(resources.contains(&("service.name".into(), "belljar".into())), "{resources:?}");
}

#[test]
fn traces_continue_over_http_and_connections_are_spans() {
    let receiver = Receiver::start();
    let options = ["--port", "0"];
    let belljar = site().belljar("streamable-http-stateless").args(options);
    let server = Listening::spawn(exporting(belljar, &receiver).env("OTEL_SERVICE_NAME", "sandbox"));
    let code = "import urllib.request\n\
                print(urllib.request.urlopen('https://www.example.com:PORT_https/hello?key=hunter2').status)";
    let params = json!({ "name": "run_python_code", "arguments": { "python_code": site().filled(code) } });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let (status, text) = server.post(&[("traceparent", &traceparent)], &message);
    assert!(status == 200 && text.contains("200"), "{text}");
    server.end();
    let spans = receiver.spans(|spans| has(spans, &["GET", "tools/call run_python_code"]));
    let call = named(&spans, "tools/call run_python_code");
    assert_eq!((hex(&call.trace_id).as_str(), hex(&call.parent_span_id).as_str()), (TRACE, PARENT));
    let request = named(&spans, "GET");
    assert_eq!((&request.parent_span_id, request.kind), (&call.span_id, SpanKind::Client as i32));
    assert_eq!(attribute(&request.attributes, "server.address").as_deref(), Some("www.example.com"));
    assert_eq!(attribute(&request.attributes, "url.path").as_deref(), Some("/hello"));
    assert!(!format!("{spans:?}").contains("hunter2"));
    assert!(receiver.resources().contains(&("service.name".into(), "sandbox".into())), "{:?}", receiver.resources());
}

#[test]
fn requests_and_the_preparation_of_code_are_spans() {
    let receiver = Receiver::start();
    let mut wire = serve(exporting(Belljar::new().args(["stdio", "--toolset", "all"]), &receiver));
    wire.run("1");
    let created = wire.tool("execute_code", json!({ "code": "open('a.txt', 'w').write('hello')" }));
    let session = created["structuredContent"]["session_info"]["session_id"].as_str().unwrap().to_owned();
    for method in ["tools/list", "resources/list", "resources/templates/list"] {
        assert!(wire.ask(method, json!({}))["result"].is_object(), "{method}");
    }
    let meta = json!({ "traceparent": format!("00-{TRACE}-{PARENT}-01") });
    let mut read =
        |name: &str| wire.ask("resources/read", json!({ "uri": format!("kernel://{session}/{name}"), "_meta": meta }));
    assert!(read("a.txt")["result"].is_object());
    let code = read("none.txt")["error"]["code"].to_string();
    read(&format!("{session}.txt"));
    end(wire);
    let names = ["image", "tools/list", "resources/list", "resources/templates/list"];
    let is_read = |span: &&Span| span.name == "resources/read";
    let spans = receiver.spans(|spans| has(spans, &names) && spans.iter().filter(is_read).count() == 3);
    let call = named(&spans, "tools/call run_python_code");
    assert_eq!(named(&spans, "image").parent_span_id, call.span_id);
    assert_eq!(named(&spans, "tools/list").kind, SpanKind::Server as i32);
    let status = |span: &Span| attribute(&span.attributes, "rpc.response.status_code");
    let mut statuses: Vec<_> = spans.iter().filter(is_read).map(status).collect();
    statuses.sort();
    assert_eq!(statuses, [None, Some(code.clone()), Some(code.clone())]);
    let uri = |span: &Span| attribute(&span.attributes, "mcp.resource.uri");
    let failed = |span: &&Span| status(span).is_some() && uri(span).is_some();
    let failed = spans.iter().filter(is_read).find(failed).unwrap();
    let mut uris: Vec<_> = spans.iter().filter(is_read).map(uri).collect();
    uris.sort();
    let shown = |name: &str| Some(format!("kernel://{}/{name}", belljar_audit::digest(&session)));
    assert_eq!(uris, [None, shown("a.txt"), shown("none.txt")]);
    assert_eq!(attribute(&failed.attributes, "error.type"), Some(code));
    assert_eq!(attribute(&failed.attributes, "mcp.method.name").as_deref(), Some("resources/read"));
    assert_eq!((hex(&failed.trace_id).as_str(), hex(&failed.parent_span_id).as_str()), (TRACE, PARENT));
    assert!(!format!("{spans:?}").contains(&session));
}

#[test]
fn failed_calls_of_tools_have_the_type_of_their_error() {
    let receiver = Receiver::start();
    let mut wire = serve(exporting(Belljar::new().args(["stdio", &tool_server("t", "plain")]), &receiver));
    let attempt = |call: &str| format!("try:\n    await {call}\nexcept ToolException as error:\n    print(error)\n");
    let calls = [attempt("t.fail(message='no')"), attempt("t.note(text='x')")].concat();
    wire.run(&format!("from tools import t, ToolException\n{calls}"));
    end(wire);
    let spans = receiver.spans(|spans| has(spans, &["execute_tool t.fail", "execute_tool t.note"]));
    let error = |name: &str| attribute(&named(&spans, name).attributes, "error.type");
    assert_eq!(error("execute_tool t.fail").as_deref(), Some("tool_error"));
    // The client cannot be asked.
    assert_eq!(error("execute_tool t.note").as_deref(), Some("denied"));
}

#[test]
fn servers_of_tools_receive_the_span_of_the_call() {
    let receiver = Receiver::start();
    let belljar = Belljar::new().args(["stdio", "--toolset", "all", &tool_server("t", "meta")]);
    let mut wire = serve(exporting(belljar, &receiver));
    let code = "from tools import t\nprint(await t.trace())";
    let mut received = Vec::new();
    for (tool, argument) in [("run_python_code", "python_code"), ("execute_code", "code")] {
        let meta = json!({ "traceparent": format!("00-{TRACE}-{PARENT}-01"), "tracestate": "vendor=1" });
        let answer = wire.ask("tools/call", json!({ "name": tool, "arguments": { argument: code }, "_meta": meta }));
        received.push(text(&answer["result"]));
    }
    end(wire);
    let is_call = |span: &&Span| span.name == "execute_tool t.trace";
    let spans = receiver.spans(|spans| spans.iter().filter(is_call).count() == 2);
    for text in received {
        let is_received = |span: &&Span| text.contains(&format!("00-{TRACE}-{}-01", hex(&span.span_id)));
        assert_eq!(spans.iter().filter(is_call).filter(is_received).count(), 1, "{text}: {spans:#?}");
        assert!(text.contains("vendor=1"), "{text}");
    }
}

#[test]
fn packages_of_cells_are_prepared_in_spans_of_their_own() {
    let wheels = Wheels::new().with("belljar_made_foxtrot", "1.0", &[("belljar_made_foxtrot.py", "")]);
    let receiver = Receiver::start();
    let belljar = Belljar::new().args(["stdio", "--toolset", "interpreter", "--find-links", wheels.path()]);
    let mut wire = serve(exporting(belljar, &receiver));
    let created = wire.tool("execute_code", json!({ "code": "1" }));
    let session = created["structuredContent"]["session_info"]["session_id"].as_str().unwrap().to_owned();
    let code = "import belljar_made_foxtrot";
    let meta = json!({ "traceparent": format!("00-{TRACE}-{PARENT}-01") });
    let arguments = json!({ "code": code, "session_id": session });
    let answer = wire.ask("tools/call", json!({ "name": "execute_code", "arguments": arguments, "_meta": meta }));
    assert_eq!(answer["result"]["structuredContent"]["success"], true, "{answer}");
    end(wire);
    let is_call = |span: &&Span| span.name == "tools/call execute_code";
    let spans = receiver.spans(|spans| spans.iter().filter(is_call).count() == 2);
    let within = |call: &Span| {
        let mut within: Vec<_> = spans.iter().filter(|span| span.parent_span_id == call.span_id).collect();
        within.sort_by_key(|span| span.start_time_unix_nano);
        within.into_iter().map(|span| span.name.as_str()).collect::<Vec<_>>()
    };
    let (second, first): (Vec<_>, Vec<_>) = spans.iter().filter(is_call).partition(|call| hex(&call.trace_id) == TRACE);
    assert_eq!(within(first[0]), ["queue", "restore", "run"]);
    // The interpreter is there.
    assert_eq!(within(second[0]), ["queue", "image", "run"]);
}

#[test]
fn calls_of_the_code_execution_protocol_are_spans() {
    let receiver = Receiver::start();
    let options = ["--port", "0", "--toolset", "interpreter", "--code-execution"];
    let server = Listening::spawn(exporting(Belljar::new().arg("streamable-http").args(options), &receiver));
    let traceparent = format!("00-{TRACE}-{PARENT}-01");
    let post = |path: &str, body: serde_json::Value| -> serde_json::Value {
        let headers = [("Content-Type", "application/json"), ("traceparent", traceparent.as_str())];
        let (_, text) = server.send("POST", path, &headers, &body.to_string());
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let session = post("/sessions", json!({}))["session_id"].as_str().unwrap().to_owned();
    let call = |code: &str| json!({ "tool": "code_execution", "input": { "code": code } });
    for code in ["print(6 * 7)", "1 / 0"] {
        assert!(post(&format!("/sessions/{session}/exec"), call(code))["result_block"].is_object());
    }
    server.end();
    let is_call = |span: &&Span| span.name == "execute code_execution";
    let spans = receiver.spans(|spans| has(spans, &["run"]) && spans.iter().filter(is_call).count() == 2);
    for call in spans.iter().filter(is_call) {
        assert_eq!((hex(&call.trace_id).as_str(), hex(&call.parent_span_id).as_str()), (TRACE, PARENT));
        assert_eq!(call.kind, SpanKind::Server as i32);
        assert_eq!(attribute(&call.attributes, "gen_ai.tool.name").as_deref(), Some("code_execution"));
        assert!(spans.iter().any(|span| span.name == "run" && span.parent_span_id == call.span_id), "{spans:#?}");
    }
    let errors = spans.iter().filter(is_call).filter_map(|call| attribute(&call.attributes, "error.type"));
    assert_eq!(errors.collect::<Vec<_>>(), ["tool_error"]);
    assert!(!format!("{spans:?}").contains(&session));
}

#[test]
fn feeds_of_monty_are_spans() {
    let receiver = Receiver::start();
    let belljar = Belljar::new().args(["streamable-http", "--port", "0", "--monty"]);
    let server = Listening::spawn(exporting(belljar, &receiver));
    let url = server.url.replacen("http", "ws", 1).replace("/mcp", "/monty");
    run(script("async_client.py").arg(url).arg("no token is needed"));
    server.end();
    let spans = receiver.spans(|spans| has(spans, &["feed", "run"]));
    let feed = named(&spans, "feed");
    assert_eq!(feed.kind, SpanKind::Server as i32);
    assert!(spans.iter().any(|span| span.name == "run" && span.parent_span_id == feed.span_id), "{spans:#?}");
}

#[test]
fn feeds_of_monty_continue_the_traces_of_their_requests() {
    let receiver = Receiver::start();
    let belljar = Belljar::new().args(["streamable-http", "--port", "0", "--monty"]);
    let server = Listening::spawn(exporting(belljar, &receiver));
    let url = server.url.replacen("http", "ws", 1).replace("/mcp", "/monty");
    run(script("trace_parent.py").arg(url).arg(format!("00-{TRACE}-{PARENT}-01")));
    server.end();
    let spans = receiver.spans(|spans| has(spans, &["feed", "run"]));
    let feed = named(&spans, "feed");
    assert_eq!((hex(&feed.trace_id).as_str(), hex(&feed.parent_span_id).as_str()), (TRACE, PARENT));
    assert_eq!(named(&spans, "run").parent_span_id, feed.span_id);
}

/// Returns a field of a message of Monty's protocol, with a number below 32 and less than 128 bytes.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let key = (number << 3) | 2;
    let key = if key < 128 { vec![key] } else { vec![(key & 0x7f) | 0x80, key >> 7] };
    [key, vec![u8::try_from(content.len()).unwrap()], content.to_vec()].concat()
}

/// Sends a request to a worker of Monty's protocol, and returns the number of the event that ends its turn.
fn ask_worker(worker: &mut Child, request: &[u8]) -> u8 {
    const OUTPUT: u8 = 1;
    let frame = [&u32::try_from(request.len()).unwrap().to_le_bytes()[..], request].concat();
    worker.stdin.as_mut().unwrap().write_all(&frame).unwrap();
    loop {
        let mut length = [0; 4];
        let events = worker.stdout.as_mut().unwrap();
        events.read_exact(&mut length).unwrap();
        let mut event = vec![0; u32::from_le_bytes(length) as usize];
        events.read_exact(&mut event).unwrap();
        if event[0] >> 3 != OUTPUT {
            return event[0] >> 3;
        }
    }
}

#[test]
fn local_workers_of_monty_have_an_audit_log_and_spans() {
    const OK: u8 = 10;
    const COMPLETE: u8 = 6;
    let receiver = Receiver::start();
    let log = Log::new();
    let mut command = exporting(Belljar::new().arg("monty").args(log.options()), &receiver).into_command();
    let mut worker = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let create = field(1, &[field(1, b"main.py"), vec![9 << 3, 6]].concat());
    assert_eq!(ask_worker(&mut worker, &create), OK);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let feed = [field(3, &field(1, b"1 + 1")), field(20, parent.as_bytes())].concat();
    assert_eq!(ask_worker(&mut worker, &feed), COMPLETE);
    drop(worker.stdin.take());
    assert!(worker.wait().unwrap().success());
    log.assert_intact();
    let cell = log.one("cell.end");
    assert_eq!((&cell["protocol"], &cell["outcome"]), (&json!("monty"), &json!("success")), "{cell}");
    assert_eq!((&cell["trace_id"], &cell["code_sha256"]), (&json!(TRACE), &json!(belljar_audit::sha256("1 + 1"))));
    let spans = receiver.spans(|spans| has(spans, &["feed", "run"]));
    let feed = named(&spans, "feed");
    assert_eq!((hex(&feed.trace_id).as_str(), hex(&feed.parent_span_id).as_str()), (TRACE, PARENT));
}

#[test]
fn metrics_are_those_of_the_page() {
    let receiver = Receiver::start();
    let belljar = Belljar::new().args(["streamable-http-stateless", "--port", "0", "--toolset", "all"]);
    let server = Listening::spawn(exporting(belljar, &receiver));
    server.tool("run_python_code", &json!({ "python_code": "1" }));
    let (_, page) = server.send("GET", "/metrics", &[], "");
    server.end();
    let metrics = receiver.metrics();
    let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
    let families: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(families.len() > 15, "{page}");
    for family in families {
        let name = family.strip_suffix("_seconds").or(family.strip_suffix("_bytes")).unwrap_or(family);
        let name = name.replacen('_', ".", 1);
        assert!(names.contains(&name.as_str()), "{family} is not among {names:?}");
    }
    let metric = |name: &str| metrics.iter().find(|metric| metric.name == name).unwrap();
    let Some(metric::Data::Sum(calls)) = &metric("belljar.calls").data else { panic!("not a sum") };
    assert!(calls.is_monotonic && calls.data_points.len() == 1, "{calls:?}");
    assert_eq!(attribute(&calls.data_points[0].attributes, "status").as_deref(), Some("success"));
    let Some(metric::Data::Histogram(durations)) = &metric("mcp.server.operation.duration").data else {
        panic!("not a histogram")
    };
    let point = &durations.data_points[0];
    assert_eq!((point.count, point.bucket_counts.iter().sum::<u64>()), (1, 1));
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    assert_eq!(attribute(&point.attributes, "gen_ai.tool.name").as_deref(), Some("run_python_code"));
}

#[test]
fn durations_name_the_errors_of_calls_and_the_transport_of_sessions() {
    let receiver = Receiver::start();
    let mut wire = serve(exporting(Belljar::new().args(["stdio", &tool_server("t", "plain")]), &receiver));
    let code = "from tools import t, ToolException\nawait t.add(a=1)\ntry:\n    await t.fail(message='no')\nexcept \
                ToolException as error:\n    print(error)\nawait t.resources.read('test://note')";
    let answer = wire.run(code);
    assert!(answer.contains("<status>success"), "{answer}");
    wire.run("1 / 0");
    wire.ask("tools/call", json!({ "name": "run_python_code", "arguments": { "python_code": 5 } }));
    end(wire);
    let metrics = receiver.metrics();
    let points = |name: &str| {
        let metric = metrics.iter().find(|metric| metric.name == name).unwrap_or_else(|| panic!("no {name}"));
        let Some(metric::Data::Histogram(histogram)) = &metric.data else { panic!("{name} is not a histogram") };
        histogram.data_points.clone()
    };
    let conventional: BTreeSet<&str> =
        metrics.iter().map(|metric| metric.name.as_str()).filter(|name| name.starts_with("mcp.")).collect();
    let documented = table("metric of the conventions");
    assert_eq!(documented.iter().map(|(name, _)| name.as_str()).collect::<BTreeSet<_>>(), conventional);
    let errors = |point: &HistogramDataPoint| (attribute(&point.attributes, "error.type"), point.count);
    let mut found: Vec<_> = points("mcp.server.operation.duration").iter().map(errors).collect();
    found.sort();
    assert_eq!(found, [(None, 1), (Some("invalid".to_owned()), 1), (Some("tool_error".to_owned()), 1)]);
    let requests = |point: &HistogramDataPoint| {
        assert_eq!(attribute(&point.attributes, "belljar.mcp.server").as_deref(), Some("t"), "{point:?}");
        (attribute(&point.attributes, "mcp.method.name").unwrap(), errors(point))
    };
    let mut sent: Vec<_> = points("mcp.client.operation.duration").iter().map(requests).collect();
    sent.sort();
    let expected = [("resources/read", None), ("tools/call", None), ("tools/call", Some("tool_error".to_owned()))];
    assert_eq!(sent, expected.map(|(method, error)| (method.to_owned(), (error, 1))));
    let transports =
        |point: &HistogramDataPoint| (attribute(&point.attributes, "network.transport").unwrap(), point.count);
    let mut sessions: Vec<_> = points("mcp.server.session.duration").iter().map(transports).collect();
    sessions.sort();
    assert_eq!(sessions, [("pipe".to_owned(), 1), ("tcp".to_owned(), 0)]);
}

/// Returns the text of a log record.
fn body(record: &LogRecord) -> Option<&str> {
    match record.body.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

#[test]
fn events_of_the_log_are_exported() {
    let receiver = Receiver::start();
    let belljar = Belljar::new().args(["stdio", "--server=t=/nonexistent/server"]);
    let mut wire = serve(exporting(belljar, &receiver));
    let answer = wire.run("from tools import t\nawait t.add(a=1)");
    assert!(answer.contains("server `t` is unavailable"), "{answer}");
    end(wire);
    let is_warning = |record: &&LogRecord| body(record) == Some("a server is unavailable");
    let logs = receiver.logs(|logs| logs.iter().any(|record| is_warning(&record)));
    let warning = logs.iter().find(is_warning).unwrap();
    assert_eq!(warning.severity_text, "WARN", "{warning:?}");
    assert!(warning.severity_number > 0 && warning.time_unix_nano + warning.observed_time_unix_nano > 0, "{warning:?}");
    assert_eq!(attribute(&warning.attributes, "server").as_deref(), Some("t"), "{warning:?}");
    assert!(attribute(&warning.attributes, "error").is_some(), "{warning:?}");
}

#[test]
fn audit_log_is_exported_with_its_hashes() {
    let receiver = Receiver::start();
    let log = Log::new();
    let belljar = Belljar::new().args(["stdio", "--audit", "otlp"]).args(log.options());
    let mut wire = serve(exporting(belljar, &receiver));
    wire.run("1");
    end(wire);
    let logs = receiver.logs(|logs| logs.iter().any(|record| record.event_name == "server.stop"));
    let lines = logs.iter().filter(|record| !record.event_name.is_empty()).filter_map(body);
    let exported: Vec<&str> = lines.filter(|line| line.starts_with("{\"seq\":")).collect();
    assert_eq!(exported, log.text().lines().collect::<Vec<_>>());
}

/// Starts a server whose audit log is exported to a collector at this address, and written to a file.
fn serve_with_collector(log: &Log, url: &str) -> Wire {
    let belljar = Belljar::new().args(["stdio", "--audit", "otlp"]).args(log.options());
    let belljar = belljar.env("OTEL_EXPORTER_OTLP_ENDPOINT", url).env("OTEL_BLRP_SCHEDULE_DELAY", "100");
    serve(belljar.env("OTEL_TRACES_EXPORTER", "none").env("OTEL_METRICS_EXPORTER", "none"))
}

#[test]
fn records_that_a_collector_refuses_are_counted_and_stop_no_call() {
    let log = Log::new();
    // No process listens there.
    let mut wire = serve_with_collector(&log, "http://127.0.0.1:1");
    let begin = std::time::Instant::now();
    while log.of_complete("audit.lost").is_empty() {
        assert!(wire.run("6 * 7").contains("42"));
        assert!(begin.elapsed() < std::time::Duration::from_secs(180), "{}", log.text());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    end(wire);
    log.assert_intact();
    let lost = &log.of("audit.lost")[0];
    assert!(lost["count"].as_u64().unwrap() > 0 && lost["name"] == "the audit log by OTLP", "{lost}");
}

#[test]
fn collector_that_does_not_answer_delays_no_record_of_the_file() {
    let log = Log::new();
    // Connections are made by the system, and not accepted.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut wire = serve_with_collector(&log, &format!("http://{}", listener.local_addr().unwrap()));
    for _ in 0..3 {
        assert!(wire.run("6 * 7").contains("42"));
        // The file is synced, and records are exported.
        std::thread::sleep(std::time::Duration::from_millis(1200));
    }
    end(wire);
    log.assert_intact();
    assert_eq!(log.of("run.end").len(), 3);
}

#[test]
fn nothing_is_exported_without_variables_and_grpc_is_refused() {
    let receiver = Receiver::start();
    let disabled = exporting(Belljar::new().arg("stdio"), &receiver).env("OTEL_SDK_DISABLED", "true");
    let mut wire = serve(disabled);
    wire.run("1");
    end(wire);
    assert!(receiver.is_empty());
    let run = exporting(Belljar::new().arg("stdio"), &receiver).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").run();
    assert_ne!(run.status, Some(0));
    assert!(run.stderr.contains("OTEL_EXPORTER_OTLP_PROTOCOL=grpc is not supported"), "{run:?}");
}

/// Returns the line with which a client begins.
fn hello() -> String {
    let client = json!({ "name": "tests", "version": "1" });
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    format!("{}\n", json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params }))
}

#[test]
fn collector_on_this_machine_is_reached_without_the_proxy() {
    let receiver = Receiver::start();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let mut belljar = exporting(Belljar::new().arg("stdio"), &receiver);
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        belljar = belljar.env(name, &address);
    }
    let run = belljar.input(hello()).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(receiver.headers().iter().any(|head| head.starts_with("POST /v1/metrics")), "{run:?}");
    proxy.set_nonblocking(true).unwrap();
    assert!(proxy.accept().is_err(), "the proxy was asked");
}

#[test]
fn interval_of_zero_is_not_used() {
    let receiver = Receiver::start();
    let belljar = exporting(Belljar::new().arg("stdio"), &receiver).env("OTEL_METRIC_EXPORT_INTERVAL", "0");
    let run = belljar.input(hello()).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    assert!(run.stderr.contains("belljar: OTEL_METRIC_EXPORT_INTERVAL=0 is not a number of milliseconds"), "{run:?}");
    // At the end of the server.
    let exports = receiver.headers().into_iter().filter(|head| head.starts_with("POST /v1/metrics"));
    assert_eq!(exports.count(), 1);
}
