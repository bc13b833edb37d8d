//! The spans of calls, and the traces that they continue.

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::json;

use super::super::{Log, end};
use super::{PARENT, TRACE, exporting, has, hex, named, serve};
use crate::harness::Belljar;
use crate::network_servers::site;
use crate::otlp_receiver::{Receiver, attribute};
use crate::serve::http::Listening;
use crate::tool_client::tool_server;
use crate::wheels::Wheels;
use crate::wire::text;

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
