//! One requirement: a name, extras, versions and a marker. Never an address or a path.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use uv_cache_key::{CacheKey, CacheKeyHasher};
use uv_normalize::PackageName;
use uv_pep508::{Pep508ErrorSource, Pep508Url, VersionOrUrl};
use uv_pypi_types::VerbatimParsedUrl;

/// Longest requirement that is read: a line of a lock file with its hashes is far shorter.
const MAX_LENGTH: usize = 4096;

/// A requirement as PEP 508 writes it, without the form `NAME @ URL`.
#[derive(Clone, PartialEq, Eq)]
pub struct Requirement {
    inner: uv_pep508::Requirement<NoUrl>,
    /// `sha256:…` digests of which the chosen wheel must have one. Empty: any wheel of the index will do.
    pub(crate) hashes: Vec<String>,
}

/// Why a requirement is refused.
#[derive(Debug, thiserror::Error)]
pub enum RequirementError {
    /// It names where the package comes from.
    #[error(
        "`{requirement}` is refused: packages come from the configured index only, never from a URL, a path or a repository\n\
         hint: name the package and, if need be, a version, such as `name==1.2.3`"
    )]
    Address {
        /// The requirement as given, shortened.
        requirement: String,
    },

    /// It is an option of pip, such as `-e` or `--index-url`.
    #[error("`{requirement}` is refused: it is an option, not a requirement\nhint: {hint}")]
    Option {
        /// The line as given, shortened.
        requirement: String,
        /// What to do instead.
        hint: &'static str,
    },

    /// It cannot be read.
    #[error("`{requirement}` is not a requirement: {reason}\nhint: write `name`, `name==1.2.3` or `name[extra]>=1,<2`")]
    Malformed {
        /// The requirement as given, shortened.
        requirement: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Requirement {
    /// Reads a requirement: `rich`, `rich<13`, `httpx[http2]>=0.27; python_version >= "3.9"`.
    pub fn parse(text: &str) -> Result<Self, RequirementError> {
        let text = text.trim();
        if text.len() > MAX_LENGTH {
            return Err(RequirementError::Malformed {
                requirement: shortened(text),
                reason: format!("it is longer than {MAX_LENGTH} bytes"),
            });
        }
        if text.starts_with('-') {
            return Err(RequirementError::Option {
                requirement: shortened(text),
                hint: "indexes and directories of wheels are chosen by whoever starts Belljar, not by what it runs",
            });
        }
        match uv_pep508::Requirement::<NoUrl>::from_str(text) {
            Ok(inner) => Ok(Requirement { inner, hashes: Vec::new() }),
            Err(error) => Err(if names_an_address(text) || matches!(error.message, Pep508ErrorSource::UrlError(_)) {
                RequirementError::Address { requirement: shortened(text) }
            } else {
                RequirementError::Malformed {
                    requirement: shortened(text),
                    reason: error.message.to_string().lines().next().unwrap_or_default().to_owned(),
                }
            }),
        }
    }

    /// Any version of a package. `None` when the name is not one that a package can have.
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

    /// Exactly one version of a package.
    pub fn exact(name: &str, version: &str) -> Result<Self, RequirementError> {
        Self::parse(&format!("{name}=={version}"))
    }

    /// The package's name, normalised (PEP 503): lower case, `-` between words.
    pub fn name(&self) -> &str {
        self.inner.name.as_ref()
    }

    /// Whether it asks for one version only (`==`).
    pub fn is_exact(&self) -> bool {
        match &self.inner.version_or_url {
            Some(VersionOrUrl::VersionSpecifier(specifiers)) => {
                specifiers.iter().any(|specifier| *specifier.operator() == uv_pep440::Operator::Equal)
            }
            _ => false,
        }
    }

    /// The form that uv works with.
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

/// Whether a text that is no requirement looks like a URL or a path.
fn names_an_address(text: &str) -> bool {
    let word = text.split_whitespace().next().unwrap_or_default();
    text.contains("://")
        || text.contains('@')
        || word.starts_with(['.', '/', '~'])
        || word.contains(['/', '\\'])
        || word.ends_with(".whl")
        || word.ends_with(".tar.gz")
        || word.to_ascii_lowercase().starts_with("file:")
}

/// The beginning of a text that came from outside, on one line, for a message.
pub(crate) fn shortened(text: &str) -> String {
    const SHOWN: usize = 120;
    let mut line: String =
        text.chars().take(SHOWN).map(|character| if character.is_control() { ' ' } else { character }).collect();
    if text.chars().nth(SHOWN).is_some() {
        line.push('…');
    }
    line
}

/// The address in a requirement: there can be none.
#[derive(Clone, PartialEq, Eq, Debug)]
enum NoUrl {}

#[derive(Debug, thiserror::Error)]
#[error("packages come from the configured index only")]
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
    fn names_versions_extras_and_markers_are_read_and_names_normalised() {
        let requirement = Requirement::parse("Ruamel.YAML[jinja2] >=0.18, <1 ; sys_platform == 'emscripten'").unwrap();
        assert_eq!(requirement.name(), "ruamel-yaml");
        assert_eq!(requirement.to_string(), "ruamel-yaml[jinja2]>=0.18,<1 ; sys_platform == 'emscripten'");
        assert!(Requirement::parse("rich==13.0").unwrap().is_exact());
        assert!(!Requirement::parse("rich<13").unwrap().is_exact());
    }

    #[test]
    fn whatever_names_a_place_is_refused_as_such() {
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
            assert!(matches!(error, RequirementError::Address { .. }), "{text}: {error}");
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
    fn nonsense_is_answered_with_what_is_wrong_on_one_line() {
        let error = Requirement::parse("rich>=>1\nhello").unwrap_err().to_string();
        assert!(error.starts_with("`rich>=>1 hello` is not a requirement: "), "{error}");
        assert_eq!(error.lines().count(), 2, "{error}");
    }
}
