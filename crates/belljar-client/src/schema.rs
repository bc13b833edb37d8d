//! Validates values against JSON schemas, without fetching remote references.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use rmcp::model::JsonObject;
use serde_json::Value;

/// The maximum number of problems in an error message; a large value can have any number.
#[cfg(feature = "validate")]
const MAX_PROBLEMS: usize = 5;

/// A compiled schema. An invalid schema accepts every value: checking is then left to the server that wrote it. Without
/// the feature `validate` every schema accepts every value.
#[cfg(feature = "validate")]
pub(crate) struct Validator(Option<jsonschema::Validator>);
#[cfg(not(feature = "validate"))]
pub(crate) struct Validator;

#[cfg(not(feature = "validate"))]
impl Validator {
    pub(crate) fn new(_: &Value) -> Self {
        Self
    }

    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the same signature as with the feature")]
    pub(crate) fn validate(&self, _: &Value) -> Result<(), InvalidValue> {
        Ok(())
    }
}

#[cfg(feature = "validate")]
impl Validator {
    pub(crate) fn new(schema: &Value) -> Self {
        let validator = jsonschema::options()
            .build(schema)
            .inspect_err(|error| tracing::debug!(%error, "ignoring an invalid schema"))
            .ok();
        Self(validator)
    }

    /// Validates a value.
    ///
    /// # Errors
    ///
    /// The problems, joined into one text.
    pub(crate) fn validate(&self, value: &Value) -> Result<(), InvalidValue> {
        let Some(validator) = &self.0 else { return Ok(()) };
        let problems: Vec<String> = validator
            .iter_errors(value)
            .take(MAX_PROBLEMS)
            .map(|error| {
                let place = error.instance_path().to_string();
                if place.is_empty() { error.to_string() } else { format!("at {place}: {error}") }
            })
            .collect();
        if problems.is_empty() { Ok(()) } else { Err(InvalidValue(problems)) }
    }
}

/// The problems of a value that does not match its schema.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub(crate) struct InvalidValue(Vec<String>);

/// A cache of the validators of tools' arguments. Compiling a schema takes longer than validating a value, so a
/// validator is kept until the tool's schema changes.
#[derive(Default)]
pub(crate) struct ValidatorCache(Mutex<HashMap<String, CachedValidator>>);

struct CachedValidator {
    schema: Arc<JsonObject>,
    validator: Arc<Validator>,
}

impl ValidatorCache {
    /// Returns the validator of a tool with this schema.
    pub(crate) fn get(&self, tool: &str, schema: &Arc<JsonObject>) -> Arc<Validator> {
        let mut cache = self.0.lock();
        if let Some(cached) = cache.get(tool).filter(|cached| Arc::ptr_eq(&cached.schema, schema)) {
            return cached.validator.clone();
        }
        let validator = Arc::new(Validator::new(&Value::Object((**schema).clone())));
        cache.insert(tool.to_owned(), CachedValidator { schema: schema.clone(), validator: validator.clone() });
        validator
    }
}

#[cfg(all(test, feature = "validate"))]
mod tests {
    use super::{InvalidValue, Validator, ValidatorCache};
    use serde_json::{Value, json};
    use std::sync::Arc;

    fn check(schema: &Value, value: &Value) -> Result<(), InvalidValue> {
        Validator::new(schema).validate(value)
    }

    #[test]
    fn problems_include_their_location() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n", "m"]});
        let problems = check(&schema, &json!({"n": "x"})).unwrap_err().to_string();
        assert!(problems.contains("/n") && problems.contains("\"m\""), "{problems}");
        check(&schema, &json!({"n": 1, "m": 2})).unwrap();
    }

    #[test]
    fn remote_reference_is_not_fetched() {
        let schema = json!({"$ref": "http://127.0.0.1:1/schema.json"});
        check(&schema, &json!(1)).unwrap();
    }

    #[test]
    fn validator_is_cached_until_the_schema_changes() {
        let schema = |kind: &str| Arc::new(json!({"type": kind}).as_object().unwrap().clone());
        let (validators, first) = (ValidatorCache::default(), schema("object"));
        let validator = validators.get("t", &first);
        assert!(Arc::ptr_eq(&validator, &validators.get("t", &first)));
        validators.get("t", &schema("array")).validate(&json!([])).unwrap();
        validator.validate(&json!([])).unwrap_err();
    }
}
