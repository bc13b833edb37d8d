//! The arguments of the session tools, read with care: what is wrong with them is for the model to read and mend.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::JsonObject;
use serde_json::Value;

use crate::arguments::wrong;

/// Longest code that is taken, in bytes.
const MAX_CODE: usize = 4 << 20;

/// What a tool is given.
pub(super) struct Arguments(JsonObject);

impl Arguments {
    pub(super) fn new(arguments: Option<JsonObject>) -> Self {
        Self(arguments.unwrap_or_default())
    }

    pub(super) fn text(&mut self, name: &str) -> Result<String, String> {
        match self.0.remove(name) {
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(wrong(name, "a string", &other)),
            None => Err(format!("{name}: it is missing")),
        }
    }

    fn optional_text(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.text(name).map(Some),
        }
    }

    pub(super) fn code(&mut self) -> Result<String, String> {
        let code = self.text("code")?;
        if code.len() > MAX_CODE {
            return Err(format!("code: it has {} bytes, and at most {MAX_CODE} are taken", code.len()));
        }
        Ok(code)
    }

    /// The name of a session.
    pub(super) fn session(&mut self) -> Result<String, String> {
        self.text("session_id")
    }

    /// The name of a session; `None` asks for a new one.
    pub(super) fn session_or_new(&mut self) -> Result<Option<String>, String> {
        // Models write the number where they were told of the text "0".
        if self.0.get("session_id").and_then(Value::as_u64) == Some(0) {
            return Ok(None);
        }
        Ok(self.optional_text("session_id")?.filter(|name| !name.is_empty() && name != "0"))
    }

    pub(super) fn timeout(&mut self) -> Result<Option<Duration>, String> {
        match self.0.remove("timeout") {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let seconds = value.as_f64().filter(|seconds| *seconds > 0.0);
                let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                timeout.map(Some).ok_or_else(|| wrong("timeout", "a number of seconds above 0", &value))
            }
        }
    }

    /// A file's contents: `content` is text, `base64` anything.
    pub(super) fn contents(&mut self) -> Result<Vec<u8>, String> {
        match (self.optional_text("content")?, self.optional_text("base64")?) {
            (Some(text), None) => Ok(text.into_bytes()),
            (None, Some(encoded)) => {
                STANDARD.decode(encoded.trim()).map_err(|error| format!("base64: it cannot be decoded: {error}"))
            }
            (None, None) => Err("content: give the file's text as `content`, or any bytes as `base64`".into()),
            (Some(_), Some(_)) => Err("content: give either `content` or `base64`, not both".into()),
        }
    }
}
