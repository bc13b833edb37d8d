//! The definitions of the session tools: their names, descriptions and schemas.
//!
//! They do not declare an output schema: a result with images has no structured content, since many clients would
//! show the model nothing else.

use std::sync::{Arc, LazyLock};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};

use crate::arguments::{self, ExecuteCode, SessionOnly, UploadFile};

pub(super) const EXECUTE: &str = "execute_code";
pub(super) const LIST: &str = "list_session_files";
pub(super) const CLEAR: &str = "clear_session";
pub(super) const UPLOAD: &str = "upload_file";
pub(super) const INTERRUPT: &str = "interrupt_session";
pub(super) const RESTART: &str = "restart_session";
pub(super) const FORK: &str = "fork_session";

const EXECUTE_DESCRIPTION: &str = "\
Run Python code as a cell of an IPython session. Returns its output, the value of its last line, and the files it wrote.

Variables, imports and files persist between calls with the same session_id. Leave session_id empty for a new session; \
the result contains its session_id.

Most packages that the code imports are available or are installed; %pip install installs others. Magics, top-level \
await and display() work. Figures of matplotlib are shown and saved as PNG. Write files into the working directory: they \
are listed in the result and can be read as resources, kernel://{session_id}/{filename}.";

static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    vec![
        tool(
            EXECUTE,
            "Run code in a session",
            EXECUTE_DESCRIPTION,
            ToolEffect::Write,
            arguments::schema::<ExecuteCode>(),
        ),
        tool(
            LIST,
            "List a session's files",
            "List the files of a session.",
            ToolEffect::ReadOnly,
            arguments::schema::<SessionOnly>(),
        ),
        tool(
            CLEAR,
            "Clear a session",
            "End a session: its variables and all its files are deleted.",
            ToolEffect::Destructive,
            arguments::schema::<SessionOnly>(),
        ),
        tool(
            UPLOAD,
            "Upload a file",
            "Write a file into a session's working directory, as text or as base64.",
            ToolEffect::Write,
            arguments::schema::<UploadFile>(),
        ),
        tool(
            INTERRUPT,
            "Interrupt a session",
            "Raise KeyboardInterrupt in a session's running code. Its variables are kept.",
            ToolEffect::Write,
            arguments::schema::<SessionOnly>(),
        ),
        tool(
            RESTART,
            "Restart a session",
            "Give a session a fresh interpreter. Its variables are lost, its files are kept.",
            ToolEffect::Destructive,
            arguments::schema::<SessionOnly>(),
        ),
        tool(
            FORK,
            "Fork a session",
            "Create a new session with the same variables and files. Later changes in one session do not affect the other.",
            ToolEffect::Write,
            arguments::schema::<SessionOnly>(),
        ),
    ]
});

/// The effect of a call, in the terms of MCP's annotations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ToolEffect {
    ReadOnly,
    Write,
    Destructive,
}

pub(super) fn all() -> Vec<Tool> {
    TOOLS.clone()
}

fn tool(
    name: &'static str,
    title: &str,
    description: &'static str,
    effect: ToolEffect,
    schema: Arc<JsonObject>,
) -> Tool {
    let mut tool = Tool::new(name, description, schema);
    tool.title = Some(title.into());
    tool.annotations = Some(ToolAnnotations::from_raw(
        Some(title.into()),
        Some(effect == ToolEffect::ReadOnly),
        Some(effect == ToolEffect::Destructive),
        Some(effect != ToolEffect::Write),
        Some(false),
    ));
    tool
}
