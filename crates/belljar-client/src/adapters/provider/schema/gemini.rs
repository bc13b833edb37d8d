//! Schemas in Gemini's subset of OpenAPI 3.0.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::inline::{SCHEMA, SCHEMA_LISTS, SCHEMA_MAPS, size};
use super::{as_object, flatten_root, merge_properties, required, texts};

/// The types of values but null.
const TYPES: [&str; 6] = ["string", "number", "integer", "boolean", "array", "object"];

/// The maximum size of a description that is repeated in each of several alternatives, in bytes.
const MAX_REPEATED: usize = 64 * 1024;

/// Returns whether a keyword is kept for values of this type. Each keyword with subschemas belongs to one type: if the
/// alternatives of several types repeated them, each level of a schema would multiply the ones below it.
fn applies(keyword: &str, kind: &str) -> bool {
    match keyword {
        "properties" | "required" => kind == "object",
        "items" | "prefixItems" => kind == "array",
        _ => !(SCHEMA.contains(&keyword) || SCHEMA_LISTS.contains(&keyword) || SCHEMA_MAPS.contains(&keyword)),
    }
}

/// The keywords of Gemini's schemas whose values are kept as they are.
const GEMINI_KEYWORDS: [&str; 12] = [
    "title",
    "description",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "nullable",
];

/// Converts a schema without references to Gemini's subset of OpenAPI 3.0.
pub(super) fn open_api(schema: &Value) -> Value {
    let Value::Object(fields) = schema else { return json!({}) };
    let mut fields = fields.clone();
    let mut is_nullable = false;
    if let Some(Value::Array(parts)) = fields.shift_remove("allOf") {
        merge_all(&mut fields, parts);
    }
    let alternatives = ["anyOf", "oneOf"].iter().find_map(|key| fields.shift_remove(*key));
    if let Some(Value::Array(mut alternatives)) = alternatives {
        let before = alternatives.len();
        alternatives.retain(|part| part.get("type").is_none_or(|kind| kind != "null"));
        is_nullable = alternatives.len() < before;
        if alternatives.len() > 1 && fields.contains_key("properties") {
            fields.insert("anyOf".to_owned(), Value::Array(std::mem::take(&mut alternatives)));
            flatten_root(&mut fields);
        } else if alternatives.len() > 1 {
            return any_of(&fields, &alternatives, is_nullable);
        }
        if let Some(Value::Object(only)) = alternatives.pop() {
            for (key, value) in only {
                fields.entry(key).or_insert(value);
            }
        }
    }
    if let Some(Value::Array(kinds)) = fields.get("type").cloned() {
        let mut named: Vec<&str> = Vec::new();
        for kind in texts(&kinds).filter(|kind| TYPES.contains(kind)) {
            if !named.contains(&kind) {
                named.push(kind);
            }
        }
        is_nullable |= kinds.iter().any(|kind| kind == "null");
        if named.len() > 1 {
            let alternative = |kind: &&str| {
                let kept = fields.iter().filter(|(key, _)| *key != "description" && applies(key, kind));
                let mut alternative: Map<String, Value> =
                    kept.map(|(key, value)| (key.clone(), value.clone())).collect();
                alternative.insert("type".to_owned(), json!(kind));
                Value::Object(alternative)
            };
            return any_of(&fields, &named.iter().map(alternative).collect::<Vec<_>>(), is_nullable);
        }
        fields.insert("type".to_owned(), json!(named.first().unwrap_or(&"string")));
    }
    let mut converted = kept_keywords(&fields);
    if is_nullable {
        converted.insert("nullable".to_owned(), json!(true));
    }
    Value::Object(converted)
}

/// Returns alternatives. Gemini does not accept other keywords next to them, so that the description moves into each.
fn any_of(fields: &Map<String, Value>, alternatives: &[Value], is_nullable: bool) -> Value {
    let description = fields.get("description");
    let description = description.filter(|text| size(text).saturating_mul(alternatives.len()) <= MAX_REPEATED);
    let alternatives = alternatives.iter().map(|alternative| {
        let mut alternative = as_object(open_api(alternative));
        if let Some(description) = description {
            alternative.entry("description").or_insert_with(|| description.clone());
        }
        if is_nullable {
            alternative.insert("nullable".to_owned(), json!(true));
        }
        Value::Object(alternative)
    });
    json!({"anyOf": alternatives.collect::<Vec<_>>()})
}

/// Merges the parts of `allOf`: their properties and requirements, and of other keywords the first.
fn merge_all(fields: &mut Map<String, Value>, parts: Vec<Value>) {
    for mut part in parts.into_iter().map(as_object) {
        if let Some(Value::Array(inner)) = part.shift_remove("allOf") {
            merge_all(&mut part, inner);
        }
        let mut all = required(fields);
        let mut seen: HashSet<String> = texts(&all).map(str::to_owned).collect();
        all.extend(texts(&required(&part)).filter(|name| seen.insert((*name).to_owned())).map(|name| json!(name)));
        part.shift_remove("required");
        if !all.is_empty() {
            fields.insert("required".to_owned(), Value::Array(all));
        }
        if let Some(properties) = part.shift_remove("properties") {
            merge_properties(fields, Map::from_iter([("properties".to_owned(), properties)]));
        }
        for (key, value) in part {
            fields.entry(key).or_insert(value);
        }
    }
}

