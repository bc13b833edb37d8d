//! The output of a cell.

use serde::{Deserialize, Serialize};

use crate::mime::MimeBundle;

/// A standard stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One piece of a cell's output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
