//! Why packages could not be had, in words that whoever wrote the code (often a model) can act on.

use std::path::PathBuf;
use std::time::Duration;

use belljar_cache::CacheError;

use crate::requirement::RequirementError;
use crate::wheel::WheelError;

/// A failure to resolve or to fetch packages. The message's last line may be a hint: what to do next.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Installing is switched off, and something is missing.
    #[error(
        "packages are needed, and installing is switched off (--no-install): {}\nhint: use the standard library, or what is installed already",
        .packages.join(", ")
    )]
    NoInstall {
        /// The requirements that could not be met.
        packages: Vec<String>,
    },

    /// A package, asked for or asked for by another, is not allowed.
    #[error("{name}: not allowed here: {rule}{}\nhint: use another package, or the standard library", via(.required_by))]
    Refused {
        /// The package.
        name: String,
        /// The rule that refuses it.
        rule: String,
        /// The package that asks for it, where it is not the code itself.
        required_by: Option<String>,
    },

    /// No index has a package of that name.
    #[error("{name}: there is no package of this name in the package index{}", did_you_mean(.suggestions))]
    Unknown {
        /// The package.
        name: String,
        /// Names that look like it, nearest first.
        suggestions: Vec<String>,
    },

    /// The package exists, but not as a wheel that this platform can use.
    #[error("{name}: no wheel for this platform ({platform}){}\n{detail}\nhint: {hint}", via(.required_by))]
    NoWheel {
        /// The package.
        name: String,
        /// The Python and the platform that wheels were sought for.
        platform: String,
        /// The package that asks for it, where it is not the code itself.
        required_by: Option<String>,
        /// What there is: versions, and for which platforms.
        detail: String,
        /// What to do next.
        hint: String,
    },

    /// No set of versions satisfies all requirements.
    #[error("the requirements cannot be met together: {explanation}{}", hint_lines(.hints))]
    Conflict {
        /// The resolver's proof.
        explanation: String,
        /// What to do next.
        hints: Vec<String>,
    },

    /// It would have to be downloaded.
    #[error(
        "{what}: not in the cache, and Belljar is offline\nhint: run once online, or name a directory of wheels with --find-links"
    )]
    Offline {
        /// The package or the file.
        what: String,
    },

    /// An index or a server of wheels did not answer as it should.
    #[error(
        "cannot reach the package index: {cause}\nhint: check the network, the proxy settings and the index's address; with the packages in the cache, --offline works without them"
    )]
    Network {
        /// The whole chain of causes, which names the host.
        cause: String,
    },

    /// The index lists a file that its server does not have.
    #[error("{file}: the server does not have it ({url})")]
    Absent {
        /// The wheel's file name.
        file: String,
        /// Where it should be, without credentials.
        url: String,
    },

    /// The bytes are not those that the index, a lock or a requirement promised.
    #[error(
        "{file}: its content is not what was promised: sha256 is {actual}, not {expected}\nhint: do not use this file; tell the operator of the index or mirror"
    )]
    HashMismatch {
        /// The wheel's file name.
        file: String,
        /// The sha256 promised.
        expected: String,
        /// The sha256 found.
        actual: String,
    },

    /// There is no hash to check a file with.
    #[error(
        "{file}: the index gives no sha256 for it, and nothing is installed unchecked\nhint: use an index that gives hashes, or download the wheel into a directory and name that with --find-links"
    )]
    NoHash {
        /// The wheel's file name.
        file: String,
    },

    /// A file is larger than anything that is downloaded.
    #[error("{file}: larger than the {} MiB that are downloaded at most", .limit / 1_048_576)]
    TooLarge {
        /// The wheel's file name.
        file: String,
        /// The limit in bytes.
        limit: u64,
    },

    /// The time allowed for installing is over.
    #[error("installing took longer than {} s: {doing}\nhint: allow more time (--install-timeout), or install beforehand with `belljar packages download`", .limit.as_secs())]
    Timeout {
        /// What was being done.
        doing: String,
        /// The time allowed.
        limit: Duration,
    },

    /// A setting (an address, a date) is not valid.
    #[error("{setting}: {reason}")]
    Setting {
        /// The option or environment variable, with its value.
        setting: String,
        /// What is wrong with it.
        reason: String,
    },

    /// A requirement is refused or cannot be read.
    #[error(transparent)]
    Requirement(#[from] RequirementError),

    /// A wheel is damaged or hostile.
    #[error(transparent)]
    Wheel(#[from] WheelError),

    /// The cache failed.
    #[error(transparent)]
    Cache(#[from] CacheError),

    /// A file outside of the cache could not be read or written.
    #[error("cannot {action} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// A fault of Belljar or of a library it uses.
    #[error("installing failed by a fault of Belljar: {what}")]
    Internal {
        /// What went wrong.
        what: String,
    },
}

fn via(required_by: &Option<String>) -> String {
    match required_by {
        Some(name) => format!(" (required by {name})"),
        None => String::new(),
    }
}

fn did_you_mean(suggestions: &[String]) -> String {
    if suggestions.is_empty() {
        return "\nhint: check the spelling; the name to install may differ from the name to import".to_owned();
    }
    format!("\nhint: did you mean {}?", suggestions.join(" or "))
}

fn hint_lines(hints: &[String]) -> String {
    hints.iter().map(|hint| format!("\nhint: {hint}")).collect()
}
