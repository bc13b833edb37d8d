//! The output of a cell.

use crate::mime::MimeBundle;

/// A standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One piece of a cell's output.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Text that the cell wrote.
    Text {
        /// The stream.
        stream: Stream,
        /// The text.
        text: String,
    },
    /// An object that the cell displayed: `display_data`.
    Display(MimeBundle),
    /// The value of the cell's last line: `execute_result`.
    ExecuteResult(MimeBundle),
}
