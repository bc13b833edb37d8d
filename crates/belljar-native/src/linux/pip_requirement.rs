//! The requirements that a session may install: the part of PEP 508 without URLs and paths, so that packages come from
//! the configured index alone.

/// The number of requirements of one request at most.
const MAX_REQUIREMENTS: usize = 100;
/// The length of a requirement at most, in bytes.
const MAX_LENGTH: usize = 200;

const NOT_A_REQUIREMENT: &str = "is not a requirement";

/// A package and the versions of it that are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PipRequirement {
    name: String,
    /// The checked requirement without spaces, as an installer reads it.
    text: String,
}

/// The reason why a text is not accepted as a requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// A text is not a requirement that a session may install.
    #[error("`{text}` {problem}: name a package, and perhaps its version, such as `pandas` or `pandas>=2,<3`")]
    Invalid {
        /// The text, without control characters and at most 200 characters long.
        text: String,
        /// The problem, as a predicate of the text.
        problem: &'static str,
    },
    /// A request has no requirements, or too many.
    #[error("name at least one package, and at most {MAX_REQUIREMENTS}")]
    Count,
}

impl PipRequirement {
    /// Parses a requirement.
    ///
    /// # Errors
    /// Returns [`RequirementError::Invalid`].
    pub(crate) fn parse(text: &str) -> Result<Self, RequirementError> {
        let invalid = |problem: &'static str| {
            let text = text.chars().take(MAX_LENGTH).map(|c| if c.is_control() { ' ' } else { c }).collect();
            Err(RequirementError::Invalid { text, problem })
        };
        if text.len() > MAX_LENGTH || !text.is_ascii() {
            return invalid(NOT_A_REQUIREMENT);
        }
        let (package, marker) =
            text.split_once(';').map_or((text, None), |(package, marker)| (package, Some(marker.trim())));
        let compact: String = package.chars().filter(|c| !matches!(c, ' ' | '\t')).collect();
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let end = compact.find(|c| !is_name(c)).unwrap_or(compact.len());
        let (name, mut rest) = compact.split_at(end);
        let is_alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        if !is_alphanumeric(name.chars().next()) || !is_alphanumeric(name.chars().next_back()) {
            return invalid(NOT_A_REQUIREMENT);
        }
        let lower = name.to_ascii_lowercase();
        // pip would read a file of such a name in place of a package.
        if [".whl", ".zip", ".gz", ".bz2", ".xz", ".tgz", ".tar"].iter().any(|ending| lower.ends_with(ending)) {
            return invalid("names a file");
        }
        if let Some(extras) = rest.strip_prefix('[') {
            let Some((extras, after)) = extras.split_once(']') else { return invalid(NOT_A_REQUIREMENT) };
            if !extras.chars().all(|c| is_name(c) || c == ',') {
                return invalid(NOT_A_REQUIREMENT);
            }
            rest = after;
        }
        if rest.starts_with('@') {
            return invalid("names a URL, which is not allowed");
        }
        let versions = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(rest);
        if !versions.is_empty() && !versions.split(',').all(is_version) {
            return invalid(NOT_A_REQUIREMENT);
        }
        let text = match marker {
            // The installer parses and evaluates the marker.
            Some(marker) if is_like_a_marker(marker) => format!("{compact} ; {marker}"),
            Some(_) => return invalid("has an invalid marker after `;`"),
            None => compact,
        };
        Ok(Self { name: lower.replace(['_', '.'], "-"), text })
    }

    /// Parses the requirements of a request.
    ///
    /// # Errors
    /// Returns an error if one of them is invalid, or their number is 0 or above [`MAX_REQUIREMENTS`].
    pub(crate) fn parse_all(texts: &[String]) -> Result<Vec<Self>, RequirementError> {
        if texts.is_empty() || texts.len() > MAX_REQUIREMENTS {
            return Err(RequirementError::Count);
        }
        texts.iter().map(|text| Self::parse(text)).collect()
    }

    /// Returns the package's normalized name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the requirement as an installer reads it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Returns whether the text is an operator and a version.
fn is_version(text: &str) -> bool {
    let operators = ["===", "==", ">=", "<=", "!=", "~=", ">", "<"];
    let version = operators.iter().find_map(|operator| text.strip_prefix(operator));
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '*' | '+' | '!' | '_' | '-');
    version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_alphanumeric()) && version.chars().all(fits))
}

/// Returns whether the text may be a marker such as `python_version < '3.12'`: it has only a marker's characters, and a
/// string to compare with.
fn is_like_a_marker(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || " '\"()_.-+*<>=!~,".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic() || "('\"".contains(c))
        && text.chars().all(fits)
        && text.contains(['\'', '"'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_accepted() {
        for (text, name, normalized) in [
            ("pandas", "pandas", "pandas"),
            ("Ruamel.YAML", "ruamel-yaml", "Ruamel.YAML"),
            ("a_b >= 1.0, <2", "a-b", "a_b>=1.0,<2"),
            ("x[extra,other]==1.*", "x", "x[extra,other]==1.*"),
            ("x (~=1.2)", "x", "x(~=1.2)"),
            ("x===1!2.0+local-1", "x", "x===1!2.0+local-1"),
            ("x == 1;sys_platform=='linux'", "x", "x==1 ; sys_platform=='linux'"),
        ] {
            let parsed = PipRequirement::parse(text).unwrap();
            assert_eq!((parsed.name(), parsed.text()), (name, normalized), "{text}");
        }
    }

    #[test]
    fn urls_paths_and_options_are_refused() {
        for text in [
            "",
            "-e",
            "--index-url=http://evil",
            "-r file",
            "../x",
            "/etc/passwd",
            "./x",
            ".",
            "x/y",
            "file:///x",
            "https://example.org/x.whl",
            "x @ https://example.org/x.whl",
            "x@file:///etc",
            "git+https://example.org/x",
            "x.whl",
            "x-1.0.tar.gz",
            "x==",
            "x==-1",
            "x==1;",
            "x==1; --index-url='y'",
            "x; @ 'https://example.org'",
            "x; a == '\n'",
            "x[y",
            "x[$(id)]",
            "x==1 --no-binary=:all:",
            "x\n--index-url=y",
            "x\0",
            "näme",
            "x==1,,",
            "x`id`",
        ] {
            assert!(PipRequirement::parse(text).is_err(), "{text:?}");
        }
        assert!(PipRequirement::parse(&"x".repeat(MAX_LENGTH + 1)).is_err());
        assert!(PipRequirement::parse_all(&vec!["x".into(); MAX_REQUIREMENTS + 1]).is_err());
        assert!(PipRequirement::parse_all(&[]).is_err());
    }
}
