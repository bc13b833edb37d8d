//! OpenTelemetry: a receiver of OTLP gets the spans, log records and metrics of servers.

mod metrics;
mod monty;
mod records;
mod spans;

use std::net::TcpListener;
use std::process::Stdio;

use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;

use super::end;
use crate::harness::Belljar;
use crate::otlp_receiver::Receiver;
use crate::wire::Wire;

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
