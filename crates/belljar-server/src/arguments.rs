//! The tool's arguments, read with care: what is wrong with them is for the model to read and mend.

use std::time::Duration;

use belljar_packages::Requirement;
use rmcp::model::JsonObject;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// Longest code that is taken, in bytes.
const MAX_CODE: usize = 4 << 20;
/// Packages that one call may name.
const MAX_DEPENDENCIES: usize = 200;

/// What `run_python_code` is given.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    pub(crate) code: String,
    /// A JSON object.
    pub(crate) globals: Option<Box<RawValue>>,
    pub(crate) dependencies: Vec<Requirement>,
    pub(crate) timeout: Option<Duration>,
}

impl Arguments {
    /// Reads them; the error says which one is wrong, and how.
    pub(crate) fn read(arguments: Option<JsonObject>) -> Result<Self, String> {
        let mut arguments = arguments.unwrap_or_default();
        let code = match arguments.remove("python_code") {
            Some(Value::String(code)) if code.len() > MAX_CODE => {
                return Err(format!("python_code: it has {} bytes, and at most {MAX_CODE} are taken", code.len()));
            }
            Some(Value::String(code)) => code,
            Some(other) => return Err(wrong("python_code", "a string", &other)),
            None => return Err("python_code: it is missing; give the code to run as a string".into()),
        };
        let mut read = Self { code, ..Self::default() };
        match arguments.remove("global_variables") {
            None | Some(Value::Null) => {}
            Some(Value::Object(object)) if object.is_empty() => {}
            Some(object @ Value::Object(_)) => {
                read.globals = Some(to_raw_value(&object).map_err(|error| format!("global_variables: {error}"))?);
            }
            Some(other) => return Err(wrong("global_variables", "an object of names and values", &other)),
        }
        match arguments.remove("dependencies") {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) if items.len() > MAX_DEPENDENCIES => {
                return Err(format!(
                    "dependencies: {} are named, and at most {MAX_DEPENDENCIES} are taken",
                    items.len()
                ));
            }
            Some(Value::Array(items)) => {
                for item in items {
                    let Value::String(text) = item else {
                        return Err(wrong("dependencies", "a list of strings", &item));
                    };
                    read.dependencies
                        .push(Requirement::parse(&text).map_err(|error| format!("dependencies: {error}"))?);
                }
            }
            Some(other) => return Err(wrong("dependencies", "a list of strings", &other)),
        }
        match arguments.remove("timeout") {
            None | Some(Value::Null) => {}
            Some(value) => {
                let seconds = value.as_f64().filter(|seconds| *seconds > 0.0);
                let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                read.timeout = Some(timeout.ok_or_else(|| wrong("timeout", "a number of seconds above 0", &value))?);
            }
        }
        Ok(read)
    }
}

/// `global_variables: expected an object, got an array`.
pub(crate) fn wrong(name: &str, expected: &str, got: &Value) -> String {
    let got = match got {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "a boolean".into(),
        Value::Number(number) => format!("the number {number}"),
        Value::String(_) => "a string".into(),
        Value::Array(_) => "an array".into(),
        Value::Object(_) => "an object".into(),
    };
    format!("{name}: expected {expected}, got {got}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<Arguments, String> {
        Arguments::read(value.as_object().cloned())
    }

    #[test]
    fn what_is_wrong_is_said_with_its_name() {
        for (arguments, wanted) in [
            (json!({}), "python_code: it is missing"),
            (json!({"python_code": 1}), "python_code: expected a string, got the number 1"),
            (
                json!({"python_code": "1", "global_variables": [1]}),
                "global_variables: expected an object of names and values, got an array",
            ),
            (
                json!({"python_code": "1", "dependencies": "rich"}),
                "dependencies: expected a list of strings, got a string",
            ),
            (
                json!({"python_code": "1", "dependencies": [1]}),
                "dependencies: expected a list of strings, got the number 1",
            ),
            (json!({"python_code": "1", "dependencies": ["x @ https://example.org/x.whl"]}), "dependencies: `x @"),
            (
                json!({"python_code": "1", "timeout": 0}),
                "timeout: expected a number of seconds above 0, got the number 0",
            ),
            (
                json!({"python_code": "1", "timeout": "1"}),
                "timeout: expected a number of seconds above 0, got a string",
            ),
        ] {
            let error = read(arguments).unwrap_err();
            assert!(error.starts_with(wanted), "{error}");
        }
    }

    #[test]
    fn numbers_among_the_globals_stay_what_they_are() {
        let text =
            r#"{"python_code": "x", "global_variables": {"a": 1.0, "b": 12345678901234567890, "c": 1}, "nope": 1}"#;
        let read = read(serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!(read.globals.unwrap().get(), r#"{"a":1.0,"b":12345678901234567890,"c":1}"#);
    }
}
