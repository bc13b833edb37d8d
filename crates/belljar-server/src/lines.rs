//! Splits output into lines while it is written, and recognises progress bars in it.

use std::sync::LazyLock;

use regex::Regex;

/// The maximum length of a line, in bytes; longer lines are split.
const MAX_LINE_BYTES: usize = 64 << 10;

/// A buffer for one stream's output, which arrives in pieces.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer {
    /// The bytes of the incomplete line.
    partial: Vec<u8>,
}

impl LineBuffer {
    /// Appends a piece and calls `each` with every line that it completes.
    pub(crate) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.partial.extend_from_slice(&rest[..end]);
            self.flush(&mut each);
            rest = &rest[end + 1..];
        }
        self.partial.extend_from_slice(rest);
        if self.partial.len() > MAX_LINE_BYTES {
            self.flush(&mut each);
        }
    }

    /// Calls `each` with the last line if it is incomplete.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(&str)) {
        if !self.partial.is_empty() {
            self.flush(&mut each);
        }
    }

    fn flush(&mut self, each: &mut impl FnMut(&str)) {
        // Text before a carriage return was overwritten.
        let line = self.partial.strip_suffix(b"\r").unwrap_or(&self.partial);
        let line = line.rsplit(|byte| *byte == b'\r').next().unwrap_or(line);
        each(&String::from_utf8_lossy(line));
        self.partial.clear();
    }

    /// Returns the state of the progress bar in the incomplete line, if it contains one.
    pub(crate) fn progress_bar(&self) -> Option<TqdmBar> {
        let drawn = self.partial.rsplit(|byte| *byte == b'\r').next()?;
        if drawn.len() > 1000 {
            return None;
        }
        TqdmBar::parse(std::str::from_utf8(drawn).ok()?)
    }
}

/// A progress bar in `tqdm`'s format: ` 40%|████      | 4/10 [00:01<00:02,  2.5it/s]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TqdmBar {
    pub(crate) done: f64,
    pub(crate) total: f64,
    /// The text before the bar.
    pub(crate) title: String,
}

impl TqdmBar {
    fn parse(text: &str) -> Option<Self> {
        static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
            Regex::new(r"^(?:(.*): )?\s*\d{1,3}%\|[^|]*\| ([0-9.]+)([kMG]?)/([0-9.]+)([kMG]?) \[").ok()
        });
        if !text.contains("%|") {
            return None;
        }
        let found = PATTERN.as_ref()?.captures(text)?;
        let number = |digits: usize, unit: usize| {
            let factor = match found.get(unit)?.as_str() {
                "k" => 1e3,
                "M" => 1e6,
                "G" => 1e9,
                _ => 1.0,
            };
            Some(found.get(digits)?.as_str().parse::<f64>().ok()? * factor)
        };
        let title = found.get(1).map_or_else(String::new, |title| title.as_str().trim().to_owned());
        Some(Self { done: number(2, 3)?, total: number(4, 5)?, title })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_into_lines() {
        let mut lines = LineBuffer::default();
        let mut got = Vec::new();
        for piece in ["a", "b\nc", "\n\nd\r\n", "x\ry\n", "end"] {
            lines.push(piece.as_bytes(), |line| got.push(line.to_owned()));
        }
        lines.finish(|line| got.push(line.to_owned()));
        assert_eq!(got, ["ab", "c", "", "d", "y", "end"]);
    }

    #[test]
    fn progress_bars_are_parsed_and_other_text_is_not() {
        let bar = |text| TqdmBar::parse(text);
        let wanted = TqdmBar { done: 4.0, total: 10.0, title: "load".into() };
        assert_eq!(bar("load:  40%|████      | 4/10 [00:01<00:02,  2.5it/s]"), Some(wanted));
        assert_eq!(bar(" 50%|#####     | 1.00k/2.00k [00:01<00:01]").map(|bar| bar.done), Some(1000.0));
        assert_eq!(bar("50% of | 1/2"), None);
        assert_eq!(bar("%|"), None);
    }
}
