//! Approval of calls by the user: the question, its answers, and the grants that answers leave.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use belljar_core::Party;
use belljar_core::kernel::{CellObserver, InputError};
use parking_lot::Mutex;

use crate::python_text::{shorten, visible};

/// The maximum length of the arguments in a question, in characters.
const MAX_SHOWN_ARGUMENTS: usize = 2_000;

/// The identity of a tool's definition: a digest of its name, schemas, description and effects.
pub type Fingerprint = [u8; 32];

/// A call that needs approval.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The number of the call in its run.
    pub call: u64,
    /// The server's name.
    pub server: String,
    /// The tool's name, as the server has it.
    pub tool: String,
    /// The arguments as JSON, shortened.
    pub arguments: String,
    /// All arguments as JSON, for programs that decide.
    pub full_arguments: String,
    /// The line of code that makes the call, as the code itself reports it; may be empty. It is untrusted.
    pub line: String,
    /// True if the tool was approved before and has changed since.
    pub has_changed: bool,
}

impl ApprovalRequest {
    pub(crate) fn new(call: u64, server: &str, tool: &str, arguments: &str, line: String, has_changed: bool) -> Self {
        let full_arguments = arguments.to_owned();
        let arguments = shorten(arguments, MAX_SHOWN_ARGUMENTS);
        Self { call, server: server.into(), tool: tool.into(), arguments, full_arguments, line, has_changed }
    }

    /// Returns the question as text, for clients that answer with a line: see [`Approval::from_answer`].
    pub fn question(&self) -> String {
        let Self { server, tool, arguments, line, has_changed, .. } = self;
        let changed = if *has_changed { "The server has changed this tool since it was approved.\n" } else { "" };
        visible(&format!(
            "The code calls the tool {tool} of the MCP server {server}.\n{changed}Arguments: {arguments}\nLine: {line}\n\
             Allow it? Answer yes (this call), run (this tool in this run), session (this tool in this session) or no."
        ))
    }
}

/// The answer to an [`ApprovalRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Approval {
    /// This call.
    Once,
    /// All calls of this tool in this run.
    ToolForRun,
    /// All calls of this tool in this session.
    ToolForSession,
    /// Not this call.
    Denied,
}

impl Approval {
    /// Returns the answer in a line of text. A line that is not one of the answers denies the call.
    pub fn from_answer(line: &str) -> Self {
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" | "once" => Self::Once,
            "run" => Self::ToolForRun,
            "session" => Self::ToolForSession,
            _ => Self::Denied,
        }
    }
}

/// Asks the user whether a call may be made.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Returns the user's answer.
    ///
    /// # Errors
    /// Returns the reason why the user could not be asked. The code that made the call receives it.
    async fn approve(&self, request: ApprovalRequest) -> Result<Approval, String>;

    /// Returns the answer and the party that gave it, for approvers that others than the user can answer, too.
    ///
    /// # Errors
    /// Returns the reason why the user could not be asked. The code that made the call receives it.
    async fn answer(&self, request: ApprovalRequest) -> Result<(Approval, Party), String> {
        self.approve(request).await.map(|approval| (approval, Party::Client))
    }

    /// Returns whether several calls of a run may ask at the same time. Otherwise they ask one after the other, so that
    /// the answer to one can be the answer to the next.
    fn asks_at_once(&self) -> bool {
        false
    }

    /// Returns whether the user has answered for this call before it asked. The answer counts then, and not what was
    /// granted in the meantime.
    fn has_answer(&self, call: u64) -> bool {
        let _ = call;
        false
    }
}

/// An [`Approver`] for when there is no way to ask: refuses with a fixed reason.
#[derive(Debug, Clone)]
pub struct NoApprover {
    /// The reason, with the option that would change it.
    pub reason: String,
}

#[async_trait]
impl Approver for NoApprover {
    async fn approve(&self, _: ApprovalRequest) -> Result<Approval, String> {
        Err(self.reason.clone())
    }
}

/// Asks for a line of input as the code itself does with `input()`.
pub struct ObserverApprover {
    observer: Arc<dyn CellObserver>,
    /// The reason for the code if the client cannot be asked.
    refusal: &'static str,
}

impl ObserverApprover {
    /// Creates an approver that asks the client of `observer`. The code receives `refusal` if that cannot be asked.
    pub fn new(observer: Arc<dyn CellObserver>, refusal: &'static str) -> Self {
        Self { observer, refusal }
    }
}

#[async_trait]
impl Approver for ObserverApprover {
    async fn approve(&self, request: ApprovalRequest) -> Result<Approval, String> {
        let observer = self.observer.clone();
        // Observers may block while they send the question, too.
        let asked = tokio::task::spawn_blocking(move || {
            let answer = observer.request_input(&request.question(), false)?;
            answer.recv().unwrap_or(Err(InputError::Disconnected))
        });
        match asked.await.unwrap_or(Err(InputError::Disconnected)) {
            Ok(line) => Ok(Approval::from_answer(&line)),
            Err(InputError::Declined) => Ok(Approval::Denied),
            Err(InputError::Unavailable | InputError::Unsupported(_)) => Err(self.refusal.into()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The tools that are approved for a session. A tool that has changed since is not.
#[derive(Debug, Default)]
pub struct SessionGrants(Mutex<HashMap<(String, String), Fingerprint>>);

/// The state of a tool's approval in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GrantState {
    Granted,
    Changed,
    Absent,
}

impl SessionGrants {
    /// Creates grants for no tool.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn state(&self, server: &str, tool: &str, fingerprint: &Fingerprint) -> GrantState {
        match self.0.lock().get(&(server.to_owned(), tool.to_owned())) {
            Some(granted) if granted == fingerprint => GrantState::Granted,
            Some(_) => GrantState::Changed,
            None => GrantState::Absent,
        }
    }

    pub(crate) fn grant(&self, server: &str, tool: &str, fingerprint: Fingerprint) {
        self.0.lock().insert((server.to_owned(), tool.to_owned()), fingerprint);
    }
}

/// The tools that are approved for a run.
#[derive(Debug, Default)]
pub(crate) struct RunGrants(Mutex<HashSet<Fingerprint>>);

impl RunGrants {
    pub(crate) fn contains(&self, fingerprint: &Fingerprint) -> bool {
        self.0.lock().contains(fingerprint)
    }

    pub(crate) fn grant(&self, fingerprint: Fingerprint) {
        self.0.lock().insert(fingerprint);
    }

    pub(crate) fn all(&self) -> Vec<Fingerprint> {
        self.0.lock().iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_tool_is_not_granted() {
        let grants = SessionGrants::new();
        assert_eq!(grants.state("fs", "write", &[1; 32]), GrantState::Absent);
        grants.grant("fs", "write", [1; 32]);
        assert_eq!(grants.state("fs", "write", &[1; 32]), GrantState::Granted);
        assert_eq!(grants.state("fs", "write", &[2; 32]), GrantState::Changed);
        assert_eq!(grants.state("fs2", "write", &[1; 32]), GrantState::Absent);
    }
}
