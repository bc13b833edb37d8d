//! The filter of what sandboxed code writes to a terminal: text, styles, and movements of the cursor within the lines
//! that the code itself has written.
//!
//! Everything else that a terminal interprets is left out: sequences that set titles and the clipboard, that make the
//! terminal send an answer (which a shell would read as input), that change its modes or that clear what other programs
//! have written. That a program cannot move above its own first line follows from counting its line feeds: text that
//! wraps only moves the cursor further down than counted.

use belljar_emscripten::console::Stream;
use vte::{Params, Parser, Perform};

use crate::untrusted_text::is_shown;

/// The sequence that ends all styles.
const RESET_STYLE: &[u8] = b"\x1b[0m";

/// A filter of the two output streams of a program, which share a terminal. Sequences and characters may be split
/// between the chunks of a stream.
#[derive(Default)]
pub(crate) struct TerminalFilter {
    stdout: Parser,
    stderr: Parser,
    screen: Screen,
}

/// The output that passes the filter, and the state of the terminal that follows from it.
#[derive(Default)]
struct Screen {
    passed: Vec<u8>,
    /// The cursor's line, counted from the first line that the program wrote to.
    line: usize,
    /// The largest value of `line` so far.
    last_line: usize,
    is_styled: bool,
}

impl TerminalFilter {
    /// Returns the part of a chunk that passes.
    pub(crate) fn filter(&mut self, stream: Stream, bytes: &[u8]) -> Vec<u8> {
        let parser = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        self.screen.passed.reserve(bytes.len());
        parser.advance(&mut self.screen, bytes);
        std::mem::take(&mut self.screen.passed)
    }

    /// Ends the program's output, and drops sequences that it left incomplete. Returns the bytes that end its styles,
    /// which would apply to, and could hide, the output of others. Later output cannot reach the lines so far.
    pub(crate) fn end(&mut self) -> &'static [u8] {
        let is_styled = self.screen.is_styled;
        *self = Self::default();
        if is_styled { RESET_STYLE } else { b"" }
    }
}

impl Screen {
    fn pass_sequence(&mut self, parameters: &str, action: char) {
        self.passed.extend_from_slice(format!("\x1b[{parameters}{action}").as_bytes());
    }

    fn move_up(&mut self, lines: usize) {
        let lines = lines.min(self.line);
        if lines > 0 {
            self.line -= lines;
            self.pass_sequence(&lines.to_string(), 'A');
        }
    }

    fn move_down(&mut self, lines: usize) {
        let lines = lines.min(self.last_line - self.line);
        if lines > 0 {
            self.line += lines;
            self.pass_sequence(&lines.to_string(), 'B');
        }
    }
}

