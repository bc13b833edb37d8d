//! A requirement: a name, extras, versions and a marker, but never a URL or a path.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use uv_cache_key::{CacheKey, CacheKeyHasher};
use uv_normalize::PackageName;
use uv_pep508::{Pep508ErrorSource, Pep508Url, VersionOrUrl};
use uv_pypi_types::VerbatimParsedUrl;

use crate::error::GeneralHint;

/// The maximum length of a requirement in bytes. A line of a lock file with its hashes is far shorter.
const MAX_LENGTH: usize = 4096;

/// A requirement in the syntax of PEP 508, except for the form `NAME @ URL`.
#[derive(Clone, PartialEq, Eq)]
pub struct Requirement {
    inner: uv_pep508::Requirement<NoUrl>,
    /// The accepted `sha256:…` digests of the chosen wheel. If empty, any wheel of the index is accepted.
    pub(crate) hashes: Vec<String>,
}

/// The reason that a requirement is refused.
#[derive(Debug, thiserror::Error)]
pub enum RequirementError {
    /// The requirement contains a URL, a path or a repository.
    #[error("`{requirement}` is refused: packages come from the index only, not from a URL, a path or a repository")]
    Url {
        /// The requirement as given, truncated.
        requirement: String,
    },

    /// The line is an option of pip, such as `-e` or `--index-url`.
    #[error("`{requirement}` is refused: it is an option, not a requirement")]
    Option {
        /// The line as given, truncated.
        requirement: String,
    },

    /// The requirement is followed by an option of pip other than `--hash`.
    #[error("`{option}` is refused: the only option supported after a requirement is --hash")]
    OptionOfRequirement {
        /// The option as given, truncated.
        option: String,
    },

    /// The requirement has a syntax error.
    #[error("`{requirement}` is not a requirement: {reason}")]
    Malformed {
        /// The requirement as given, truncated.
        requirement: String,
        /// The reason.
        reason: String,
    },
}

impl GeneralHint for RequirementError {
    fn general_hint(&self) -> Option<String> {
        let hint = match self {
            RequirementError::Url { .. } => "name the package and, if needed, a version, such as `name==1.2.3`",
            RequirementError::Option { .. } => {
                "indexes and directories of wheels are configured when Belljar is started, not by the code that it runs"
            }
            RequirementError::OptionOfRequirement { .. } => return None,
            RequirementError::Malformed { .. } => "write `name`, `name==1.2.3` or `name[extra]>=1,<2`",
        };
        Some(hint.to_owned())
    }
}

impl Requirement {
    /// Parses a requirement: `rich`, `rich<13`, `httpx[http2]>=0.27; python_version >= "3.9"`.
    pub fn parse(text: &str) -> Result<Self, RequirementError> {
        let text = text.trim();
        if text.len() > MAX_LENGTH {
            return Err(RequirementError::Malformed {
                requirement: truncate_for_message(text),
                reason: format!("it is longer than {MAX_LENGTH} bytes"),
            });
        }
        if text.starts_with('-') {
            return Err(RequirementError::Option { requirement: truncate_for_message(text) });
        }
        match uv_pep508::Requirement::<NoUrl>::from_str(text) {
            Ok(inner) => Ok(Requirement { inner, hashes: Vec::new() }),
            Err(error) => Err(if looks_like_url(text) || matches!(error.message, Pep508ErrorSource::UrlError(_)) {
                RequirementError::Url { requirement: truncate_for_message(text) }
            } else {
                RequirementError::Malformed {
                    requirement: truncate_for_message(text),
                    reason: error.message.to_string().lines().next().unwrap_or_default().to_owned(),
                }
            }),
        }
    }

    /// Creates a requirement for any version of a package. Returns `None` if `name` is not a valid package name.
    pub fn any_version(name: &str) -> Option<Self> {
        let name = PackageName::from_str(name).ok()?;
        Some(Requirement {
            inner: uv_pep508::Requirement {
                name,
                extras: Box::default(),
                version_or_url: None,
                marker: uv_pep508::MarkerTree::TRUE,
                origin: None,
            },
            hashes: Vec::new(),
        })
    }

    /// Creates a requirement for exactly one version of a package.
    pub fn exact(name: &str, version: &str) -> Result<Self, RequirementError> {
        Self::parse(&format!("{name}=={version}"))
    }

