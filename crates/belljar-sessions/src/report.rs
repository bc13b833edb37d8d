//! What a cell came to, and what of it is kept in the session's files: images, figures, and what is too long to be read.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::files::FileAddress;
use crate::id::SessionId;
use belljar_core::files::FileInfo;
use belljar_core::kernel::{Bundle, End, Kernel, Output};

/// An image that a cell shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// `image/png`, `image/jpeg` or `image/svg+xml`.
    pub mime: &'static str,
    /// The file, in base64.
    pub data: String,
}

/// A file that is new, or was written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The file as it is now.
    pub file: FileInfo,
    /// Whether it was not there before.
    pub is_new: bool,
}

/// What a cell came to, and what became of the session's files.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// How it ended.
    pub end: End,
    /// What it gave, in order, cut to what is read.
    pub outputs: Vec<Output>,
    /// The images among it.
    pub pictures: Vec<Picture>,
    /// Files that are new or changed.
    pub files: Vec<FileChange>,
    /// How many more there are.
    pub more_files: usize,
    /// Whether the list of files is another one than before.
    pub list_changed: bool,
}

/// Writes what is too long for an answer to a file; answers the note that stands in its place.
pub(crate) fn kept(kernel: &mut dyn Kernel, id: &SessionId, name: &str, text: &str) -> String {
    match kernel.write(name, text.as_bytes()) {
        Ok(()) => format!("\n[… cut here: all {} bytes are in {}]\n", text.len(), FileAddress::format(id, name)),
        Err(error) => format!("\n[… cut here: of {} bytes the rest is lost, {error}]\n", text.len()),
    }
}

/// A kind of image that clients show.
struct Kind {
    mime: &'static str,
    extension: &'static str,
    /// Whether a file begins as one of this kind does.
    is: fn(&[u8]) -> bool,
}

const KINDS: [Kind; 3] = [
    Kind { mime: "image/png", extension: "png", is: |bytes| bytes.starts_with(b"\x89PNG\r\n\x1a\n") },
    Kind { mime: "image/jpeg", extension: "jpg", is: |bytes| bytes.starts_with(b"\xff\xd8\xff") },
    Kind { mime: "image/svg+xml", extension: "svg", is: |bytes| bytes.trim_ascii_start().starts_with(b"<") },
];

const PLOTLY: &str = "application/vnd.plotly.v1+json";

/// Writes the image among something's forms to a file, and adds it to `pictures`; of a figure of plotly, its page and data.
pub(crate) fn keep_forms(kernel: &mut dyn Kernel, bundle: &Bundle, count: u64, pictures: &mut Vec<Picture>) {
    let number = pictures.len() + 1;
    for kind in &KINDS {
        let Some(form) = bundle.get(kind.mime).and_then(Value::as_str) else { continue };
        let bytes = if kind.extension == "svg" {
            Ok(form.as_bytes().to_vec())
        } else {
            STANDARD.decode(form.replace('\n', ""))
        };
        let Some(bytes) = bytes.ok().filter(|bytes| (kind.is)(bytes)) else { continue };
        let name = format!("inline_{count}_{number}.{}", kind.extension);
        if let Err(error) = kernel.write(&name, &bytes) {
            tracing::debug!(%error, "an image is shown and not kept");
        }
        pictures.push(Picture { mime: kind.mime, data: STANDARD.encode(&bytes) });
        return;
    }
    if let Some(figure) = bundle.get(PLOTLY) {
        let json = figure.as_str().map_or_else(|| figure.to_string(), str::to_owned);
        let html = bundle.get("text/html").and_then(Value::as_str);
        for (extension, text) in [("json", Some(json.as_str())), ("html", html)] {
            // Two figures of one cell are told apart by what is there already.
            let free = (1..).map(|number| format!("plot_{count}_{number}.{extension}"));
            let there: BTreeSet<String> = kernel.files().into_iter().map(|file| file.path).collect();
            if let (Some(text), Some(name)) = (text, free.take(1000).find(|name| !there.contains(name)))
                && let Err(error) = kernel.write(&name, text.as_bytes())
            {
                tracing::debug!(%error, "a figure is shown and not kept");
            }
        }
    }
}
