//! The server's metrics by OTLP: the families of its registry, exported at an interval.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::Request;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use crate::client::Client;
use crate::openmetrics::{Family, Labels, families};
use crate::settings::Settings;

/// The attributes of a metric by the semantic conventions, from the labels of its sample.
type Attributes = fn(&Labels) -> Vec<KeyValue>;

/// The families that the semantic conventions for MCP name, too, and their names and attributes there.
const CONVENTIONAL: &[(&str, &str, Attributes)] = &[
    ("belljar_call_duration_seconds", "mcp.server.operation.duration", operation_attributes),
    ("belljar_tool_request_duration_seconds", "mcp.client.operation.duration", request_attributes),
    ("belljar_mcp_session_duration_seconds", "mcp.server.session.duration", session_attributes),
];

/// Exports metrics.
pub(crate) struct MetricsExporter {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) resource: opentelemetry_sdk::Resource,
    /// Returns the metrics in OpenMetrics' text format.
    pub(crate) read: Box<dyn Fn() -> String + Send>,
    pub(crate) start: SystemTime,
}

impl MetricsExporter {
    /// Exports at the interval of the settings, and once more when the sender of `stop` is gone.
    pub(crate) fn run(self, stop: &Receiver<()>) {
        loop {
            let is_last = stop.recv_timeout(self.settings.metrics_interval) != Err(RecvTimeoutError::Timeout);
            if let Err(error) = self.export() {
                tracing::warn!(%error, "failed to export metrics");
            }
            if is_last {
                return;
            }
        }
    }

    fn export(&self) -> Result<(), String> {
        let body = self.request(&(self.read)()).encode_to_vec();
        let mut request =
            Request::post(&self.settings.metrics_endpoint).header("content-type", "application/x-protobuf");
        for (name, value) in &self.settings.metrics_headers {
            request = request.header(name, value);
        }
        let request = request.body(Bytes::from(body)).map_err(|error| error.to_string())?;
        let response = self.client.send(request).map_err(|error| error.to_string())?;
        if response.status().is_success() { Ok(()) } else { Err(format!("status {}", response.status())) }
    }

    fn request(&self, text: &str) -> ExportMetricsServiceRequest {
        let times = Times { start: nanoseconds(self.start), now: nanoseconds(SystemTime::now()) };
        let mut metrics = Vec::new();
        for family in families(text) {
            let named = CONVENTIONAL.iter().find(|(own, ..)| *own == family.name);
            metrics.extend(named.map(|(_, name, attributes)| conventional(&family, name, *attributes, times)));
            metrics.extend(metric_of(&family, times));
        }
        let scope = InstrumentationScope {
            name: "belljar".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            ..InstrumentationScope::default()
        };
        let attributes =
            self.resource.iter().map(|(key, value)| text_attribute(key.as_str(), &value.as_str())).collect();
        let resource = Resource { attributes, ..Resource::default() };
        let scoped = ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() };
        let metrics =
            ResourceMetrics { resource: Some(resource), scope_metrics: vec![scoped], ..ResourceMetrics::default() };
        ExportMetricsServiceRequest { resource_metrics: vec![metrics] }
    }
}

/// The beginning and the end of what points count, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
struct Times {
    start: u64,
    now: u64,
}

fn nanoseconds(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

fn text_attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| text_attribute(name, value)).collect()
}

/// Returns the name and the unit by OpenTelemetry's conventions: `belljar.call_duration` in `s`.
fn name_and_unit(family: &Family) -> (String, &'static str) {
    let name = family.name.strip_suffix(&format!("_{}", family.unit)).unwrap_or(&family.name);
    let name = name.replacen('_', ".", 1);
    let unit = match family.unit.as_str() {
        "seconds" => "s",
        "bytes" => "By",
        _ => "1",
    };
    (name, unit)
}

