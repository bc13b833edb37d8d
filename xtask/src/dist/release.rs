//! The facts of a release: version, time, and where its files are published.

use std::path::{Path, PathBuf};

use crate::cargo_graph::cargo_metadata;
use crate::reproducible::epoch;

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
            epoch: epoch(root)?,
        })
    }

    /// Returns the address of a file of the release.
    pub(super) fn address(&self, name: &str) -> String {
        format!("{}/releases/download/v{}/{name}", self.repository, self.version)
    }
}
