//! A receiver of OTLP over HTTP: it decodes requests with the messages of OpenTelemetry's own definition.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

/// The time within which telemetry must arrive.
const TIMEOUT: Duration = Duration::from_secs(180);

/// The telemetry that was received.
#[derive(Debug, Default)]
struct Received {
    spans: Vec<Span>,
    logs: Vec<LogRecord>,
    metrics: Vec<Metric>,
    /// The attributes of resources, as text.
    resources: Vec<(String, String)>,
    headers: Vec<String>,
}

/// A receiver on a free port of this machine.
pub(crate) struct Receiver {
    pub(crate) url: String,
    received: Arc<Mutex<Received>>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::<Mutex<Received>>::default();
        let shared = received.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shared) = (stream.unwrap(), shared.clone());
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        Self { url, received }
    }

    /// Waits until a condition on the spans holds, and returns them.
    pub(crate) fn spans(&self, condition: impl Fn(&[Span]) -> bool) -> Vec<Span> {
        self.wait(|received| condition(&received.spans).then(|| received.spans.clone()))
    }

    /// Waits until a condition on the log records holds, and returns them.
    pub(crate) fn logs(&self, condition: impl Fn(&[LogRecord]) -> bool) -> Vec<LogRecord> {
        self.wait(|received| condition(&received.logs).then(|| received.logs.clone()))
    }

    /// Waits until there are metrics, and returns the last export of each, and the attributes of resources.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        self.wait(|received| (!received.metrics.is_empty()).then(|| received.metrics.clone()))
    }

    pub(crate) fn resources(&self) -> Vec<(String, String)> {
        self.received.lock().unwrap().resources.clone()
    }

    pub(crate) fn headers(&self) -> Vec<String> {
        self.received.lock().unwrap().headers.clone()
    }

    /// Returns whether anything was received.
    pub(crate) fn is_empty(&self) -> bool {
        self.received.lock().unwrap().headers.is_empty()
    }

    fn wait<T>(&self, find: impl Fn(&Received) -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            if let Some(found) = find(&self.received.lock().unwrap()) {
                return found;
            }
            assert!(begin.elapsed() < TIMEOUT, "not received: {:#?}", self.received.lock().unwrap());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns an attribute as text.
pub(crate) fn attribute(attributes: &[KeyValue], key: &str) -> Option<String> {
    let value = attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value?;
    Some(match value {
        any_value::Value::StringValue(text) => text,
        any_value::Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}

fn serve(stream: TcpStream, received: &Mutex<Received>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut head = String::new();
        while reader.read_line(&mut head).unwrap_or(0) > 0 && !head.ends_with("\r\n\r\n") {}
        let Some(path) = head.split(' ').nth(1).map(str::to_owned) else { return };
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        assert!(lower.contains("content-type: application/x-protobuf"), "{head}");
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        {
            let mut received = received.lock().unwrap();
            received.headers.push(head);
            receive(&path, &body, &mut received);
        }
        let answer = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n";
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn receive(path: &str, body: &[u8], received: &mut Received) {
    let mut resource = |attributes: &[KeyValue]| {
        let texts = attributes.iter().map(|given| (given.key.clone(), attribute(attributes, &given.key).unwrap()));
        received.resources.extend(texts);
    };
    match path {
        "/v1/traces" => {
            for group in ExportTraceServiceRequest::decode(body).unwrap().resource_spans {
                resource(&group.resource.unwrap().attributes);
                received.spans.extend(group.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        "/v1/logs" => {
            for group in ExportLogsServiceRequest::decode(body).unwrap().resource_logs {
                resource(&group.resource.unwrap().attributes);
                received.logs.extend(group.scope_logs.into_iter().flat_map(|scope| scope.log_records));
            }
        }
        "/v1/metrics" => {
            for group in ExportMetricsServiceRequest::decode(body).unwrap().resource_metrics {
                resource(&group.resource.unwrap().attributes);
                received.metrics = group.scope_metrics.into_iter().flat_map(|scope| scope.metrics).collect();
            }
        }
        other => panic!("{other}"),
    }
}
