//! The outputs of code for panels: in order, with their HTML, in the `_meta` of a result, which clients do not show the
//! model. The rest of the result is the same as for other clients.

use belljar_core::kernel::CellError;
use belljar_core::mime::{Image, MimeBundle};
use belljar_core::{CellStatus, Limits, Outcome, Output, RecordedConnections, Stream};
use belljar_sessions::{CellReport, FileAddress, FileChange, SessionId, mime_of};
use belljar_tools::CallLog;
use rmcp::model::CallToolResult;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::answer::{MAX_CALL_LOG, RunAnswer};

/// The entry in the `_meta` of a result.
const PANEL: &str = "io.github.belljar/panel";
/// The maximum size of the outputs in one result, in bytes. Images are in the result's content, and not counted.
const MAX_OUTPUTS: usize = 512 << 10;
/// The representations that panels show, besides images of the content.
const SHOWN: [&str; 5] = ["application/json", "text/html", "text/latex", "text/markdown", "text/plain"];

/// The content of a panel.
#[derive(Debug, Serialize)]
pub(crate) struct Panel {
    /// `ok`, `error`, `timed-out` or `died`, as in the console.
    state: &'static str,
    outputs: Vec<PanelOutput>,
    /// The number of bytes that `outputs` lacks.
    #[serde(skip_serializing_if = "is_zero")]
    omitted: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<PanelError>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    files: Vec<PanelFile>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    installed: Vec<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    calls: Option<CallLog>,
    #[serde(flatten, skip_serializing_if = "RecordedConnections::is_empty")]
    connections: RecordedConnections,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum PanelOutput {
    Stream { name: &'static str, text: String },
    Display(PanelDisplay),
    Result(PanelDisplay),
}

#[derive(Debug, Serialize)]
struct PanelDisplay {
    data: Map<String, Value>,
    /// The number of the image among those of the result's content.
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<usize>,
}

#[derive(Debug, Serialize)]
struct PanelError {
    name: String,
    message: String,
    traceback: Vec<String>,
}

#[derive(Debug, Serialize)]
struct PanelFile {
    uri: String,
    name: String,
    mime_type: String,
    size: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

impl Panel {
    /// Creates the panel of a cell.
    pub(crate) fn from_cell(id: &SessionId, report: &CellReport, limits: &Limits) -> Self {
        let mut outputs = Outputs { room: MAX_OUTPUTS, ..Outputs::default() };
        for output in &report.outputs {
            match output {
                Output::Text { stream, text } => outputs.add_text(*stream, text),
                Output::Display(bundle) => {
                    let display = outputs.display(bundle, report.images.len());
                    outputs.list.push(PanelOutput::Display(display));
                }
                Output::ExecuteResult(bundle) => {
                    let display = outputs.display(bundle, report.images.len());
                    outputs.list.push(PanelOutput::Result(display));
                }
            }
        }
        let state = match &report.status {
            CellStatus::Ok => "ok",
            CellStatus::Error(_) => "error",
            CellStatus::TimedOut { .. } => "timed-out",
            CellStatus::KernelDied(_) => "died",
        };
        let error = report.status.error(limits).map(|CellError { name, message, traceback }| PanelError {
            name,
            message,
            traceback,
        });
        let file = |FileChange { file, .. }: &FileChange| PanelFile {
            uri: FileAddress::format(id, &file.path),
            name: file.path.clone(),
            mime_type: mime_of(&file.path),
            size: file.size,
        };
        Self {
            state,
            outputs: outputs.list,
            omitted: outputs.omitted,
            error,
            files: report.files.iter().map(file).collect(),
            installed: Vec::new(),
            calls: None,
            connections: RecordedConnections::default(),
        }
    }

    /// Creates the panel of a call of `run_python_code`.
    pub(crate) fn from_run(answer: &RunAnswer) -> Self {
        let mut outputs = Outputs { room: MAX_OUTPUTS, ..Outputs::default() };
        let text = answer.output_text();
        if !text.is_empty() {
            outputs.add_text(Stream::Stdout, &text);
        }
        for image in 0..answer.report.images.len() {
            let display = PanelDisplay { data: Map::new(), image: Some(image) };
            outputs.list.push(PanelOutput::Display(display));
        }
        if let Outcome::Success(Some(value)) = &answer.report.outcome {
            let bundle = MimeBundle::from([("text/plain".to_owned(), Value::from(value.text.clone()))]);
            let display = outputs.display(&bundle, 0);
            outputs.list.push(PanelOutput::Result(display));
        }
        let error = answer.error().map(|message| PanelError { name: String::new(), message, traceback: Vec::new() });
        Self {
            state: if error.is_some() { "error" } else { "ok" },
            outputs: outputs.list,
            omitted: outputs.omitted,
            error,
            files: Vec::new(),
            installed: answer.report.dependencies.clone(),
            calls: None,
            connections: RecordedConnections::default(),
        }
        .with_records(answer.calls.clone(), answer.connections.clone())
    }

    /// Adds the calls of tools and the connections of the code.
    #[must_use]
    pub(crate) fn with_records(self, calls: Option<CallLog>, connections: RecordedConnections) -> Self {
        let calls = calls.map(|log| log.within(MAX_CALL_LOG));
        Self { calls, connections: connections.within(MAX_CALL_LOG), ..self }
    }
}

/// Outputs within a size.
#[derive(Default)]
struct Outputs {
    list: Vec<PanelOutput>,
    room: usize,
    omitted: usize,
    /// The number of images so far.
    images: usize,
}

impl Outputs {
    /// Takes room for `size` bytes. Returns false if there is less.
    fn fits(&mut self, size: usize) -> bool {
        let fits = size <= self.room;
        if fits {
            self.room -= size;
        } else {
            self.omitted += size;
        }
        fits
    }

    fn add_text(&mut self, stream: Stream, text: &str) {
        if self.fits(text.len()) {
            let name = if stream == Stream::Stderr { "stderr" } else { "stdout" };
            self.list.push(PanelOutput::Stream { name, text: text.to_owned() });
        }
    }

    /// Returns what a panel shows of a bundle, whose image is one of the first `images` of the result.
    fn display(&mut self, bundle: &MimeBundle, images: usize) -> PanelDisplay {
        let image = Image::from_bundle(bundle).map(|_| self.images).filter(|image| *image < images);
        self.images += usize::from(image.is_some());
        // The page of an interactive figure is a file of the session: here it could run no script.
        let is_figure = bundle.keys().any(|mime| mime.starts_with("application/vnd.plotly"));
        let mut data = Map::new();
        for mime in SHOWN {
            let Some(value) = bundle.get(mime) else { continue };
            let is_left_out = mime == "text/html" && (is_figure || image.is_some());
            let size = value.as_str().map_or_else(|| value.to_string().len(), str::len);
            if !is_left_out && self.fits(size) {
                data.insert(mime.to_owned(), value.clone());
            }
        }
        if data.is_empty() && image.is_none() && !bundle.is_empty() {
            let types = bundle.keys().cloned().collect::<Vec<_>>().join(", ");
            data.insert("text/plain".to_owned(), format!("<{types}>").into());
        }
        PanelDisplay { data, image }
    }
}

/// Adds a panel to a result.
#[must_use]
pub(crate) fn attach(mut result: CallToolResult, panel: &impl Serialize) -> CallToolResult {
    if let Ok(panel) = serde_json::to_value(panel) {
        result.meta.get_or_insert_default().insert(PANEL.to_owned(), panel);
    }
    result
}

/// Removes the panel from a result, as JSON, which goes to a client that does not show it.
pub(crate) fn withhold(result: &mut Map<String, Value>) {
    let Some(Value::Object(meta)) = result.get_mut("_meta") else { return };
    if meta.remove(PANEL).is_some() && meta.is_empty() {
        result.remove("_meta");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_have_a_size() {
        let mut outputs = Outputs { room: 10, ..Outputs::default() };
        outputs.add_text(Stream::Stdout, "123456");
        outputs.add_text(Stream::Stdout, "123456");
        assert_eq!((outputs.list.len(), outputs.room, outputs.omitted), (1, 4, 6));
        let bundle = |html: &str| MimeBundle::from([("text/html".to_owned(), Value::from(html))]);
        assert_eq!(outputs.display(&bundle("<b>"), 0).data["text/html"], "<b>");
        assert_eq!(outputs.display(&bundle("<b>long"), 0).data["text/plain"], "<text/html>");
    }

    #[test]
    fn panels_are_for_clients_that_show_them() {
        let result = attach(CallToolResult::success(Vec::new()), &Panel::from_run(&answer()));
        let Value::Object(mut result) = serde_json::to_value(result).unwrap() else { panic!("not an object") };
        assert_eq!(result["_meta"][PANEL]["state"], "ok");
        withhold(&mut result);
        assert_eq!(result.get("_meta"), None);
        result.insert("_meta".into(), serde_json::json!({ "other": 1, PANEL: {} }));
        withhold(&mut result);
        assert_eq!(result["_meta"], serde_json::json!({ "other": 1 }));
    }

    fn answer() -> RunAnswer {
        let (report, output) = (belljar_core::RunReport::new(Limits::default()), b"text\n".to_vec());
        RunAnswer { report, output, calls: None, connections: RecordedConnections::default() }
    }
}
