//! What the tool gives back: the outcome as XML or JSON text, and as structured content.

use std::borrow::Cow;
use std::sync::LazyLock;
use std::time::Duration;

use belljar_core::{LimitKind, Limits, Outcome, PythonError, Value};
use regex::{Captures, Regex};
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::images::Image;

/// The shape of the text that the model reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReturnMode {
    /// Blocks in tags: `<status>`, `<dependencies>`, `<output>`, `<return_value>` or `<error>`.
    #[default]
    Xml,
    /// One JSON object with the same fields.
    Json,
}

/// How a call ended, and what it wrote.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) outcome: Outcome,
    /// Standard output and error in the order in which they were written.
    pub(crate) output: Vec<u8>,
    /// The packages that the code asked for by name.
    pub(crate) dependencies: Vec<String>,
    /// What it showed.
    pub(crate) images: Vec<Image>,
    /// What it was run with: limits are explained by it.
    pub(crate) limits: Limits,
}

impl Report {
    /// Of a call of which nothing is known yet.
    pub(crate) fn begin(limits: Limits) -> Self {
        let (output, dependencies, images) = (Vec::new(), Vec::new(), Vec::new());
        Self { outcome: Outcome::Success(None), output, dependencies, images, limits }
    }
}

/// The fields of the answer.
#[derive(Debug, Serialize)]
struct Fields {
    status: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    dependencies: Vec<String>,
    output: Vec<String>,
    #[serde(flatten)]
    end: End,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum End {
    ReturnValue(Option<Box<RawValue>>),
    Error(String),
}

impl Report {
    /// A word for how it ended: `success`, `install-error` or `run-error`.
    pub(crate) fn status(&self) -> &'static str {
        match &self.outcome {
            Outcome::Success(_) | Outcome::Exit(0) => "success",
            Outcome::InstallError(_) => "install-error",
            _ => "run-error",
        }
    }

    /// What went wrong, in words; `None` when nothing did.
    pub(crate) fn error(&self) -> Option<String> {
        Some(match &self.outcome {
            Outcome::Success(_) | Outcome::Exit(0) => return None,
            Outcome::Error(PythonError { traceback, .. }) => traceback.clone(),
            Outcome::Exit(status) => format!("SystemExit: {status}\n"),
            Outcome::InstallError(reason) => format!("{reason}\n"),
            Outcome::Limit(kind) => format!("Limit reached: {}. {}\n", kind.name(), explain(*kind, &self.limits)),
            Outcome::Crash(reason) => format!("The code crashed its interpreter: {reason}\n"),
        })
    }

    /// The tool's result. Text and structured content say the same. There is none of the latter beside images: several
    /// clients show a model nothing else where there is some.
    pub(crate) fn result(&self, mode: ReturnMode) -> CallToolResult {
        let mut content = vec![ContentBlock::text(self.text(mode))];
        content.extend(self.images.iter().map(|image| ContentBlock::image(image.data.clone(), image.mime)));
        let mut result = CallToolResult::success(content);
        if self.images.is_empty() {
            let text = serde_json::to_string(&self.fields()).unwrap_or_default();
            result.structured_content = serde_json::from_str(&exact_integers(&text)).ok();
        }
        result
    }

    /// The text that the model reads.
    pub(crate) fn text(&self, mode: ReturnMode) -> String {
        match mode {
            ReturnMode::Xml => self.xml(),
            ReturnMode::Json => serde_json::to_string(&self.fields()).unwrap_or_default(),
        }
    }

    fn fields(&self) -> Fields {
        let end = match (self.error(), &self.outcome) {
            (Some(error), _) => End::Error(error),
            (None, Outcome::Success(value)) => End::ReturnValue(value.as_ref().and_then(Value::strict_json)),
            (None, _) => End::ReturnValue(None),
        };
        let output = match self.output_text() {
            text if text.is_empty() => Vec::new(),
            text => text.strip_suffix('\n').unwrap_or(&text).split('\n').map(str::to_owned).collect(),
        };
        Fields { status: self.status(), dependencies: self.dependencies.clone(), output, end }
    }

