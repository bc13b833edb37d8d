//! Unions of Python types, and types of fixed values.

use serde_json::Value;

use crate::python_text::literal;
use crate::schema_types::{ANY, MAX_ALTERNATIVES};

/// The maximum length of a value of a `Literal`, in characters.
const MAX_LITERAL: usize = 100;

/// Returns the union of types, each once, with `None` last.
pub(crate) fn union(types: impl IntoIterator<Item = String>) -> String {
    let mut members: Vec<String> = Vec::new();
    for kind in types {
        if kind == ANY {
            return ANY.into();
        }
        // A member may be a union itself.
        for part in split_union(&kind) {
            if !members.iter().any(|member| member == part) {
                members.push(part.to_owned());
            }
        }
    }
    if let Some(at) = members.iter().position(|member| member == "None") {
        let none = members.remove(at);
        members.push(none);
    }
    if members.is_empty() { ANY.into() } else { members.join(" | ") }
}

/// Returns the members of a union outside of brackets and quotes.
fn split_union(kind: &str) -> Vec<&str> {
    let (mut members, mut depth, mut start, mut in_string, mut escaped) = (Vec::new(), 0_u32, 0, false, false);
    for (at, c) in kind.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if in_string => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => {
                members.push(kind[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    members.push(kind[start..].trim());
    members
}

/// Returns whether a type includes `None`.
pub(crate) fn accepts_none(kind: &str) -> bool {
    kind == ANY || split_union(kind).contains(&"None")
}

/// Returns the type of a value out of `values`.
pub(crate) fn literals(values: &[Value]) -> String {
    let written: Option<Vec<String>> = values.iter().map(literal_of).collect();
    match written {
        Some(written) if !written.is_empty() && written.len() <= MAX_ALTERNATIVES => {
            let (none, other): (Vec<String>, Vec<String>) = written.into_iter().partition(|value| value == "None");
            let literal = (!other.is_empty()).then(|| format!("Literal[{}]", other.join(", ")));
            union(literal.into_iter().chain(none.into_iter().take(1)))
        }
        _ => union(values.iter().map(|value| {
            match value {
                Value::String(_) => "str",
                Value::Bool(_) => "bool",
                Value::Number(number) if number.is_f64() => "float",
                Value::Number(_) => "int",
                Value::Null => "None",
                Value::Array(_) => "list[Any]",
                Value::Object(_) => "dict[str, Any]",
            }
            .to_owned()
        })),
    }
}

/// Returns a value as an argument of `Literal`, if it can be one.
fn literal_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if text.chars().count() <= MAX_LITERAL => Some(literal(text)),
        Value::Number(number) if !number.is_f64() => Some(number.to_string()),
        Value::Bool(true) => Some("True".into()),
        Value::Bool(false) => Some("False".into()),
        Value::Null => Some("None".into()),
        _ => None,
    }
}
