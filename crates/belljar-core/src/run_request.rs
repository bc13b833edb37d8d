//! A request to run code.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::exchange::Exchange;

/// How source text is parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceMode {
    /// A program or a cell; its value is that of its last line, if that is an expression without `;`.
    #[default]
    Cell,
    /// Input at a prompt: the value of every expression statement is printed.
    Interactive,
}

/// A piece of code and its context.
#[derive(Debug, Clone, Serialize)]
pub struct RunRequest {
    /// Python source text.
    pub code: String,
    /// The name that tracebacks show.
    pub filename: String,
    /// `__file__`, for code that is a file; unset when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// How the code is parsed.
    pub mode: SourceMode,
    /// Variables to set before the code runs: a JSON object. Text, so that numbers keep their digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub globals: Option<Box<RawValue>>,
    /// `sys.argv`; unchanged when `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Environment variables to set.
    pub env: BTreeMap<String, String>,
    /// Variables and functions of the caller. If set, the value is returned encoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
    /// True if the code can import the module `tools`, whose calls the observer of the run receives.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tools: bool,
}

impl Default for RunRequest {
    fn default() -> Self {
        Self {
            code: String::new(),
            filename: "main.py".into(),
            file: None,
            mode: SourceMode::Cell,
            globals: None,
            argv: None,
            env: BTreeMap::new(),
            exchange: None,
            tools: false,
        }
    }
}

impl RunRequest {
    /// Creates a request that runs `code` as a cell.
    pub fn for_cell(code: impl Into<String>) -> Self {
        Self { code: code.into(), ..Self::default() }
    }
}
