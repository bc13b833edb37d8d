//! The results of the session tools: one JSON object, as text and as structured content.

use std::time::Duration;

use belljar_core::files::{FileError, FileInfo};
use belljar_core::mime::{Image, MimeBundle, text_plain};
use belljar_core::{CellStatus, Limits, Output, RecordedConnections};
use belljar_sessions::{CellReport, FileAddress, RefusalDetails, SessionError, SessionId, mime_of};
use belljar_tools::CallLog;
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde::Serialize;
use serde_json::{Value, json};

use super::ToolAnswer;
use crate::answer::MAX_CALL_LOG;
use crate::description::time;

/// The maximum number of bytes of HTML in one result.
const MAX_HTML_BYTES: usize = 200_000;

/// The result of `execute_code`.
#[derive(Debug, Serialize)]
pub(super) struct ExecuteCodeResult {
    #[serde(flatten)]
    fields: Fields,
    #[serde(skip)]
    images: Vec<Image>,
}

/// The fields of the structured content.
#[derive(Debug, Serialize)]
struct Fields {
    success: bool,
    output: Vec<String>,
    result: Option<String>,
    error: Option<String>,
    traceback: Vec<String>,
    files: Vec<File>,
    session_info: Option<SessionInfo>,
    /// The HTML representations of outputs that have no text, or with `--html` of all outputs that have one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    html: Vec<String>,
    /// The calls of tools, if code can call any.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    calls: Option<CallLog>,
    /// The connections of the code, if there were any.
    #[serde(flatten, skip_serializing_if = "RecordedConnections::is_empty")]
    connections: RecordedConnections,
    /// Set if the call was refused because of a quota or for lack of memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<RefusalDetails>,
}

/// The fields of the text, which lacks most of those that say nothing: it takes room in a model's context.
#[derive(Debug, Serialize)]
struct TextFields<'a> {
    success: bool,
    output: &'a [String],
    result: &'a Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: &'a Option<String>,
    /// Errors always have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    traceback: Option<&'a [String]>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    files: &'a [File],
    #[serde(skip_serializing_if = "Option::is_none")]
    session_info: &'a Option<SessionInfo>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    html: &'a [String],
    /// The calls that failed, also if the code caught their errors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed_calls: Vec<String>,
}

impl Fields {
    fn text(&self) -> TextFields<'_> {
        let Self { success, output, result, error, traceback, files, session_info, html, calls, .. } = self;
        let failed_calls = calls.as_ref().map(CallLog::failures).unwrap_or_default();
        let traceback = error.is_some().then_some(traceback.as_slice());
        TextFields { success: *success, output, result, error, traceback, files, session_info, html, failed_calls }
    }
}

/// The information about a new session.
#[derive(Debug, Serialize)]
pub(super) struct SessionInfo {
    session_id: String,
    instructions: String,
}

