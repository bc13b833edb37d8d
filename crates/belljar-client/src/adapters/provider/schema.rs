//! Schemas in the form that providers accept: references are replaced by their targets, and what a provider rejects is
//! removed or rewritten. The server, and the runner, check arguments against the original schema.

use serde_json::{Map, Value, json};

/// The maximum depth of a converted schema, which also cuts recursive references.
const MAX_DEPTH: usize = 32;

/// The maximum number of subschemas: references may otherwise multiply a small schema to any size.
const MAX_SUBSCHEMAS: usize = 5_000;

/// Keywords that describe the document and not the value, or that only references need.
const DOCUMENT_KEYWORDS: [&str; 10] = [
    "$schema",
    "$id",
    "id",
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$vocabulary",
    "$comment",
    "$defs",
    "definitions",
];

/// The keywords whose value is a schema.
const SCHEMA: [&str; 10] = [
    "items",
    "contains",
    "additionalProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
];

/// The keywords whose value is a list of schemas.
const SCHEMA_LISTS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];

/// The keywords whose value is an object of schemas.
const SCHEMA_MAPS: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];

/// Returns the schema of a tool's arguments for OpenAI and Anthropic: JSON Schema of 2020-12 without references, whose
/// root is an object without combinators, which both reject there.
pub(in crate::adapters) fn json_schema(schema: &Value) -> Value {
    let mut root = as_object(Inliner::new(schema).root());
    flatten_root(&mut root);
    root.insert("type".to_owned(), json!("object"));
    root.entry("properties").or_insert_with(|| json!({}));
    Value::Object(root)
}

/// Returns the schema of a tool's arguments for Gemini: the subset of OpenAPI 3.0 that `parameters` accepts. Returns
/// `None` for a tool without arguments, because Gemini rejects an object without properties.
pub(super) fn gemini_schema(schema: &Value) -> Option<Value> {
    let root = json_schema(schema);
    let has_properties = root["properties"].as_object().is_some_and(|properties| !properties.is_empty());
    has_properties.then(|| open_api(&root))
}

fn as_object(schema: Value) -> Map<String, Value> {
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}

/// Replaces references by their targets.
struct Inliner<'a> {
    document: &'a Value,
    /// The references that are being replaced.
    open: Vec<String>,
    subschemas: usize,
}

impl<'a> Inliner<'a> {
    fn new(document: &'a Value) -> Self {
        Self { document, open: Vec::new(), subschemas: 0 }
    }

    fn root(&mut self) -> Value {
        let document = self.document;
        self.schema(document, 0)
    }

    fn schema(&mut self, schema: &Value, depth: usize) -> Value {
        self.subschemas += 1;
        // `true` accepts everything; `false` is rare and not accepted by all providers.
        let Value::Object(fields) = schema else { return json!({}) };
        if depth >= MAX_DEPTH || self.subschemas > MAX_SUBSCHEMAS {
            return shallow(fields);
        }
        match fields.get("$ref").and_then(Value::as_str) {
            Some(reference) => self.reference(reference, fields, depth),
            None => Value::Object(self.fields(fields, depth)),
        }
    }

    /// Merges the target of a reference with the keywords next to it, which take precedence.
    fn reference(&mut self, reference: &str, fields: &Map<String, Value>, depth: usize) -> Value {
        let siblings = self.fields(fields, depth);
        let document = self.document;
        let pointer = reference.strip_prefix('#').map(decoded);
        let target = pointer.as_deref().and_then(|pointer| document.pointer(pointer));
        let mut merged = match target {
            Some(Value::Object(target)) if self.open.iter().any(|open| open == reference) => as_object(shallow(target)),
            Some(target) => {
                self.open.push(reference.to_owned());
                let inlined = self.schema(target, depth + 1);
                self.open.pop();
                as_object(inlined)
            }
            None => Map::new(),
        };
        merged.extend(siblings);
        Value::Object(merged)
    }

