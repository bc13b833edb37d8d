//! The result of a cell for callers. Images, figures and overlong text are saved in the session's files.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::files::FileAddress;
use crate::id::SessionId;
use belljar_core::files::FileInfo;
use belljar_core::kernel::Kernel;
use belljar_core::mime::{Image, MimeBundle};
use belljar_core::{CellStatus, Output};

/// A file that a cell created or wrote to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The file after the cell.
    pub file: FileInfo,
    /// True if the cell created the file.
    pub is_new: bool,
}

/// The result of a cell, and its effect on the session's files.
#[derive(Debug, Clone, PartialEq)]
pub struct CellReport {
    /// How the cell ended.
    pub status: CellStatus,
    /// The cell's output in order, overlong text cut.
    pub outputs: Vec<Output>,
    /// The images among the output.
    pub images: Vec<Image>,
    /// The files that the cell created or changed.
    pub files: Vec<FileChange>,
    /// The number of further files created or changed.
    pub more_files: usize,
    /// True if the cell created or deleted files.
    pub list_changed: bool,
}

/// Writes text that is too long for an answer to a file. Returns the note that replaces it.
pub(crate) fn spill_to_file(kernel: &mut dyn Kernel, id: &SessionId, name: &str, text: &str) -> String {
    match kernel.write(name, text.as_bytes()) {
        Ok(()) => format!("\n[… cut here: all {} bytes are in {}]\n", text.len(), FileAddress::format(id, name)),
        Err(error) => format!("\n[… cut here: of {} bytes the rest is lost: {error}]\n", text.len()),
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
