//! The start and the end of exporting.

use std::sync::OnceLock;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use belljar_audit::Sink;
use opentelemetry::{KeyValue, global};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{LogExporter, SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::registry::LookupSpan;

use crate::audit::AuditSink;
use crate::client::Client;
use crate::metrics::MetricsExporter;
use crate::settings::{Settings, Signal};

/// The time that exporters have to send what they have at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// The error of starting an exporter.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// An exporter cannot be created.
    #[error("failed to create an exporter of OpenTelemetry: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// The exporters of a process.
pub struct Telemetry {
    settings: Settings,
    client: Client,
    resource: Resource,
    traces: Option<SdkTracerProvider>,
    logs: Option<SdkLoggerProvider>,
    /// The provider of the audit log, which has a queue of its own.
    audit: OnceLock<SdkLoggerProvider>,
    metrics: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Telemetry {
    /// Starts to export traces and logs, as far as the settings say. Requests are sent with `agent`, which must return
    /// responses of any status.
    ///
    /// # Errors
    /// Fails if a variable for an exporter is not valid.
    pub fn start(settings: Settings, agent: ureq::Agent) -> Result<Self, TelemetryError> {
        let client = Client(agent);
        let resource = Resource::builder().with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        // A name in the variables takes precedence.
        let has_name = Resource::builder().build().get(&"service.name".into());
        let is_named = has_name.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
        let resource = if is_named { resource } else { resource.with_service_name("belljar") }.build();
        let mut traces = None;
        if settings.exports(Signal::Traces) {
            let exporter = SpanExporter::builder().with_http().with_http_client(client.clone()).build()?;
            let provider =
                SdkTracerProvider::builder().with_resource(resource.clone()).with_batch_exporter(exporter).build();
            global::set_tracer_provider(provider.clone());
            global::set_text_map_propagator(TraceContextPropagator::new());
            traces = Some(provider);
        }
        let mut logs = None;
        if settings.exports(Signal::Logs) {
            let exporter = LogExporter::builder().with_http().with_http_client(client.clone()).build()?;
            logs = Some(
                SdkLoggerProvider::builder().with_resource(resource.clone()).with_batch_exporter(exporter).build(),
            );
        }
        Ok(Self { settings, client, resource, traces, logs, audit: OnceLock::new(), metrics: None })
    }

    /// Returns whether spans are exported.
    pub fn has_traces(&self) -> bool {
        self.traces.is_some()
    }

    /// Returns a layer that exports the events of `tracing`, if logs are exported.
    pub fn log_layer<S>(&self) -> Option<impl Layer<S> + use<S>>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        self.logs.as_ref().map(OpenTelemetryTracingBridge::new)
    }

    /// Returns a sink that exports the audit log, if logs are exported. Must be called once at most.
    ///
    /// # Errors
    /// Fails if a variable for an exporter is not valid.
    pub fn audit_sink(&self) -> Result<Option<Box<dyn Sink>>, TelemetryError> {
        if self.logs.is_none() {
            return Ok(None);
        }
        let exporter = LogExporter::builder().with_http().with_http_client(self.client.clone()).build()?;
        let (sink, provider) = AuditSink::start(exporter, self.resource.clone());
        let _ = self.audit.set(provider);
        Ok(Some(Box::new(sink)))
    }

    /// Starts to export the metrics that `read` returns in OpenMetrics' text format, if metrics are exported.
    ///
    /// # Errors
    /// Fails if the system refuses a thread.
    pub fn export_metrics(&mut self, read: impl Fn() -> String + Send + 'static) -> std::io::Result<()> {
        if !self.settings.exports(Signal::Metrics) || self.metrics.is_some() {
            return Ok(());
        }
        let exporter = MetricsExporter {
            client: self.client.clone(),
            settings: self.settings.clone(),
            resource: self.resource.clone(),
            read: Box::new(read),
            start: SystemTime::now(),
        };
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new().name("otlp metrics".into()).spawn(move || exporter.run(&stopped))?;
        self.metrics = Some((stop, thread));
        Ok(())
    }

    /// Exports the metrics once more, and ends their export: `read` is not called any more.
    pub fn end_metrics(&mut self) {
        if let Some((stop, thread)) = self.metrics.take() {
            drop(stop);
            // Ignore panics: nothing waits for the metrics.
            let _ = thread.join();
        }
    }

    /// Sends what is left, and ends. Takes a few seconds at most.
    pub fn shutdown(mut self) {
        self.end_metrics();
        if let Some(traces) = self.traces.take()
            && let Err(error) = traces.shutdown_with_timeout(SHUTDOWN_TIMEOUT)
        {
            tracing::debug!(%error, "failed to export the last spans");
        }
        for logs in [self.audit.take(), self.logs.take()].into_iter().flatten() {
            if let Err(error) = logs.shutdown_with_timeout(SHUTDOWN_TIMEOUT) {
                tracing::debug!(%error, "failed to export the last log records");
            }
        }
    }
}
