//! The result of a run or of a cell in one type, for callers that are programs: the Python package, in the process or
//! connected to a server.

use serde::{Deserialize, Serialize};

use crate::exchange::{Buffer, EncodedValue};
use crate::execution::{CellStatus, MissingDependency, Obstacle, Outcome, RunReport, Statistics};
use crate::exit_reason::{ExitReason, LimitKind};
use crate::kernel::CellError;
use crate::limits::Limits;
use crate::mime::{self, Image, MimeBundle};
use crate::output::{Output, Stream};

/// The result of a piece of code.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// How the code ended.
    pub status: ReportStatus,
    /// The reason why the code did not succeed.
    pub error: Option<ReportError>,
    /// The exit status, if the code ended its interpreter.
    pub exit_code: Option<i32>,
    /// The [name](LimitKind::name) of the limit that the code reached.
    pub limit: Option<String>,
    /// The remedy for an error.
    pub hint: Option<String>,
    /// The value of the code, if it has one.
    pub value: Option<ReportValue>,
    /// The output in order, each piece with whether it was written to standard output.
    pub output: Vec<(bool, String)>,
    /// The images that the code showed.
    pub images: Vec<ReportImage>,
    /// All that a cell displayed, including its value.
    pub displays: Vec<MimeBundle>,
    /// The text of a cell's value.
    pub text: Option<String>,
    /// The names of the packages that the code or its caller asked for.
    pub packages: Vec<String>,
    /// The seconds to start the interpreter, and to run the code.
    pub seconds: (f64, f64),
    /// The most bytes of linear memory in use; 0 if that was not measured.
    pub peak_memory: u64,
}

/// How code ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names are those of `Run.status` in Python")]
pub enum ReportStatus {
    #[default]
    Success,
    Error,
    Exit,
    Limit,
    Cancelled,
    Crash,
    InstallError,
}

impl ReportStatus {
    /// Returns the status as Python has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Exit => "exit",
            Self::Limit => "limit",
            Self::Cancelled => "cancelled",
            Self::Crash => "crash",
            Self::InstallError => "install-error",
        }
    }
}

/// The reason why code did not succeed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportError {
    /// The name of the exception's class, or of the limit.
    pub name: String,
    /// The exception's text.
    pub message: String,
    /// The traceback, or an empty text.
    pub traceback: String,
}

/// A value of code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportValue {
    /// The value: in the format of [`exchange`](crate::Exchange) if `is_encoded` is set, else JSON with Python's `NaN`
    /// and infinities.
    pub json: String,
    /// True if the request had an [`Exchange`](crate::Exchange).
    pub is_encoded: bool,
    /// RFC 8259 JSON, if `json` is not encoded and not that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict_json: Option<String>,
    /// The buffers that the value refers to.
    #[serde(with = "base64_list", skip_serializing_if = "Vec::is_empty", default)]
    pub buffers: Vec<Buffer>,
}

impl From<EncodedValue> for ReportValue {
    fn from(EncodedValue { json, buffers }: EncodedValue) -> Self {
        Self { json: Box::<str>::from(json).into(), is_encoded: true, strict_json: None, buffers }
    }
}

/// An image that code showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportImage {
    /// The MIME type.
    pub mime_type: String,
    /// The file in base64.
    pub base64: String,
}

impl From<Image> for ReportImage {
    fn from(Image { format, base64 }: Image) -> Self {
        Self { mime_type: format.mime_type().into(), base64 }
    }
}

impl Report {
    /// Creates the report of a run. `is_encoded` is set if its request had an [`Exchange`](crate::Exchange); `output`
    /// is what its observer received.
    pub fn from_run(run: RunReport, is_encoded: bool, output: Vec<(Stream, Vec<u8>)>) -> Self {
        let mut report = Self {
            hint: run.missing_dependency.as_ref().map(hint),
            output: output.into_iter().map(|(stream, bytes)| (stream == Stream::Stdout, to_text(bytes))).collect(),
            images: run.images.into_iter().map(Into::into).collect(),
            packages: run.dependencies,
            ..Self::default()
        }
        .with_statistics(&run.statistics);
        match run.outcome {
            Outcome::Success(value) => {
                report.value = value.map(|value| ReportValue {
                    json: value.json,
                    is_encoded,
                    strict_json: value.strict_json,
                    buffers: run.buffers,
                });
            }
            Outcome::Error(error) => {
                report.status = ReportStatus::Error;
                let (name, message, traceback) = (error.kind, error.message, error.traceback);
                report.error = Some(ReportError { name, message, traceback });
            }
            Outcome::Exited(reason) => report.set_exit(&reason, &run.limits),
            Outcome::InstallError(message) => {
                report.status = ReportStatus::InstallError;
                report.error = Some(ReportError { name: "InstallError".into(), message, traceback: String::new() });
            }
        }
        report
    }

