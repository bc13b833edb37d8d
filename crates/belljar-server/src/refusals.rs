//! Calls that are refused because of a quota or for lack of memory, as results for models and their programs.

use belljar_sessions::{RefusalDetails, WorkRefusal};
use rmcp::model::CallToolResult;
use serde::Serialize;

use crate::handler::tool_error;
use crate::runner::RunError;

/// The structured content of a refused call of `run_python_code`.
#[derive(Debug, Serialize)]
struct Fields {
    status: &'static str,
    output: [String; 0],
    error: String,
    refusal: RefusalDetails,
}

/// Returns the result of a call of `run_python_code` whose code was not run.
pub(crate) fn not_run(error: &RunError) -> CallToolResult {
    match error {
        RunError::Refused(refusal) => refused(refusal),
        RunError::Busy(_) | RunError::Audit(_) | RunError::Backend(_) | RunError::Panicked => {
            tool_error(error.to_string())
        }
    }
}

/// Returns the result of a refused call of `run_python_code`.
pub(crate) fn refused(refusal: &WorkRefusal) -> CallToolResult {
    let error = refusal.to_string();
    let mut result = tool_error(error.clone());
    let fields = Fields { status: "refused", output: [], error, refusal: refusal.details() };
    result.structured_content = serde_json::to_value(fields).ok();
    result
}
