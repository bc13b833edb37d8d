//! What a session may name to be installed: packages and their versions, and nothing that leads elsewhere. It is the
//! part of PEP 508 without addresses and paths.

/// Requirements that are taken at once.
const MOST: usize = 100;
/// Bytes of one.
const LONGEST: usize = 200;

/// A package by its name, with versions that will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Requirement {
    name: String,
    /// As it is passed on: checked, and without spaces.
    text: String,
}

impl Requirement {
    /// Reads one.
    ///
    /// # Errors
    /// In words, when it is something else.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            let shown: String = text.chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
            Err(format!("`{shown}` {why}: name a package, and perhaps its version, such as `pandas` or `pandas>=2,<3`"))
        };
        if text.len() > LONGEST || !text.is_ascii() {
            return wrong("is no requirement");
        }
        let (package, marker) =
            text.split_once(';').map_or((text, None), |(package, marker)| (package, Some(marker.trim())));
        let compact: String = package.chars().filter(|c| !matches!(c, ' ' | '\t')).collect();
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let end = compact.find(|c| !is_name(c)).unwrap_or(compact.len());
        let (name, mut rest) = compact.split_at(end);
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        if !edge(name.chars().next()) || !edge(name.chars().next_back()) {
            return wrong("is no requirement");
        }
        let lower = name.to_ascii_lowercase();
        // pip takes these for files, if there are any of that name.
        if [".whl", ".zip", ".gz", ".bz2", ".xz", ".tgz", ".tar"].iter().any(|ending| lower.ends_with(ending)) {
            return wrong("names a file");
        }
        if let Some(extras) = rest.strip_prefix('[') {
            let Some((extras, after)) = extras.split_once(']') else { return wrong("is no requirement") };
            if !extras.chars().all(|c| is_name(c) || c == ',') {
                return wrong("is no requirement");
            }
            rest = after;
        }
        if rest.starts_with('@') {
            return wrong("names an address, from which nothing is installed");
        }
        let versions = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(rest);
        if !versions.is_empty() && !versions.split(',').all(is_version) {
            return wrong("is no requirement");
        }
        let text = match marker {
            // Whether it is one, and holds, is for the installer to say.
            Some(marker) if is_like_a_marker(marker) => format!("{compact} ; {marker}"),
            Some(_) => return wrong("has no marker after `;`"),
            None => compact,
        };
        Ok(Self { name: lower.replace(['_', '.'], "-"), text })
    }

    /// Reads some.
    ///
    /// # Errors
    /// In words, when one is none, or they are too many.
    pub(crate) fn parse_all(texts: &[String]) -> Result<Vec<Self>, String> {
        if texts.is_empty() || texts.len() > MOST {
            return Err(format!("name at least one package, and at most {MOST}"));
        }
        texts.iter().map(|text| Self::parse(text)).collect()
    }

    /// The package's name, as indexes write it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// As an installer takes it.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// Whether this is an operator and a version.
fn is_version(text: &str) -> bool {
    let operators = ["===", "==", ">=", "<=", "!=", "~=", ">", "<"];
    let version = operators.iter().find_map(|operator| text.strip_prefix(operator));
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '*' | '+' | '!' | '_' | '-');
    version.is_some_and(|version| version.starts_with(|c: char| c.is_ascii_alphanumeric()) && version.chars().all(fits))
}

/// Whether this may be a condition such as `python_version < '3.12'`: its characters, and that it compares something.
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
    fn names_and_versions_are_taken() {
        for (text, name, passed) in [
            ("pandas", "pandas", "pandas"),
            ("Ruamel.YAML", "ruamel-yaml", "Ruamel.YAML"),
            ("a_b >= 1.0, <2", "a-b", "a_b>=1.0,<2"),
            ("x[extra,other]==1.*", "x", "x[extra,other]==1.*"),
            ("x (~=1.2)", "x", "x(~=1.2)"),
            ("x===1!2.0+local-1", "x", "x===1!2.0+local-1"),
            ("x == 1;sys_platform=='linux'", "x", "x==1 ; sys_platform=='linux'"),
        ] {
            let read = Requirement::parse(text).unwrap();
            assert_eq!((read.name(), read.text()), (name, passed), "{text}");
        }
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
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
            assert!(Requirement::parse(text).is_err(), "{text:?}");
        }
        assert!(Requirement::parse(&"x".repeat(LONGEST + 1)).is_err());
        assert!(Requirement::parse_all(&vec!["x".into(); MOST + 1]).is_err());
        assert!(Requirement::parse_all(&[]).is_err());
    }
}
