//! The options of the audit log, and its start.

use std::path::{Path, PathBuf};

use belljar_audit::{Audit, AuditOptions, Details, Event, FailureMode, FileError, FileSink, Record, Sink, StreamSink};
use belljar_core::parse_size;
use belljar_network::Network;
use clap::{Args, ValueEnum};

use crate::command_error::CommandError;
use crate::notices::{self, Level};

/// The options of the audit log.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Audit log")]
pub(crate) struct AuditArguments {
    /// Write an audit log: to a file, to standard output (-), or by OpenTelemetry (otlp).
    ///
    /// A line of JSON for each run, cell, call of a tool, connection, approval and file, chained by hash.
    /// `belljar audit` verifies and shows it. May be repeated.
    #[arg(long, value_name = "FILE|-|otlp", hide_short_help = true)]
    audit: Vec<PathBuf>,
    /// Let the audit log contain code, and not only its SHA-256.
    #[arg(long, requires = "audit", hide_short_help = true)]
    audit_code: bool,
    /// Behaviour while the audit log cannot be written, as on a full disk.
    #[arg(long, value_enum, default_value_t, value_name = "WHAT", hide_short_help = true)]
    audit_failure: AuditFailure,
    /// Size beyond which a file of the audit log is renamed, to FILE.000001 and so on, and a new one begins.
    #[arg(long, requires = "audit", value_name = "SIZE", value_parser = parse_size, hide_short_help = true)]
    audit_rotate: Option<u64>,
}

/// The behaviour while the audit log cannot be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuditFailure {
    /// Calls are refused until it can be written again.
    #[default]
    Stop,
    /// Calls are answered, with a warning on standard error; records may be lost.
    Warn,
}

impl AuditArguments {
    /// Starts the log, if the options ask for one. Secrets of `network` are not in it, and `exporter` is that of
    /// OpenTelemetry.
    pub(crate) fn start(
        &self,
        network: Option<&Network>,
        exporter: impl FnOnce() -> Result<Option<Box<dyn Sink>>, CommandError>,
        transport: &str,
    ) -> Result<Audit, CommandError> {
        if self.audit.is_empty() {
            return Ok(Audit::default());
        }
        let failure = match self.audit_failure {
            AuditFailure::Stop => FailureMode::Stop,
            AuditFailure::Warn => FailureMode::Warn,
        };
        let mut options = AuditOptions { failure, with_code: self.audit_code, ..AuditOptions::default() };
        let mut exporter = Some(exporter);
        for target in &self.audit {
            match target.to_str() {
                Some("-") if ["stdio", "example", "monty"].contains(&transport) => {
                    return Err(CommandError::new("--audit -: standard output is the connection to the client")
                        .with_hint("name a file, or otlp"));
                }
                Some("-") => options.sinks.push(Box::new(StreamSink::new(std::io::stdout(), "standard output"))),
                Some("otlp") => {
                    let sink = exporter.take().map(|exporter| exporter()).transpose()?.flatten();
                    let missing = || {
                        CommandError::new("--audit otlp: logs are not exported")
                            .with_hint("set OTEL_EXPORTER_OTLP_ENDPOINT, such as http://localhost:4318")
                    };
                    options.sinks.push(sink.ok_or_else(missing)?);
                }
                _ if options.file.is_some() => return Err(CommandError::new("--audit: more than one file")),
                _ => options.file = Some(self.open(target)?),
            }
        }
        if let Some(scrubber) = network.map(Network::scrubber).filter(|scrubber| !scrubber.is_empty()).cloned() {
            options.scrub = Box::new(move |text| scrubber.scrub_text(&text).into_owned());
        }
        let consequence = match self.audit_failure {
            AuditFailure::Stop => "calls are refused until it can be written",
            AuditFailure::Warn => "calls are answered without it",
        };
        options.on_failure = Box::new(move |error| {
            let message = format!("audit log: {error}; {consequence}");
            notices::write(Level::Error, &format!("belljar: {message}"), &message, &[]);
        });
        let details = Details {
            name: Some(env!("CARGO_PKG_VERSION").into()),
            arguments: Some(format!("process {}, {transport}", std::process::id())),
            ..Details::default()
        };
        Audit::start(options, Record::new(Event::ServerStart, details)).map_err(|error| {
            CommandError::new(format!("--audit: {error}"))
                .with_hint("--audit-failure warn starts the server without the audit log")
        })
    }

    fn open(&self, path: &Path) -> Result<FileSink, CommandError> {
        FileSink::open(path, self.audit_rotate).map_err(|error| {
            let described = CommandError::new(format!("--audit: {error}"));
            match error {
                FileError::InUse(_) => described.with_hint("each server needs a file of its own"),
                FileError::NotALog(_) => described.with_hint("name a new file, or one that --audit has written"),
                FileError::Io { .. } => described,
            }
        })
    }
}
