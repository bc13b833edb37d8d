//! What the session tools give back: one JSON object, as text and as structured content.

use std::time::Duration;

use belljar_sessions::{Bundle, End, FileAddress, FileInfo, Output, Picture, Report, SessionError, SessionId, mime_of};
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde::Serialize;
use serde_json::{Value, json};

/// Bytes of HTML that one answer holds, in all forms.
const MOST_HTML: usize = 200_000;

/// The answer of `execute_code`.
#[derive(Debug, Serialize)]
pub(super) struct Answer {
    #[serde(flatten)]
    fields: Fields,
    #[serde(skip)]
    pictures: Vec<Picture>,
}

#[derive(Debug, Serialize)]
struct Fields {
    success: bool,
    output: Vec<String>,
    result: Option<String>,
    error: Option<String>,
    traceback: Vec<String>,
    files: Vec<File>,
    session_info: Option<SessionInfo>,
    /// HTML forms of what has one, such as tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    html: Vec<String>,
}

/// What is told of a session when it is new.
#[derive(Debug, Serialize)]
pub(super) struct SessionInfo {
    session_id: String,
    instructions: String,
}

impl SessionInfo {
    pub(super) fn new(id: &SessionId, timeout: Duration) -> Self {
        let minutes = timeout.as_secs_f64() / 60.0;
        let instructions = format!(
            "Pass session_id=\"{}\" to later calls to go on with these variables and files. The session expires after \
             {minutes} minutes without a call.",
            id.as_str()
        );
        Self { session_id: id.as_str().to_owned(), instructions }
    }
}

/// A file of a session.
#[derive(Debug, Clone, Serialize)]
struct File {
    uri: String,
    mime_type: String,
    name: String,
    size: u64,
}

impl File {
    fn new(id: &SessionId, file: &FileInfo) -> Self {
        Self {
            uri: FileAddress::format(id, &file.path),
            mime_type: mime_of(&file.path),
            name: file.path.clone(),
            size: file.size,
        }
    }

    fn link(&self) -> ContentBlock {
        let resource = Resource::new(self.uri.clone(), self.name.clone());
        ContentBlock::resource_link(resource.with_mime_type(self.mime_type.clone()).with_size(self.size))
    }
}

impl Answer {
    pub(super) fn new(id: &SessionId, session_info: Option<SessionInfo>, report: Report) -> Self {
        let (mut output, mut html, mut result, mut room) = (Vec::new(), Vec::new(), None, MOST_HTML);
        for given in report.outputs {
            match given {
                Output::Text { text, .. } => output.push(text),
                Output::Shown(bundle) => {
                    output.extend(plain(&bundle));
                    keep_html(&bundle, &mut html, &mut room);
                }
                Output::Value(bundle) => {
                    result = plain(&bundle);
                    keep_html(&bundle, &mut html, &mut room);
                }
            }
        }
        let mut files = Vec::with_capacity(report.files.len());
        for change in &report.files {
            let file = File::new(id, &change.file);
            let what = if change.is_new { "created" } else { "changed" };
            output.push(format!("📊 File {what}: {} ({}, {} bytes)", file.name, file.mime_type, file.size));
            files.push(file);
        }
        if report.more_files > 0 {
            output.push(format!("📊 {} more files: list_session_files names them", report.more_files));
        }
        let (success, error, traceback) = match report.end {
            End::Success => (true, None, Vec::new()),
            End::Raised { error, traceback } => (false, Some(error), traceback),
            End::Died(reason) => (false, Some(reason), Vec::new()),
        };
        let fields = Fields { success, output, result, error, traceback, files, session_info, html };
        Self { fields, pictures: report.pictures }
    }

    /// Nothing was run.
    pub(super) fn of_error(error: &SessionError) -> Self {
        let fields = Fields {
            success: false,
            output: Vec::new(),
            result: None,
            error: Some(error.to_string()),
            traceback: Vec::new(),
            files: Vec::new(),
            session_info: None,
            html: Vec::new(),
        };
        Self { fields, pictures: Vec::new() }
    }

    /// The tool's result. Text and structured content say the same. There is none of the latter beside images: several
    /// clients show a model nothing else where there is some.
    pub(super) fn result(self) -> CallToolResult {
        let mut content = vec![ContentBlock::text(serde_json::to_string(&self.fields).unwrap_or_default())];
        content.extend(self.pictures.iter().map(|picture| ContentBlock::image(picture.data.clone(), picture.mime)));
        content.extend(self.fields.files.iter().map(File::link));
        let mut result = CallToolResult::success(content);
        if self.pictures.is_empty() {
            result.structured_content = serde_json::to_value(&self.fields).ok();
        }
        result
    }
}

/// The text of something; what has none is named by its types.
fn plain(bundle: &Bundle) -> Option<String> {
    match bundle.get("text/plain").and_then(Value::as_str) {
        Some(text) => Some(text.to_owned()),
        None => {
            Some(format!("<{}>", bundle.keys().cloned().collect::<Vec<_>>().join(", "))).filter(|_| !bundle.is_empty())
        }
    }
}

fn keep_html(bundle: &Bundle, html: &mut Vec<String>, room: &mut usize) {
    // A figure's page is a file; images are shown as such.
    let is_figure = bundle.keys().any(|mime| mime.starts_with("application/vnd.plotly") || mime.starts_with("image/"));
    let text = bundle.get("text/html").and_then(Value::as_str);
    if let Some(text) = text.filter(|text| !is_figure && text.len() <= *room) {
        *room -= text.len();
        html.push(text.to_owned());
    }
}

fn object(value: Value, links: Vec<ContentBlock>) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(value.to_string())]);
    result.content.extend(links);
    result.structured_content = Some(value);
    result
}

/// The answer of `list_session_files`.
pub(super) fn files(id: &SessionId, files: &[FileInfo]) -> CallToolResult {
    let files: Vec<File> = files.iter().map(|file| File::new(id, file)).collect();
    let links = files.iter().map(File::link).collect();
    object(json!({ "session_id": id.as_str(), "files": files }), links)
}

/// The answer of `upload_file`.
pub(super) fn uploaded(id: &SessionId, file: &FileInfo) -> CallToolResult {
    let file = File::new(id, file);
    let links = vec![file.link()];
    object(json!({ "success": true, "file": file }), links)
}

/// The answer of `fork_session`.
pub(super) fn forked(id: &SessionId, forked: &SessionId) -> CallToolResult {
    let message = format!("Session {} has the variables and files of {}", forked.as_str(), id.as_str());
    object(json!({ "success": true, "session_id": forked.as_str(), "message": message }), Vec::new())
}

/// `{success, message}`.
pub(super) fn done<T>(result: Result<T, SessionError>, message: impl FnOnce(&T) -> String) -> CallToolResult {
    match result {
        Ok(value) => object(json!({ "success": true, "message": message(&value) }), Vec::new()),
        Err(error) => failed(&error),
    }
}

/// A tool that did nothing.
pub(super) fn failed(error: &SessionError) -> CallToolResult {
    let text = error.to_string();
    let mut result = object(json!({ "success": false, "error": text, "message": text }), Vec::new());
    result.is_error = Some(true);
    result
}