    /// Creates the report of a cell. `limits` are those that held.
    pub fn from_cell(status: CellStatus, outputs: Vec<Output>, limits: &Limits, statistics: &Statistics) -> Self {
        let mut report = Self::default().with_statistics(statistics);
        match status {
            CellStatus::Ok => {}
            CellStatus::Error(CellError { name, message, traceback }) => {
                report.status = ReportStatus::Error;
                report.error = Some(ReportError { name, message, traceback: traceback.join("\n") });
            }
            CellStatus::TimedOut { waited, .. } => {
                let error = status.error(limits).unwrap_or_default();
                let limit = if waited { LimitKind::WaitTime } else { LimitKind::WallTime };
                report.set_exit(&ExitReason::Limit(limit), limits);
                let CellError { name, message, traceback } = error;
                report.error = Some(ReportError { name, message, traceback: traceback.join("\n") });
            }
            CellStatus::KernelDied(reason) => report.set_exit(&reason, limits),
        }
        for output in outputs {
            match output {
                Output::Text { stream, text } => report.output.push((stream == Stream::Stdout, text)),
                Output::Display(bundle) => report.displays.push(bundle),
                Output::ExecuteResult(bundle) => {
                    report.text = mime::text_plain(&bundle).map(str::to_owned);
                    report.displays.push(bundle);
                }
            }
        }
        report.images = report.displays.iter().filter_map(Image::from_bundle).map(Into::into).collect();
        report
    }

    fn with_statistics(self, statistics: &Statistics) -> Self {
        let Statistics { start, run, peak_memory } = *statistics;
        Self { seconds: (start.as_secs_f64(), run.as_secs_f64()), peak_memory, ..self }
    }

    fn set_exit(&mut self, reason: &ExitReason, limits: &Limits) {
        self.status = match reason {
            ExitReason::Limit(limit) => {
                self.limit = Some(limit.name().into());
                ReportStatus::Limit
            }
            ExitReason::Exit(code) => {
                self.exit_code = Some(*code);
                ReportStatus::Exit
            }
            ExitReason::Cancelled => ReportStatus::Cancelled,
            ExitReason::Signal(_) | ExitReason::Crash(_) => ReportStatus::Crash,
        };
        let CellError { name, message, .. } = reason.to_cell_error(limits);
        // The texts are those of cells.
        let message = message.replace("the cell", "the code");
        self.error = Some(ReportError { name, message, traceback: String::new() });
    }
}

fn to_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Returns what to do about a package that the code lacked.
fn hint(MissingDependency { module, package, obstacle }: &MissingDependency) -> String {
    match obstacle {
        Obstacle::DeclaredByCode => {
            format!("add {package}, which provides {module}, to the dependencies of the `# /// script` block")
        }
        Obstacle::Effects => format!("packages=[{package:?}] installs {module} ahead of time"),
        Obstacle::NotInstallable(reason) => format!("{module} cannot be installed: {reason}"),
    }
}

/// Lists of bytes as lists of texts in base64.
mod base64_list {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::exchange::Buffer;

    pub(super) fn serialize<S: Serializer>(buffers: &[Buffer], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(buffers.iter().map(|buffer| STANDARD.encode(buffer.contiguous())))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Buffer>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| Ok(STANDARD.decode(text).map_err(D::Error::custom)?.into())).collect()
    }
}

/// The part of a request to a server that asks for a [`Report`], with the variables of the code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReportRequest {
    /// The variables to set before the code runs: a JSON object of encoded values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variables: Option<String>,
    /// The buffers of the variables.
    #[serde(with = "base64_list", skip_serializing_if = "Vec::is_empty")]
    pub buffers: Vec<Buffer>,
}

/// The key of a [`ReportRequest`] in the `_meta` of a call, and of the [`Report`] in the `_meta` of its result.
pub const REPORT_KEY: &str = "io.github.belljar/report";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn reports_keep_their_fields_in_json() {
        let value =
            ReportValue { json: "[1]".into(), is_encoded: true, strict_json: None, buffers: vec![vec![0, 255].into()] };
        let report = Report {
            status: ReportStatus::InstallError,
            value: Some(value),
            output: vec![(true, "a".into())],
            ..Report::default()
        };
        let text = serde_json::to_string(&report).unwrap();
        assert!(text.contains("\"install-error\"") && text.contains("\"AP8=\""), "{text}");
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
        assert_eq!(serde_json::from_str::<Report>("{}").unwrap(), Report::default());
    }

    #[test]
    fn cells_that_time_out_have_the_limit_and_their_traceback() {
        let status =
            CellStatus::TimedOut { after: Duration::from_secs(1), waited: false, traceback: vec!["line 1".into()] };
        let report = Report::from_cell(status, Vec::new(), &Limits::default(), &Statistics::default());
        assert_eq!((report.status, report.limit.as_deref()), (ReportStatus::Limit, Some("time")));
        assert_eq!(report.error.unwrap().traceback, "line 1");
    }
}
