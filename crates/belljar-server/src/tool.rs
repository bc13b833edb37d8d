//! The definition of `run_python_code`: its name and schemas. Its description is made in `description`.

use std::sync::Arc;

use base64::Engine as _;
use rmcp::model::{Icon, JsonObject, Tool, ToolAnnotations};
use serde_json::json;

use crate::arguments::{self, RunPythonCode};

/// The tool's name.
pub(crate) const NAME: &str = "run_python_code";

/// Returns the tool's definition.
pub(crate) fn tool(description: String) -> Tool {
    let mut tool = Tool::new(NAME, description, arguments::schema::<RunPythonCode>());
    tool.title = Some("Run Python code".into());
    tool.output_schema = Some(output_schema());
    tool.icons = Some(icons());
    // Code changes nothing outside its interpreter, and the interpreter is discarded.
    tool.annotations = Some(ToolAnnotations::from_raw(
        Some("Run Python code".into()),
        Some(false),
        Some(false),
        Some(false),
        Some(false),
    ));
    tool
}

/// A picture of a snake in a bell jar, in SVG.
const ICON: &str = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none' stroke='#3776ab' \
     stroke-width='2' stroke-linecap='round'><path d='M5 20v-9a7 7 0 0 1 14 0v9M3 21h18M12 2v2'/>\
     <path d='M15 12c0-3-6-3-6 0s6 1 6 4-6 3-6 0' stroke='#c99700'/></svg>";

/// Returns the icons of the server and its tools.
pub(crate) fn icons() -> Vec<Icon> {
    let data = base64::engine::general_purpose::STANDARD.encode(ICON);
    vec![
        Icon::new(format!("data:image/svg+xml;base64,{data}"))
            .with_mime_type("image/svg+xml")
            .with_sizes(vec!["any".into()]),
    ]
}

fn output_schema() -> Arc<JsonObject> {
    object(json!({
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["success", "install-error", "run-error", "refused"]},
            "dependencies": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Packages that the code required",
            },
            "output": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Lines of standard output and standard error, in the order in which they were written",
            },
            "return_value": {"description": "The value of the last line, as JSON"},
            "error": {"type": "string", "description": "The error: a traceback, or the limit that was reached"},
            "refusal": {
                "type": "object",
                "description": "Why the call was refused: its status, the quota, and after how many seconds to try again",
            },
        },
        "required": ["status", "output"],
    }))
}

fn object(value: serde_json::Value) -> Arc<JsonObject> {
    Arc::new(match value {
        serde_json::Value::Object(object) => object,
        _ => JsonObject::new(),
    })
}
