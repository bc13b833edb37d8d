//! Reading of log files, whether or not their chain holds.

use std::io;
use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::digest::{DIGEST_LENGTH, digest};
use crate::verify::{Lines, number_of};

/// The records that a reader wants.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// A session, by its ID, or by its digest or the beginning of that, such as its handle in the console.
    pub session: Option<String>,
    /// A run or cell, by its name in records, or by the ID of a run that can wait on the disk.
    pub run: Option<String>,
    /// The beginning of names of events: `tool`, `tool.end`.
    pub events: Vec<String>,
    /// The earliest time, in RFC 3339 and UTC: texts of one form are in the order of their times.
    pub since: Option<String>,
}

impl Filter {
    /// Returns whether a record is wanted.
    pub fn matches(&self, record: &Map<String, Value>) -> bool {
        let text = |name: &str| record.get(name).and_then(Value::as_str).unwrap_or_default();
        let is_session = |wanted: &String| {
            let digest = digest(wanted);
            let is_beginning = |named: &str| named.len() == DIGEST_LENGTH && named.starts_with(wanted.as_str());
            [text("session"), text("target")]
                .iter()
                .any(|named| *named == digest || (!wanted.is_empty() && is_beginning(named)))
        };
        let is_event = |wanted: &String| {
            let rest = text("event").strip_prefix(wanted.trim_end_matches('.'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let is_run = |wanted: &String| text("run") == wanted || text("run") == digest(wanted);
        self.session.as_ref().is_none_or(is_session)
            && self.run.as_ref().is_none_or(is_run)
            && (self.events.is_empty() || self.events.iter().any(is_event))
            && self.since.as_deref().is_none_or(|since| text("time") >= since)
    }
}

/// Passes the records of files that match a filter to `each`, with their lines, in the order of their numbers. Lines
/// that are not records are left out.
///
/// # Errors
/// Fails if a file cannot be read, has lines of which none is a record, or `each` fails.
pub fn records(
    files: &[PathBuf],
    filter: &Filter,
    mut each: impl FnMut(&str, &Map<String, Value>) -> io::Result<()>,
) -> io::Result<()> {
    let mut ordered = Vec::new();
    for path in files {
        let first = Lines::open(path)?.next()?.and_then(|line| number_of(parse(&line.bytes)?.0));
        ordered.push((first.unwrap_or(u64::MAX), path));
    }
    ordered.sort();
    for (_, path) in ordered {
        let mut lines = Lines::open(path)?;
        let (mut is_empty, mut has_records) = (true, false);
        while let Some(line) = lines.next()? {
            is_empty = false;
            let Some((text, record)) = parse(&line.bytes) else { continue };
            has_records = has_records || number_of(text).is_some();
            if filter.matches(&record) {
                each(text, &record)?;
            }
        }
        if !is_empty && !has_records {
            let reason = format!("{} is not an audit log: none of its lines is a record", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
    }
    Ok(())
}

/// Returns the earliest time of a filter, from a date, a time, or the time until now: `10m`, `2h`, `7d`.
///
/// # Errors
/// Returns the forms that are understood.
pub fn earliest_time(text: &str) -> Result<String, String> {
    let written = |time: jiff::Timestamp| format!("{time:.6}");
    let seconds = |unit: &str| match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        "d" => Some(24 * 3600),
        _ => None,
    };
    if let Some((count, unit)) = text.split_at_checked(text.len().saturating_sub(1))
        && let (Ok(count), Some(seconds)) = (count.parse::<u32>(), seconds(unit))
    {
        let ago = std::time::Duration::from_secs(u64::from(count) * seconds);
        return jiff::Timestamp::now().checked_sub(ago).map(written).map_err(|error| error.to_string());
    }
    let full = if text.len() == "2026-11-23".len() { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let parsed: Result<jiff::Timestamp, _> = full.parse();
    parsed.map(written).map_err(|_| "a time is 2026-11-23, 2026-11-23T10:00:00Z, 10m, 2h or 7d".into())
}

fn parse(line: &[u8]) -> Option<(&str, Map<String, Value>)> {
    let text = std::str::from_utf8(line).ok()?;
    Some((text, serde_json::from_str(text).ok()?))
}