impl Perform for Screen {
    fn print(&mut self, character: char) {
        if is_shown(character) {
            self.passed.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' => {
                self.line += 1;
                self.last_line = self.last_line.max(self.line);
            }
            b'\t' | b'\r' | b'\x08' => {}
            _ => return,
        }
        self.passed.push(byte);
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], is_truncated: bool, action: char) {
        if is_truncated || !intermediates.is_empty() {
            return;
        }
        let number = params.iter().next().and_then(<[u16]>::first).copied().unwrap_or_default();
        // A count of 0, and a missing one, is 1.
        let count = usize::from(number.max(1));
        match action {
            'm' => {
                self.is_styled = params.iter().any(|param| param != [0]);
                let join = |values: &[u16]| values.iter().map(u16::to_string).collect::<Vec<_>>().join(":");
                self.pass_sequence(&params.iter().map(join).collect::<Vec<_>>().join(";"), action);
            }
            'A' => self.move_up(count),
            'B' => self.move_down(count),
            'E' => {
                self.passed.push(b'\r');
                self.move_down(count);
            }
            'F' => {
                self.passed.push(b'\r');
                self.move_up(count);
            }
            // Movements within the line, and erasing parts of it.
            'C' | 'D' | 'G' => self.pass_sequence(&count.to_string(), action),
            'K' => self.pass_sequence(&number.to_string(), action),
            // Erasing what is below the cursor.
            'J' if number == 0 => self.pass_sequence("", action),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filtered(bytes: &[u8]) -> String {
        String::from_utf8(TerminalFilter::default().filter(Stream::Stdout, bytes)).unwrap()
    }

    #[test]
    fn only_text_styles_and_movements_in_lines_pass() {
        for (written, wanted) in [
            ("plain é 漢 👩\u{200d}🔬\t|\r|\x08|\n", "plain é 漢 👩\u{200d}🔬\t|\r|\x08|\n"),
            ("\x1b[31mred\x1b[0m \x1b[38;5;196;1mx\x1b[m", "\x1b[31mred\x1b[0m \x1b[38;5;196;1mx\x1b[0m"),
            ("\x1b[38:2::1:2:3mx", "\x1b[38:2:0:1:2:3mx"),
            ("a\x1b[K\x1b[2K\x1b[3D\x1b[C\x1b[5G\x1b[J", "a\x1b[0K\x1b[2K\x1b[3D\x1b[1C\x1b[5G\x1b[J"),
            // Titles, the clipboard, links, answers, modes, resets, regions, printing, notifications.
            ("\x1b]0;title\x07|\x1b]52;c;aGk=\x1b\\|\x1b]8;;http://x\x1b\\y", "||y"),
            ("\x1b[6n\x1b[c\x1b[>c\x1b[=c\x1b[5n\x1bZ\x05\x1b[21t\x1b[?1049h\x1b[?25l\x1b[4h", ""),
            ("\x1bc\x1b[!p\x1b[1;2r\x1b7\x1b8\x1b[s\x1b[u\x1b[5i\x1b[2J\x1b[3J\x1b[1J\x1b[H\x1b[9;9f\x1b[3d", ""),
            ("\x1bP$q\"p\x1b\\|\x1bP+q544e\x1b\\|\x1b_apc\x1b\\|\x1b^pm\x1b\\|\x1bXsos\x1b\\", "||||"),
            ("\x1b[>4;2m\x1b[?4m\x1b[1$m\x1b[ q\x1b(0\x1b#8\x1b%G\x1b]777;notify;a;b\x07", ""),
            // C0, C1 in UTF-8, DEL, text direction, separators, tags.
            ("a\x00\x07\x0b\x0c\x0e\x0f\x7f\u{85}\u{9b}31m\u{9d}0;x\u{9c}b", "a31m0;xb"),
            ("\u{202e}a\u{2066}b\u{2028}c\u{feff}d\u{e0041}e\u{200b}", "abcde"),
        ] {
            assert_eq!(filtered(written.as_bytes()), wanted, "{written:?}");
            let mut bytewise = TerminalFilter::default();
            let pieces = written.as_bytes().chunks(1).map(|byte| bytewise.filter(Stream::Stdout, byte));
            assert_eq!(String::from_utf8(pieces.collect::<Vec<_>>().concat()).unwrap(), wanted, "{written:?}, split");
        }
        assert_eq!(filtered(b"\x9b31m\x9d0;x\x9c\xff"), "31m0;x\u{fffd}");
    }

    #[test]
    fn cursor_stays_in_the_lines_of_the_program() {
        assert_eq!(filtered(b"\x1b[A\x1b[9Fx"), "\rx");
        assert_eq!(filtered(b"one\ntwo\n\x1b[9Ax\x1b[9Ay"), "one\ntwo\n\x1b[2Axy");
        // Moving down stops at the last line, so that it cannot be used to count more lines than there are.
        assert_eq!(filtered(b"\n\n\x1b[2A\x1b[999B\x1b[999A"), "\n\n\x1b[2A\x1b[2B\x1b[2A");
        let mut filter = TerminalFilter::default();
        filter.filter(Stream::Stdout, b"\n\n");
        assert_eq!(filter.filter(Stream::Stderr, b"\x1b[1F"), b"\r\x1b[1A");
        filter.end();
        assert_eq!(filter.filter(Stream::Stdout, b"\x1b[A"), b"");
    }

    #[test]
    fn styles_end_with_the_output() {
        let mut filter = TerminalFilter::default();
        assert_eq!(filter.end(), b"");
        filter.filter(Stream::Stderr, b"\x1b[8mhidden");
        filter.filter(Stream::Stdout, b"\x1b]0;incomplete");
        assert_eq!(filter.end(), RESET_STYLE);
        assert_eq!(filter.filter(Stream::Stdout, b"text"), b"text");
        filter.filter(Stream::Stdout, b"\x1b[31mred\x1b[m");
        assert_eq!(filter.end(), b"");
    }

    #[test]
    fn streams_do_not_complete_each_other() {
        let mut filter = TerminalFilter::default();
        assert_eq!(filter.filter(Stream::Stdout, b"\x1b]0;"), b"");
        assert_eq!(filter.filter(Stream::Stderr, b"text"), b"text");
        assert_eq!(filter.filter(Stream::Stdout, b"title\x07\xc3"), b"");
        assert_eq!(filter.filter(Stream::Stderr, b"\xc2"), b"");
        assert_eq!(filter.filter(Stream::Stdout, b"\xa9"), "é".as_bytes());
        assert_eq!(filter.filter(Stream::Stderr, b"\x9b31m"), b"31m");
    }
}
