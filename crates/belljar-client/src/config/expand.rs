//! Variables in configuration files: `${NAME}`, `${NAME:-text}`, and those of the editors.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::Value;

use crate::error::ConfigError;
use crate::os::HOME_VARIABLE;

/// The values of variables.
#[derive(Debug)]
pub(super) struct Variables {
    workspace: PathBuf,
    /// VS Code asks the user for these values; here only those with a default have a value.
    inputs: HashMap<String, Option<String>>,
}

impl Variables {
    pub(super) fn new(workspace: PathBuf, inputs: Option<&Value>) -> Self {
        let inputs = inputs.and_then(Value::as_array).into_iter().flatten().filter_map(|input| {
            let default = input.get("default").and_then(Value::as_str).map(str::to_owned);
            Some((input.get("id")?.as_str()?.to_owned(), default))
        });
        Self { inputs: inputs.collect(), workspace }
    }

    /// Resolves a path of the file against the workspace.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.workspace.join(path)
    }

    /// Replaces the variables in every string of a value.
    pub(super) fn expand(&self, value: &Value) -> Result<Value, ConfigError> {
        Ok(match value {
            Value::String(text) => Value::String(self.expand_text(text)?),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.expand(item)).collect::<Result<_, _>>()?),
            Value::Object(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(name, field)| Ok((name.clone(), self.expand(field)?)))
                    .collect::<Result<_, ConfigError>>()?,
            ),
            other => other.clone(),
        })
    }

    fn expand_text(&self, text: &str) -> Result<String, ConfigError> {
        let mut expanded = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let Some(length) = rest[start..].find('}') else { break };
            expanded.push_str(&rest[..start]);
            let whole = &rest[start..=start + length];
            match self.value(&whole[2..whole.len() - 1])? {
                Some(value) => expanded.push_str(&value),
                None => expanded.push_str(whole),
            }
            rest = &rest[start + length + 1..];
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    /// Returns the value of the expression between the braces, or `None` if it is not a variable.
    fn value(&self, inside: &str) -> Result<Option<String>, ConfigError> {
        if let Some(id) = inside.strip_prefix("input:") {
            return match self.inputs.get(id) {
                Some(Some(default)) => Ok(Some(default.clone())),
                _ => Err(ConfigError::UnsetInput { id: id.to_owned() }),
            };
        }
        match inside {
            "workspaceFolder" => return Ok(Some(self.workspace.display().to_string())),
            "workspaceFolderBasename" => {
                return Ok(Some(self.workspace.file_name().unwrap_or_default().to_string_lossy().into_owned()));
            }
            "userHome" => return from_environment(HOME_VARIABLE).map(Some),
            "pathSeparator" | "/" => return Ok(Some(std::path::MAIN_SEPARATOR.to_string())),
            _ => {}
        }
        let inside = inside.strip_prefix("env:").unwrap_or(inside);
        match inside.split_once(':') {
            None if inside.is_empty() => Ok(None),
            None => from_environment(inside).map(Some),
            // As in a shell, except that a variable that is set to the empty string counts as set.
            Some((name, rest)) => match rest.strip_prefix('-') {
                Some(default) if !name.is_empty() => {
                    Ok(Some(from_environment(name).unwrap_or_else(|_| default.to_owned())))
                }
                _ => Ok(None),
            },
        }
    }
}

pub(super) fn from_environment(name: &str) -> Result<String, ConfigError> {
    std::env::var(name).map_err(|_| ConfigError::UnsetVariable { name: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::Variables;
    use serde_json::json;

    #[test]
    fn variables_are_replaced_and_other_text_is_not() {
        let inputs = json!([{"id": "a", "default": "x"}, {"id": "b"}]);
        let variables = Variables::new("/home/ada/project".into(), Some(&inputs));
        let expand = |text: &str| variables.expand_text(text);
        assert_eq!(expand("${NO_SUCH_VARIABLE:-a b}/$HOME").unwrap(), "a b/$HOME");
        assert_eq!(expand("${NO_SUCH_VARIABLE:-}").unwrap(), "");
        assert_eq!(
            expand("${input:a} ${workspaceFolder} ${workspaceFolderBasename}").unwrap(),
            "x /home/ada/project project"
        );
        assert!(expand("${open ${}").unwrap_err().to_string().contains("open ${"));
        assert_eq!(expand("no end ${HOME").unwrap(), "no end ${HOME");
        assert!(expand("${NO_SUCH_VARIABLE}").unwrap_err().to_string().contains("NO_SUCH_VARIABLE"));
        assert!(expand("${input:b}").unwrap_err().to_string().contains("`b`"));
        assert_eq!(expand("${env:PATH}").unwrap(), std::env::var("PATH").unwrap());
    }
}
