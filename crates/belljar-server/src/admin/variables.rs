//! The variables of a session.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use belljar_sessions::SessionActivity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::error::AdminError;

/// The program that lists the variables.
const PROGRAM: &str = include_str!("guest/variables.py");
/// The maximum length of the list, in bytes, and of its texts, in characters.
const MAX_LIST: usize = 1 << 20;
const MAX_TEXT: usize = 400;
const MAX_VARIABLES: usize = 500;

/// A variable, as the code of the session describes it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct VariableView {
    name: String,
    /// The type's name
    #[serde(rename = "type")]
    kind: String,
    /// The bytes of the object itself, or of its data if it is an array
    size: Option<u64>,
    /// The beginning of its representation, or its shape
    #[serde(default)]
    value: String,
}

/// The variables of a session.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct Variables {
    variables: Vec<VariableView>,
    /// The number of further variables
    #[serde(default)]
    omitted: u64,
}

/// Answers `GET /sessions/{handle}/variables`. A session that sleeps is not woken for that, and one that runs a cell is
/// not waited for.
pub(super) async fn list(
    State(admin): State<Admin>,
    Path(handle): Path<String>,
) -> Result<Json<Variables>, AdminError> {
    if matches!(admin.find(&handle)?.activity, SessionActivity::Asleep | SessionActivity::Away) {
        return Err(AdminError::new(StatusCode::CONFLICT, "the session sleeps; its next cell wakes it"));
    }
    let (tools, id) = admin.open_idle(&handle).await?;
    // JSON's strings are also Python's. An expression, so that the session gets no variables of it.
    let program = serde_json::Value::from(PROGRAM);
    let expression = format!(
        "(lambda scope: (__import__('builtins').exec({program}, scope), scope['listing'](globals()))[1])\
         ({{'__name__': 'variables'}})"
    );
    let text = tools.sessions.evaluate(&id, expression).await?;
    let unreadable = || AdminError::new(StatusCode::BAD_GATEWAY, "the session did not list its variables");
    let text = text.filter(|text| text.len() <= MAX_LIST).ok_or_else(unreadable)?;
    let mut listed: Variables = serde_json::from_str(&text).map_err(|_| unreadable())?;
    listed.variables.truncate(MAX_VARIABLES);
    for variable in &mut listed.variables {
        for text in [&mut variable.name, &mut variable.kind, &mut variable.value] {
            if let Some((end, _)) = text.char_indices().nth(MAX_TEXT) {
                text.truncate(end);
            }
        }
    }
    Ok(Json(listed))
}
