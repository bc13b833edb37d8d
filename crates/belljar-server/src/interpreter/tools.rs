//! The tools as clients see them: their names, what they are for, their arguments.
//!
//! They declare no output schema: an answer with images has no structured content, since many clients would show a model
//! nothing else then.

use std::sync::{Arc, LazyLock};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

pub(super) const EXECUTE: &str = "execute_code";
pub(super) const LIST: &str = "list_session_files";
pub(super) const CLEAR: &str = "clear_session";
pub(super) const UPLOAD: &str = "upload_file";
pub(super) const INTERRUPT: &str = "interrupt_session";
pub(super) const RESTART: &str = "restart_session";
pub(super) const FORK: &str = "fork_session";

const EXECUTE_DESCRIPTION: &str = "\
Run Python code as a cell of an IPython session, and get its output, the value of its last line, and the files it wrote.

Variables, imports and files stay between calls with the same session_id. Leave session_id empty for a new session; the \
answer has its session_id.

Packages that the code imports are there or are installed, mostly; %pip install gets others. Magics, top-level await and display() work. Figures \
of matplotlib are shown and saved as PNG. Write files into the working directory: they are listed in the answer and can be \
read as resources, kernel://{session_id}/{filename}.";

static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    let session = || ("session_id", json!({ "type": "string", "description": "The session" }));
    vec![
        tool(
            EXECUTE,
            "Run code in a session",
            EXECUTE_DESCRIPTION,
            Effect::Changes,
            &["code"],
            vec![
                ("code", json!({ "type": "string", "description": "Python code to run" })),
                (
                    "session_id",
                    json!({
                        "type": "string", "default": "",
                        "description": "Session to run it in; empty or \"0\" for a new one",
                    }),
                ),
                (
                    "timeout",
                    json!({
                        "type": "number", "exclusiveMinimum": 0,
                        "description": "Seconds after which the code is interrupted; the server's own limit holds as well",
                    }),
                ),
            ],
        ),
        tool(
            LIST,
            "List a session's files",
            "List the files of a session.",
            Effect::None,
            &["session_id"],
            vec![session()],
        ),
        tool(
            CLEAR,
            "Clear a session",
            "End a session: its variables and all its files are deleted.",
            Effect::Destroys,
            &["session_id"],
            vec![session()],
        ),
        tool(
            UPLOAD,
            "Upload a file",
            "Write a file into a session's working directory, as text or as base64.",
            Effect::Changes,
            &["session_id", "name"],
            vec![
                session(),
                ("name", json!({ "type": "string", "description": "Name of the file, without folders" })),
                ("content", json!({ "type": "string", "description": "The file's text" })),
                (
                    "base64",
                    json!({ "type": "string", "description": "The file's bytes in base64, in place of `content`" }),
                ),
            ],
        ),
        tool(
            INTERRUPT,
            "Interrupt a session",
            "Raise KeyboardInterrupt in what a session is running. Its variables stay.",
            Effect::Changes,
            &["session_id"],
            vec![session()],
        ),
        tool(
            RESTART,
            "Restart a session",
            "Give a session a fresh interpreter. Its variables are lost, its files stay.",
            Effect::Destroys,
            &["session_id"],
            vec![session()],
        ),
        tool(
            FORK,
            "Fork a session",
            "Make a new session with the same variables and files. What one does from then on, the other does not see.",
            Effect::Changes,
            &["session_id"],
            vec![session()],
        ),
    ]
});

/// What a call does to what is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    None,
    Changes,
    Destroys,
}

pub(super) fn all() -> Vec<Tool> {
    TOOLS.clone()
}

fn tool(
    name: &'static str,
    title: &str,
    description: &'static str,
    effect: Effect,
    required: &[&str],
    properties: Vec<(&str, Value)>,
) -> Tool {
    let properties: JsonObject = properties.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": properties,
        "required": required,
    });
    let Value::Object(schema) = schema else { return Tool::new(name, description, Arc::new(JsonObject::new())) };
    let mut tool = Tool::new(name, description, Arc::new(schema));
    tool.title = Some(title.into());
    tool.annotations = Some(ToolAnnotations::from_raw(
        Some(title.into()),
        Some(effect == Effect::None),
        Some(effect == Effect::Destroys),
        Some(effect != Effect::Changes),
        Some(false),
    ));
    tool
}
