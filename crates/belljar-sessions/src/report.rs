//! The result of a cell for callers. Images, figures and overlong text are saved in the session's files.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::files::FileAddress;
use crate::id::SessionId;
use belljar_core::files::FileInfo;
use belljar_core::kernel::{CellError, Kernel};
use belljar_core::mime::{Image, MimeBundle};
use belljar_core::truncation::head_and_tail;
use belljar_core::{CellStatus, Output};

/// The parts of a cell's result that its report contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerOptions {
    /// The maximum number of bytes of text: output, values and the error together. Longer text is cut in the middle,
    /// and is in a file of the session.
    pub max_bytes: usize,
    /// Keeps the frames of libraries in the middle of tracebacks.
    pub all_frames: bool,
}

impl Default for AnswerOptions {
    fn default() -> Self {
        Self { max_bytes: 24 << 10, all_frames: false }
    }
}

/// A file that a cell created or wrote to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The file after the cell.
    pub file: FileInfo,
    /// True if the cell created the file.
    pub is_new: bool,
}

/// The state with which a session goes on after a cell that has ended its interpreter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AfterKernelDeath {
    /// The files are kept.
    #[default]
    Files,
    /// The state before the cell, since the interpreter's process has ended.
    LastState,
    /// A new session's, since the interpreter's process has ended and no state was stored.
    Nothing,
}

impl AfterKernelDeath {
    /// Returns the consequence for the session, as a sentence without its end.
    pub fn consequence(self) -> &'static str {
        match self {
            Self::Files => "The session's variables are lost; its files are kept, and it can be used on",
            Self::LastState => "The session goes on from its state before this call: what the call did is lost",
            Self::Nothing => "The session's variables and files are lost; it can be used on",
        }
    }
}

/// The result of a cell, and its effect on the session's files.
#[derive(Debug, Clone, PartialEq)]
pub struct CellReport {
    /// How the cell ended.
    pub status: CellStatus,
    /// The cell's output in order, overlong text cut to [`AnswerOptions::max_bytes`].
    pub outputs: Vec<Output>,
    /// The images among the output.
    pub images: Vec<Image>,
    /// The files that the cell created or changed.
    pub files: Vec<FileChange>,
    /// The number of further files created or changed.
    pub more_files: usize,
    /// True if the cell created or deleted files.
    pub list_changed: bool,
    /// The most bytes of memory that the session's interpreter has had, if the backend measures them.
    pub memory: Option<u64>,
    /// The state with which the session goes on, if the cell has ended its interpreter.
    pub after_death: AfterKernelDeath,
}

impl CellReport {
    /// Returns the report of a cell that was interrupted before its code began.
    pub(crate) fn interrupted() -> Self {
        let name = "KeyboardInterrupt".to_owned();
        let message = "the cell was interrupted before it began".to_owned();
        let status = CellStatus::Error(CellError { name, message, traceback: Vec::new() });
        Self {
            status,
            outputs: Vec::new(),
            images: Vec::new(),
            files: Vec::new(),
            more_files: 0,
            list_changed: false,
            memory: None,
            after_death: AfterKernelDeath::default(),
        }
    }
}

/// Writes text that is too long for an answer to a file. Returns the note that replaces all but `kept` bytes of it.
pub(crate) fn spill_to_file(kernel: &mut dyn Kernel, id: &SessionId, name: &str, text: &str, kept: usize) -> String {
    let (head, tail) = head_and_tail(std::iter::once(text), kept);
    let (length, left_out) = (text.len(), tail - head);
    match kernel.write(name, text.as_bytes()) {
        Ok(()) => format!(
            "\n[… {left_out} of {length} bytes are left out; all are in the file {name}: {}]\n",
            FileAddress::format(id, name)
        ),
        Err(error) => format!("\n[… {left_out} of {length} bytes are left out; failed to keep them: {error}]\n"),
    }
}

/// The MIME type of a Plotly figure.
const PLOTLY: &str = "application/vnd.plotly.v1+json";

/// Writes the image of `bundle` to a file and adds it to `images`. Of a Plotly figure, writes the data and the HTML
/// page.
pub(crate) fn save_images(kernel: &mut dyn Kernel, bundle: &MimeBundle, count: u64, images: &mut Vec<Image>) {
    if let Some(image) = Image::from_bundle(bundle) {
        let number = images.len() + 1;
        let name = format!("inline_{count}_{number}.{}", image.format.extension());
        if let Err(error) = kernel.write(&name, &image.bytes()) {
            tracing::debug!(%error, "failed to save an image that a cell displayed");
        }
        images.push(image);
        return;
    }
    let Some(figure) = bundle.get(PLOTLY) else { return };
    let json = figure.as_str().map_or_else(|| figure.to_string(), str::to_owned);
    let html = bundle.get("text/html").and_then(Value::as_str);
    for (extension, text) in [("json", Some(json.as_str())), ("html", html)] {
        // A cell may display several figures: each gets the next free name.
        let names = (1..).map(|number| format!("plot_{count}_{number}.{extension}"));
        let existing: BTreeSet<String> = kernel.files().into_iter().map(|file| file.path).collect();
        if let (Some(text), Some(name)) = (text, names.take(1000).find(|name| !existing.contains(name)))
            && let Err(error) = kernel.write(&name, text.as_bytes())
        {
            tracing::debug!(%error, "failed to save a figure that a cell displayed");
        }
    }
}
