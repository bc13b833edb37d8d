//! `TypedDict` classes as Python source.

use crate::names::is_identifier;
use crate::python_text::literal;

/// A `TypedDict`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypedDict {
    pub(crate) name: String,
    pub(crate) fields: Vec<Field>,
}

/// A field of a [`TypedDict`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// The type.
    pub(crate) kind: String,
    pub(crate) is_required: bool,
    /// The line of the comment; may be empty.
    pub(crate) comment: String,
}

impl TypedDict {
    /// Returns the class's Python source.
    pub(crate) fn source(&self) -> String {
        let kind = |field: &Field| {
            if field.is_required { field.kind.clone() } else { format!("NotRequired[{}]", field.kind) }
        };
        let comment = |field: &Field| {
            if field.comment.is_empty() { String::new() } else { format!("  # {}", field.comment) }
        };
        let Self { name, fields } = self;
        // Names with two leading underscores are changed in classes.
        let is_class = fields.iter().all(|field| is_identifier(&field.name) && !field.name.starts_with("__"));
        let mut source = if is_class {
            format!("class {name}(TypedDict):\n")
        } else {
            format!("{name} = TypedDict(\"{name}\", {{\n")
        };
        for field in fields {
            source.push_str(&if is_class {
                format!("    {}: {}{}\n", field.name, kind(field), comment(field))
            } else {
                format!("    {}: {},{}\n", literal(&field.name), kind(field), comment(field))
            });
        }
        if !is_class {
            source.push_str("})\n");
        }
        source
    }
}
