//! The fields of a record.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::digest::Identifier;
use crate::event::Event;
use crate::redaction::{redact, shorten};

/// The maximum length of a name, and of an error, in characters.
const MAX_NAME: usize = 400;
/// The maximum length of arguments, in characters.
const MAX_ARGUMENTS: usize = 2_000;
/// The maximum length of code, in characters.
const MAX_CODE: usize = 256 << 10;

/// The most bytes of a text that waits to be written, for each character of its maximum length. The rest is cut off:
/// code and servers choose how long their texts are.
const QUEUED_BYTES: usize = 16;
/// The number of characters at the end of a text that was cut off which may be the beginning of a secret.
const CUT_SECRET: usize = 4_096;

/// A record: what happened, to whom, and how it ended.
#[derive(Debug, Clone)]
pub struct Record {
    /// The event.
    pub event: Event,
    /// The time of the event.
    pub time: SystemTime,
    /// The fields, of which most events have a few.
    pub details: Details,
}

/// The fields of a record that its event may have.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Details {
    /// The protocol of the call: `mcp`, `code-execution`, `monty`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<&'static str>,
    /// The client: see [`owner_name`](crate::owner_name).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<Arc<str>>,
    /// The digest of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Identifier>,
    /// The run or cell of this process, or the digest of a run that survives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Identifier>,
    /// The SHA-256 of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_sha256: Option<Identifier>,
    /// The code, if the log contains code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Arc<str>>,
    /// The subject: a tool, an address, packages, a file, a reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Another subject: the digest of a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Arguments, as JSON or as text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// How it ended, as a word of the event's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Cow<'static, str>>,
    /// The party that decided: `client`, `operator`, `policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<&'static str>,
    /// The reason of a failure or refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The elapsed time, in milliseconds.
    #[serde(rename = "duration_ms", skip_serializing_if = "Option::is_none", serialize_with = "milliseconds")]
    pub duration: Option<Duration>,
    /// The processor time of the code, in milliseconds, if the backend measures it.
    #[serde(rename = "cpu_ms", skip_serializing_if = "Option::is_none", serialize_with = "milliseconds")]
    pub cpu: Option<Duration>,
    /// Bytes: of a file, of a tool's result, of the output of code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Bytes to a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_sent: Option<u64>,
    /// Bytes from a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_received: Option<u64>,
    /// The number of records or packages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The hash that the chain of a file goes on from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The trace of OpenTelemetry that the event belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Arc<str>>,
}

impl Record {
    /// Creates a record of something that happens now.
    pub fn new(event: Event, details: Details) -> Self {
        Self { event, time: SystemTime::now(), details }
    }

    /// Returns an estimate of the record's memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let Details { code, name, arguments, error, .. } = &self.details;
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        size_of::<Self>() + code.as_ref().map_or(0, |code| code.len()) + text(name) + text(arguments) + text(error)
    }

    /// Cuts off what is far beyond the maximum lengths of texts, so that a record that waits needs little memory.
    pub(crate) fn cut(&mut self) {
        let Details { code, name, arguments, error, .. } = &mut self.details;
        for (text, max) in [(name, MAX_NAME), (error, MAX_NAME), (arguments, MAX_ARGUMENTS)] {
            if let Some(text) = text {
                text.truncate(text.floor_char_boundary(max * QUEUED_BYTES));
            }
        }
        if let Some(code) = code
            && code.len() > MAX_CODE * QUEUED_BYTES
        {
            *code = code.get(..code.floor_char_boundary(MAX_CODE * QUEUED_BYTES)).unwrap_or_default().into();
        }
    }

    /// Removes secrets, and bounds the texts that come from code and from servers.
    pub(crate) fn prepare(&mut self, scrub: &dyn Fn(String) -> String) {
        let Details { code, name, arguments, error, .. } = &mut self.details;
        let clean = |text: &str, max: usize| {
            // The server's own secrets first: a pattern may remove a part of one, whose rest would not be found then.
            let cleaned = redact(&scrub(text.to_owned()));
            // A character that the cut would have split is left out with its other bytes.
            let is_cut = text.len() + 3 >= max * QUEUED_BYTES;
            let most = if is_cut { cleaned.chars().count().saturating_sub(CUT_SECRET).min(max) } else { max };
            shorten(&cleaned, most)
        };
        for (text, max) in [(name, MAX_NAME), (error, MAX_NAME), (arguments, MAX_ARGUMENTS)] {
            if let Some(given) = text {
                *given = clean(given, max);
            }
        }
        if let Some(given) = code {
            *given = clean(given, MAX_CODE).into();
        }
    }
}

#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
fn milliseconds<S: serde::Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    let milliseconds = duration.unwrap_or_default().as_secs_f64() * 1e3;
    serializer.serialize_f64((milliseconds * 1e3).round() / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns what is written of arguments if the server has this secret.
    fn written(arguments: String, secret: &str) -> String {
        let details = Details { arguments: Some(arguments), ..Details::default() };
        let mut record = Record::new(Event::ToolStart, details);
        record.cut();
        assert!(record.details.arguments.as_ref().unwrap().len() <= MAX_ARGUMENTS * QUEUED_BYTES);
        record.prepare(&|text| text.replace(secret, "***"));
        record.details.arguments.unwrap()
    }

    #[test]
    fn long_texts_are_cut_between_characters_and_shortened() {
        for length in [MAX_ARGUMENTS * 2, MAX_ARGUMENTS * QUEUED_BYTES, 10_000_000] {
            assert_eq!(written("é ".repeat(length / 2), "-").chars().count(), MAX_ARGUMENTS + 1, "{length}");
        }
        assert_eq!(written("short".into(), "-"), "short");
    }

    #[test]
    fn secret_that_was_cut_is_left_out() {
        let secret = "s3cret".repeat(400);
        // Nearly all that is before the secret is removed.
        let before = format!("token={} ", "x".repeat(MAX_ARGUMENTS * QUEUED_BYTES - 1_000));
        let written = written(before + &secret, &secret);
        assert!(!written.contains("s3c"), "{written}");
    }
}
