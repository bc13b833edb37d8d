//! The list of installed packages that users see.

use std::fmt;
use std::time::Instant;

use belljar_core::InstallRecord;
use belljar_packages::Dependencies;

use crate::packages::PackageSet;

/// The maximum number of packages that are listed with their versions.
const MAX_LISTED: usize = 20;

/// The packages that were installed for a piece of code, as text: `humanize 4.15.0, rich 14.0.0 and 4 dependencies`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstalledPackages {
    /// The names and versions of the packages that the code or its caller asked for.
    named: Vec<String>,
    /// The number of packages that those depend on.
    dependencies: usize,
}

impl InstalledPackages {
    /// Creates the list of the packages of `set`, of which `needs` asked for some.
    pub fn new(set: &PackageSet, needs: &Dependencies) -> Self {
        Self::between(&PackageSet::empty(), set, needs)
    }

    /// Creates the list of the packages that `after` has in addition to `before`, of which `needs` asked for some.
    pub fn between(before: &PackageSet, after: &PackageSet, needs: &Dependencies) -> Self {
        let mut list = Self::default();
        for id in after.wheel_ids().filter(|id| !before.wheel_ids().any(|present| present == *id)) {
            let is_named = needs.required().chain(&needs.optional).any(|requirement| requirement.name() == id.name);
            list.add(&id.name, &id.version, is_named);
        }
        list
    }

    pub(super) fn add(&mut self, name: &str, version: &str, is_named: bool) {
        if is_named && self.named.len() < MAX_LISTED {
            self.named.push(format!("{name} {version}"));
        } else {
            self.dependencies += 1;
        }
    }

    /// Returns whether no packages were installed.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.dependencies == 0
    }
}

/// Returns the record of packages that were not installed, by their names and the reasons, if there are any.
pub(crate) fn record_of_missing<'a>(
    missing: impl Iterator<Item = (&'a str, &'a str)>,
    begin: Instant,
) -> Option<InstallRecord> {
    // Hints are on lines of their own.
    let first_line = |reason: &'a str| reason.lines().next().unwrap_or_default();
    let (names, reasons): (Vec<&str>, Vec<&str>) = missing.map(|(name, reason)| (name, first_line(reason))).unzip();
    (!names.is_empty()).then(|| InstallRecord::failed(names.join(", "), reasons.join("; "), begin))
}

impl fmt::Display for InstalledPackages {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.named.join(", "))?;
        let and = if self.named.is_empty() { "" } else { " and " };
        match self.dependencies {
            0 => Ok(()),
            1 => write!(formatter, "{and}1 dependency"),
            count => write!(formatter, "{and}{count} dependencies"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::InstalledPackages;

    #[test]
    fn named_packages_have_versions_and_the_others_are_counted() {
        let mut list = InstalledPackages::default();
        assert!(list.is_empty());
        list.add("rich", "14.0", true);
        assert_eq!(list.to_string(), "rich 14.0");
        list.add("pygments", "2", false);
        assert_eq!(list.to_string(), "rich 14.0 and 1 dependency");
        list.add("mdurl", "1", false);
        list.add("humanize", "4.15.0", true);
        assert_eq!(list.to_string(), "rich 14.0, humanize 4.15.0 and 2 dependencies");
    }
}
