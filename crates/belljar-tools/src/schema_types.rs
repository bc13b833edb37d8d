//! Python types for JSON Schemas.
//!
//! A schema is a server's: it may be invalid, recursive, or megabytes long. The writer stops at a depth and at a number
//! of schemas, and writes `Any` for what it leaves out.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::names::class_name;
use crate::python_text::first_line;
use crate::type_union::{literals, union};
use crate::typed_dict::{Field, TypedDict};

/// The maximum depth of nested schemas.
const MAX_DEPTH: usize = 12;
/// The maximum number of schemas that are read for one tool.
const MAX_SCHEMAS: usize = 1_000;
/// The maximum number of fields of a class.
const MAX_FIELDS: usize = 100;
/// The maximum number of values of a `Literal`, and of types of a union.
pub(crate) const MAX_ALTERNATIVES: usize = 50;
/// The maximum length of the comment of a field, in characters.
const MAX_COMMENT: usize = 120;

/// The type of any value.
pub(crate) const ANY: &str = "Any";

/// Writes the types of the schemas of one tool.
pub(crate) struct TypeWriter<'a> {
    /// The schema that references refer to.
    root: &'a Value,
    classes: Vec<TypedDict>,
    names: BTreeSet<String>,
    /// The types of references, `None` while they are being written.
    references: BTreeMap<&'a str, Option<String>>,
    schemas: usize,
}

impl<'a> TypeWriter<'a> {
    /// Creates a writer of types in the schema `root`, whose classes get other names than `taken`.
    pub(crate) fn new(root: &'a Value, taken: BTreeSet<String>) -> Self {
        Self { root, classes: Vec::new(), names: taken, references: BTreeMap::new(), schemas: 0 }
    }

    /// Returns the classes that the types refer to, and all names that are taken now.
    pub(crate) fn finish(self) -> (Vec<TypedDict>, BTreeSet<String>) {
        (self.classes, self.names)
    }

    /// Returns the type of `schema`. Classes are named after `path`.
    pub(crate) fn write(&mut self, schema: &'a Value, path: &[&str]) -> String {
        self.schemas += 1;
        if path.len() > MAX_DEPTH || self.schemas > MAX_SCHEMAS {
            return ANY.into();
        }
        let Value::Object(object) = schema else {
            return if schema == &Value::Bool(false) { "Never".into() } else { ANY.into() };
        };
        let written = self.write_object_schema(object, path);
        let is_nullable = object.get("nullable") == Some(&Value::Bool(true));
        if is_nullable { union([written, "None".into()]) } else { written }
    }

