//! Records of installations of packages for code, for logs and observers.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The record of an installation that has ended, or that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallRecord {
    /// The packages that were installed, with their versions: `humanize 4.15.0`. For one that failed, those that were
    /// asked for.
    pub packages: String,
    /// The elapsed time until the code could use the packages, or until the failure.
    pub duration: Duration,
    /// The reason of a failure, in one line.
    pub error: Option<String>,
}

impl InstallRecord {
    /// Creates the record of an installation that began at `begin` and has just succeeded.
    pub fn succeeded(packages: impl Display, begin: Instant) -> Self {
        Self { packages: packages.to_string(), duration: begin.elapsed(), error: None }
    }

    /// Creates the record of an installation that began at `begin` and has just failed. Hints, which follow an error on
    /// lines of their own, are left out.
    pub fn failed(packages: impl Display, error: impl Display, begin: Instant) -> Self {
        let error = error.to_string().lines().next().unwrap_or_default().to_owned();
        Self { packages: packages.to_string(), duration: begin.elapsed(), error: Some(error) }
    }

    /// Returns the packages, if they were installed.
    pub fn installed(&self) -> Option<&str> {
        self.error.is_none().then_some(&*self.packages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_has_the_error_without_its_hint() {
        let begin = Instant::now();
        let failed = InstallRecord::failed("rich", "`rich` is not allowed\nhint: use another package", begin);
        assert_eq!((failed.installed(), failed.error.as_deref()), (None, Some("`rich` is not allowed")));
        assert_eq!(InstallRecord::succeeded("rich 14.0.0", begin).installed(), Some("rich 14.0.0"));
    }
}
