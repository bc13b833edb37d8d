//! How a piece of code ended.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The result of running a piece of code.
#[derive(Debug, Clone)]
pub struct Execution {
    /// How it ended.
    pub outcome: Outcome,
    /// What it took.
    pub statistics: Statistics,
}

/// How a piece of code ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It ran to its end. The value is that of its last line, if it has one that is not `None`.
    Success(Option<Value>),
    /// It raised an exception.
    Error(PythonError),
    /// It asked to end (`sys.exit`, `os._exit`) with this status, 0 to 255.
    Exit(i32),
    /// It reached a limit and was ended. Its interpreter is gone.
    Limit(LimitKind),
    /// It did not begin: the packages that it needs could not be had, for the reason that the text gives.
    InstallError(String),
    /// It broke the interpreter (a wild pointer, `os.abort`, …), as the text says. Its interpreter is gone.
    Crash(String),
}

/// A limit that ends code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitKind {
    /// Elapsed time.
    WallTime,
    /// Processor time.
    CpuTime,
    /// Output bytes.
    Output,
    /// Native stack.
    Stack,
    /// None: it was stopped from outside.
    Stopped,
}

impl LimitKind {
    /// A word for programs to match on.
    pub fn name(self) -> &'static str {
        match self {
            Self::WallTime => "time",
            Self::CpuTime => "cpu",
            Self::Output => "output",
            Self::Stack => "stack",
            Self::Stopped => "stopped",
        }
    }
}

/// The value of the last line.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Value {
    /// JSON, indented by two, with Python's `NaN`, `Infinity` and `-Infinity` where floats are those.
    #[serde(rename = "value")]
    pub json: String,
    /// For people: the text itself if it is a `str`, else as `json`.
    pub text: String,
    /// JSON that every parser reads, where `json` is not that: non-finite floats are strings.
    #[serde(default)]
    pub strict: Option<String>,
}

impl Value {
    /// The value as JSON that every parser reads, on one line; `None` if the interpreter gave no JSON at all.
    pub fn strict_json(&self) -> Option<Box<RawValue>> {
        RawValue::from_string(on_one_line(self.strict.as_ref().unwrap_or(&self.json))).ok()
    }
}

/// Drops white space between the tokens of a JSON text. Reading and writing it again would change its numbers.
fn on_one_line(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    json.chars()
        .filter(|&c| {
            if in_string {
                in_string = escaped || c != '"';
                escaped = !escaped && c == '\\';
                return true;
            }
            in_string = c == '"';
            !c.is_ascii_whitespace()
        })
        .collect()
}

/// An exception that left the code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PythonError {
    /// Name of its class, `ZeroDivisionError` for one.
    #[serde(rename = "type")]
    pub kind: String,
    /// `str()` of it.
    pub message: String,
    /// As Python prints it, the interpreter's own frames left out; ends with a newline.
    pub traceback: String,
}

/// What an execution took.
#[derive(Debug, Clone, Copy, Default)]
pub struct Statistics {
    /// Making the interpreter; zero when it was there already.
    pub start: Duration,
    /// Running the code.
    pub run: Duration,
    /// Most bytes of linear memory in use.
    pub peak_memory: u64,
}

#[cfg(test)]
mod tests {
    use super::on_one_line;

    #[test]
    fn white_space_goes_and_strings_and_numbers_stay() {
        let json = "{\n  \"a b\": [\n    1.0,\n    \"q\\\" \\\\\",\n    1267650600228229401496703205376\n  ]\n}";
        assert_eq!(on_one_line(json), r#"{"a b":[1.0,"q\" \\",1267650600228229401496703205376]}"#);
    }
}
