//! The policy: which tools code may call, and which calls need approval.

use std::str::FromStr;

use globset::{Glob, GlobSet, GlobSetBuilder};

/// The claims of a server about the effects of a tool. They are not guaranteed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Effects {
    /// True if the tool changes nothing.
    pub read_only: bool,
    /// False if the tool only adds. A tool that does not claim this counts as destructive, as MCP specifies.
    pub destructive: bool,
    /// True if calls with the same arguments have no further effect.
    pub idempotent: bool,
}

impl Effects {
    /// Returns whether a call may be sent again without harm.
    pub fn is_repeatable(self) -> bool {
        self.read_only || self.idempotent
    }
}

/// The calls that need approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum ApprovalMode {
    /// No calls.
    None,
    /// Calls of tools that may be destructive.
    Destructive,
    /// Calls of tools that are not read-only.
    #[default]
    Writes,
    /// All calls.
    All,
}

impl ApprovalMode {
    /// Returns whether a call of a tool with these effects needs approval.
    pub fn requires_approval(self, effects: Effects) -> bool {
        match self {
            Self::None => false,
            Self::Destructive => effects.destructive && !effects.read_only,
            Self::Writes => !effects.read_only,
            Self::All => true,
        }
    }
}

impl FromStr for ApprovalMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "destructive" => Ok(Self::Destructive),
            "writes" => Ok(Self::Writes),
            "all" => Ok(Self::All),
            _ => Err("write none, destructive, writes or all"),
        }
    }
}

/// A pattern that is not valid.
#[derive(Debug, thiserror::Error)]
#[error("invalid pattern `{pattern}`: {reason}")]
pub struct PatternError {
    /// The pattern.
    pub pattern: String,
    /// The position and kind of the error.
    pub reason: String,
}

/// The policy of a server or a command.
#[derive(Debug, Clone)]
pub struct ToolPolicy {
    /// The only tools that code may call. All, if `None`.
    allowed: Option<GlobSet>,
    denied: GlobSet,
    /// The calls that need approval.
    pub approval: ApprovalMode,
}

impl Default for ToolPolicy {
    fn default() -> Self {
        Self { allowed: None, denied: GlobSet::empty(), approval: ApprovalMode::default() }
    }
}

impl ToolPolicy {
    /// Creates a policy from patterns of `server.tool`, in which `*` matches any characters. Without patterns in
    /// `allow`, all tools are allowed that `deny` does not match.
    ///
    /// # Errors
    /// Returns an error if a pattern is not valid.
    pub fn new(allow: &[String], deny: &[String], approval: ApprovalMode) -> Result<Self, PatternError> {
        let allowed = if allow.is_empty() { None } else { Some(globs(allow)?) };
        Ok(Self { allowed, denied: globs(deny)?, approval })
    }

    /// Returns whether code may call a tool. Patterns apply to the names of servers and tools in Python and to their
    /// original names: a tool is denied if either name is.
    pub fn allows(&self, names: &[String]) -> bool {
        let is_allowed = self.allowed.as_ref().is_none_or(|allowed| names.iter().any(|name| allowed.is_match(name)));
        is_allowed && !names.iter().any(|name| self.denied.is_match(name))
    }
}

fn globs(patterns: &[String]) -> Result<GlobSet, PatternError> {
    let invalid = |pattern: &str, error: &globset::Error| PatternError {
        pattern: pattern.to_owned(),
        reason: error.kind().to_string(),
    };
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        set.add(Glob::new(pattern).map_err(|error| invalid(pattern, &error))?);
    }
    set.build().map_err(|error| invalid(&patterns.join(", "), &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &[&str], deny: &[&str]) -> ToolPolicy {
        let owned = |patterns: &[&str]| patterns.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>();
        ToolPolicy::new(&owned(allow), &owned(deny), ApprovalMode::Writes).unwrap()
    }

    fn allows(policy: &ToolPolicy, name: &str) -> bool {
        policy.allows(&[name.to_owned()])
    }

    #[test]
    fn patterns_select_tools() {
        assert!(allows(&policy(&[], &[]), "github.anything"));
        let reads = policy(&["github.get_*", "time.*"], &["*.get_secret"]);
        assert!(allows(&reads, "github.get_issue") && allows(&reads, "time.now"));
        assert!(!allows(&reads, "github.delete") && !allows(&reads, "github.get_secret"));
        assert!(policy(&[], &["fs.write-file"]).allows(&["fs.read".into()]));
        assert!(!policy(&[], &["fs.write-file"]).allows(&["fs.write_file".into(), "fs.write-file".into()]));
        let error = ToolPolicy::new(&["a[".into()], &[], ApprovalMode::All).unwrap_err();
        assert!(error.to_string().starts_with("invalid pattern `a[`: "), "{error}");
    }

    #[test]
    fn mode_determines_the_calls_that_need_approval() {
        let effects = |read_only, destructive| Effects { read_only, destructive, idempotent: false };
        let asked = |mode: ApprovalMode| {
            [effects(true, true), effects(false, false), effects(false, true)].map(|each| mode.requires_approval(each))
        };
        assert_eq!(asked(ApprovalMode::None), [false, false, false]);
        assert_eq!(asked(ApprovalMode::Destructive), [false, false, true]);
        assert_eq!(asked(ApprovalMode::Writes), [false, true, true]);
        assert_eq!(asked(ApprovalMode::All), [true, true, true]);
    }
}
