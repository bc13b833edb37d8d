//! The limits of one piece of code.

use std::time::Duration;

/// Limits of one execution. Reaching one is an outcome with a name, never a hang.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Elapsed time; `None` is unlimited.
    pub wall_time: Option<Duration>,
    /// Time for which the code may wait without a thread, in all; `None` is unlimited. It does not count as elapsed.
    pub wait_time: Option<Duration>,
    /// Processor time; `None` is unlimited.
    pub cpu_time: Option<Duration>,
    /// Time between the interrupt, which the code can handle, and the kill, which it cannot. Zero kills at once.
    pub grace: Duration,
    /// Bytes of memory. More raises `MemoryError`.
    pub memory: u64,
    /// Bytes written to standard output and error together.
    pub output: u64,
    /// Bytes in files that the code makes. More raises `OSError` (`ENOSPC`).
    pub disk: u64,
    /// Files and directories that the code makes.
    pub files: u32,
    /// Bytes of the text that represents a value; a longer one is cut, with a note.
    pub value: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall_time: None,
            wait_time: None,
            cpu_time: None,
            grace: Duration::ZERO,
            memory: 2 << 30,
            output: 64 << 20,
            disk: 512 << 20,
            files: 100_000,
            value: 1 << 20,
        }
    }
}

impl Limits {
    /// Returns these limits with a wall time of at most `timeout`, if one is given.
    #[must_use]
    pub fn with_timeout(self, timeout: Option<Duration>) -> Self {
        let wall_time = match (timeout, self.wall_time) {
            (Some(timeout), Some(limit)) => Some(timeout.min(limit)),
            (timeout, limit) => timeout.or(limit),
        };
        Self { wall_time, ..self }
    }

    /// Returns the limits that are left after `time` has passed.
    #[must_use]
    pub fn without_time(self, time: Duration) -> Self {
        let left = |limit: Option<Duration>| limit.map(|limit| limit.saturating_sub(time));
        Self { wall_time: left(self.wall_time), cpu_time: left(self.cpu_time), ..self }
    }
}

/// The error of a size that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size; write bytes, or a number with KB, MB, GB, KiB, MiB or GiB, such as 256MB")]
pub struct ParseSizeError(String);

/// Parses a size such as `256MB`, `1.5GiB` or `65536`. `MB` and `MiB` both mean 1,048,576 bytes, as memory is counted.
///
/// # Errors
/// Fails if the text is not a number with one of the known units.
pub fn parse_size(text: &str) -> Result<u64, ParseSizeError> {
    let error = || ParseSizeError(text.into());
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return Err(error()),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(error);
    }
    let fraction: f64 = number.parse().map_err(|_| error())?;
    let bytes = fraction * factor as f64;
    // The largest size worth naming is far below where f64 loses whole bytes.
    if (0.0..1e15).contains(&bytes) { Ok(bytes as u64) } else { Err(error()) }
}

/// Returns a size in the largest unit of [`parse_size`] that it reaches, to a tenth: `512 MB`, `1.5 GB`, `1000 bytes`.
pub fn format_size(bytes: u64) -> String {
    let units = [("GB", 30), ("MB", 20), ("KB", 10)];
    match units.into_iter().find(|(_, shift)| bytes >= 1 << shift) {
        Some((unit, shift)) => {
            let tenths = bytes.saturating_mul(10) >> shift;
            let text = format!("{}.{}", tenths / 10, tenths % 10);
            format!("{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
        }
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_their_units() {
        for (text, bytes) in [("256MB", 256 << 20), ("1.5GiB", 3 << 29), ("65536", 65536), (" 2 kb ", 2048)] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in ["", "MB", "-1", "1TBx", "1e30", "99999999999999999999GB", "nan"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_written_in_their_largest_unit() {
        for (bytes, text) in [(1 << 30, "1 GB"), (3 << 29, "1.5 GB"), (512 << 20, "512 MB"), (24 << 10, "24 KB")] {
            assert_eq!(format_size(bytes), text);
            assert_eq!(parse_size(text), Ok(bytes));
        }
        assert_eq!(format_size(1000), "1000 bytes");
    }
}
