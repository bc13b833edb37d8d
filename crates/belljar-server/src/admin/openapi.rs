//! The OpenAPI document, from the table of operations and the types of bodies and answers.

use axum::Json;
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::API_PATH;
use super::error::Problem;
use super::operations::{self, AnswerKind, Operation};

/// Answers `GET /openapi.json`.
pub(super) async fn answer() -> Json<Value> {
    Json(document())
}

/// Returns the schema of an object of any form.
pub(super) fn schema_of_any(_: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "object" })
}

/// Returns the document.
fn document() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut generator = settings.into_generator();
    let mut paths = Map::new();
    for operation in operations::all() {
        let item = paths.entry(operation.path).or_insert_with(|| json!({}));
        if let Some(item) = item.as_object_mut() {
            item.insert(operation.method.to_owned(), operation_object(&operation, &mut generator));
        }
    }
    let problem = generator.subschema_for::<Problem>();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Belljar admin API",
            "version": "1",
            "description": "Operators see all sessions of a server, and act in place of their clients.",
        },
        "servers": [{ "url": API_PATH }],
        "security": [{ "operator": [] }],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "responses": { "Problem": {
                "description": "The request was not carried out",
                "content": { "application/json": { "schema": problem } },
            } },
            "securitySchemes": { "operator": {
                "type": "http", "scheme": "bearer",
                "description": "A token of --admin-token-file, or an OAuth token with the scope of --admin-scope",
            } },
        },
    })
}

/// Returns the object of an operation in the document, as OpenAPI names it.
fn operation_object(operation: &Operation, generator: &mut SchemaGenerator) -> Value {
    let in_path = operation.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = in_path.map(|name| {
        let kind = if name == "handle" { "string" } else { "integer" };
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": kind } })
    });
    let in_query = operation.query.iter().map(|(name, kind, meaning)| {
        let required = operation.id == "readFile";
        json!({ "name": name, "in": "query", "required": required, "description": meaning, "schema": { "type": kind } })
    });
    let parameters: Vec<Value> = in_path.chain(in_query).collect();
    let (status, mut success) = match &operation.answer {
        AnswerKind::Json(status, schema) => {
            (*status, json!({ "content": { "application/json": { "schema": schema(generator) } } }))
        }
        AnswerKind::Events(schema) => {
            (200, json!({ "content": { "text/event-stream": { "schema": schema(generator) } } }))
        }
        AnswerKind::Bytes => (200, json!({ "content": { "application/octet-stream": {} } })),
        AnswerKind::Empty | AnswerKind::EmptyOrAccepted(_) => (204, json!({})),
    };
    success["description"] = operation.summary.into();
    let mut described = json!({
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": { status.to_string(): success, "default": { "$ref": "#/components/responses/Problem" } },
    });
    if let AnswerKind::EmptyOrAccepted(reason) = operation.answer {
        described["responses"]["202"] = json!({ "description": reason });
    }
    if let Some(schema) = operation.body {
        described["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema(generator) } } });
    }
    described
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn document_describes_every_operation_once() {
        let document = document();
        let mut ids = BTreeSet::new();
        for operation in operations::all() {
            let described = &document["paths"][operation.path][operation.method];
            assert_eq!(described["operationId"], operation.id);
            assert!(ids.insert(operation.id), "{}", operation.id);
        }
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert!(schemas.contains_key("CellView") && schemas.contains_key("SessionView"), "{schemas:?}");
    }

    #[test]
    fn end_of_a_session_may_be_accepted_only() {
        let responses = document()["paths"]["/sessions/{handle}"]["delete"]["responses"].clone();
        for status in ["202", "204", "default"] {
            assert!(responses[status].is_object(), "{status}: {responses}");
        }
    }

    #[test]
    fn references_lead_to_definitions() {
        fn check(value: &Value, document: &Value) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(reference)) = fields.get("$ref") {
                        let target = document.pointer(reference.trim_start_matches('#'));
                        assert!(target.is_some(), "{reference}");
                    }
                    fields.values().for_each(|inner| check(inner, document));
                }
                Value::Array(items) => items.iter().for_each(|inner| check(inner, document)),
                _ => {}
            }
        }
        let document = document();
        check(&document, &document);
    }
}
