//! Errors of resolving and fetching packages, and general hints on what to do about them.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use belljar_cache::CacheError;
use belljar_core::TOOLS_MODULE;

use crate::platform::PlatformError;
use crate::policy::PolicyViolation;
use crate::requirement::RequirementError;
use crate::wheel::WheelError;

/// The maximum length of a message with its hint, in bytes. A model reads all of it.
const MAX_MESSAGE: usize = 1900;
/// The maximum length of a hint, in bytes.
const MAX_HINT: usize = 600;

/// Returns a message of at most 1,900 bytes: omits the middle of a longer one.
pub fn shorten_message(text: &str) -> String {
    shorten(text, MAX_MESSAGE)
}

/// Omits the middle of a text of more than `max` bytes.
pub(crate) fn shorten(text: &str, max: usize) -> String {
    const OMITTED: &str = " […] ";
    if text.len() <= max {
        return text.to_owned();
    }
    let room = max.saturating_sub(OMITTED.len());
    let head = text.floor_char_boundary(room * 2 / 3);
    let tail = text.ceil_char_boundary(text.len() - room / 3);
    format!("{}{OMITTED}{}", &text[..head], &text[tail..])
}

/// An error with a hint that is useful to the author of the code, whatever the front end.
///
/// The author is often a model. Hints that name options or variables are written by the front end, which matches on the
/// error's variants.
pub trait GeneralHint: std::error::Error {
    /// Returns what to do about the error, or `None` if there is nothing to add to the message.
    fn general_hint(&self) -> Option<String>;

    /// Returns the message, followed by the hint on a line of its own: at most 1,900 bytes.
    fn with_general_hint(&self) -> String {
        const SEPARATOR: &str = "\nhint: ";
        match self.general_hint() {
            Some(hint) => {
                let hint = shorten(&hint, MAX_HINT);
                let message = shorten(&self.to_string(), MAX_MESSAGE - SEPARATOR.len() - hint.len());
                format!("{message}{SEPARATOR}{hint}")
            }
            None => shorten_message(&self.to_string()),
        }
    }
}