    fn fields(&mut self, fields: &Map<String, Value>, depth: usize) -> Map<String, Value> {
        let mut converted = Map::new();
        for (key, value) in fields {
            let key = key.as_str();
            if key == "$ref" || DOCUMENT_KEYWORDS.contains(&key) {
                continue;
            }
            let value = match value {
                Value::Array(parts) if key == "items" => {
                    // The form of older drafts.
                    let parts = parts.iter().map(|part| self.schema(part, depth + 1)).collect();
                    converted.insert("prefixItems".to_owned(), parts);
                    continue;
                }
                // In older drafts, these are marks of `minimum` and `maximum`.
                Value::Bool(is_exclusive) if key == "exclusiveMinimum" || key == "exclusiveMaximum" => {
                    let bound = if key == "exclusiveMinimum" { "minimum" } else { "maximum" };
                    if let Some(value) = fields.get(bound).filter(|_| *is_exclusive) {
                        converted.insert(key.to_owned(), value.clone());
                    }
                    continue;
                }
                Value::Bool(_) if key == "additionalProperties" || key == "unevaluatedProperties" => value.clone(),
                value if SCHEMA.contains(&key) => self.schema(value, depth + 1),
                Value::Array(parts) if SCHEMA_LISTS.contains(&key) => {
                    parts.iter().map(|part| self.schema(part, depth + 1)).collect()
                }
                Value::Object(named) if SCHEMA_MAPS.contains(&key) => {
                    let named = named.iter().map(|(name, part)| (name.clone(), self.schema(part, depth + 1)));
                    Value::Object(named.collect())
                }
                value => value.clone(),
            };
            converted.insert(key.to_owned(), value);
        }
        let is_array = converted.get("type").is_some_and(|kind| kind == "array");
        if is_array && !converted.contains_key("items") && !converted.contains_key("prefixItems") {
            converted.insert("items".to_owned(), json!({}));
        }
        converted
    }
}

/// Returns the keywords of a schema that have no subschemas, where a recursion is cut.
fn shallow(fields: &Map<String, Value>) -> Value {
    let kept = fields.iter().filter(|(key, _)| ["type", "title", "description", "enum"].contains(&key.as_str()));
    let mut kept: Map<String, Value> = kept.map(|(key, value)| (key.clone(), value.clone())).collect();
    if kept.get("type").is_some_and(|kind| kind == "array") {
        kept.insert("items".to_owned(), json!({}));
    }
    Value::Object(kept)
}

/// Decodes the percent-encoding of a JSON pointer in a URI.
fn decoded(pointer: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), pointer.as_bytes());
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Merges the combinators of the root into one object: of `allOf` all properties are required as in each part, of
/// `anyOf` and `oneOf` only those that every alternative requires.
fn flatten_root(root: &mut Map<String, Value>) {
    for key in ["allOf", "anyOf", "oneOf"] {
        let Some(Value::Array(parts)) = root.shift_remove(key) else { continue };
        let mut parts: Vec<Map<String, Value>> = parts.into_iter().map(as_object).collect();
        parts.iter_mut().for_each(flatten_root);
        let required: Vec<Vec<Value>> = parts.iter().map(required).collect();
        for part in parts {
            merge_properties(root, part);
        }
        let mut all = self::required(root);
        for name in required.iter().flatten() {
            let is_required = key == "allOf" || required.iter().all(|part| part.contains(name));
            if is_required && !all.contains(name) {
                all.push(name.clone());
            }
        }
        if !all.is_empty() {
            root.insert("required".to_owned(), Value::Array(all));
        }
    }
    for key in ["not", "if", "then", "else", "enum", "const"] {
        root.shift_remove(key);
    }
}

fn required(schema: &Map<String, Value>) -> Vec<Value> {
    schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default()
}

