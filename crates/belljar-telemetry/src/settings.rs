//! The variables of OpenTelemetry's specification that this crate reads. The SDK reads others: the sampler, the
//! resource, batches and limits.

use std::time::Duration;

/// The time between two exports of metrics without a variable.
const METRIC_INTERVAL: Duration = Duration::from_secs(60);
/// The time that an export may take without a variable.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A kind of telemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Log records.
    Logs,
    /// Metrics.
    Metrics,
}

impl Signal {
    const ALL: [Self; 3] = [Self::Traces, Self::Logs, Self::Metrics];

    fn name(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Logs => "LOGS",
            Self::Metrics => "METRICS",
        }
    }
}

/// The error of a variable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The value is not supported.
    #[error("{variable}={value} is not supported: {supported}")]
    Unsupported {
        /// The variable.
        variable: String,
        /// Its value.
        value: String,
        /// The values that are.
        supported: &'static str,
    },
}

/// The signals that are exported, and their receivers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    signals: Vec<Signal>,
    pub(crate) metrics_endpoint: String,
    pub(crate) metrics_headers: Vec<(String, String)>,
    pub(crate) metrics_interval: Duration,
    pub(crate) timeout: Duration,
    /// The values that are not used.
    warnings: Vec<String>,
}

impl Settings {
    /// Reads the variables. Returns `None` if nothing is to be exported. A time that cannot be used is that without a
    /// variable, with a warning: the specification asks for that.
    ///
    /// # Errors
    /// Fails if a variable asks for what is not supported.
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, SettingsError> {
        let variable =
            |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        if variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let mut signals = Vec::new();
        for signal in Signal::ALL {
            let selector = format!("OTEL_{}_EXPORTER", signal.name());
            let endpoint = variable("OTEL_EXPORTER_OTLP_ENDPOINT")
                .or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.name())));
            let is_wanted = match variable(&selector).as_deref() {
                None => endpoint.is_some(),
                Some("otlp") => true,
                Some("none") => false,
                Some(value) => {
                    let (value, supported) = (value.to_owned(), "it can be otlp or none");
                    return Err(SettingsError::Unsupported { variable: selector, value, supported });
                }
            };
            if !is_wanted {
                continue;
            }
            for name in [format!("OTEL_EXPORTER_OTLP_{}_PROTOCOL", signal.name()), "OTEL_EXPORTER_OTLP_PROTOCOL".into()]
            {
                if let Some(value) = variable(&name).filter(|value| value != "http/protobuf") {
                    let supported = "the protocol is http/protobuf, usually on port 4318";
                    return Err(SettingsError::Unsupported { variable: name, value, supported });
                }
            }
            signals.push(signal);
        }
        if signals.is_empty() {
            return Ok(None);
        }
        let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT").unwrap_or_else(|| "http://localhost:4318".into());
        let metrics_endpoint = variable("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")
            .unwrap_or_else(|| format!("{}/v1/metrics", base.trim_end_matches('/')));
        let headers = variable("OTEL_EXPORTER_OTLP_METRICS_HEADERS").or_else(|| variable("OTEL_EXPORTER_OTLP_HEADERS"));
        let mut warnings = Vec::new();
        let mut milliseconds = |name: &str, usual: Duration| {
            let Some(value) = variable(name) else { return usual };
            match value.parse() {
                Ok(time) if time > 0 => Duration::from_millis(time),
                _ => {
                    let usual_ms = usual.as_millis();
                    warnings
                        .push(format!("{name}={value} is not a number of milliseconds above 0: {usual_ms} is used"));
                    usual
                }
            }
        };
        let metrics_interval = milliseconds("OTEL_METRIC_EXPORT_INTERVAL", METRIC_INTERVAL);
        let timeout = milliseconds("OTEL_EXPORTER_OTLP_TIMEOUT", TIMEOUT);
        Ok(Some(Self {
            signals,
            metrics_endpoint,
            metrics_headers: headers.as_deref().map(headers_in).unwrap_or_default(),
            metrics_interval,
            timeout,
            warnings,
        }))
    }

    /// Returns whether a signal is exported.
    pub fn exports(&self, signal: Signal) -> bool {
        self.signals.contains(&signal)
    }

    /// Returns a warning for each variable whose value is not used.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns the time that an export may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
}

/// Returns the headers in a list of the form of W3C's baggage.
fn headers_in(list: &str) -> Vec<(String, String)> {
    let pair = |entry: &str| {
        let (name, value) = entry.split_once('=')?;
        Some((name.trim().to_owned(), percent_decoded(value.trim())))
    };
    list.split(',').filter_map(pair).collect()
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let encoded = after.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match encoded.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = after.get(2..).unwrap_or_default();
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {

    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
        let value =
            |name: &str| variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned());
        Settings::from_variables(value)
    }

    #[test]
    fn nothing_is_exported_without_variables() {
        assert_eq!(settings(&[]).unwrap(), None);
        assert_eq!(settings(&[("OTEL_SERVICE_NAME", "x")]).unwrap(), None);
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        assert_eq!(settings(&[endpoint, ("OTEL_SDK_DISABLED", "true")]).unwrap(), None);
        let none = ["OTEL_TRACES_EXPORTER", "OTEL_LOGS_EXPORTER", "OTEL_METRICS_EXPORTER"].map(|name| (name, "none"));
        assert_eq!(settings(&[endpoint, none[0], none[1], none[2]]).unwrap(), None);
    }

    #[test]
    fn variables_select_signals_and_endpoints() {
        let all = settings(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, a=b"),
        ]);
        let all = all.unwrap().unwrap();
        assert!(Signal::ALL.iter().all(|signal| all.exports(*signal)));
        assert_eq!(all.metrics_endpoint, "http://collector:4318/v1/metrics");
        let headers = [("authorization", "Bearer x"), ("a", "b")];
        assert_eq!(all.metrics_headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let traces = settings(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/v1/traces")]).unwrap().unwrap();
        assert!(traces.exports(Signal::Traces) && !traces.exports(Signal::Metrics));
    }

    #[test]
    fn times_that_cannot_be_used_are_the_usual_ones() {
        let with = |interval, timeout| {
            let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
            let times = [("OTEL_METRIC_EXPORT_INTERVAL", interval), ("OTEL_EXPORTER_OTLP_TIMEOUT", timeout)];
            settings(&[endpoint, times[0], times[1]]).unwrap().unwrap()
        };
        let given = with("1", "250");
        assert_eq!((given.metrics_interval, given.timeout), (Duration::from_millis(1), Duration::from_millis(250)));
        assert_eq!(given.warnings(), [""; 0]);
        for value in ["0", "-1", "1.5", "a minute", "99999999999999999999"] {
            let usual = with(value, value);
            assert_eq!((usual.metrics_interval, usual.timeout), (METRIC_INTERVAL, TIMEOUT), "{value}");
            let expected =
                format!("OTEL_METRIC_EXPORT_INTERVAL={value} is not a number of milliseconds above 0: 60000 is used");
            assert_eq!(usual.warnings()[0], expected);
            assert_eq!(usual.warnings().len(), 2);
        }
        assert_eq!(with("", " ").warnings(), [""; 0]);
    }

    #[test]
    fn what_is_not_supported_is_an_error() {
        for variable in [
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json"),
        ] {
            let error = settings(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c"), variable]).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{}={}", variable.0, variable.1)), "{error}");
        }
    }
}
