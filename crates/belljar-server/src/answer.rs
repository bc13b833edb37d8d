//! The result of `run_python_code`: the outcome as XML or JSON text, and as structured content.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use belljar_core::truncation::{allot, cut_middle, json_length};
use belljar_core::{
    ExitReason, LimitKind, Limits, MissingDependency, Obstacle, Outcome, PythonError, RecordedConnections, RunReport,
    Value, format_size,
};
use belljar_tools::CallLog;
use regex::{Captures, Regex};
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::value::RawValue;

/// The maximum size of the calls of tools in a result, in bytes.
pub(crate) const MAX_CALL_LOG: usize = 8 << 10;

/// The format of the text that the model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReturnMode {
    /// Blocks in tags: `<status>`, `<dependencies>`, `<output>`, `<return_value>` or `<error>`.
    #[default]
    Xml,
    /// One JSON object with the same fields.
    Json,
}

/// The result of a call of `run_python_code`.
#[derive(Debug)]
pub(crate) struct RunAnswer {
    /// The backend's report.
    pub(crate) report: RunReport,
    /// Standard output and standard error, in the order in which they were written.
    pub(crate) output: Vec<u8>,
    /// The calls of tools, if code can call any.
    pub(crate) calls: Option<CallLog>,
    /// The connections of the code.
    pub(crate) connections: RecordedConnections,
}

/// The fields of the result.
#[derive(Debug, Serialize)]
struct Fields {
    status: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dependencies: Vec<String>,
    output: Vec<String>,
    #[serde(flatten)]
    end: End,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    calls: Option<CallLog>,
    #[serde(flatten, skip_serializing_if = "RecordedConnections::is_empty")]
    connections: RecordedConnections,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum End {
    ReturnValue(Option<Box<RawValue>>),
    Error(String),
}

impl RunAnswer {
    /// Cuts output, value and error to `max_bytes` of JSON together.
    pub(crate) fn truncate(&mut self, max_bytes: usize) {
        let output_text = String::from_utf8_lossy(&self.output);
        let output_length = json_length(&output_text);
        let value_length = match &self.report.outcome {
            Outcome::Success(Some(value)) => json_length(&value.text),
            _ => 0,
        };
        let error_length = match &self.report.outcome {
            Outcome::Error(error) => json_length(&error.traceback),
            Outcome::InstallError(reason) => json_length(reason),
            _ => 0,
        };
        let shares = allot(&[output_length, value_length, error_length], max_bytes);
        let &[output_share, value_share, error_share] = shares.as_slice() else { return };
        let cut = |text: &str, share: usize| {
            let length = text.len();
            cut_middle(text, share, |left_out| {
                format!("\n[… {left_out} of {length} bytes are left out: print less, or use slices of the data]\n")
            })
        };
        if output_length > output_share {
            self.output = cut(&output_text, output_share).into_bytes();
        }
        match &mut self.report.outcome {
            Outcome::Success(Some(value)) if value_length > value_share => {
                value.text = cut(&value.text, value_share);
                // A part of JSON is not JSON.
                value.json = serde_json::Value::from(value.text.clone()).to_string();
                value.strict_json = None;
            }
            Outcome::Error(error) => error.traceback = cut(&error.traceback, error_share),
            Outcome::InstallError(reason) => *reason = cut(reason, error_share),
            _ => {}
        }
    }

    /// Returns how the call ended: `success`, `install-error` or `run-error`.
    pub(crate) fn status(&self) -> &'static str {
        match &self.report.outcome {
            Outcome::Success(_) | Outcome::Exited(ExitReason::Exit(0)) => "success",
            Outcome::InstallError(_) => "install-error",
            _ => "run-error",
        }
    }

    /// Returns a description of the error, or `None` after a success.
    pub(crate) fn error(&self) -> Option<String> {
        Some(match &self.report.outcome {
            Outcome::Success(_) | Outcome::Exited(ExitReason::Exit(0)) => return None,
            Outcome::Error(PythonError { traceback, .. }) => {
                let hint = self.report.missing_dependency.as_ref().map(describe_missing).unwrap_or_default();
                format!("{traceback}{hint}")
            }
            Outcome::InstallError(reason) => format!("{reason}\n"),
            Outcome::Exited(reason) => format!("{}\n", describe_exit(reason, &self.report.limits)),
        })
    }

