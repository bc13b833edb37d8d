//! OpenTelemetry: traces, logs and metrics of a server, by OTLP over HTTP with protobuf.
//!
//! ```text
//!  spans (belljar-core::activity) ──▶ SdkTracerProvider ─┐
//!  events of `tracing`, audit log ──▶ SdkLoggerProvider ─┼─ ureq ─▶ /v1/traces, /v1/logs, /v1/metrics
//!  the server's metrics as OpenMetrics ─▶ MetricsExporter ┘
//! ```
//!
//! The standard variables (`OTEL_…`) decide what is exported, and where to. Without them, nothing is initialised.
//!
//! | file | subject |
//! | --- | --- |
//! | `settings` | the variables |
//! | `client` | requests of the exporters |
//! | `telemetry` | the start and the end of exporting |
//! | `audit` | the audit log by OTLP |
//! | `openmetrics`, `metrics` | the server's metrics by OTLP |

mod audit;
mod client;
mod metrics;
mod openmetrics;
mod settings;
mod telemetry;

pub use settings::{Settings, SettingsError, Signal};
pub use telemetry::{Telemetry, TelemetryError};
