//! The arguments of the tools. One definition of each serves for reading a call's arguments and for the schema that
//! clients see. Errors are addressed to the model, which can correct its call.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::REPORT_KEY;
use belljar_core::Scope;
use belljar_core::kernel::{CellRequest, OneShotRequest};
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::decision::Decision;

/// The maximum length of code, in bytes.
pub(crate) const MAX_CODE: usize = 4 << 20;
/// The maximum number of packages that one call may name.
const MAX_DEPENDENCIES: usize = 200;

/// The reason why the arguments of a call are refused. The text names the argument, for the model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ArgumentError {
    /// An argument is missing, has the wrong type, or an invalid value.
    #[error("{}{reason}", prefix(path))]
    Invalid {
        /// The path of the argument: `dependencies[0]`; empty if it is missing.
        path: String,
        reason: serde_json::Error,
    },
    #[error("dependencies: {0} are more than the maximum of {MAX_DEPENDENCIES}")]
    TooManyDependencies(usize),
    #[error("base64: it cannot be decoded: {0}")]
    Base64(#[from] base64::DecodeError),
    #[error("content: it is missing; pass the file's text as `content`, or its bytes as `base64`")]
    NoContent,
    #[error("content: pass either `content` or `base64`, not both")]
    TwoContents,
    #[error("unknown tool `{0}`")]
    UnknownTool(String),
    #[error("no cell waits for this answer: it was answered already, or the cell has ended. Call again without it")]
    NoWaitingCell,
    #[error("arguments differ from the original call; repeat them unchanged")]
    OtherArguments,
    /// The request for a report in `_meta`, or the variables in it, have an unexpected form.
    #[error("_meta[{REPORT_KEY:?}]: {0}")]
    ReportRequest(serde_json::Error),
    #[error("variables: the sandbox of this server accepts none in cells")]
    NoCellVariables,
    #[error("variables: the sandbox of this server accepts JSON only")]
    EncodedVariables,
}

fn prefix(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!("{path}: ") }
}

/// The arguments of `run_python_code`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct RunPythonCode {
    /// Python code to run
    #[serde(deserialize_with = "code")]
    python_code: String,
    /// Map of global variables in context when the code is executed
    #[schemars(extend("default" = {}))]
    global_variables: Option<JsonObject>,
    /// Packages to install in addition to those that the code imports, such as "rich>=13"
    #[schemars(extend("default" = []))]
    dependencies: Option<Vec<String>>,
    /// Seconds after which the code is stopped; the server's own limit applies as well
    timeout: Option<Seconds>,
}

impl RunPythonCode {
    /// Returns the request for the backend.
    ///
    /// # Errors
    /// Fails if too many packages are named.
    pub(crate) fn into_request(self) -> Result<OneShotRequest, ArgumentError> {
        let dependencies = self.dependencies.unwrap_or_default();
        if dependencies.len() > MAX_DEPENDENCIES {
            return Err(ArgumentError::TooManyDependencies(dependencies.len()));
        }
        let globals = self.global_variables.filter(|variables| !variables.is_empty());
        let globals = globals.map(|variables| to_raw_value(&variables)).transpose();
        Ok(OneShotRequest {
            code: self.python_code,
            globals: globals.map_err(|reason| ArgumentError::Invalid { path: "global_variables".into(), reason })?,
            dependencies,
            timeout: self.timeout.map(|seconds| seconds.0),
            exchange: None,
            tools: false,
            network: None,
            owner: None,
            scope: Scope::default(),
        })
    }
}

/// The arguments of `execute_code`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ExecuteCode {
    /// Python code to run
    #[serde(deserialize_with = "code")]
    code: String,
    /// Session to run it in; empty or "0" for a new one
    #[serde(default, deserialize_with = "session_or_new")]
    #[schemars(with = "Option<String>", extend("default" = ""))]
    session_id: Option<String>,
    /// Seconds after which the code is interrupted; the server's own limit applies as well
    timeout: Option<Seconds>,
}

