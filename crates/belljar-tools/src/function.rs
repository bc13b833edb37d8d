//! The Python function of a tool: its signature, its types and its docstring, from the tool's schemas.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::names::identifiers;
use crate::python_text::{docstring, first_line, literal, shorten, visible};
use crate::schema_types::{ANY, TypeWriter, description, strings};
use crate::type_union::accepts_none;
use crate::typed_dict::TypedDict;

/// The maximum number of parameters.
const MAX_PARAMETERS: usize = 200;
/// The maximum length of a docstring, in characters.
const MAX_DOC: usize = 16_000;
/// The maximum length of a tool's description in stubs, and of that of a parameter, in characters.
const MAX_STUB_DESCRIPTION: usize = 2_000;
const MAX_PARAMETER_DESCRIPTION: usize = 300;
/// The maximum length of a default that is shown, in characters.
const MAX_DEFAULT: usize = 100;

/// A tool as a Python function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    /// True if the tool takes arguments that its schema does not name.
    pub(crate) takes_others: bool,
    pub(crate) returns: String,
    classes: Vec<TypedDict>,
    description: String,
}

/// A parameter of a [`Function`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    /// The name in the tool's schema.
    pub(crate) original: String,
    pub(crate) annotation: String,
    /// The default as Python source; `None` if an argument is required.
    pub(crate) default: Option<String>,
    /// True if the tool accepts null. Otherwise an argument `None` counts as missing.
    pub(crate) accepts_null: bool,
    description: String,
}

/// A [`Function`] as the guest receives it.
#[derive(Debug, Serialize)]
pub(crate) struct GuestFunction {
    name: String,
    doc: String,
    parameters: Vec<belljar_core::Parameter>,
    returns: Option<String>,
    /// The parameters whose names in the schema differ: pairs of the two names.
    renamed: Vec<(String, String)>,
}

impl Function {
    /// Creates the function `name` of a tool.
    pub(crate) fn new(name: &str, about: &str, input: &Value, output: Option<&Value>) -> Self {
        let empty = Map::new();
        let properties = input.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        let required: BTreeSet<&str> = strings(input.get("required")).collect();
        let listed: Vec<(&String, &Value)> = properties.iter().take(MAX_PARAMETERS).collect();
        let names = identifiers(listed.iter().map(|(name, _)| name.as_str()), "parameter", &[]);
        let mut types = TypeWriter::new(input, BTreeSet::new());
        let mut parameters: Vec<Parameter> = Vec::with_capacity(listed.len());
        for (converted, (original, schema)) in names.into_iter().zip(listed) {
            let kind = types.write(schema, &[name, original]);
            let accepts_null = accepts_none(&kind);
            let is_required = required.contains(original.as_str());
            let default = (!is_required).then(|| default_of(schema));
            let annotation = match &default {
                Some(default) if default == "None" && !accepts_null => format!("{kind} | None"),
                _ => kind,
            };
            let description = description(schema).to_owned();
            parameters.push(Parameter {
                name: converted,
                original: original.clone(),
                annotation,
                default,
                accepts_null,
                description,
            });
        }
        // Required parameters come first: models write them in this order.
        parameters.sort_by_key(|parameter| parameter.default.is_some());
        let (mut classes, taken) = types.finish();
        let returns = match output {
            None => ANY.to_owned(),
            Some(schema) => {
                let mut types = TypeWriter::new(schema, taken);
                let returns = types.write(lone_result(schema).unwrap_or(schema), &[name, "result"]);
                classes.extend(types.finish().0);
                returns
            }
        };
        let takes_others = match input.get("additionalProperties") {
            Some(Value::Bool(takes)) => *takes,
            Some(Value::Object(_)) => true,
            _ => properties.is_empty() || properties.len() > MAX_PARAMETERS || input.get("patternProperties").is_some(),
        };
        Self { name: name.to_owned(), parameters, takes_others, returns, classes, description: about.to_owned() }
    }

