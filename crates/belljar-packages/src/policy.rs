//! Which packages may be installed at all: names and globs that whoever starts Belljar allows or denies.

use std::str::FromStr;

use globset::{GlobBuilder, GlobMatcher};

/// Rules over normalised package names. They hold for every package of a resolution, those that others ask for too.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    allow: Vec<Rule>,
    deny: Vec<Rule>,
}

/// A pattern that is none.
#[derive(Debug, thiserror::Error)]
#[error("`{pattern}` is not a pattern of package names: {reason}\nhint: use a name or a glob, such as `google-*`")]
pub struct PolicyError {
    /// The pattern as given.
    pub pattern: String,
    /// What is wrong with it.
    pub reason: String,
}

#[derive(Debug, Clone)]
struct Rule {
    pattern: String,
    matcher: GlobMatcher,
}

impl Policy {
    /// Everything is allowed.
    pub fn unrestricted() -> Self {
        Self::default()
    }

    /// A policy of names and globs. What `deny` matches is refused; if `allow` is not empty, so is all that it does
    /// not match.
    pub fn new<P: AsRef<str>>(
        allow: impl IntoIterator<Item = P>,
        deny: impl IntoIterator<Item = P>,
    ) -> Result<Self, PolicyError> {
        let rules = |patterns: &mut dyn Iterator<Item = P>| {
            patterns.map(|pattern| pattern.as_ref().parse()).collect::<Result<Vec<Rule>, _>>()
        };
        Ok(Policy { allow: rules(&mut allow.into_iter())?, deny: rules(&mut deny.into_iter())? })
    }

    /// Why a package, by its normalised name, is not to be installed; `None` when it may be.
    pub fn objection(&self, name: &str) -> Option<String> {
        if let Some(rule) = self.deny.iter().find(|rule| rule.matcher.is_match(name)) {
            return Some(format!("`{}` is denied (--deny-packages)", rule.pattern));
        }
        if self.allow.is_empty() || self.allow.iter().any(|rule| rule.matcher.is_match(name)) {
            return None;
        }
        let allowed: Vec<_> = self.allow.iter().take(12).map(|rule| rule.pattern.as_str()).collect();
        let more = if self.allow.len() > allowed.len() { ", …" } else { "" };
        Some(format!("only {}{more} are allowed (--allow-packages)", allowed.join(", ")))
    }

    /// What resolutions that were made under this policy depend on.
    pub(crate) fn fingerprint(&self) -> String {
        let join = |rules: &[Rule]| rules.iter().map(|rule| rule.pattern.as_str()).collect::<Vec<_>>().join(",");
        format!("allow={} deny={}", join(&self.allow), join(&self.deny))
    }
}

impl FromStr for Rule {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let refused = |reason: &str| PolicyError { pattern: text.to_owned(), reason: reason.to_owned() };
        // Names are compared normalised, and so are patterns: `Ruamel.*` means `ruamel-*`.
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
    use super::Policy;

    fn none() -> [&'static str; 0] {
        []
    }

    #[test]
    fn what_is_denied_is_refused_by_the_rule_that_says_so() {
        let policy = Policy::new(none(), ["requests", "Google.*"]).unwrap();
        assert_eq!(policy.objection("requests").unwrap(), "`requests` is denied (--deny-packages)");
        assert!(policy.objection("google-auth").unwrap().contains("`google-*`"));
        assert_eq!(policy.objection("rich"), None);
    }

    #[test]
    fn when_some_are_allowed_no_others_are() {
        let policy = Policy::new(["pydantic*", "rich"], none()).unwrap();
        assert_eq!(policy.objection("pydantic-core"), None);
        assert!(policy.objection("numpy").unwrap().contains("only pydantic*, rich are allowed"));
    }

    #[test]
    fn denying_wins_over_allowing() {
        let policy = Policy::new(["*"], ["numpy"]).unwrap();
        assert!(policy.objection("numpy").is_some());
        assert_eq!(policy.objection("pandas"), None);
    }

    #[test]
    fn patterns_that_match_no_name_are_errors() {
        assert!(Policy::new(["a/b"], none()).is_err());
        assert!(Policy::new([""], none()).is_err());
        assert!(Policy::new(["[a"], none()).is_err());
    }
}
