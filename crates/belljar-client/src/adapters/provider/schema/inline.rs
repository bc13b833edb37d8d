//! References in schemas, replaced by their targets within bounds: schemas are written by servers, which are untrusted.

use serde_json::{Map, Value, json};

use super::as_object;

/// The maximum depth of a converted schema, which also cuts recursive references.
pub(super) const MAX_DEPTH: usize = 32;

/// The maximum number of subschemas: references may otherwise multiply a small schema to any size.
const MAX_SUBSCHEMAS: usize = 5_000;

/// The maximum size of the names and values that references copy, in bytes: a small schema could otherwise refer to a
/// large one thousands of times.
pub(super) const MAX_COPIED: usize = 4 * 1024 * 1024;

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
pub(super) const SCHEMA: [&str; 10] = [
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
pub(super) const SCHEMA_LISTS: [&str; 4] = ["anyOf", "oneOf", "allOf", "prefixItems"];

/// The keywords whose value is an object of schemas.
pub(super) const SCHEMA_MAPS: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];

/// Returns a schema without references, in the form of 2020-12.
pub(super) fn inlined(document: &Value) -> Value {
    Inliner::new(document).root()
}

/// Replaces references by their targets.
struct Inliner<'a> {
    document: &'a Value,
    /// The references that are being replaced.
    open: Vec<String>,
    subschemas: usize,
    /// The size of names and values that were copied from targets of references, in bytes.
    copied: usize,
}

impl<'a> Inliner<'a> {
    fn new(document: &'a Value) -> Self {
        Self { document, open: Vec::new(), subschemas: 0, copied: 0 }
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
            return self.shallow(fields);
        }
        match fields.get("$ref").and_then(Value::as_str) {
            Some(reference) => self.reference(reference, fields, depth),
            None => Value::Object(self.fields(fields, depth)),
        }
    }

    /// Merges the target of a reference with the keywords next to it, which take precedence.
    fn reference(&mut self, reference: &str, fields: &Map<String, Value>, depth: usize) -> Value {
        let siblings = self.fields(fields, depth);
        if !self.may_copy(reference.len()) {
            return Value::Object(siblings);
        }
        let document = self.document;
        let pointer = reference.strip_prefix('#').map(decoded);
        let target = pointer.as_deref().and_then(|pointer| document.pointer(pointer));
        let mut merged = match target {
            Some(Value::Object(target)) if self.open.iter().any(|open| open == reference) => {
                as_object(self.shallow(target))
            }
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
            if !self.may_copy(key.len()) {
                break;
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
                    if let Some(value) = fields.get(bound).filter(|value| *is_exclusive && value.is_number()) {
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
                    let mut schemas = Map::new();
                    for (name, part) in named {
                        if !self.may_copy(name.len()) {
                            break;
                        }
                        schemas.insert(name.clone(), self.schema(part, depth + 1));
                    }
                    Value::Object(schemas)
                }
                value if self.may_copy(size(value)) => value.clone(),
                _ => break,
            };
            converted.insert(key.to_owned(), value);
        }
        let is_array = converted.get("type").is_some_and(|kind| kind == "array");
        if is_array && !converted.contains_key("items") && !converted.contains_key("prefixItems") {
            converted.insert("items".to_owned(), json!({}));
        }
        converted
    }

    /// Returns the keywords of a schema that have no subschemas, where a recursion is cut.
    fn shallow(&mut self, fields: &Map<String, Value>) -> Value {
        let mut kept = Map::new();
        for key in ["type", "title", "description", "enum"] {
            if let Some(value) = fields.get(key)
                && self.may_copy(size(value))
            {
                kept.insert(key.to_owned(), value.clone());
            }
        }
        if kept.get("type").is_some_and(|kind| kind == "array") {
            kept.insert("items".to_owned(), json!({}));
        }
        Value::Object(kept)
    }

    /// Counts bytes that are to be copied. Returns false if the target of a reference would be copied so often that the
    /// limit is exceeded; what is outside of targets is copied once.
    fn may_copy(&mut self, bytes: usize) -> bool {
        if !self.open.is_empty() {
            self.copied = self.copied.saturating_add(bytes);
        }
        self.copied <= MAX_COPIED || self.open.is_empty()
    }
}

/// Returns the approximate size of a value in bytes.
pub(super) fn size(value: &Value) -> usize {
    let own = size_of::<Value>();
    match value {
        Value::String(text) => own + text.len(),
        Value::Array(parts) => own + parts.iter().map(size).sum::<usize>(),
        Value::Object(fields) => own + fields.iter().map(|(key, value)| key.len() + size(value)).sum::<usize>(),
        _ => own,
    }
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