    /// Returns the tool's result. Text and structured content contain the same fields. A result with images has no
    /// structured content, because several clients would then show the model nothing else.
    pub(crate) fn result(&self, mode: ReturnMode) -> CallToolResult {
        let mut content = vec![ContentBlock::text(self.text(mode))];
        content.extend(
            self.report.images.iter().map(|image| ContentBlock::image(image.base64.clone(), image.format.mime_type())),
        );
        let mut result = CallToolResult::success(content);
        if self.report.images.is_empty() {
            let text = serde_json::to_string(&self.fields()).unwrap_or_default();
            result.structured_content = serde_json::from_str(&exact_integers(&text)).ok();
        }
        result
    }

    /// Returns the text that the model reads.
    pub(crate) fn text(&self, mode: ReturnMode) -> String {
        match mode {
            ReturnMode::Xml => self.xml(),
            ReturnMode::Json => serde_json::to_string(&self.fields()).unwrap_or_default(),
        }
    }

    fn fields(&self) -> Fields {
        let end = match (self.error(), &self.report.outcome) {
            (Some(error), _) => End::Error(error),
            (None, Outcome::Success(value)) => End::ReturnValue(value.as_ref().and_then(Value::to_strict_json)),
            (None, _) => End::ReturnValue(None),
        };
        let output = match self.output_text() {
            text if text.is_empty() => Vec::new(),
            text => text.strip_suffix('\n').unwrap_or(&text).split('\n').map(str::to_owned).collect(),
        };
        let calls = self.calls.clone().map(|log| log.within(MAX_CALL_LOG));
        let connections = self.connections.clone().within(MAX_CALL_LOG);
        Fields {
            status: self.status(),
            dependencies: self.report.dependencies.clone(),
            output,
            end,
            calls,
            connections,
        }
    }

    /// Returns standard output and standard error as text.
    pub(crate) fn output_text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    fn xml(&self) -> String {
        let mut text = format!("<status>{}</status>", self.status());
        if !self.report.dependencies.is_empty() {
            let list = serde_json::to_string(&self.report.dependencies).unwrap_or_default();
            text.push_str(&format!("\n<dependencies>{}</dependencies>", escaped(&list, &DEPENDENCIES)));
        }
        let output = self.output_text();
        if !output.is_empty() {
            let output = output.strip_suffix('\n').unwrap_or(&output);
            text.push_str(&format!("\n<output>\n{}\n</output>", escaped(output, &OUTPUT)));
        }
        let failed = self.calls.as_ref().map(CallLog::failures).unwrap_or_default();
        if !failed.is_empty() {
            let failed = failed.join("\n");
            text.push_str(&format!("\n<failed_calls>\n{}\n</failed_calls>", escaped(&failed, &FAILED_CALLS)));
        }
        if let Some(error) = self.error() {
            text.push_str(&format!("\n<error>\n{}\n</error>", escaped(&error, &ERROR)));
        } else if let Outcome::Success(Some(value)) = &self.report.outcome {
            text.push_str(&format!("\n<return_value>\n{}\n</return_value>", escaped(&value.text, &RETURN_VALUE)));
        }
        text
    }
}

/// Replaces integers beyond 64 bits in JSON text with strings. As numbers they would lose digits: in `serde_json`,
/// which has no larger integers (its feature `arbitrary_precision` breaks the protocol's untagged types), and in most
/// clients.
fn exact_integers(json: &str) -> Cow<'_, str> {
    static INTEGER: LazyLock<Option<Regex>> =
        // Matches strings, which are kept, and numbers; the group matches the part that makes a number a float.
        LazyLock::new(|| Regex::new(r#""(?:[^"\\]|\\.)*"|-?[0-9]+([.eE][-+.eE0-9]*)?"#).ok());
    // Most results have no such integers, and compiling the pattern takes longer than many calls.
    if !json.split(|character: char| !character.is_ascii_digit()).any(|digits| digits.len() >= 16) {
        return json.into();
    }
    let Some(integer) = &*INTEGER else { return json.into() };
    integer.replace_all(json, |found: &Captures<'_>| {
        let all = &found[0];
        let large = !all.starts_with('"')
            && found.get(1).is_none()
            && all.parse::<i64>().is_err()
            && all.parse::<u64>().is_err();
        if large { format!("\"{all}\"") } else { all.to_owned() }
    })
}

