//! Log records that are exported: events of the log, and the audit log.

use std::net::TcpListener;

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;

use super::super::{Log, end};
use super::{exporting, serve};
use crate::harness::Belljar;
use crate::otlp_receiver::{Receiver, attribute};
use crate::wire::Wire;

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
