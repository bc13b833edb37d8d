//! A probe of the isolation that this machine can provide.

use crate::error::{Error, Step, StepFailure};
use crate::exit_status::ExitStatus;
use crate::policy::{IsolationLevel, Policy};
use crate::sandbox_handle::{Streams, spawn};
use crate::spec::Spec;

/// The program that a probe runs. It does nothing.
const PROGRAM: &str = "/bin/true";

/// The isolation that this machine can provide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    /// The strongest level that is available.
    pub level: Option<IsolationLevel>,
    /// The step of the full sandbox that fails, if one does.
    pub missing: Option<StepFailure>,
    /// The step of the weak sandbox that fails, if both sandboxes do.
    pub missing_for_weak: Option<StepFailure>,
}

impl ProbeResult {
    /// Checks that this machine can provide the isolation that `policy` requires.
    ///
    /// # Errors
    ///
    /// Returns [`Error::IsolationUnavailable`], with the step that fails.
    pub fn check(&self, policy: Policy) -> Result<(), Error> {
        let missing = match policy {
            Policy::Full => &self.missing,
            Policy::Weak => &self.missing_for_weak,
            Policy::Unsandboxed => &None,
        };
        match missing {
            Some(missing) => Err(Error::IsolationUnavailable { policy, missing: missing.clone() }),
            None => Ok(()),
        }
    }
}

/// Probes the isolation that this machine can provide, by running a program that does nothing in a sandbox. As root,
/// the program runs as `user`, which is then required.
///
/// # Errors
///
/// Fails if the launcher cannot be started or does not reply.
pub fn probe(user: Option<u32>) -> Result<ProbeResult, Error> {
    let missing = find_missing_step(Policy::Full, user)?;
    if missing.is_none() {
        return Ok(ProbeResult { level: Some(IsolationLevel::Full), missing, missing_for_weak: None });
    }
    let missing_for_weak = find_missing_step(Policy::Weak, user)?;
    let level = missing_for_weak.is_none().then_some(IsolationLevel::Weak);
    Ok(ProbeResult { level, missing, missing_for_weak })
}

/// Runs the program under `policy`; returns the step that failed, if one did.
fn find_missing_step(policy: Policy, user: Option<u32>) -> Result<Option<StepFailure>, Error> {
    let spec = Spec { user, directory: "/".into(), ..Spec::new([PROGRAM]) };
    match spawn(&spec, policy, Streams::default()) {
        Ok(mut sandbox) => match sandbox.wait()? {
            ExitStatus::Exited(0) => Ok(None),
            status => Ok(Some(StepFailure::from_reason(Step::Program, format!("{PROGRAM} {status}")))),
        },
        Err(Error::Setup(failure)) => Ok(Some(failure)),
        Err(error) => Err(error),
    }
}
