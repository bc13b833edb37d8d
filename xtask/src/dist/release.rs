//! The facts of a release: version, time, and where its files are published.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo_graph::cargo_metadata;

/// A release of the program.
#[derive(Debug)]
pub(super) struct Release {
    /// The root of the workspace, with the documents.
    pub(super) root: PathBuf,
    pub(super) version: String,
    /// One sentence without a full stop.
    pub(super) description: String,
    pub(super) repository: String,
    /// The time of every file, in seconds since 1970.
    pub(super) epoch: u64,
}

impl Release {
    /// Returns the release that the sources of the workspace describe.
    ///
    /// # Errors
    ///
    /// Fails if Cargo's metadata lacks a field, or the time is not known.
    pub(super) fn of_workspace(root: &Path) -> Result<Self, String> {
        let metadata = cargo_metadata(root, &["--no-deps"])?;
        let packages = metadata["packages"].as_array().into_iter().flatten();
        let package = packages.into_iter().find(|package| package["name"] == "belljar");
        let package = package.ok_or("the workspace does not have the package belljar")?;
        let field = |name: &str| {
            let text = package[name].as_str().ok_or_else(|| format!("the package belljar has no {name}"));
            text.map(str::to_owned)
        };
        Ok(Self {
            root: root.to_owned(),
            version: field("version")?,
            description: field("description")?,
            repository: field("repository")?,
            epoch: epoch(root, std::env::var("SOURCE_DATE_EPOCH").ok().as_deref())?,
        })
    }

    /// Returns the address of a file of the release.
    pub(super) fn address(&self, name: &str) -> String {
        format!("{}/releases/download/v{}/{name}", self.repository, self.version)
    }
}

/// Returns the time of a release: the value of `SOURCE_DATE_EPOCH`, or that of the last commit.
fn epoch(root: &Path, variable: Option<&str>) -> Result<u64, String> {
    let (text, source) = if let Some(text) = variable {
        (text.to_owned(), "SOURCE_DATE_EPOCH")
    } else {
        let output = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root).output();
        let output = output.map_err(|error| format!("failed to start git: {error}"))?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("failed to read the time of the last commit; set SOURCE_DATE_EPOCH: {reason}"));
        }
        (String::from_utf8_lossy(&output.stdout).into_owned(), "the time of the last commit")
    };
    text.trim().parse().map_err(|_| format!("{source} is not a number of seconds: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_that_of_the_variable_or_of_the_last_commit() {
        let root = crate::workspace::workspace().unwrap();
        assert_eq!(epoch(&root, Some("1700000000")).unwrap(), 1_700_000_000);
        assert!(epoch(&root, Some("yesterday")).unwrap_err().contains("SOURCE_DATE_EPOCH"));
        // A directory outside of a checkout has no last commit.
        let elsewhere = tempfile::tempdir().unwrap();
        assert!(epoch(elsewhere.path(), None).unwrap_err().contains("last commit"));
    }
}
