//! The policy on packages: names and globs that the operator allows or denies.

use std::fmt;
use std::str::FromStr;

use globset::{GlobBuilder, GlobMatcher};
use serde::{Deserialize, Serialize};

use crate::error::GeneralHint;

/// The maximum number of allowed patterns in the text of a [`PolicyViolation`].
const MAX_SHOWN_PATTERNS: usize = 12;

/// Rules over normalised package names. They apply to every package of a resolution, including dependencies.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    allow: Vec<Rule>,
    deny: Vec<Rule>,
}

/// A pattern that is not valid.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is not a valid pattern for package names: {reason}")]
pub struct PolicyError {
    /// The pattern as given.
    pub pattern: String,
    /// The reason.
    pub reason: String,
}

impl GeneralHint for PolicyError {
    fn general_hint(&self) -> Option<String> {
        Some("use a name or a glob, such as `google-*`".to_owned())
    }
}

/// The reason that a [`Policy`] does not allow a package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PolicyViolation {
    /// A denied pattern matches the package's name.
    Denied {
        /// The pattern.
        pattern: String,
    },
    /// No allowed pattern matches the package's name.
    NotAllowed {
        /// The allowed patterns.
        allowed: Vec<String>,
    },
}

impl fmt::Display for PolicyViolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyViolation::Denied { pattern } => write!(formatter, "`{pattern}` is denied"),
            PolicyViolation::NotAllowed { allowed } => {
                let shown = &allowed[..allowed.len().min(MAX_SHOWN_PATTERNS)];
                let more = if allowed.len() > shown.len() { ", …" } else { "" };
                write!(formatter, "only {}{more} are allowed", shown.join(", "))
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Rule {
    pattern: String,
    matcher: GlobMatcher,
}

impl std::error::Error for PolicyViolation {}

impl Policy {
    /// Creates a policy that allows all packages.
    pub fn unrestricted() -> Self {
        Self::default()
    }

    /// Creates a policy from names and globs. A package that matches `deny` is not allowed. If `allow` is not empty, a
    /// package has to match it as well.
    pub fn new<P: AsRef<str>>(
        allow: impl IntoIterator<Item = P>,
        deny: impl IntoIterator<Item = P>,
    ) -> Result<Self, PolicyError> {
        let rules = |patterns: &mut dyn Iterator<Item = P>| {
            patterns.map(|pattern| pattern.as_ref().parse()).collect::<Result<Vec<Rule>, _>>()
        };
        Ok(Policy { allow: rules(&mut allow.into_iter())?, deny: rules(&mut deny.into_iter())? })
    }

    /// Returns the reason that a package, given by its normalised name, is not allowed, or `None` if it is allowed.
    pub fn violation(&self, name: &str) -> Option<PolicyViolation> {
        if let Some(rule) = self.deny.iter().find(|rule| rule.matcher.is_match(name)) {
            return Some(PolicyViolation::Denied { pattern: rule.pattern.clone() });
        }
        if self.allow.is_empty() || self.allow.iter().any(|rule| rule.matcher.is_match(name)) {
            return None;
        }
        Some(PolicyViolation::NotAllowed { allowed: self.allow.iter().map(|rule| rule.pattern.clone()).collect() })
    }

    /// Returns whether an allowed pattern matches a package and no denied one does.
    pub(crate) fn names(&self, name: &str) -> bool {
        !self.allow.is_empty() && self.violation(name).is_none()
    }

    /// Returns the policy as text, as a part of the key of resolutions made under it.
    pub(crate) fn fingerprint(&self) -> String {
        let join = |rules: &[Rule]| rules.iter().map(|rule| rule.pattern.as_str()).collect::<Vec<_>>().join(",");
        format!("allow={} deny={}", join(&self.allow), join(&self.deny))
    }
}

impl FromStr for Rule {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let refused = |reason: &str| PolicyError { pattern: text.to_owned(), reason: reason.to_owned() };
        // Names are normalised before they are compared, and so are patterns: `Ruamel.*` means `ruamel-*`.
        let mut pattern = String::with_capacity(text.len());
        for character in text.trim().chars() {
            match character.to_ascii_lowercase() {
                '-' | '_' | '.' if pattern.ends_with('-') => {}
                '-' | '_' | '.' => pattern.push('-'),
                character @ ('a'..='z' | '0'..='9' | '*' | '?' | '[' | ']' | '!') => pattern.push(character),
                other => return Err(refused(&format!("it contains {other:?}"))),
            }
        }
        if pattern.is_empty() {
            return Err(refused("it is empty"));
        }
        let glob = GlobBuilder::new(&pattern).build().map_err(|error| refused(&error.kind().to_string()))?;
        Ok(Rule { matcher: glob.compile_matcher(), pattern })
    }
}

#[cfg(test)]
mod tests {
    use super::{Policy, PolicyViolation};

    fn none() -> [&'static str; 0] {
        []
    }

    #[test]
    fn denied_package_is_reported_with_the_matching_pattern() {
        let policy = Policy::new(none(), ["requests", "Google.*"]).unwrap();
        assert_eq!(policy.violation("requests").unwrap().to_string(), "`requests` is denied");
        assert_eq!(policy.violation("google-auth"), Some(PolicyViolation::Denied { pattern: "google-*".into() }));
        assert_eq!(policy.violation("rich"), None);
    }

    #[test]
    fn allow_list_excludes_all_other_packages() {
        let policy = Policy::new(["pydantic*", "rich"], none()).unwrap();
        assert_eq!(policy.violation("pydantic-core"), None);
        assert!(policy.violation("numpy").unwrap().to_string().contains("only pydantic*, rich are allowed"));
    }

    #[test]
    fn deny_takes_precedence_over_allow() {
        let policy = Policy::new(["*"], ["numpy"]).unwrap();
        assert!(policy.violation("numpy").is_some());
        assert_eq!(policy.violation("pandas"), None);
    }

    #[test]
    fn patterns_that_cannot_match_a_name_are_errors() {
        assert!(Policy::new(["a/b"], none()).is_err());
        assert!(Policy::new([""], none()).is_err());
        assert!(Policy::new(["[a"], none()).is_err());
    }
}
