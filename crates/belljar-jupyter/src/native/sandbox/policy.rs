//! How strong a sandbox must be, and how strong it can be here.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Ended, Error, Failure, Spec, Step, Streams, spawn};

/// Users for sessions, when this process is root: each session takes one that no other has. Neither distributions, nor
/// systemd, nor containers give these numbers away.
pub const SESSION_USERS: Range<u32> = 1_900_000_000..2_000_000_000;

/// What is run to see whether a sandbox stands.
const NOTHING: &str = "/bin/true";

/// What must hold the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Everything; on a machine that cannot, nothing runs.
    #[default]
    Full,
    /// Landlock and filters of system calls alone. The code sees the machine's processes and network interfaces exist,
    /// and there are no quotas.
    Weak,
    /// Nothing holds it: it can do whatever the user can who started this process.
    Unsandboxed,
}

impl fmt::Display for Policy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Full => "native",
            Self::Weak => "native-weak",
            Self::Unsandboxed => "unsandboxed",
        })
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "native" => Ok(Self::Full),
            "native-weak" => Ok(Self::Weak),
            "unsandboxed" => Ok(Self::Unsandboxed),
            _ => Err(Error::Specification(format!("{name:?} is none of native, native-weak, unsandboxed"))),
        }
    }
}

/// What holds the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strength {
    /// Namespaces, a root of its own, limits, Landlock and seccomp.
    Full,
    /// Landlock and seccomp.
    Weak,
}

/// What this machine can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// The strongest sandbox that stands here.
    pub strength: Option<Strength>,
    /// What the full one lacks, if it does not stand; its [`remedy`](Failure::remedy) goes with it.
    pub missing: Option<Failure>,
    /// What the weak one lacks, if neither stands.
    pub missing_for_weak: Option<Failure>,
}

impl Findings {
    /// Whether `policy` can be followed here.
    ///
    /// # Errors
    ///
    /// [`Error::TooWeak`], with what is missing and what to do.
    pub fn admit(&self, policy: Policy) -> Result<(), Error> {
        let missing = match policy {
            Policy::Full => &self.missing,
            Policy::Weak => &self.missing_for_weak,
            Policy::Unsandboxed => &None,
        };
        match missing {
            Some(missing) => Err(Error::TooWeak { asked: policy, missing: missing.clone() }),
            None => Ok(()),
        }
    }
}

/// Finds out how strong a sandbox stands here, by making one around a program that does nothing. As root it runs as
/// `user`, which must be given.
///
/// # Errors
///
/// If the launcher itself cannot be started or does not answer.
pub fn probe(user: Option<u32>) -> Result<Findings, Error> {
    let missing = attempt(Policy::Full, user)?;
    if missing.is_none() {
        return Ok(Findings { strength: Some(Strength::Full), missing, missing_for_weak: None });
    }
    let missing_for_weak = attempt(Policy::Weak, user)?;
    let strength = missing_for_weak.is_none().then_some(Strength::Weak);
    Ok(Findings { strength, missing, missing_for_weak })
}

fn attempt(policy: Policy, user: Option<u32>) -> Result<Option<Failure>, Error> {
    let spec = Spec { user, directory: "/".into(), ..Spec::new([NOTHING]) };
    match spawn(&spec, policy, Streams::default()) {
        Ok(mut running) => match running.wait()? {
            Ended::Exited(0) => Ok(None),
            ended => Ok(Some(Failure::plain(Step::Program, format!("{NOTHING} {ended}")))),
        },
        Err(Error::Step(failure)) => Ok(Some(failure)),
        Err(error) => Err(error),
    }
}
