//! The log on standard error, OpenTelemetry, and the audit log of a process.

use std::cell::{OnceCell, RefCell};
use std::io::IsTerminal as _;
use std::sync::Arc;

use belljar_audit::{Audit, Details, Event, Record};
use belljar_core::Activity;
use belljar_core::activity::CodeEnd;
use belljar_network::Network;
use belljar_server::Server;
use belljar_telemetry::{Settings, Telemetry};
use clap::ValueEnum;
use tracing::Subscriber;
use tracing_subscriber::filter::{EnvFilter, FilterExt as _, FilterFn, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use ureq::tls::{RootCerts, TlsConfig};

use crate::audit_options::AuditArguments;
use crate::cli::{Cli, Command};
use crate::command_error::CommandError;
use crate::notices::{self, Level};

/// The crates to which `-v` applies.
const LOGGED_CRATES: [&str; 14] = [
    "belljar",
    "belljar_audit",
    "belljar_mcp_client",
    "belljar_emscripten",
    "belljar_jupyter",
    "belljar_monty",
    "belljar_native",
    "belljar_packages",
    "belljar_python",
    "belljar_sandbox",
    "belljar_server",
    "belljar_sessions",
    "belljar_telemetry",
    "belljar_tools",
];

/// A format of the log on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// A JSON object on each line.
    Json,
}

/// The reports about a process while it runs.
pub(crate) struct Observability {
    telemetry: RefCell<Option<Telemetry>>,
    audit: OnceCell<Audit>,
}

impl Observability {
    /// Starts logging to standard error, since standard output is reserved for the code that is run, and the exporters
    /// of servers that the variables of OpenTelemetry ask for.
    ///
    /// # Errors
    /// Fails if one of these variables is not valid.
    pub(crate) fn start(cli: &Cli) -> Result<Self, CommandError> {
        let is_server = matches!(
            cli.command,
            Command::Stdio(_)
                | Command::StreamableHttp(_)
                | Command::StreamableHttpStateless(_)
                | Command::Sse(_)
                | Command::Monty(_)
        );
        if is_server && cli.global.log_format == Some(LogFormat::Json) {
            notices::use_json();
        }
        let telemetry = if is_server { telemetry()? } else { None };
        let directives = std::env::var("BELLJAR_LOG").ok();
        let is_logging = directives.is_some() || cli.global.verbose > 0 || cli.global.log_format.is_some();
        let exported = telemetry.as_ref().and_then(Telemetry::log_layer);
        // Building a filter takes a tenth of a millisecond, which would delay every start.
        if is_logging || exported.is_some() {
            let log_code = cli.global.log_code;
            let lines = is_logging.then(|| lines(cli.global.log_format, &directives, cli.global.verbose, log_code));
            let exported = exported
                .map(|layer| layer.with_filter(filter(&directives, cli.global.verbose.max(1)).and(own(log_code))));
            tracing_subscriber::registry().with(lines).with(exported).init();
        }
        Ok(Self { telemetry: RefCell::new(telemetry), audit: OnceCell::new() })
    }

    /// Starts the audit log that the options ask for, and returns what the server reports to.
    pub(crate) fn start_audit(
        &self,
        arguments: &AuditArguments,
        network: Option<&Network>,
        transport: &str,
    ) -> Result<Activity, CommandError> {
        let telemetry = self.telemetry.borrow();
        let exporter = || match telemetry.as_ref() {
            Some(telemetry) => telemetry.audit_sink().map_err(|error| CommandError::from_error(&error)),
            None => Ok(None),
        };
        let audit = arguments.start(network, exporter, transport)?;
        let audit = self.audit.get_or_init(|| audit).clone();
        Ok(Activity::new(audit, telemetry.as_ref().is_some_and(Telemetry::has_traces)))
    }

    /// Starts to export the server's metrics, if the variables of OpenTelemetry ask for it.
    pub(crate) fn export_metrics(&self, server: &Server) -> Result<(), CommandError> {
        let server = server.clone();
        match &mut *self.telemetry.borrow_mut() {
            Some(telemetry) => telemetry
                .export_metrics(move || server.metrics())
                .map_err(|error| CommandError::new(format!("failed to start a thread: {error}"))),
            None => Ok(()),
        }
    }

    /// Ends the export of metrics, which holds the server.
    pub(crate) fn end_metrics(&self) {
        if let Some(telemetry) = &mut *self.telemetry.borrow_mut() {
            telemetry.end_metrics();
        }
    }

    /// Writes and sends what is left.
    pub(crate) fn end(self) {
        if let Some(audit) = self.audit.get() {
            CodeEnd::wait_until_recorded();
            audit.close(|| Record::new(Event::ServerStop, Details::default()));
        }
        if let Some(telemetry) = self.telemetry.into_inner() {
            telemetry.shutdown();
        }
    }
}

/// Starts the exporters that the variables of OpenTelemetry ask for.
fn telemetry() -> Result<Option<Telemetry>, CommandError> {
    let settings = Settings::from_variables(|name| std::env::var(name).ok());
    let Some(settings) = settings.map_err(|error| CommandError::from_error(&error))? else { return Ok(None) };
    for warning in settings.warnings() {
        notices::write(Level::Warn, &format!("belljar: {warning}"), warning, &[]);
    }
    let tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .root_certs(RootCerts::WebPki)
        .build();
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(settings.timeout()))
        .tls_config(tls)
        .build();
    let telemetry = Telemetry::start(settings, ureq::Agent::from(config));
    Ok(Some(telemetry.map_err(|error| CommandError::from_error(&error))?))
}

/// Returns the layer that writes lines to standard error.
fn lines<S>(
    format: Option<LogFormat>,
    directives: &Option<String>,
    verbose: u8,
    log_code: bool,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    let filter = filter(directives, verbose).and(own(log_code));
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        Some(LogFormat::Json) => lines.json().with_filter(filter).boxed(),
        Some(LogFormat::Text) | None => lines.with_ansi(std::io::stderr().is_terminal()).with_filter(filter).boxed(),
    }
}

/// Returns the filter by level.
fn filter(directives: &Option<String>, verbose: u8) -> EnvFilter {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    EnvFilter::new(directives.clone().unwrap_or_else(|| {
        let crates = LOGGED_CRATES.map(|name| format!(",{name}={level}")).concat();
        format!("warn{crates}")
    }))
}

/// Returns the filter of what a log may contain.
fn own(log_code: bool) -> FilterFn<impl Fn(&tracing::Metadata<'_>) -> bool + use<>> {
    filter_fn(move |metadata| log_code || !is_of_protocol(metadata.target()))
}

/// Returns whether a target belongs to the implementation of the protocol, which logs whole messages: with code and
/// with session IDs, at several levels.
fn is_of_protocol(target: &str) -> bool {
    target.strip_prefix("rmcp").is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}
