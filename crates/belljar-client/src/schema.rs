//! Checks values against JSON schemas, without ever fetching what a schema refers to.

use serde_json::Value;

/// Problems that an error message names; a large value can have any number.
const SHOWN: usize = 5;

/// Checks a value. A schema that is itself wrong lets everything pass: the server that wrote it must judge.
///
/// # Errors
///
/// What does not fit, one problem after another.
pub(crate) fn check(schema: &Value, value: &Value) -> Result<(), String> {
    let validator = match jsonschema::options().build(schema) {
        Ok(validator) => validator,
        Err(error) => {
            tracing::debug!(%error, "a schema cannot be used");
            return Ok(());
        }
    };
    let problems: Vec<String> = validator
        .iter_errors(value)
        .take(SHOWN)
        .map(|error| {
            let place = error.instance_path().to_string();
            if place.is_empty() { error.to_string() } else { format!("at {place}: {error}") }
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::check;
    use serde_json::json;

    #[test]
    fn problems_are_named_with_their_place() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n", "m"]});
        let problems = check(&schema, &json!({"n": "x"})).unwrap_err();
        assert!(problems.contains("/n") && problems.contains("\"m\""), "{problems}");
        check(&schema, &json!({"n": 1, "m": 2})).unwrap();
    }

    #[test]
    fn a_remote_reference_is_not_fetched() {
        let schema = json!({"$ref": "http://127.0.0.1:1/schema.json"});
        check(&schema, &json!(1)).unwrap();
    }
}