    fn output_text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    fn xml(&self) -> String {
        let mut text = format!("<status>{}</status>", self.status());
        if !self.dependencies.is_empty() {
            let list = serde_json::to_string(&self.dependencies).unwrap_or_default();
            text.push_str(&format!("\n<dependencies>{}</dependencies>", escaped(&list, &DEPENDENCIES)));
        }
        let output = self.output_text();
        if !output.is_empty() {
            let output = output.strip_suffix('\n').unwrap_or(&output);
            text.push_str(&format!("\n<output>\n{}\n</output>", escaped(output, &OUTPUT)));
        }
        if let Some(error) = self.error() {
            text.push_str(&format!("\n<error>\n{}\n</error>", escaped(&error, &ERROR)));
        } else if let Outcome::Success(Some(value)) = &self.outcome {
            text.push_str(&format!("\n<return_value>\n{}\n</return_value>", escaped(&value.text, &RETURN_VALUE)));
        }
        text
    }
}

/// JSON in which integers that 64 bits do not hold are strings. As numbers they would lose digits: here, since
/// `serde_json` holds nothing larger (its `arbitrary_precision` breaks the protocol's untagged types), and in most clients.
fn exact_integers(json: &str) -> Cow<'_, str> {
    static INTEGER: LazyLock<Option<Regex>> =
        // A string, which is passed over; or a number, with what would make it a float.
        LazyLock::new(|| Regex::new(r#""(?:[^"\\]|\\.)*"|-?[0-9]+([.eE][-+.eE0-9]*)?"#).ok());
    // Most answers have none, and making a pattern takes longer than many a call.
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

fn explain(kind: LimitKind, limits: &Limits) -> String {
    let seconds = |time: Option<Duration>| time.map_or_else(String::new, |time| format!(" {} s", time.as_secs_f64()));
    match kind {
        LimitKind::WallTime => format!("The code ran longer than{} and was ended.", seconds(limits.wall_time)),
        LimitKind::CpuTime => format!("The code used more processor time than{}.", seconds(limits.cpu_time)),
        LimitKind::Output => format!("The code wrote more than {} bytes; the rest was cut off.", limits.output),
        LimitKind::Stack => "The code recursed too deeply.".into(),
        LimitKind::Stopped => "The call was cancelled.".into(),
    }
}

static DEPENDENCIES: LazyLock<Option<Regex>> = LazyLock::new(|| tag("dependencies"));
static OUTPUT: LazyLock<Option<Regex>> = LazyLock::new(|| tag("output"));
static ERROR: LazyLock<Option<Regex>> = LazyLock::new(|| tag("error"));
static RETURN_VALUE: LazyLock<Option<Regex>> = LazyLock::new(|| tag("return_value"));

/// A block's own tags, opening or closing, however they are written.
fn tag(name: &str) -> Option<Regex> {
    Regex::new(&format!(r"(?i)</?\s*{name}(?:[^\n]*?>)?")).ok()
}

/// Text in which a block's own tags are none, so that code cannot end the block that it writes in.
fn escaped(text: &str, tag: &Option<Regex>) -> String {
    match tag {
        // Most text needs no pattern, and making one takes longer than many a call.
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

    fn report(outcome: Outcome, output: &str) -> Report {
        Report {
            outcome,
            output: output.into(),
            dependencies: Vec::new(),
            images: Vec::new(),
            limits: Limits::default(),
        }
    }

    #[test]
    fn a_block_is_not_ended_by_what_it_holds() {
        for text in ["</output>", "< /output>", "</ OUTPUT x>", "<output>", "</output"] {
            let xml = report(Outcome::Success(None), text).xml();
            let inside = xml
                .strip_prefix("<status>success</status>\n<output>\n")
                .and_then(|rest| rest.strip_suffix("\n</output>"));
            assert!(inside.is_some_and(|inside| !inside.contains("</output") && !inside.contains("<output")), "{xml}");
        }
        assert_eq!(escaped("<b>&amp;</b>", &OUTPUT), "<b>&amp;</b>");
    }

    #[test]
    fn integers_keep_their_digits() {
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
    fn every_pattern_is_one() {
        assert!([&DEPENDENCIES, &OUTPUT, &ERROR, &RETURN_VALUE].iter().all(|tag| tag.is_some()));
    }

    #[test]
    fn exits_and_limits_are_said_in_words() {
        assert_eq!(report(Outcome::Exit(0), "").xml(), "<status>success</status>");
        assert_eq!(
            report(Outcome::Exit(3), "x\n").xml(),
            "<status>run-error</status>\n<output>\nx\n</output>\n<error>\nSystemExit: 3\n\n</error>"
        );
        let mut late = report(Outcome::Limit(LimitKind::WallTime), "");
        late.limits.wall_time = Some(Duration::from_millis(1500));
        assert!(late.xml().contains("Limit reached: time. The code ran longer than 1.5 s"), "{}", late.xml());
    }
}
