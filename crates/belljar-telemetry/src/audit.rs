//! The audit log as log records of OpenTelemetry.

use std::io;

use belljar_audit::{ChainedRecord, Sink};
use opentelemetry::logs::{AnyValue, LogRecord as _, Logger as _, LoggerProvider as _, Severity};
use opentelemetry_sdk::logs::{SdkLogger, SdkLoggerProvider};

/// The name of the instrumentation.
const INSTRUMENTATION: &str = "belljar.audit";

/// A [`Sink`] that exports records: the event is the name, and the line with its hash the body.
pub(crate) struct AuditSink {
    logger: SdkLogger,
    provider: SdkLoggerProvider,
}

impl AuditSink {
    pub(crate) fn new(provider: SdkLoggerProvider) -> Self {
        Self { logger: provider.logger(INSTRUMENTATION), provider }
    }
}

impl Sink for AuditSink {
    fn push(&mut self, batch: &[ChainedRecord]) {
        for ChainedRecord { record, line } in batch {
            let mut exported = self.logger.create_log_record();
            exported.set_event_name(record.event.name());
            exported.set_timestamp(record.time);
            exported.set_severity_number(Severity::Info);
            exported.set_severity_text("INFO");
            exported.set_target(INSTRUMENTATION);
            exported.set_body(AnyValue::from(line.clone()));
            let details = &record.details;
            let texts = [
                ("belljar.owner", details.owner.as_deref()),
                ("belljar.session", details.session.as_deref()),
                ("belljar.run", details.run.as_deref()),
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
        // The exporter has a queue and a thread of its own.
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        // Ignore errors: the exporter reports them, and tries again.
        let _ = self.provider.force_flush();
        Ok(())
    }

    fn name(&self) -> String {
        "the audit log by OTLP".into()
    }
}
