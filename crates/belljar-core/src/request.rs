//! What is to be run.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

/// How source text is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A whole program or cell; its value is that of its last line, if that is an expression without `;`.
    #[default]
    Cell,
    /// Typed at a prompt: the value of every expression statement is printed.
    Interactive,
}

/// A piece of code and what it is given.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Request {
    /// Python source text.
    pub code: String,
    /// The name that tracebacks show; `main.py` where this is empty.
    pub filename: String,
    /// `__file__`, for code that is a file; unset when `None`.
    pub file: Option<String>,
    /// How the code is read.
    pub mode: Mode,
    /// Variables to set before it runs: a JSON object. Text, so that numbers stay what they are.
    pub globals: Option<Box<RawValue>>,
    /// `sys.argv`; left alone when `None`.
    pub argv: Option<Vec<String>>,
    /// Environment variables to set.
    pub env: BTreeMap<String, String>,
}

impl Request {
    /// Runs `code` as a cell with nothing else given.
    pub fn cell(code: impl Into<String>) -> Self {
        Self { code: code.into(), ..Self::default() }
    }
}
