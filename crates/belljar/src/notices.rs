//! The messages of commands on standard error that are not events of the log, and are written at any level.
//!
//! They are lines for people. A server with `--log-format json` writes a JSON object like those of the log in place of
//! each, so that another program can read all lines.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Map, Value, json};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

/// Set once the messages of this process are objects.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// The level of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Level {
    Info,
    Warn,
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Info => "INFO",
            Self::Warn => "WARN",
            Self::Error => "ERROR",
        }
    }
}

/// Makes the messages of this process objects, and those of panics, too.
pub(crate) fn use_json() {
    IS_JSON.store(true, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|panic| {
        let panic = panic.to_string();
        write(Level::Error, &panic, "a thread panicked", &[("error", &panic)]);
    }));
}

/// Writes a message: `line`, or an object with `message` and `fields`.
pub(crate) fn write(level: Level, line: &str, message: &str, fields: &[(&str, &str)]) {
    let is_json = IS_JSON.load(Ordering::Relaxed);
    let text = if is_json { object(level, message, fields).to_string() } else { line.to_owned() };
    // In one piece, so that a line is not torn apart. Work goes on if standard error is closed.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Returns a message in the form of the log's events.
fn object(level: Level, message: &str, fields: &[(&str, &str)]) -> Value {
    let mut timestamp = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    let named = fields.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
    let fields: Map<String, Value> = named.chain([("message".to_owned(), Value::from(message))]).collect();
    json!({ "timestamp": timestamp, "level": level.name(), "fields": fields, "target": "belljar" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_on_one_line_and_have_a_time() {
        let object = object(Level::Warn, "two\nlines", &[("address", "http://a")]);
        assert!(!object.to_string().contains('\n'), "{object}");
        assert_eq!(object["fields"], json!({ "address": "http://a", "message": "two\nlines" }));
        assert_eq!(object["level"], "WARN");
        let timestamp = object["timestamp"].as_str().unwrap();
        assert!(timestamp.starts_with("20") && timestamp.ends_with('Z'), "{timestamp}");
    }
}