impl ExecuteCode {
    /// Returns the cell, and the session's ID if the call names one.
    pub(crate) fn into_cell(self) -> (CellRequest, Option<String>) {
        let timeout = self.timeout.map(|seconds| seconds.0);
        (CellRequest { code: self.code, timeout, ..CellRequest::default() }, self.session_id)
    }
}

/// The arguments of the tools that take a session and nothing else.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SessionOnly {
    /// The session
    pub(crate) session_id: String,
}

/// The arguments of `list_runs`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ListRuns {
    /// A session, whose runs alone are listed
    pub(crate) session_id: Option<String>,
}

/// The arguments of `resume_run`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ResumeRun {
    /// The run
    pub(crate) run_id: String,
}

/// The arguments of `answer_question`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct AnswerQuestion {
    /// The run
    pub(crate) run_id: String,
    /// The number of the question
    pub(crate) question: u64,
    /// The token of the question, which the result has for the panel alone
    pub(crate) token: String,
    /// The user's decision
    pub(crate) decision: Decision,
}

/// The arguments of `upload_file`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct UploadFile {
    /// The session
    pub(crate) session_id: String,
    /// Name of the file, without folders
    pub(crate) name: String,
    /// The file's text
    content: Option<String>,
    /// The file's bytes in base64, in place of `content`
    base64: Option<String>,
}

impl UploadFile {
    /// Returns the file's bytes.
    ///
    /// # Errors
    /// Fails if neither or both of text and base64 are given, or the base64 is invalid.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, ArgumentError> {
        match (&self.content, &self.base64) {
            (Some(text), None) => Ok(text.clone().into_bytes()),
            (None, Some(encoded)) => Ok(STANDARD.decode(encoded.trim())?),
            (None, None) => Err(ArgumentError::NoContent),
            (Some(_), Some(_)) => Err(ArgumentError::TwoContents),
        }
    }
}

/// A time in seconds above 0.
#[derive(Debug, Clone, Copy)]
struct Seconds(Duration);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        let duration = Duration::try_from_secs_f64(seconds).ok().filter(|duration| !duration.is_zero());
        duration
            .map(Self)
            .ok_or_else(|| D::Error::custom(format!("expected a number of seconds above 0, got {seconds}")))
    }
}

impl JsonSchema for Seconds {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Seconds".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "number", "exclusiveMinimum": 0 })
    }
}

fn code<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let code = String::deserialize(deserializer)?;
    if code.len() > MAX_CODE {
        return Err(D::Error::custom(format!("{} bytes are more than the maximum of {MAX_CODE}", code.len())));
    }
    Ok(code)
}

/// Reads the ID of a session; an empty one requests a new session.
fn session_or_new<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected a string")]
    enum Id {
        Text(String),
        // Models pass the number 0 although the schema describes the text "0".
        Number(u8),
    }
    match Option::<Id>::deserialize(deserializer)? {
        None | Some(Id::Number(0)) => Ok(None),
        Some(Id::Number(_)) => Err(D::Error::custom("expected a string")),
        Some(Id::Text(id)) => Ok(Some(id).filter(|id| !id.is_empty() && id != "0")),
    }
}

/// Reads the arguments of a call. Unknown ones are ignored.
///
/// # Errors
/// Fails if an argument is wrong or missing.
pub(crate) fn parse<T: DeserializeOwned>(arguments: Option<JsonObject>) -> Result<T, ArgumentError> {
    serde_path_to_error::deserialize(Value::Object(arguments.unwrap_or_default())).map_err(|error| {
        // The path of the whole is a dot.
        let path = Some(error.path().to_string()).filter(|path| path != ".").unwrap_or_default();
        ArgumentError::Invalid { path, reason: error.into_inner() }
    })
}