    /// Returns the signature: `search_issues(*, query: str, per_page: int = 30) -> list[Issue]`.
    pub(crate) fn signature(&self) -> String {
        let mut parameters: Vec<String> = Vec::with_capacity(self.parameters.len() + 2);
        if !self.parameters.is_empty() {
            parameters.push("*".into());
        }
        for Parameter { name, annotation, default, .. } in &self.parameters {
            parameters.push(match default {
                Some(default) => format!("{name}: {annotation} = {default}"),
                None => format!("{name}: {annotation}"),
            });
        }
        if self.takes_others {
            parameters.push(format!("**{}: Any", self.others_name()));
        }
        format!("{}({}) -> {}", self.name, parameters.join(", "), self.returns)
    }

    /// Returns the name of the parameter for arguments that the schema does not name.
    fn others_name(&self) -> String {
        let mut name = "arguments".to_owned();
        while self.parameters.iter().any(|parameter| parameter.name == name) {
            name.push('_');
        }
        name
    }

    /// Returns the text of `help()`: the description, the parameters and the types.
    pub(crate) fn doc(&self) -> String {
        let mut doc = visible(self.description.trim());
        for part in [self.arguments_doc(MAX_DOC), self.types_source()] {
            if !part.is_empty() {
                doc = format!("{doc}\n\n{}", part.trim_end());
            }
        }
        shorten(doc.trim(), MAX_DOC)
    }

    /// Returns the descriptions of the parameters in Google's style.
    fn arguments_doc(&self, limit: usize) -> String {
        let mut text = String::new();
        for Parameter { name, description, .. } in &self.parameters {
            let description = visible(description.trim()).replace('\n', " ");
            if !description.is_empty() {
                text.push_str(&format!("    {name}: {}\n", shorten(&description, limit)));
            }
        }
        if text.is_empty() { text } else { format!("Args:\n{}", text.trim_end()) }
    }

    /// Returns the source of the classes that the signature refers to.
    pub(crate) fn types_source(&self) -> String {
        self.classes.iter().map(TypedDict::source).collect::<Vec<_>>().join("\n")
    }

    /// Returns the function's Python source, without a body, after the classes that it refers to.
    pub(crate) fn stub(&self) -> String {
        let mut about = shorten(self.description.trim(), MAX_STUB_DESCRIPTION);
        let arguments = self.arguments_doc(MAX_PARAMETER_DESCRIPTION);
        if !arguments.is_empty() {
            about = format!("{about}\n\n{arguments}");
        }
        let body = match about.trim() {
            "" => "...".to_owned(),
            about => docstring(about, "    "),
        };
        let types = self.types_source();
        let gap = if types.is_empty() { "" } else { "\n" };
        format!("{types}{gap}async def {}:\n    {body}\n", self.signature())
    }

    /// Returns the signature and the first line of the description.
    pub(crate) fn summary(&self) -> String {
        match first_line(&self.description, MAX_DEFAULT) {
            line if line.is_empty() => self.signature(),
            line => format!("{}  # {line}", self.signature()),
        }
    }

    /// Returns the description that the guest receives.
    pub(crate) fn for_guest(&self) -> GuestFunction {
        const KEYWORD_ONLY: u8 = 3;
        const OTHER_KEYWORDS: u8 = 4;
        let mut parameters: Vec<belljar_core::Parameter> = self
            .parameters
            .iter()
            .map(|parameter| belljar_core::Parameter {
                name: parameter.name.clone(),
                kind: KEYWORD_ONLY,
                annotation: Some(parameter.annotation.clone()),
                default: parameter.default.clone(),
            })
            .collect();
        if self.takes_others {
            let annotation = Some(ANY.to_owned());
            let name = self.others_name();
            parameters.push(belljar_core::Parameter { name, kind: OTHER_KEYWORDS, annotation, default: None });
        }
        let renamed = self.parameters.iter().filter(|parameter| parameter.name != parameter.original);
        GuestFunction {
            name: self.name.clone(),
            doc: self.doc(),
            parameters,
            returns: Some(self.returns.clone()),
            renamed: renamed.map(|parameter| (parameter.name.clone(), parameter.original.clone())).collect(),
        }
    }