    fn write_object_schema(&mut self, schema: &'a Map<String, Value>, path: &[&str]) -> String {
        if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
            return self.write_reference(reference, path);
        }
        if let Some(value) = schema.get("const") {
            return literals(std::slice::from_ref(value));
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            return literals(values);
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Value::Array(members)) = schema.get(key).filter(|_| !schema.contains_key("properties")) {
                let members = members.iter().take(MAX_ALTERNATIVES);
                let types: Vec<String> = members.map(|member| self.write(member, path)).collect();
                return union(types);
            }
        }
        if let Some(Value::Array(members)) = schema.get("allOf") {
            return self.write_intersection(schema, members, path);
        }
        match schema.get("type") {
            Some(Value::String(kind)) => self.write_kind(kind, schema, path),
            Some(Value::Array(kinds)) => {
                let kinds = kinds.iter().filter_map(Value::as_str).take(MAX_ALTERNATIVES);
                let types: Vec<String> = kinds.map(|kind| self.write_kind(kind, schema, path)).collect();
                union(types)
            }
            _ if schema.contains_key("properties") => self.write_kind("object", schema, path),
            _ if schema.contains_key("items") => self.write_kind("array", schema, path),
            _ => ANY.into(),
        }
    }

    fn write_kind(&mut self, kind: &str, schema: &'a Map<String, Value>, path: &[&str]) -> String {
        match kind {
            "string" => "str".into(),
            "integer" => "int".into(),
            "number" => "float".into(),
            "boolean" => "bool".into(),
            "null" => "None".into(),
            "array" => {
                let items = schema.get("items").map(|items| self.write(items, &[path, &["item"]].concat()));
                format!("list[{}]", items.unwrap_or_else(|| ANY.into()))
            }
            "object" => {
                let properties = schema.get("properties").and_then(Value::as_object);
                match properties.filter(|properties| !properties.is_empty()) {
                    Some(properties) => self.write_class(&[(properties, schema.get("required"))], path),
                    None => match schema.get("additionalProperties") {
                        Some(values @ Value::Object(_)) => {
                            format!("dict[str, {}]", self.write(values, &[path, &["value"]].concat()))
                        }
                        _ => "dict[str, Any]".into(),
                    },
                }
            }
            _ => ANY.into(),
        }
    }

    /// Returns the type of an `allOf`: of objects, one class with the fields of all.
    fn write_intersection(&mut self, schema: &'a Map<String, Value>, members: &'a [Value], path: &[&str]) -> String {
        let members: Vec<&'a Map<String, Value>> = members
            .iter()
            .take(MAX_ALTERNATIVES)
            .filter_map(|member| match member.get("$ref").and_then(Value::as_str) {
                Some(reference) => resolve(self.root, reference),
                None => Some(member),
            })
            .filter_map(Value::as_object)
            .chain([schema])
            .collect();
        let parts: Vec<_> = members
            .iter()
            .filter_map(|member| Some((member.get("properties")?.as_object()?, member.get("required"))))
            .filter(|(properties, _)| !properties.is_empty())
            .collect();
        if !parts.is_empty() {
            return self.write_class(&parts, path);
        }
        let own = members.len() - 1;
        let types: Vec<String> = members[..own]
            .iter()
            .filter(|member| !member.contains_key("allOf"))
            .map(|member| {
                self.schemas += 1;
                if self.schemas > MAX_SCHEMAS { ANY.into() } else { self.write_object_schema(member, path) }
            })
            .collect();
        types.into_iter().find(|kind| kind != ANY).unwrap_or_else(|| ANY.into())
    }

    fn write_class(&mut self, parts: &[(&'a Map<String, Value>, Option<&'a Value>)], path: &[&str]) -> String {
        let base = class_name(path);
        let mut name = base.clone();
        let mut number = 2;
        while !self.names.insert(name.clone()) {
            name = format!("{base}{number}");
            number += 1;
        }
        let mut fields: Vec<Field> = Vec::new();
        for (properties, required) in parts {
            let required: BTreeSet<&str> = strings(*required).collect();
            for (property, schema) in properties.iter().take(MAX_FIELDS) {
                let comment = first_line(description(schema), MAX_COMMENT);
                let kind = self.write(schema, &[path, &[property.as_str()]].concat());
                let is_required = required.contains(property.as_str());
                fields.retain(|field| &field.name != property);
                fields.push(Field { name: property.clone(), kind, is_required, comment });
            }
        }
        self.classes.push(TypedDict { name: name.clone(), fields });
        name
    }

    fn write_reference(&mut self, reference: &'a str, path: &[&str]) -> String {
        match self.references.get(reference) {
            Some(Some(written)) => return written.clone(),
            // A cycle.
            Some(None) => return ANY.into(),
            None => {}
        }
        let Some(target) = resolve(self.root, reference) else { return ANY.into() };
        self.references.insert(reference, None);
        let name = reference.rsplit('/').next().filter(|name| !name.is_empty() && *name != "#");
        // The depth is that of the place which refers, the name that of the definition.
        let mut target_path = vec![""; path.len()];
        match (name, target_path.last_mut()) {
            (Some(name), Some(last)) => *last = name,
            _ => target_path = path.to_vec(),
        }
        let written = self.write(target, &target_path);
        self.references.insert(reference, Some(written.clone()));
        written
    }
}

/// Returns the schema that a reference refers to. Only references within the document are followed.
fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    root.pointer(pointer)
}