    /// Returns the package's name, normalised (PEP 503): lower case, `-` between words.
    pub fn name(&self) -> &str {
        self.inner.name.as_ref()
    }

    /// Returns whether the requirement restricts the package's version.
    pub(crate) fn has_version(&self) -> bool {
        self.inner.version_or_url.is_some()
    }

    /// Converts the requirement to uv's type.
    pub(crate) fn to_uv(&self) -> uv_pep508::Requirement<VerbatimParsedUrl> {
        let inner = self.inner.clone();
        uv_pep508::Requirement {
            name: inner.name,
            extras: inner.extras,
            version_or_url: match inner.version_or_url {
                Some(VersionOrUrl::VersionSpecifier(specifiers)) => Some(VersionOrUrl::VersionSpecifier(specifiers)),
                Some(VersionOrUrl::Url(never)) => match never {},
                None => None,
            },
            marker: inner.marker,
            origin: None,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.inner)
    }
}

impl fmt::Debug for Requirement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Requirement({self})")
    }
}

/// Returns whether a text that is not a requirement looks like a URL or a path.
fn looks_like_url(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    text.contains("://")
        || text.contains('@')
        || word.starts_with(['.', '/', '~'])
        || word.contains(['/', '\\'])
        || word.ends_with(".whl")
        || word.ends_with(".tar.gz")
        || word.to_ascii_lowercase().starts_with("file:")
}

/// Returns the beginning of untrusted text on one line, for use in a message.
pub(crate) fn truncate_for_message(text: &str) -> String {
    const MAX_CHARACTERS: usize = 120;
    let mut line: String = text
        .chars()
        .take(MAX_CHARACTERS)
        .map(|character| if character.is_control() { ' ' } else { character })
        .collect();
    if text.chars().nth(MAX_CHARACTERS).is_some() {
        line.push('…');
    }
    line
}

/// The URL type of a requirement. It has no values, so a requirement cannot contain a URL.
#[derive(Clone, PartialEq, Eq, Debug)]
enum NoUrl {}

#[derive(Debug, thiserror::Error)]
#[error("packages come from the index only")]
struct UrlRefused;

impl Pep508Url for NoUrl {
    type Err = UrlRefused;

    fn parse_url(_url: &str, _working_directory: Option<&Path>) -> Result<Self, UrlRefused> {
        Err(UrlRefused)
    }

    fn displayable_with_credentials(&self) -> impl fmt::Display {
        self
    }
}

impl fmt::Display for NoUrl {
    fn fmt(&self, _formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl CacheKey for NoUrl {
    fn cache_key(&self, _state: &mut CacheKeyHasher) {
        match *self {}
    }
}

#[cfg(test)]
mod tests {
    use super::{Requirement, RequirementError};

    #[test]
    fn requirement_is_parsed_and_its_name_normalised() {
        let requirement = Requirement::parse("Ruamel.YAML[jinja2] >=0.18, <1 ; sys_platform == 'emscripten'").unwrap();
        assert_eq!(requirement.name(), "ruamel-yaml");
        assert_eq!(requirement.to_string(), "ruamel-yaml[jinja2]>=0.18,<1 ; sys_platform == 'emscripten'");
    }

    #[test]
    fn urls_and_paths_are_refused() {
        for text in [
            "x @ https://example.org/x-1-py3-none-any.whl",
            "x@file:///etc/passwd",
            "x @ git+https://example.org/x.git",
            "https://example.org/x-1-py3-none-any.whl",
            "file:///tmp/x",
            "./x",
            "/tmp/x-1-py3-none-any.whl",
            "../x[extra]",
            "x-1-py3-none-any.whl",
            "git+ssh://git@example.org/x",
        ] {
            let error = Requirement::parse(text).unwrap_err();
            assert!(matches!(error, RequirementError::Url { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn options_of_pip_are_refused() {
        for text in ["-e .", "--index-url https://example.org", "-r other.txt", "--find-links /tmp"] {
            let error = Requirement::parse(text).unwrap_err();
            assert!(matches!(error, RequirementError::Option { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn syntax_error_is_reported_on_one_line() {
        let error = Requirement::parse("rich>=>1\nhello").unwrap_err().to_string();
        assert!(error.starts_with("`rich>=>1 hello` is not a requirement: "), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