    /// Removes the arguments that are `None` for parameters that do not accept null: the default of such a parameter
    /// is `None` in Python if the schema has none.
    pub(crate) fn without_missing(&self, mut arguments: Map<String, Value>) -> Map<String, Value> {
        for Parameter { original, accepts_null, default, .. } in &self.parameters {
            if default.is_some() && !accepts_null && arguments.get(original) == Some(&Value::Null) {
                arguments.shift_remove(original);
            }
        }
        arguments
    }

    /// Returns the name of an argument that the tool does not have, if any.
    pub(crate) fn unknown_argument<'a>(&self, arguments: &'a Map<String, Value>) -> Option<&'a str> {
        if self.takes_others {
            return None;
        }
        let is_known = |name: &&String| !self.parameters.iter().any(|parameter| &&parameter.original == name);
        arguments.keys().find(is_known).map(String::as_str)
    }
}

/// Returns the schema of the only field of a result, `result`, which is the result itself then. Belljar's client
/// unwraps it, as pydantic-ai does.
fn lone_result(schema: &Value) -> Option<&Value> {
    let properties = schema.get("properties")?.as_object()?;
    properties.get("result").filter(|_| properties.len() == 1)
}

/// Returns the default of a parameter as Python source; `None` if the schema has none, or one that is long.
fn default_of(schema: &Value) -> String {
    let default = schema.get("default").and_then(python_value);
    default.filter(|default| default.chars().count() <= MAX_DEFAULT).unwrap_or_else(|| "None".into())
}

/// Returns a value as Python source, unless it is nested.
fn python_value(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => "None".into(),
        Value::Bool(true) => "True".into(),
        Value::Bool(false) => "False".into(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => literal(text),
        Value::Array(items) if items.is_empty() => "[]".into(),
        Value::Object(fields) if fields.is_empty() => "{}".into(),
        Value::Array(_) | Value::Object(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn search() -> Function {
        let input = json!({"type": "object", "required": ["query"], "additionalProperties": false, "properties": {
            "per-page": {"type": "integer", "default": 30, "description": "Issues\nper page."},
            "query": {"type": "string"},
            "labels": {"type": "array", "items": {"type": "string"}},
            "from": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        }});
        let output = json!({"type": "object", "properties": {"result": {"type": "array", "items": {
            "type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}}}});
        Function::new("search", "Searches \"\"\"issues\"\"\".", &input, Some(&output))
    }

    #[test]
    fn signature_has_types_and_defaults() {
        assert_eq!(
            search().signature(),
            "search(*, query: str, per_page: int = 30, labels: list[str] | None = None, from_: str | None = None) \
             -> list[SearchResultItem]"
        );
        let open = Function::new("f", "", &json!({"type": "object"}), None);
        assert_eq!(open.signature(), "f(**arguments: Any) -> Any");
    }

    #[test]
    fn stub_is_python() {
        let stub = search().stub();
        let expected = "class SearchResultItem(TypedDict):\n    id: int\n\nasync def search(*, query: str, ";
        assert!(stub.starts_with(expected), "{stub}");
        let doc =
            "    \"\"\"Searches \\\"\\\"\"issues\\\"\\\"\".\n\n    Args:\n        per_page: Issues per page.\"\"\"\n";
        assert!(stub.ends_with(doc), "{stub}");
    }

    #[test]
    fn missing_and_unknown_arguments_are_found() {
        let arguments = json!({"query": "x", "labels": null, "from": null}).as_object().unwrap().clone();
        let sent = search().without_missing(arguments);
        assert_eq!(Value::Object(sent.clone()), json!({"query": "x", "from": null}));
        assert_eq!(search().unknown_argument(&sent), None);
        let typo = json!({"perpage": 3}).as_object().unwrap().clone();
        assert_eq!(search().unknown_argument(&typo), Some("perpage"));
    }
}