/// Describes to the model which package its code lacked, and what to do about it.
fn describe_missing(missing: &MissingDependency) -> String {
    let MissingDependency { module, package, obstacle } = missing;
    match obstacle {
        Obstacle::DeclaredByCode => {
            format!("hint: add {package}, which provides {module}, to the dependencies of the `# /// script` block\n")
        }
        Obstacle::Effects => {
            format!(
                "hint: add `import {module}` at the top of the code, so that {package} is installed before it runs\n"
            )
        }
        Obstacle::NotInstallable(reason) => format!("{module} cannot be installed: {reason}\n"),
    }
}

/// Describes to the model why its code ended.
fn describe_exit(reason: &ExitReason, limits: &Limits) -> String {
    match reason {
        ExitReason::Limit(kind) => format!("Limit reached: {}. {}", kind.name(), describe_limit(*kind, limits)),
        ExitReason::Exit(status) => format!("SystemExit: {status}"),
        ExitReason::Cancelled => "Limit reached: stopped. The call was cancelled.".into(),
        ExitReason::Signal(_) => {
            format!("The code crashed its interpreter: {}", reason.to_cell_error(limits).message)
        }
        ExitReason::Crash(details) => format!("The code crashed its interpreter: {details}"),
    }
}

fn describe_limit(kind: LimitKind, limits: &Limits) -> String {
    let seconds = |time: Option<Duration>| time.map_or_else(String::new, |time| format!(" {} s", time.as_secs_f64()));
    match kind {
        LimitKind::WallTime => format!("The code ran longer than{} and was ended.", seconds(limits.wall_time)),
        LimitKind::WaitTime => format!("The code waited for longer than{}.", seconds(limits.wait_time)),
        LimitKind::CpuTime => format!("The code used more processor time than{}.", seconds(limits.cpu_time)),
        LimitKind::Output => format!("The code wrote more than {}; the rest was cut off.", format_size(limits.output)),
        LimitKind::Stack => "The code recursed too deeply.".into(),
        LimitKind::Memory => format!("The code used more than {} of memory.", format_size(limits.memory)),
    }
}

static DEPENDENCIES: LazyLock<Option<Regex>> = LazyLock::new(|| tag("dependencies"));
static OUTPUT: LazyLock<Option<Regex>> = LazyLock::new(|| tag("output"));
static FAILED_CALLS: LazyLock<Option<Regex>> = LazyLock::new(|| tag("failed_calls"));
static ERROR: LazyLock<Option<Regex>> = LazyLock::new(|| tag("error"));
static RETURN_VALUE: LazyLock<Option<Regex>> = LazyLock::new(|| tag("return_value"));

/// Compiles a pattern for a block's own tags, opening or closing, in any spelling.
fn tag(name: &str) -> Option<Regex> {
    Regex::new(&format!(r"(?i)</?\s*{name}(?:[^\n]*?>)?")).ok()
}