/// Returns the description of a schema; empty without one.
pub(crate) fn description(schema: &Value) -> &str {
    schema.get("description").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the strings of a list.
pub(crate) fn strings(list: Option<&Value>) -> impl Iterator<Item = &str> {
    list.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn written(schema: Value) -> (String, String) {
        let mut writer = TypeWriter::new(&schema, BTreeSet::new());
        let kind = writer.write(&schema, &["t"]);
        let classes = writer.finish().0;
        (kind, classes.iter().map(TypedDict::source).collect())
    }

    fn kind(schema: Value) -> String {
        written(schema).0
    }

    #[test]
    fn schemas_become_types() {
        assert_eq!(kind(json!({"type": "string"})), "str");
        assert_eq!(kind(json!({"type": ["integer", "null"]})), "int | None");
        assert_eq!(
            kind(json!({"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "number"}}]})),
            "list[float] | None"
        );
        assert_eq!(kind(json!({"enum": ["a", "b|c", null, 3, true]})), r#"Literal["a", "b|c", 3, True] | None"#);
        assert_eq!(kind(json!({"const": "x"})), r#"Literal["x"]"#);
        assert_eq!(kind(json!({"enum": [1.5, "x"]})), "float | str");
        assert_eq!(kind(json!({"type": "object", "additionalProperties": {"type": "boolean"}})), "dict[str, bool]");
        assert_eq!(kind(json!({"type": "string", "nullable": true})), "str | None");
        assert_eq!(kind(json!({"anyOf": [{"type": "string"}, {}]})), "Any");
        assert_eq!(kind(json!(true)), "Any");
        assert_eq!(kind(json!({"type": 7})), "Any");
    }

    #[test]
    fn objects_become_classes() {
        let schema = json!({"type": "object", "required": ["n"], "properties": {
            "n": {"type": "integer", "description": "How many.\nMore."},
            "inner": {"type": "object", "properties": {"x-y": {"type": "string"}}},
        }});
        let (kind, classes) = written(schema);
        assert_eq!(kind, "T");
        assert_eq!(
            classes,
            "TInner = TypedDict(\"TInner\", {\n    \"x-y\": NotRequired[str],\n})\n\
             class T(TypedDict):\n    n: int  # How many.\n    inner: NotRequired[TInner]\n"
        );
    }

    #[test]
    fn members_of_all_of_share_a_class() {
        let schema = json!({"$defs": {"A": {"properties": {"a": {"type": "string"}}, "required": ["a"]}},
            "allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {"type": "integer"}}}]});
        assert_eq!(written(schema).1, "class T(TypedDict):\n    a: str\n    b: NotRequired[int]\n");
    }

    #[test]
    fn cycle_ends() {
        let schema = json!({"$defs": {"node": {"type": "object", "properties": {
            "next": {"$ref": "#/$defs/node"}}}}, "$ref": "#/$defs/node"});
        let (kind, classes) = written(schema);
        assert_eq!((kind.as_str(), classes.as_str()), ("Node", "class Node(TypedDict):\n    next: NotRequired[Any]\n"));
        assert_eq!(self::kind(json!({"$ref": "#"})), "Any");
        assert_eq!(self::kind(json!({"$ref": "https://example.org/x"})), "Any");
        assert_eq!(self::kind(json!({"allOf": [{"$ref": "#"}]})), "Any");
    }

    #[test]
    fn large_schema_is_cut_off() {
        let properties: Map<String, Value> =
            (0..50_000).map(|at| (format!("p{at}"), json!({"type": "object", "properties": {"q": {}}}))).collect();
        let (_, classes) = written(json!({"type": "object", "properties": properties}));
        assert!(classes.len() < 20_000, "{}", classes.len());
        let mut deep = json!({"type": "string"});
        for _ in 0..100 {
            deep = json!({"type": "array", "items": deep});
        }
        assert!(kind(deep).ends_with("list[Any]]]]]]]]]]]]"));
    }
}
