//! The check that a resolution does not fall back to an old release of a package.
//!
//! If the newest releases of a package cannot be installed, for example because one of their dependencies has no wheel,
//! uv goes back to the last release that can be, which may be years old. The code was not written for that one. Unless
//! a version was asked for, the newest release's error is more useful.

use super::engine::Engine;
use super::explain::{Availability, Version};
use crate::error::InstallError;
use crate::requirement::Requirement;
use crate::resolution::{FileSource, PinnedFile, Resolution};

/// The maximum time between the uploads of the newest release and of the chosen one, in milliseconds: two years.
const MAX_AGE_MS: i64 = 2 * MS_PER_YEAR;
const MS_PER_YEAR: i64 = 31_556_952_000;

/// A package of a resolution whose release is too old.
pub(super) struct OldRelease {
    name: String,
    version: String,
    year: i64,
    newest: String,
    /// The requirement that excludes old releases.
    pub(super) recent: Requirement,
}

impl OldRelease {
    /// Returns the error for a resolution whose only solution has this release. `reason` is the error of resolving
    /// without old releases.
    pub(super) fn error(self, reason: InstallError) -> InstallError {
        let Self { name, version, year, newest, .. } = self;
        InstallError::OldRelease { name, version, year, newest, reason: Box::new(reason) }
    }
}

impl Engine {
    /// Returns the first package that `requirements` name without a version and that was resolved to a release which is
    /// more than two years older than the newest one. Releases without an upload time do not count.
    pub(super) async fn old_release(
        &self,
        requirements: &[Requirement],
        constraints: &[Requirement],
        resolution: &Resolution,
    ) -> Option<OldRelease> {
        for requirement in requirements.iter().filter(|requirement| !requirement.has_version()) {
            let is_same = |other: &&Requirement| other.name() == requirement.name();
            let mut constraints = constraints.iter().chain(&self.settings.constraints).chain(requirements);
            if constraints.any(|constraint| is_same(&constraint) && constraint.has_version()) {
                continue;
            }
            let pinned = resolution.get(requirement.name()).filter(|pinned| pinned.source == FileSource::Index);
            if let Some(pinned) = pinned
                && let Ok(name) = requirement.name().parse()
                && let Availability::Found(versions) = self.availability(&name).await
                && let Some(old) = check(pinned, &versions)
            {
                return Some(old);
            }
        }
        None
    }
}

/// Returns a description of `pinned` if it is too old. `versions` are those of the package, newest first.
fn check(pinned: &PinnedFile, versions: &[Version]) -> Option<OldRelease> {
    let chosen = versions.iter().find(|version| version.version.to_string() == pinned.version)?;
    let uploaded = chosen.uploaded?;
    let stable = || versions.iter().filter(|version| !version.version.any_prerelease());
    let newest = stable().find(|version| version.uploaded.is_some())?;
    let limit = newest.uploaded? - MAX_AGE_MS;
    if uploaded >= limit || chosen.version >= newest.version {
        return None;
    }
    let oldest_recent = stable().rfind(|version| version.uploaded.is_some_and(|time| time >= limit))?;
    Some(OldRelease {
        name: pinned.name.clone(),
        version: pinned.version.clone(),
        year: 1970 + uploaded.div_euclid(MS_PER_YEAR),
        newest: newest.version.to_string(),
        recent: Requirement::parse(&format!("{}>={}", pinned.name, oldest_recent.version)).ok()?,
    })
}
