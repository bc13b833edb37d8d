//! The audit log as log records of OpenTelemetry.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use belljar_audit::{ChainedRecord, Sink};
use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _, Severity};
use opentelemetry_otlp::LogExporter as OtlpExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{
    BatchConfigBuilder, BatchLogProcessor, LogBatch, LogExporter, SdkLogger, SdkLoggerProvider,
};

/// The name of the instrumentation.
const INSTRUMENTATION: &str = "belljar.audit";
/// The maximum number of records that wait for the collector. Further ones are lost, and counted.
const MAX_PENDING: usize = 8192;

/// A [`Sink`] that exports records: the event is the name, and the line with its hash the body.
///
/// The exporter has a queue and a thread of its own, so that a collector that does not answer delays no other sink.
pub(crate) struct AuditSink {
    logger: SdkLogger,
    delivery: Arc<Delivery>,
}

/// The numbers of records that are on their way, and that were lost.
#[derive(Debug, Default)]
struct Delivery {
    pending: AtomicUsize,
    lost: AtomicU64,
}

impl AuditSink {
    /// Creates a sink, and the provider that exports its records.
    pub(crate) fn start(exporter: OtlpExporter, resource: Resource) -> (Self, SdkLoggerProvider) {
        let delivery = Arc::<Delivery>::default();
        let exporter = CountedExporter { exporter, delivery: delivery.clone() };
        let config = BatchConfigBuilder::default().with_max_queue_size(MAX_PENDING).build();
        let processor = BatchLogProcessor::builder(exporter).with_batch_config(config).build();
        let provider = SdkLoggerProvider::builder().with_resource(resource).with_log_processor(processor).build();
        (Self { logger: provider.logger(INSTRUMENTATION), delivery }, provider)
    }
}

impl Sink for AuditSink {
    fn push(&mut self, batch: &[ChainedRecord]) {
        for ChainedRecord { record, line } in batch {
            // The queue of the exporter is as long, and never overflows without being counted.
            if self.delivery.pending.load(Ordering::Relaxed) >= MAX_PENDING {
                self.delivery.lost.fetch_add(1, Ordering::Relaxed);
                continue;
            }
            self.delivery.pending.fetch_add(1, Ordering::Relaxed);
            let mut exported = self.logger.create_log_record();
            exported.set_event_name(record.event.name());
            exported.set_timestamp(record.time);
            exported.set_severity_number(Severity::Info);
            exported.set_severity_text("INFO");
            exported.set_target(INSTRUMENTATION);
            exported.set_body(AnyValue::from(line.clone()));
            let details = &record.details;
            let [session, run] = [details.session, details.run].map(|name| name.map(|name| name.to_string()));
            let texts = [
                ("belljar.owner", details.owner.as_deref()),
                ("belljar.session", session.as_deref()),
                ("belljar.run", run.as_deref()),
                ("belljar.name", details.name.as_deref()),
                ("belljar.outcome", details.outcome.as_deref()),
            ];
            for (name, value) in texts {
                if let Some(value) = value {
                    exported.add_attribute(name, value.to_owned());
                }
            }
            self.logger.emit(exported);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn take_lost(&mut self) -> u64 {
        self.delivery.lost.swap(0, Ordering::Relaxed)
    }

    fn name(&self) -> String {
        "the audit log by OTLP".into()
    }
}

/// An exporter that counts the records that have left the queue, and those that the collector did not take.
#[derive(Debug)]
struct CountedExporter {
    exporter: OtlpExporter,
    delivery: Arc<Delivery>,
}

impl LogExporter for CountedExporter {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let count = batch.iter().count();
        let exported = self.exporter.export(batch).await;
        if exported.is_err() {
            self.delivery.lost.fetch_add(count as u64, Ordering::Relaxed);
        }
        self.delivery.pending.fetch_sub(count, Ordering::Relaxed);
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}