/// A failure to resolve or to fetch packages.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Installing is disabled, and packages are missing.
    #[error("failed to install {}: installing is disabled", .packages.join(", "))]
    InstallDisabled {
        /// The requirements that are not met.
        packages: Vec<String>,
    },

    /// The policy does not allow a package, which the code or another package requires.
    #[error("{name} is not allowed: {violation}{}", required_by_suffix(.required_by))]
    Denied {
        /// The package.
        name: String,
        /// The violated rule.
        violation: PolicyViolation,
        /// The package that requires it, unless the code itself does.
        required_by: Option<String>,
    },

    /// A package requires another one by its URL.
    #[error("{name} is not allowed: a package requires it by URL ({url}), and packages come from the index only")]
    UrlDependency {
        /// The required package.
        name: String,
        /// The URL.
        url: String,
    },

    /// No index has a package of that name.
    #[error("{name}: the package index has no package of this name")]
    UnknownPackage {
        /// The package.
        name: String,
        /// Similar names, nearest first.
        suggestions: Vec<String>,
    },

    /// The package is only inferred from an import, and its name resembles that of a well-known package.
    #[error("{name}: not installed for an import alone, since its name resembles {}", .suggestions.join(", "))]
    Lookalike {
        /// The package.
        name: String,
        /// The well-known packages and modules that the name resembles, nearest first.
        suggestions: Vec<String>,
    },

    /// The package exists, but has no wheel for this platform.
    #[error("{name}: no wheel for this platform ({platform}){}: {detail}", required_by_suffix(.required_by))]
    NoWheel {
        /// The package.
        name: String,
        /// The Python version and the platform.
        platform: String,
        /// The package that requires it, unless the code itself does.
        required_by: Option<String>,
        /// The available versions and their platforms.
        detail: String,
        /// True if Pyodide has a wheel, but its server is unreachable.
        in_pyodide: bool,
        /// True if the newest version has a wheel for Linux.
        for_linux: bool,
    },

    /// Only a release can be installed that is more than two years older than the newest one.
    #[error("{name}: {newest}, its newest release, cannot be installed, only {version} of {year}. {reason}")]
    OldRelease {
        /// The package.
        name: String,
        /// The newest version that can be installed.
        version: String,
        /// The year of its upload.
        year: i64,
        /// The newest version.
        newest: String,
        /// The error of resolving without old releases.
        reason: Box<InstallError>,
    },

    /// No set of versions satisfies all requirements.
    #[error("the requirements conflict: {explanation}")]
    Conflict {
        /// The resolver's proof, shortened.
        explanation: String,
        /// The resolver's hints.
        hints: Vec<String>,
    },

    /// A file or an index page would have to be downloaded.
    #[error("{name}: not in the cache, and Belljar is offline")]
    Offline {
        /// The package or the file.
        name: String,
    },

    /// A request to an index or to a server of wheels failed.
    #[error("failed to reach the package index: {cause}")]
    Network {
        /// The chain of causes, which includes the host's name.
        cause: String,
    },

    /// The server does not have a file that the index lists.
    #[error("{file}: not found on its server ({url})")]
    MissingFile {
        /// The wheel's file name.
        file: String,
        /// The file's URL, without credentials.
        url: String,
    },

    /// A file differs from the hash that the index, a lock or a requirement gives for it.
    #[error("{file}: its SHA-256 is {actual}, expected {expected}")]
    HashMismatch {
        /// The wheel's file name.
        file: String,
        /// The expected SHA-256.
        expected: String,
        /// The actual SHA-256.
        actual: String,
    },

    /// The index gives no hash for a file.
    #[error("{file}: the index gives no SHA-256 for it, and unverified files are not installed")]
    NoHash {
        /// The wheel's file name.
        file: String,
    },

    /// A file exceeds the size limit for downloads.
    #[error("{file}: larger than the limit of {} MiB", .limit / 1_048_576)]
    TooLarge {
        /// The wheel's file name.
        file: String,
        /// The limit in bytes.
        limit: u64,
    },

    /// The time limit for installing was reached.
    #[error("installing took longer than {} s: {doing}", .limit.as_secs())]
    Timeout {
        /// The step that was in progress.
        doing: String,
        /// The time limit.
        limit: Duration,
    },

    /// The value of a setting is not valid.
    #[error("invalid {setting} `{value}`: {reason}")]
    Setting {
        /// The setting.
        setting: Setting,
        /// Its value, without credentials.
        value: String,
        /// The reason.
        reason: String,
    },

    /// A requirement is refused or malformed.
    #[error(transparent)]
    Requirement(#[from] RequirementError),

    /// A wheel is damaged or malicious.
    #[error(transparent)]
    Wheel(#[from] WheelError),

    /// The cache failed.
    #[error(transparent)]
    Cache(#[from] CacheError),

    /// The description of the platform is not valid.
    #[error(transparent)]
    Platform(#[from] PlatformError),

    /// A file outside of the cache could not be read or written.
    #[error("failed to {action} {}: {source}", .path.display())]
    Io {
        /// The operation that failed.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },

    /// An error of Belljar itself or of a library.
    #[error("internal error while installing: {reason}")]
    Internal {
        /// The failure.
        reason: String,
    },
}

/// A setting with a value that can be invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// [`Settings::index_url`](crate::Settings::index_url).
    IndexUrl,
    /// [`Settings::extra_index_urls`](crate::Settings::extra_index_urls).
    ExtraIndexUrl,
    /// [`Settings::find_links`](crate::Settings::find_links).
    FindLinks,
    /// [`Settings::exclude_newer`](crate::Settings::exclude_newer).
    ExcludeNewer,
    /// [`Settings::constraints`](crate::Settings::constraints).
    Constraints,
    /// [`Settings::policy`](crate::Settings::policy).
    Policy,
    /// [`Settings::certificates`](crate::Settings::certificates).
    Certificates,
    /// [`Settings::insecure_hosts`](crate::Settings::insecure_hosts).
    InsecureHost,
    /// [`PyodideSource::base_url`](crate::PyodideSource::base_url).
    PyodideUrl,
    /// [`PyodideSource::lock`](crate::PyodideSource::lock).
    PyodideLock,
}

impl fmt::Display for Setting {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Setting::IndexUrl => "package index",
            Setting::ExtraIndexUrl => "extra package index",
            Setting::FindLinks => "find-links location",
            Setting::ExcludeNewer => "exclude-newer date",
            Setting::Constraints => "constraints file",
            Setting::Policy => "package name pattern",
            Setting::Certificates => "certificate file",
            Setting::InsecureHost => "insecure host",
            Setting::PyodideUrl => "URL of Pyodide's wheels",
            Setting::PyodideLock => "Pyodide lock file",
        })
    }
}