/// Escapes a block's own tags in its text, so that code cannot end the block that contains its output.
fn escaped(text: &str, tag: &Option<Regex>) -> String {
    match tag {
        // Most text needs no pattern, and compiling one takes longer than many calls.
        _ if !text.contains('<') => text.to_owned(),
        Some(tag) => tag
            .replace_all(text, |found: &Captures<'_>| found[0].replace('<', "&lt;").replace('>', "&gt;"))
            .into_owned(),
        None => text.replace('<', "&lt;"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(outcome: Outcome, output: &str) -> RunAnswer {
        RunAnswer {
            report: RunReport { outcome, ..RunReport::new(Limits::default()) },
            output: output.into(),
            calls: None,
            connections: RecordedConnections::default(),
        }
    }

    #[test]
    fn text_cannot_end_its_block() {
        for text in ["</output>", "< /output>", "</ OUTPUT x>", "<output>", "</output"] {
            let xml = answer(Outcome::Success(None), text).xml();
            let inside = xml
                .strip_prefix("<status>success</status>\n<output>\n")
                .and_then(|rest| rest.strip_suffix("\n</output>"));
            assert!(inside.is_some_and(|inside| !inside.contains("</output") && !inside.contains("<output")), "{xml}");
        }
        assert_eq!(escaped("<b>&amp;</b>", &OUTPUT), "<b>&amp;</b>");
    }

    #[test]
    fn long_answers_keep_head_and_tail() {
        let long = format!("begin{}end", "é\n".repeat(50_000));
        let value = Value { json: format!("[{}]", "1,".repeat(9999)), text: long.clone(), strict_json: None };
        let mut both = answer(Outcome::Success(Some(value)), &long);
        both.truncate(20_000);
        for mode in [ReturnMode::Xml, ReturnMode::Json] {
            let text = both.text(mode);
            assert!(text.len() < 21_000 && text.matches("are left out: print less").count() == 2, "{}", text.len());
            assert_eq!((text.matches("begin").count(), text.matches("end").count()), (2, 2), "{mode:?}");
        }
        assert!(both.result(ReturnMode::Xml).structured_content.unwrap()["return_value"].is_string());
        let (kind, message) = ("ValueError".to_owned(), String::new());
        let error = PythonError { kind, message, traceback: long, missing_module: None };
        for outcome in [Outcome::Error(error), Outcome::InstallError("x".repeat(100_000))] {
            let mut failed = answer(outcome, "short");
            failed.truncate(20_000);
            let text = failed.text(ReturnMode::Xml);
            assert!(text.len() < 20_200 && text.contains("<output>\nshort\n</output>"), "{}", text.len());
        }
        let mut short = answer(Outcome::Success(None), "short");
        short.truncate(20_000);
        assert_eq!(short.output, b"short");
    }

    #[test]
    fn large_integers_keep_their_digits() {
        for (json, wanted) in [
            ("[1,12345678901234567890,-9223372036854775808]", "[1,12345678901234567890,-9223372036854775808]"),
            ("[123456789012345678901]", "[\"123456789012345678901\"]"),
            ("{\"a\":-9223372036854775809}", "{\"a\":\"-9223372036854775809\"}"),
            (
                "[12345678901234567890123.5,1e400,0.12345678901234567890123]",
                "[12345678901234567890123.5,1e400,0.12345678901234567890123]",
            ),
            (
                r#"["x 123456789012345678901234","\"123456789012345678901234"]"#,
                r#"["x 123456789012345678901234","\"123456789012345678901234"]"#,
            ),
        ] {
            assert_eq!(exact_integers(json), wanted);
        }
    }

    #[test]
    fn missing_package_is_named_with_what_to_do() {
        let (kind, message) = ("ImportError".to_owned(), String::new());
        let error = PythonError { kind, message, traceback: "Traceback\n".into(), missing_module: None };
        let mut failed = answer(Outcome::Error(error), "");
        for (obstacle, wanted) in [
            (Obstacle::DeclaredByCode, "add python-docx, which provides docx, to the dependencies"),
            (Obstacle::Effects, "add `import docx` at the top of the code, so that python-docx is installed"),
            (Obstacle::NotInstallable("it is not allowed".into()), "docx cannot be installed: it is not allowed"),
        ] {
            let (module, package) = ("docx".to_owned(), "python-docx".to_owned());
            failed.report.missing_dependency = Some(MissingDependency { module, package, obstacle });
            let error = failed.error().unwrap();
            assert!(error.starts_with("Traceback\n") && error.contains(wanted), "{error}");
        }
    }

    #[test]
    fn patterns_compile() {
        assert!([&DEPENDENCIES, &OUTPUT, &ERROR, &RETURN_VALUE].iter().all(|tag| tag.is_some()));
    }

    #[test]
    fn exits_and_limits_are_described() {
        assert_eq!(answer(Outcome::Exited(ExitReason::Exit(0)), "").xml(), "<status>success</status>");
        assert_eq!(
            answer(Outcome::Exited(ExitReason::Exit(3)), "x\n").xml(),
            "<status>run-error</status>\n<output>\nx\n</output>\n<error>\nSystemExit: 3\n\n</error>"
        );
        let mut late = answer(Outcome::Exited(ExitReason::Limit(LimitKind::WallTime)), "");
        late.report.limits.wall_time = Some(Duration::from_millis(1500));
        assert!(late.xml().contains("Limit reached: time. The code ran longer than 1.5 s"), "{}", late.xml());
    }
}