fn metric_of(family: &Family, times: Times) -> Option<Metric> {
    let (name, unit) = name_and_unit(family);
    let points = |start: u64| {
        let point = |series: &crate::openmetrics::Series| NumberDataPoint {
            attributes: attributes(&series.labels),
            start_time_unix_nano: start,
            time_unix_nano: times.now,
            value: Some(number_data_point::Value::AsDouble(series.value)),
            ..NumberDataPoint::default()
        };
        family.series.iter().map(point).collect()
    };
    let cumulative = AggregationTemporality::Cumulative.into();
    let data = match family.kind.as_str() {
        "counter" => metric::Data::Sum(Sum {
            data_points: points(times.start),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        "gauge" | "info" => metric::Data::Gauge(Gauge { data_points: points(0) }),
        "histogram" => metric::Data::Histogram(histogram(family, times, attributes)),
        _ => return None,
    };
    let description = family.help.clone();
    Some(Metric { name, description, unit: unit.into(), data: Some(data), ..Metric::default() })
}

/// Returns a histogram of times with its name and its attributes by the semantic conventions for MCP.
fn conventional(family: &Family, name: &str, attributes: fn(&Labels) -> Vec<KeyValue>, times: Times) -> Metric {
    Metric {
        name: name.into(),
        description: family.help.clone(),
        unit: "s".into(),
        data: Some(metric::Data::Histogram(histogram(family, times, attributes))),
        ..Metric::default()
    }
}

fn operation_attributes(labels: &Labels) -> Vec<KeyValue> {
    let label = |name: &str| labels.get(name).map(String::as_str).unwrap_or_default();
    let mut attributes = vec![
        text_attribute("mcp.method.name", "tools/call"),
        text_attribute("gen_ai.operation.name", "execute_tool"),
        text_attribute("gen_ai.tool.name", label("tool")),
    ];
    attributes.extend(error_type(label("status")).map(|kind| text_attribute("error.type", kind)));
    attributes
}

/// Returns the error of calls with a status, as spans have it, unless they succeeded.
fn error_type(status: &str) -> Option<&str> {
    match status {
        "success" | "input-required" | "task" => None,
        // The result is one of the tool, and not of the protocol.
        "run-error" | "install-error" => Some("tool_error"),
        status => Some(status),
    }
}

fn request_attributes(labels: &Labels) -> Vec<KeyValue> {
    let label = |name: &str| labels.get(name).map(String::as_str).unwrap_or_default();
    let mut attributes =
        vec![text_attribute("mcp.method.name", label("method")), text_attribute("belljar.mcp.server", label("server"))];
    if label("method") == "tools/call" {
        attributes.push(text_attribute("gen_ai.operation.name", "execute_tool"));
    }
    attributes.extend((label("outcome") != "ok").then(|| text_attribute("error.type", label("outcome"))));
    attributes
}

fn session_attributes(labels: &Labels) -> Vec<KeyValue> {
    labels.get("transport").map(|transport| text_attribute("network.transport", transport)).into_iter().collect()
}

fn histogram(family: &Family, times: Times, attributes: impl Fn(&Labels) -> Vec<KeyValue>) -> Histogram {
    let point = |series: &crate::openmetrics::Series| {
        let mut below = 0;
        let mut counts = Vec::with_capacity(series.buckets.len());
        for (_, count) in &series.buckets {
            counts.push(count.saturating_sub(below));
            below = *count;
        }
        HistogramDataPoint {
            attributes: attributes(&series.labels),
            start_time_unix_nano: times.start,
            time_unix_nano: times.now,
            count: series.count,
            sum: Some(series.value),
            bucket_counts: counts,
            explicit_bounds: series.buckets.iter().map(|(bound, _)| *bound).filter(|bound| bound.is_finite()).collect(),
            ..HistogramDataPoint::default()
        }
    };
    Histogram {
        data_points: family.series.iter().map(point).collect(),
        aggregation_temporality: AggregationTemporality::Cumulative.into(),
    }
}