impl GeneralHint for InstallError {
    fn general_hint(&self) -> Option<String> {
        match self {
            InstallError::InstallDisabled { .. } => {
                Some("use the standard library or packages that are already installed".to_owned())
            }
            InstallError::Denied { .. } | InstallError::UrlDependency { .. } => {
                Some("use another package, or the standard library".to_owned())
            }
            InstallError::UnknownPackage { suggestions, .. } if suggestions.is_empty() => {
                Some("check the spelling; the name to install may differ from the name to import".to_owned())
            }
            InstallError::UnknownPackage { suggestions, .. } => {
                Some(format!("did you mean {}?", suggestions.join(" or ")))
            }
            InstallError::Lookalike { name, .. } if name == TOOLS_MODULE => Some(
                "the module tools has the tools of MCP servers, and no servers are configured here; if the package of \
                 this name is meant, declare it: `# /// script`, `# dependencies = [\"tools\"]`, `# ///`"
                    .to_owned(),
            ),
            InstallError::Lookalike { name, suggestions } => Some(format!(
                "did you mean {}? If {name} itself is meant, declare it: `# /// script`, `# dependencies = \
                 [\"{name}\"]`, `# ///`",
                suggestions.join(" or ")
            )),
            InstallError::NoWheel { in_pyodide: false, for_linux: true, .. } => Some(
                "use another package that is pure Python, or the standard library; native kernels can install this one"
                    .to_owned(),
            ),
            InstallError::NoWheel { in_pyodide: false, .. } => {
                Some("use another package that is pure Python, or the standard library".to_owned())
            }
            InstallError::OldRelease { name, version, reason, .. } => {
                let old = format!("to use the old release, ask for it: dependencies = [\"{name}=={version}\"]");
                Some(reason.general_hint().map_or_else(|| old.clone(), |hint| format!("{hint}\nhint: {old}")))
            }
            InstallError::Conflict { hints, .. } if !hints.is_empty() => Some(hints.join("\nhint: ")),
            InstallError::HashMismatch { .. } => {
                Some("do not use this file; report it to the operator of the index or mirror".to_owned())
            }
            InstallError::Requirement(error) => error.general_hint(),
            _ => None,
        }
    }
}

fn required_by_suffix(required_by: &Option<String>) -> String {
    match required_by {
        Some(name) => format!(" (required by {name})"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{GeneralHint, InstallError, shorten};

    #[test]
    fn messages_with_hints_are_at_most_2_kb() {
        let long = "ä".repeat(100_000);
        for error in [
            InstallError::UnknownPackage { name: long.clone(), suggestions: vec![long.clone()] },
            InstallError::Lookalike { name: long.clone(), suggestions: vec![long.clone()] },
            InstallError::Conflict { explanation: long.clone(), hints: vec![long.clone(), long.clone()] },
            InstallError::InstallDisabled { packages: vec!["a".into(); 100_000] },
            InstallError::Network { cause: long },
        ] {
            let text = error.with_general_hint();
            assert!(text.len() < 2000 && text.contains(" […] "), "{text}");
        }
    }

    #[test]
    fn beginning_and_end_of_a_long_text_are_kept() {
        assert_eq!(shorten("short", 5), "short");
        let text = shorten(&format!("begin{}end", "x".repeat(1000)), 100);
        assert!(text.len() <= 100 && text.starts_with("begin") && text.ends_with("end"), "{text}");
    }
}
