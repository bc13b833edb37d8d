//! Checks values against JSON schemas, without ever fetching what a schema refers to.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use rmcp::model::JsonObject;
use serde_json::Value;

/// Problems that an error message names; a large value can have any number.
const SHOWN: usize = 5;

/// A schema that is ready to check values. One that is itself wrong lets everything pass: the server that wrote it must judge.
pub(crate) struct Checker(Option<jsonschema::Validator>);

impl Checker {
    pub(crate) fn new(schema: &Value) -> Self {
        let validator = jsonschema::options()
            .build(schema)
            .inspect_err(|error| tracing::debug!(%error, "a schema cannot be used"))
            .ok();
        Self(validator)
    }

    /// Checks a value.
    ///
    /// # Errors
    ///
    /// What does not fit, one problem after another.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let Some(validator) = &self.0 else { return Ok(()) };
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
}

/// Checkers of tools' arguments. To make one takes longer than to use it, so they are kept until a tool's schema changes.
#[derive(Default)]
pub(crate) struct Checkers(Mutex<HashMap<String, OfSchema>>);

struct OfSchema {
    schema: Arc<JsonObject>,
    checker: Arc<Checker>,
}

impl Checkers {
    /// The checker of a tool with this schema.
    pub(crate) fn of(&self, tool: &str, schema: &Arc<JsonObject>) -> Arc<Checker> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = kept.get(tool).filter(|kept| Arc::ptr_eq(&kept.schema, schema)) {
            return kept.checker.clone();
        }
        let checker = Arc::new(Checker::new(&Value::Object((**schema).clone())));
        kept.insert(tool.to_owned(), OfSchema { schema: schema.clone(), checker: checker.clone() });
        checker
    }
}

#[cfg(test)]
mod tests {
    use super::{Checker, Checkers};
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn check(schema: &Value, value: &Value) -> Result<(), String> {
        Checker::new(schema).check(value)
    }

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

    #[test]
    fn a_checker_is_kept_until_the_schema_changes() {
        let schema = |kind: &str| Arc::new(json!({"type": kind}).as_object().unwrap().clone());
        let (checkers, first) = (Checkers::default(), schema("object"));
        let checker = checkers.of("t", &first);
        assert!(Arc::ptr_eq(&checker, &checkers.of("t", &first)));
        checkers.of("t", &schema("array")).check(&json!([])).unwrap();
        checker.check(&json!([])).unwrap_err();
    }
}
