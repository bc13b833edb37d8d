//! Schemas in the form that providers accept: references are replaced by their targets, and what a provider rejects is
//! removed or rewritten. The server, and the runner, check arguments against the original schema.

mod gemini;
mod inline;

use std::collections::HashSet;

use serde_json::{Map, Value, json};

/// Returns the schema of a tool's arguments for OpenAI and Anthropic: JSON Schema of 2020-12 without references, whose
/// root is an object without combinators, which both reject there.
pub(in crate::adapters) fn json_schema(schema: &Value) -> Value {
    let mut root = as_object(inline::inlined(schema));
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
    has_properties.then(|| gemini::open_api(&root))
}

fn as_object(schema: Value) -> Map<String, Value> {
    match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
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
        let by_part: Vec<HashSet<&str>> = required.iter().map(|part| texts(part).collect()).collect();
        let mut all = self::required(root);
        let mut seen: HashSet<String> = texts(&all).map(str::to_owned).collect();
        for name in required.iter().flat_map(|part| texts(part)) {
            let is_new = seen.insert(name.to_owned());
            if is_new && (key == "allOf" || by_part.iter().all(|part| part.contains(name))) {
                all.push(json!(name));
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

/// Returns the texts of a list.
fn texts(values: &[Value]) -> impl Iterator<Item = &str> {
    values.iter().filter_map(Value::as_str)
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

#[cfg(test)]
mod tests {
    use super::inline::{MAX_COPIED, MAX_DEPTH};
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
    fn copies_of_large_targets_are_bounded() {
        let values: Vec<String> = (0..20_000).map(|number| format!("value {number}")).collect();
        let uses: Map<String, Value> =
            (0..4_000).map(|number| (format!("p{number}"), json!({"$ref": "#/$defs/Large"}))).collect();
        let schema =
            json!({"type": "object", "properties": uses, "$defs": {"Large": {"type": "string", "enum": values}}});
        let converted = json_schema(&schema);
        assert_eq!(converted["properties"]["p0"]["enum"].as_array().unwrap().len(), values.len());
        assert!(converted.to_string().len() < MAX_COPIED, "{} bytes", converted.to_string().len());
        // A property of the document itself is kept whole.
        let alone = json!({"type": "object", "properties": {"p": {"enum": values}}});
        assert_eq!(json_schema(&alone), alone);
    }

    #[test]
    fn requirements_of_many_properties_are_merged_in_order() {
        let names: Vec<String> = (0..30_000).map(|number| format!("p{number}")).collect();
        let part = json!({"required": names});
        for key in ["anyOf", "allOf"] {
            let schema = json!({"required": ["p5"], key: [part, part]});
            let converted = json_schema(&schema);
            let required = converted["required"].as_array().unwrap();
            assert_eq!((required.len(), &required[0], &required[1]), (names.len(), &json!("p5"), &json!("p0")));
        }
        let nested = json!({"properties": {"p": {"properties": {"p0": {}}, "allOf": [part, part]}}});
        assert_eq!(gemini_schema(&nested).unwrap()["properties"]["p"]["required"], json!(["p0"]));
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
}