/// Adds the properties and the descriptions of a part. A property with two schemas accepts both.
fn merge_properties(root: &mut Map<String, Value>, mut part: Map<String, Value>) {
    let Some(Value::Object(added)) = part.shift_remove("properties") else { return };
    let properties = root.entry("properties").or_insert_with(|| json!({}));
    let Value::Object(properties) = properties else { return };
    for (name, schema) in added {
        match properties.get_mut(&name) {
            Some(known) if *known == schema => {}
            Some(known) => match known.get_mut("anyOf").and_then(Value::as_array_mut) {
                Some(alternatives) => {
                    if !alternatives.contains(&schema) {
                        alternatives.push(schema);
                    }
                }
                None => *known = json!({"anyOf": [known.clone(), schema]}),
            },
            None => {
                properties.insert(name, schema);
            }
        }
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
fn open_api(schema: &Value) -> Value {
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
        let named: Vec<Value> = kinds.iter().filter(|kind| *kind != "null").cloned().collect();
        is_nullable |= named.len() < kinds.len();
        if named.len() > 1 {
            let alternative = |kind: &Value| {
                let mut alternative = fields.clone();
                alternative.shift_remove("description");
                alternative.insert("type".to_owned(), kind.clone());
                Value::Object(alternative)
            };
            return any_of(&fields, &named.iter().map(alternative).collect::<Vec<_>>(), is_nullable);
        }
        fields.insert("type".to_owned(), named.first().cloned().unwrap_or_else(|| json!("string")));
    }
    let mut converted = kept_keywords(&fields);
    if is_nullable {
        converted.insert("nullable".to_owned(), json!(true));
    }
    Value::Object(converted)
}

/// Returns alternatives. Gemini does not accept other keywords next to them, so that the description moves into each.
fn any_of(fields: &Map<String, Value>, alternatives: &[Value], is_nullable: bool) -> Value {
    let alternatives = alternatives.iter().map(|alternative| {
        let mut alternative = as_object(open_api(alternative));
        if let Some(description) = fields.get("description") {
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
        all.extend(required(&part).into_iter().filter(|name| !all.contains(name)).collect::<Vec<_>>());
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
            "properties" => {
                let Value::Object(named) = value else { continue };
                if !named.is_empty() {
                    let named = named.iter().map(|(name, part)| (name.clone(), open_api(part)));
                    kept.insert("properties".to_owned(), Value::Object(named.collect()));
                }
            }
            "items" => {
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
    use super::*;

    fn properties(schema: Value) -> Value {
        json_schema(&schema)["properties"].clone()
    }

    #[test]
    fn references_are_replaced_and_their_siblings_kept() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "b": {"$ref": "#/$defs/Point", "description": "the end"},
                "a": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
                "c": {"$ref": "#/properties/a"},
                "d": {"$ref": "https://example.org/schema", "description": "remote"},
                "e": {"$ref": "#/$defs/with%20space~1slash"},
            },
            "$defs": {
                "Point": {"type": "object", "description": "a point", "properties": {"x": {"type": "number"}}},
                "with space/slash": {"type": "string"},
            },
        });
        let point = |description: &str| json!({"type": "object", "description": description, "properties": {"x": {"type": "number"}}});
        let array = json!({"type": "array", "items": point("a point")});
        let expected = json!({
            "b": point("the end"), "a": array, "c": array, "d": {"description": "remote"}, "e": {"type": "string"},
        });
        let converted = json_schema(&schema);
        assert_eq!(converted, json!({"type": "object", "properties": expected}));
        let order: Vec<&String> = converted["properties"].as_object().unwrap().keys().collect();
        assert_eq!(order, ["b", "a", "c", "d", "e"]);
    }

    #[test]
    fn recursive_reference_is_cut() {
        let node = json!({"type": "object", "description": "a node",
            "properties": {"next": {"$ref": "#/$defs/Node"}, "of": {"$ref": "#"}}});
        let schema =
            json!({"type": "object", "properties": {"head": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}});
        let head = &properties(schema)["head"]["properties"];
        assert_eq!(head["next"], json!({"type": "object", "description": "a node"}));
        assert!(!head.to_string().contains("$ref"), "{head}");
    }

    #[test]
    fn multiplying_references_are_bounded() {
        let mut definitions = Map::from_iter([("d0".to_owned(), json!({"type": "string"}))]);
        for level in 1..30 {
            let one = json!({"$ref": format!("#/$defs/d{}", level - 1)});
            definitions.insert(format!("d{level}"), json!({"properties": {"a": one, "b": one, "c": one, "d": one}}));
        }
        let schema = json!({"type": "object", "properties": {"p": {"$ref": "#/$defs/d29"}}, "$defs": definitions});
        assert!(json_schema(&schema).to_string().len() < 1_000_000);
        let mut deep = json!({"type": "string"});
        for _ in 0..100 {
            deep = json!({"type": "array", "items": deep});
        }
        let converted = json_schema(&json!({"type": "object", "properties": {"p": deep}})).to_string();
        assert!(converted.matches("items").count() <= MAX_DEPTH, "{converted}");
    }

    #[test]
    fn older_drafts_become_2020_12() {
        let schema = json!({"type": "object", "properties": {
            "n": {"type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false},
            "pair": {"type": "array", "items": [{"type": "string"}, true]},
            "any": true,
            "list": {"type": "array"},
        }});
        let expected = json!({
            "n": {"type": "number", "minimum": 0, "exclusiveMinimum": 0, "maximum": 9},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}, {}]},
            "any": {},
            "list": {"type": "array", "items": {}},
        });
        assert_eq!(properties(schema), expected);
    }

    #[test]
    fn combinators_of_the_root_are_merged() {
        let by_id =
            json!({"properties": {"id": {"type": "integer"}, "all": {"type": "boolean"}}, "required": ["id", "all"]});
        let by_name =
            json!({"properties": {"id": {"type": "string"}, "name": {"type": "string"}}, "required": ["all"]});
        let schema = json!({"anyOf": [by_id, by_name], "allOf": [{"properties": {"z": {}}, "required": ["z"]}]});
        let expected = json!({
            "type": "object",
            "properties": {
                "z": {},
                "id": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "all": {"type": "boolean"},
                "name": {"type": "string"},
            },
            "required": ["z", "all"],
        });
        assert_eq!(json_schema(&schema), expected);
        for odd in [json!(true), json!(null), json!({"type": "string", "enum": ["a"]}), json!([])] {
            assert_eq!(json_schema(&odd)["type"], "object", "{odd}");
        }
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
