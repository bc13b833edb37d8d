//! The spans of calls and cells whose code runs in native kernels.

use std::process::Stdio;

use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;

use super::native_calls::ENVIRONMENTS;
use crate::harness::Belljar;
use crate::otlp_receiver::Receiver;
use crate::wire::Wire;

belljar_testing::trials! {
    stages_of_native_code_are_spans: [NativeSandbox],
}

fn stages_of_native_code_are_spans() {
    let receiver = Receiver::start();
    let belljar = Belljar::without_cache().args(["stdio", "--toolset", "all", "--sandbox", "native", "--native-dir"]);
    let belljar = belljar.arg(&*ENVIRONMENTS).env("OTEL_EXPORTER_OTLP_ENDPOINT", &receiver.url);
    let mut command = belljar.into_command();
    command.stderr(Stdio::inherit());
    let mut wire = Wire::spawn(command);
    wire.initialize();
    assert!(wire.run("6 * 7").contains("42"));
    let cell = wire.tool("execute_code", json!({ "code": "6 * 7" }));
    assert_eq!(cell["structuredContent"]["result"], "42", "{cell}");
    wire.end_input();
    assert!(wire.wait_for_exit().success());
    let names = ["tools/call run_python_code", "tools/call execute_code"];
    let spans = receiver.spans(|spans| names.iter().all(|name| spans.iter().any(|span| span.name == *name)));
    let within = |name: &str| {
        let call = spans.iter().find(|span| span.name == name).unwrap();
        let mut within: Vec<&Span> = spans.iter().filter(|span| span.parent_span_id == call.span_id).collect();
        within.sort_by_key(|span| span.start_time_unix_nano);
        within.into_iter().map(|span| span.name.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(within(names[0]), ["queue", "restore", "image", "run"]);
    assert_eq!(within(names[1]), ["queue", "restore", "run"]);
}