/// Returns the JSON schema of a tool's arguments.
pub(crate) fn schema<T: JsonSchema>() -> Arc<JsonObject> {
    let generator = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true).into_generator();
    let mut schema = generator.into_root_schema_for::<T>();
    let Some(object) = schema.as_object_mut() else { return Arc::default() };
    object.remove("title");
    object.remove("description");
    if let Some(Value::Object(properties)) = object.get_mut("properties") {
        for property in properties.values_mut() {
            // An optional argument may be null, which the schema does not offer.
            if let Some(Value::Array(types)) = property.get("type") {
                let named = types.iter().find(|name| *name != "null").cloned();
                property["type"] = named.unwrap_or(Value::Null);
            }
            if let Some(Value::Array(variants)) = property.get("anyOf").cloned() {
                let description = property.get("description").cloned();
                if let Some(variant) = variants.into_iter().find(|variant| variant["type"] != "null") {
                    *property = variant;
                    property["description"] = description.unwrap_or(Value::Null);
                }
            }
        }
    }
    Arc::new(object.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn run_python_code(arguments: Value) -> Result<OneShotRequest, ArgumentError> {
        parse::<RunPythonCode>(arguments.as_object().cloned())?.into_request()
    }

    #[test]
    fn error_names_the_wrong_argument() {
        for (arguments, wanted) in [
            (json!({}), "missing field `python_code`"),
            (json!({"python_code": 1}), "python_code: invalid type: integer `1`, expected a string"),
            (json!({"python_code": "1", "global_variables": [1]}), "global_variables: invalid type: sequence"),
            (json!({"python_code": "1", "dependencies": "rich"}), "dependencies: invalid type: string \"rich\""),
            (json!({"python_code": "1", "dependencies": [1]}), "dependencies[0]: invalid type: integer `1`"),
            (json!({"python_code": "1", "timeout": 0}), "timeout: expected a number of seconds above 0, got 0"),
            (json!({"python_code": "1", "timeout": "1"}), "timeout: invalid type: string \"1\""),
        ] {
            let error = run_python_code(arguments).unwrap_err().to_string();
            assert!(error.starts_with(wanted), "{error}");
        }
    }

    #[test]
    fn numbers_of_global_variables_keep_their_digits() {
        let text =
            r#"{"python_code": "x", "global_variables": {"a": 1.0, "b": 12345678901234567890, "c": 1}, "nope": 1}"#;
        let request = run_python_code(serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(request.globals.unwrap().get(), r#"{"a":1.0,"b":12345678901234567890,"c":1}"#);
    }

    #[test]
    fn null_empty_and_zero_request_a_new_session() {
        for id in [json!(null), json!(""), json!("0"), json!(0)] {
            let arguments = json!({ "code": "1", "session_id": id });
            let (_, session) = parse::<ExecuteCode>(arguments.as_object().cloned()).unwrap().into_cell();
            assert_eq!(session, None, "{id}");
        }
        let wrong = json!({ "code": "1", "session_id": 7 });
        assert!(parse::<ExecuteCode>(wrong.as_object().cloned()).unwrap_err().to_string().starts_with("session_id: "));
    }

    #[test]
    fn schema_is_what_clients_have_seen_so_far() {
        let wanted = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "python_code": {"type": "string", "description": "Python code to run"},
                "global_variables": {
                    "type": "object",
                    "additionalProperties": true,
                    "default": {},
                    "description": "Map of global variables in context when the code is executed",
                },
                "dependencies": {
                    "type": "array",
                    "items": {"type": "string"},
                    "default": [],
                    "description": "Packages to install in addition to those that the code imports, such as \"rich>=13\"",
                },
                "timeout": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "description": "Seconds after which the code is stopped; the server's own limit applies as well",
                },
            },
            "required": ["python_code"],
        });
        assert_eq!(Value::Object((*schema::<RunPythonCode>()).clone()), wanted);
        let execute = schema::<ExecuteCode>();
        assert_eq!(execute["properties"]["session_id"]["type"], "string");
        assert_eq!(
            (&execute["properties"]["session_id"]["default"], &execute["required"]),
            (&json!(""), &json!(["code"]))
        );
    }
}
