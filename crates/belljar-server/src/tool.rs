//! The tool as clients see it: its name, what it is for, its arguments and its result.

use std::sync::{Arc, LazyLock};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::json;

/// The tool's name.
pub(crate) const NAME: &str = "run_python_code";

const DESCRIPTION: &str = "\
Run Python code and get its output (stdout and stderr), and the value of its last line or the error that it raised.

Each call runs in a new, isolated interpreter: no variables or files are kept between calls. The value of the last line \
is returned when that is an expression. Code may use `await` at the top level.

Packages that the code imports are installed. To name others or their versions, begin the code with a PEP 723 block:
# /// script
# dependencies = [\"pydantic\", \"email-validator\"]
# ///";

static TOOL: LazyLock<Tool> = LazyLock::new(|| {
    let mut tool = Tool::new(NAME, DESCRIPTION, input_schema());
    tool.title = Some("Run Python code".into());
    tool.output_schema = Some(output_schema());
    // Nothing outside of the interpreter changes, and nothing of it is kept.
    tool.annotations = Some(ToolAnnotations::from_raw(
        Some("Run Python code".into()),
        Some(false),
        Some(false),
        Some(false),
        Some(false),
    ));
    tool
});

/// The tool's definition.
pub(crate) fn tool() -> Tool {
    TOOL.clone()
}

fn input_schema() -> Arc<JsonObject> {
    object(json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "python_code": {"type": "string", "description": "Python code to run"},
            "global_variables": {
                "type": "object",
                "additionalProperties": {},
                "default": {},
                "description": "Map of global variables in context when the code is executed",
            },
            "dependencies": {
                "type": "array",
                "items": {"type": "string"},
                "default": [],
                "description": "Packages to install beside those that the code imports, such as \"rich>=13\"",
            },
            "timeout": {
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "Seconds after which the code is ended; the server's own limit holds as well",
            },
        },
        "required": ["python_code"],
    }))
}

fn output_schema() -> Arc<JsonObject> {
    object(json!({
        "type": "object",
        "properties": {
            "status": {"type": "string", "enum": ["success", "install-error", "run-error"]},
            "dependencies": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Packages that the code asked for",
            },
            "output": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Lines of standard output and error, in the order in which they were written",
            },
            "return_value": {"description": "The value of the last line, as JSON"},
            "error": {"type": "string", "description": "What went wrong: a traceback, or the limit that was reached"},
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