fn kept_keywords(fields: &Map<String, Value>) -> Map<String, Value> {
    let mut kept = Map::new();
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or(match fields {
        fields if fields.contains_key("properties") => "object",
        fields if fields.contains_key("items") || fields.contains_key("prefixItems") => "array",
        _ => "string",
    });
    kept.insert("type".to_owned(), json!(kind));
    for (key, value) in fields {
        match key.as_str() {
            key if GEMINI_KEYWORDS.contains(&key) => {
                kept.insert(key.to_owned(), value.clone());
            }
            "format" if is_gemini_format(kind, value) => {
                kept.insert(key.clone(), value.clone());
            }
            "properties" if kind == "object" => {
                let Value::Object(named) = value else { continue };
                if !named.is_empty() {
                    let named = named.iter().map(|(name, part)| (name.clone(), open_api(part)));
                    kept.insert("properties".to_owned(), Value::Object(named.collect()));
                }
            }
            "items" if kind == "array" => {
                kept.insert("items".to_owned(), open_api(value));
            }
            "exclusiveMinimum" if value.is_number() => {
                kept.entry("minimum").or_insert_with(|| value.clone());
            }
            "exclusiveMaximum" if value.is_number() => {
                kept.entry("maximum").or_insert_with(|| value.clone());
            }
            _ => {}
        }
    }
    if let Some(values) = fields.get("enum").or_else(|| fields.get("const")) {
        keep_values(&mut kept, kind, values);
    }
    if kind == "array" && !kept.contains_key("items") {
        let parts = fields.get("prefixItems").and_then(Value::as_array).cloned().unwrap_or_default();
        let items = match parts.as_slice() {
            [first, rest @ ..] if rest.iter().all(|part| part == first) => open_api(first),
            [] => json!({"type": "string"}),
            parts => any_of(&Map::new(), parts, false),
        };
        kept.insert("items".to_owned(), items);
    }
    // Gemini rejects a requirement of a property that the schema does not define.
    if let Some(properties) = kept.get("properties") {
        let required: Vec<Value> = required(fields)
            .into_iter()
            .filter(|name| name.as_str().is_some_and(|name| properties.get(name).is_some()))
            .collect();
        if !required.is_empty() {
            kept.insert("required".to_owned(), Value::Array(required));
        }
    }
    kept
}

fn is_gemini_format(kind: &str, format: &Value) -> bool {
    let accepted: &[&str] = match kind {
        "string" => &["enum", "date-time"],
        "number" => &["float", "double"],
        "integer" => &["int32", "int64"],
        _ => &[],
    };
    format.as_str().is_some_and(|format| accepted.contains(&format))
}

/// Keeps the allowed values of strings. Gemini does not accept those of other types: the description lists them.
fn keep_values(kept: &mut Map<String, Value>, kind: &str, value: &Value) {
    let values = match value {
        Value::Array(values) => values.clone(),
        value => vec![value.clone()],
    };
    let values: Vec<Value> = values.into_iter().filter(|value| !value.is_null()).collect();
    if kind == "string" && values.iter().all(|value| value.as_str().is_some_and(|text| !text.is_empty())) {
        if !values.is_empty() {
            kept.insert("enum".to_owned(), Value::Array(values));
        }
        return;
    }
    let listed = values.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
    let before = kept.get("description").and_then(Value::as_str).map(|text| format!("{text} ")).unwrap_or_default();
    kept.insert("description".to_owned(), json!(format!("{before}One of: {listed}.")));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::gemini_schema;

    #[test]
    fn several_types_do_not_multiply_their_subschemas() {
        let both = json!({"type": ["array", "object"], "items": {"type": "number"},
            "properties": {"a": {"type": "string"}}, "required": ["a"]});
        let expected = json!({"anyOf": [
            {"type": "array", "items": {"type": "number"}},
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ]});
        let root = |schema: &Value| json!({"type": "object", "properties": {"p": schema}});
        assert_eq!(gemini_schema(&root(&both)).unwrap()["properties"]["p"], expected);
        let mut deep = json!({"type": "string"});
        for _ in 0..28 {
            deep = json!({"type": ["object", "array", "number", "object", "null"], "properties": {"a": deep}});
        }
        let converted = gemini_schema(&root(&deep)).unwrap().to_string();
        assert_eq!(converted.matches("anyOf").count(), 28);
    }

    #[test]
    fn gemini_gets_its_subset() {
        let schema = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "maybe": {"anyOf": [{"type": "integer", "format": "uint8"}, {"type": "null"}], "default": null, "title": "M"},
                "several": {"type": ["string", "number", "null"], "description": "either"},
                "kind": {"const": "a"},
                "level": {"type": "integer", "enum": [1, 2], "description": "The level."},
                "when": {"type": "string", "format": "date-time"},
                "who": {"type": "string", "format": "email", "examples": ["a@b"]},
                "list": {"type": "array", "uniqueItems": true},
                "free": {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
                "one": {"type": "object", "properties": {"u": {"type": "string"}, "v": {"type": "string"}},
                    "anyOf": [{"required": ["u"]}, {"required": ["v"]}]},
                "all": {"allOf": [{"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x", "y"]}]},
            },
            "required": ["maybe", "gone"],
        });
        let expected = json!({
            "type": "object",
            "properties": {
                "maybe": {"type": "integer", "title": "M", "nullable": true},
                "several": {"anyOf": [
                    {"type": "string", "description": "either", "nullable": true},
                    {"type": "number", "description": "either", "nullable": true},
                ]},
                "kind": {"type": "string", "enum": ["a"]},
                "level": {"type": "integer", "description": "The level. One of: 1, 2."},
                "when": {"type": "string", "format": "date-time"},
                "who": {"type": "string"},
                "list": {"type": "array", "items": {"type": "string"}},
                "free": {"type": "object"},
                "one": {"type": "object", "properties": {"u": {"type": "string"}, "v": {"type": "string"}}},
                "all": {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
            },
            "required": ["maybe"],
        });
        assert_eq!(gemini_schema(&schema), Some(expected));
        assert_eq!(gemini_schema(&json!({"type": "object"})), None);
    }
}