impl SessionInfo {
    pub(super) fn new(id: &SessionId, timeout: Duration) -> Self {
        let instructions = format!(
            "Pass session_id=\"{}\" to later calls to go on with these variables and files. The session expires after \
             {} without a call.",
            id.as_str(),
            time(timeout)
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

impl ExecuteCodeResult {
    /// Creates the result of a cell. With `html`, it contains the HTML of values that have plain text, too.
    pub(super) fn new(
        id: &SessionId,
        session_info: Option<SessionInfo>,
        report: CellReport,
        limits: &Limits,
        html: bool,
    ) -> Self {
        let all_html = html;
        let (mut output, mut html, mut result, mut room) = (Vec::new(), Vec::new(), None, MAX_HTML_BYTES);
        for given in report.outputs {
            match given {
                Output::Text { text, .. } => output.push(text),
                Output::Display(bundle) => {
                    output.extend(text_or_types(&bundle));
                    keep_html(&bundle, all_html, &mut html, &mut room);
                }
                Output::ExecuteResult(bundle) => {
                    result = text_or_types(&bundle);
                    keep_html(&bundle, all_html, &mut html, &mut room);
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
        let (error, traceback) = match report.status.error(limits) {
            None => (None, Vec::new()),
            Some(error) if matches!(report.status, CellStatus::KernelDied(_)) => {
                (Some(format!("{error}. {}", report.after_death.consequence())), Vec::new())
            }
            Some(error) => (Some(error.to_string()), error.traceback),
        };
        let success = error.is_none();
        let connections = RecordedConnections::default();
        let fields = Fields {
            success,
            output,
            result,
            error,
            traceback,
            files,
            session_info,
            html,
            calls: None,
            connections,
            refusal: None,
        };
        Self { fields, images: report.images }
    }

    /// Creates the result of a call that ran no code.
    pub(super) fn from_error(error: &SessionError) -> Self {
        let fields = Fields {
            success: false,
            output: Vec::new(),
            result: None,
            error: Some(session_error(error)),
            traceback: Vec::new(),
            files: Vec::new(),
            session_info: None,
            html: Vec::new(),
            calls: None,
            connections: RecordedConnections::default(),
            refusal: refusal_of(error),
        };
        Self { fields, images: Vec::new() }
    }

    /// Adds the connections of the code.
    pub(super) fn with_connections(mut self, connections: RecordedConnections) -> Self {
        self.fields.connections = connections.within(MAX_CALL_LOG);
        self
    }

    /// Adds the calls of tools.
    pub(super) fn with_calls(mut self, calls: Option<CallLog>) -> Self {
        self.fields.calls = calls.map(|log| log.within(MAX_CALL_LOG));
        self
    }

    /// Returns the tool's result. Text and structured content contain the same fields, except that the text lacks
    /// fields that say nothing. A result with images has no structured content, because several clients would then show
    /// the model nothing else.
    pub(super) fn result(self) -> CallToolResult {
        let mut content = vec![ContentBlock::text(serde_json::to_string(&self.fields.text()).unwrap_or_default())];
        content.extend(
            self.images.iter().map(|image| ContentBlock::image(image.base64.clone(), image.format.mime_type())),
        );
        content.extend(self.fields.files.iter().map(File::link));
        let mut result = CallToolResult::success(content);
        if self.images.is_empty() {
            result.structured_content = serde_json::to_value(&self.fields).ok();
        }
        result
    }
}

/// Returns a bundle's plain text, or the names of its MIME types if it has no text. `None` if it is empty.
pub(crate) fn text_or_types(bundle: &MimeBundle) -> Option<String> {
    match text_plain(bundle) {
        Some(text) => Some(text.to_owned()),
        None => {
            Some(format!("<{}>", bundle.keys().cloned().collect::<Vec<_>>().join(", "))).filter(|_| !bundle.is_empty())
        }
    }
}

fn keep_html(bundle: &MimeBundle, even_with_text: bool, html: &mut Vec<String>, room: &mut usize) {
    if text_plain(bundle).is_some() && !even_with_text {
        return;
    }
    // A figure's HTML page is a file of the session, and images have a content block of their own.
    let is_figure = bundle.keys().any(|mime| mime.starts_with("application/vnd.plotly") || mime.starts_with("image/"));
    let text = bundle.get("text/html").and_then(Value::as_str);
    if let Some(text) = text.filter(|text| !is_figure && text.len() <= *room) {
        *room -= text.len();
        html.push(text.to_owned());
    }
}

pub(super) fn object(value: Value, links: Vec<ContentBlock>) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(value.to_string())]);
    result.content.extend(links);
    result.structured_content = Some(value);
    result
}

/// Returns the result of `list_session_files`.
pub(super) fn files(id: &SessionId, files: &[FileInfo]) -> CallToolResult {
    let files: Vec<File> = files.iter().map(|file| File::new(id, file)).collect();
    let links = files.iter().map(File::link).collect();
    object(json!({ "session_id": id.as_str(), "files": files }), links)
}

/// Returns the result of `upload_file`.
pub(super) fn uploaded(id: &SessionId, file: &FileInfo) -> CallToolResult {
    let file = File::new(id, file);
    let links = vec![file.link()];
    object(json!({ "success": true, "file": file }), links)
}

/// Returns the result of `fork_session`.
pub(super) fn forked(id: &SessionId, forked: &SessionId) -> CallToolResult {
    let message = format!("Session {} has the variables and files of {}", forked.as_str(), id.as_str());
    object(json!({ "success": true, "session_id": forked.as_str(), "message": message }), Vec::new())
}

/// Returns a result with the fields `success` and `message`, or that of a failed call.
pub(super) fn done<T>(result: Result<T, SessionError>, message: impl FnOnce(&T) -> String) -> ToolAnswer {
    match result {
        Ok(value) => ToolAnswer::success(object(json!({ "success": true, "message": message(&value) }), Vec::new())),
        Err(error) => failed(&error),
    }
}

/// Describes to the model why a call of a tool failed, and which tool helps.
pub(super) fn session_error(error: &SessionError) -> String {
    match error {
        SessionError::Unrestorable(_) => format!("{error}; restart_session gives it a fresh interpreter"),
        SessionError::File(FileError::Missing(_)) => format!("{error}; list_session_files returns its files"),
        error => error.to_string(),
    }
}

fn refusal_of(error: &SessionError) -> Option<RefusalDetails> {
    match error {
        SessionError::Refused(refusal) => Some(refusal.details()),
        _ => None,
    }
}

/// Returns the result of a failed call.
pub(super) fn failed(error: &SessionError) -> ToolAnswer {
    let text = session_error(error);
    let mut fields = json!({ "success": false, "error": text, "message": text });
    if let Some(refusal) = refusal_of(error) {
        fields["refusal"] = json!(refusal);
    }
    let mut result = object(fields, Vec::new());
    result.is_error = Some(true);
    ToolAnswer { response: result.into(), status: error.into() }
}
