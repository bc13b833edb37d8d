//! Output taken apart into lines, while it is written, and progress bars found among them.

use std::sync::LazyLock;

use regex::Regex;

/// Longest piece that is passed on as one line, in bytes.
const MAX_LINE: usize = 64 << 10;

/// One stream's output, piece by piece.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// What has no end of line yet.
    held: Vec<u8>,
}

impl Lines {
    /// Takes a piece; `each` gets every line that it completes.
    pub(crate) fn push(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.held.extend_from_slice(&rest[..end]);
            self.give(&mut each);
            rest = &rest[end + 1..];
        }
        self.held.extend_from_slice(rest);
        if self.held.len() > MAX_LINE {
            self.give(&mut each);
        }
    }

    /// The last line, which nothing ended.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(&str)) {
        if !self.held.is_empty() {
            self.give(&mut each);
        }
    }

    fn give(&mut self, each: &mut impl FnMut(&str)) {
        // What stands before a carriage return was overwritten.
        let line = self.held.strip_suffix(b"\r").unwrap_or(&self.held);
        let line = line.rsplit(|byte| *byte == b'\r').next().unwrap_or(line);
        each(&String::from_utf8_lossy(line));
        self.held.clear();
    }

    /// The state of the progress bar that is being drawn, if one is.
    pub(crate) fn bar(&self) -> Option<Bar> {
        let drawn = self.held.rsplit(|byte| *byte == b'\r').next()?;
        if drawn.len() > 1000 {
            return None;
        }
        Bar::read(std::str::from_utf8(drawn).ok()?)
    }
}

/// A progress bar as `tqdm` draws it: ` 40%|████      | 4/10 [00:01<00:02,  2.5it/s]`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    pub(crate) done: f64,
    pub(crate) total: f64,
    /// The text in front of it.
    pub(crate) title: String,
}

impl Bar {
    fn read(text: &str) -> Option<Self> {
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
    fn lines_are_whole_however_they_are_written() {
        let mut lines = Lines::default();
        let mut got = Vec::new();
        for piece in ["a", "b\nc", "\n\nd\r\n", "x\ry\n", "end"] {
            lines.push(piece.as_bytes(), |line| got.push(line.to_owned()));
        }
        lines.finish(|line| got.push(line.to_owned()));
        assert_eq!(got, ["ab", "c", "", "d", "y", "end"]);
    }

    #[test]
    fn bars_are_read_and_other_text_is_none() {
        let bar = |text| Bar::read(text);
        let wanted = Bar { done: 4.0, total: 10.0, title: "load".into() };
        assert_eq!(bar("load:  40%|████      | 4/10 [00:01<00:02,  2.5it/s]"), Some(wanted));
        assert_eq!(bar(" 50%|#####     | 1.00k/2.00k [00:01<00:01]").map(|bar| bar.done), Some(1000.0));
        assert_eq!(bar("50% of | 1/2"), None);
        assert_eq!(bar("%|"), None);
    }
}
