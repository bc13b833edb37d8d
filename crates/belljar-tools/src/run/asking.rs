//! Approval of calls: asking the user or an operator for calls that need it and have no grant.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use belljar_audit::{Details, Event};
use belljar_core::kernel::INPUT_TIMEOUT;
use belljar_core::{CellWatcher, OperatorAnswer, Party};

use super::operations::Call;
use super::{OperationNumber, Shared};
use crate::approval::{Approval, ApprovalRequest, GrantState};
use crate::catalogue::Tool;
use crate::error::ToolFailure;
use crate::python_text::first_line;

/// The maximum length of the line of code in a request for approval, in characters.
const MAX_SHOWN_LINE: usize = 200;

impl Shared {
    /// Checks the grant of a call, and asks the user without one.
    pub(super) async fn authorize(
        &self,
        operation: OperationNumber,
        tool: &Tool,
        call: &Call,
    ) -> Result<(), ToolFailure> {
        // A call that was sent before had been approved.
        if operation.is_sent() || !self.tools.policy.approval.requires_approval(tool.definition.effects) {
            return Ok(());
        }
        self.ask(operation, call, &tool.server, &tool.definition.name, tool.fingerprint()).await
    }

    pub(super) async fn ask(
        &self,
        operation: OperationNumber,
        call: &Call,
        server: &str,
        tool: &str,
        fingerprint: crate::approval::Fingerprint,
    ) -> Result<(), ToolFailure> {
        if self.is_granted(operation, server, tool, &fingerprint) {
            return Ok(());
        }
        // Boxed: calls that need no approval, of which there may be thousands, have no room for it.
        let asking = Box::pin(self.ask_in_turn(operation, call, server, tool, fingerprint));
        if self.journal.is_none() {
            return asking.await;
        }
        self.suspendable(operation.id, asking).await
    }

    /// Returns whether an earlier answer allows the call. One for this very call counts for more.
    fn is_granted(
        &self,
        operation: OperationNumber,
        server: &str,
        tool: &str,
        fingerprint: &crate::approval::Fingerprint,
    ) -> bool {
        let has_grant = self.run_grants.contains(fingerprint)
            || self.session_grants.state(server, tool, fingerprint) == GrantState::Granted;
        has_grant && !self.approver.has_answer(operation.id)
    }

    /// Waits for an answer such that the operation can be suspended until it has one: the operations are locked while
    /// `asking` makes progress, so that what it has received is never lost between two states.
    async fn suspendable<T>(&self, id: u64, asking: impl Future<Output = T>) -> T {
        let mut asking = pin!(asking);
        poll_fn(|context| {
            let mut operations = self.operations.lock();
            // Without its entry, the operation was suspended or cancelled, and is about to be aborted.
            let Some(operation) = operations.get_mut(&id) else { return Poll::Pending };
            let polled = asking.as_mut().poll(context);
            operation.is_asking = polled.is_pending();
            polled
        })
        .await
    }

    /// Asks the user once no other call of the run asks, unless several may.
    async fn ask_in_turn(
        &self,
        operation: OperationNumber,
        call: &Call,
        server: &str,
        tool: &str,
        fingerprint: crate::approval::Fingerprint,
    ) -> Result<(), ToolFailure> {
        let _asking = if self.approver.asks_at_once() { None } else { Some(self.asking.lock().await) };
        if self.is_granted(operation, server, tool, &fingerprint) {
            return Ok(());
        }
        let has_changed = self.session_grants.state(server, tool, &fingerprint) == GrantState::Changed;
        let line = first_line(&call.line, MAX_SHOWN_LINE);
        let request = ApprovalRequest::new(operation.id, server, tool, &call.arguments, line, has_changed);
        // A run that can wait on the disk waits for its user for as long as it takes.
        let pause = self.journal.as_ref().map(|_| self.clock.pause());
        let name = format!("{server}.{tool}");
        let asked =
            || Details { name: Some(name.clone()), arguments: Some(call.arguments.clone()), ..Details::default() };
        self.scope.record(Event::ApprovalAsk, asked);
        let begin = Instant::now();
        let answered = match self.recorder.watcher() {
            // The questions of a run that can wait on the disk are for operators, too.
            Some(watcher) if self.journal.is_none() => self.ask_user_or_operator(request, &**watcher).await,
            _ => self.approver.answer(request).await,
        };
        drop(pause);
        self.record_approval(name, begin, &answered);
        match answered.map(|(approval, _)| approval) {
            Ok(Approval::Once) => {}
            Ok(Approval::ToolForRun) => self.run_grants.grant(fingerprint),
            Ok(Approval::ToolForSession) => self.session_grants.grant(server, tool, fingerprint),
            Ok(Approval::Denied) => {
                return Err(ToolFailure::Denied(format!("the user denied the call of `{server}.{tool}`")));
            }
            Err(reason) => {
                return Err(ToolFailure::Denied(format!("the call of `{server}.{tool}` needs approval: {reason}")));
            }
        }
        Ok(())
    }

    /// Asks the user and the operators, and returns the first answer and who gave it. If the user cannot be asked, an
    /// operator has the time of a user to answer.
    async fn ask_user_or_operator(
        &self,
        request: ApprovalRequest,
        watcher: &dyn CellWatcher,
    ) -> Result<(Approval, Party), String> {
        let mut operator = pin!(answer_of_operator(watcher, request.question()));
        tokio::select! {
            approval = &mut operator => Ok((approval, Party::Operator)),
            answer = self.approver.answer(request) => match answer {
                Ok(answered) => Ok(answered),
                Err(reason) => match tokio::time::timeout(INPUT_TIMEOUT, operator).await {
                    Ok(approval) => Ok((approval, Party::Operator)),
                    Err(_) => Err(format!("{reason}, and no operator has answered")),
                },
            },
        }
    }

    fn record_approval(&self, name: String, begin: Instant, answered: &Result<(Approval, Party), String>) {
        let (event, outcome) = match answered {
            Ok((Approval::Once, _)) => (Event::ApprovalGrant, "once"),
            Ok((Approval::ToolForRun, _)) => (Event::ApprovalGrant, "run"),
            Ok((Approval::ToolForSession, _)) => (Event::ApprovalGrant, "session"),
            Ok((Approval::Denied, _)) => (Event::ApprovalDeny, "denied"),
            Err(_) => (Event::ApprovalDeny, "not-asked"),
        };
        self.scope.record(event, || Details {
            name: Some(name),
            outcome: Some(outcome.into()),
            by: Some(answered.as_ref().map_or("policy", |(_, by)| by.name())),
            error: answered.as_ref().err().cloned(),
            duration: Some(begin.elapsed()),
            ..Details::default()
        });
    }
}

/// Asks the operators. Does not return if the question is withdrawn: the code has ended, and its calls are about to be
/// cancelled.
async fn answer_of_operator(watcher: &dyn CellWatcher, question: String) -> Approval {
    match watcher.ask(question).await {
        OperatorAnswer::Line(line) => Approval::from_answer(&line),
        OperatorAnswer::Declined => Approval::Denied,
        OperatorAnswer::Withdrawn => pending().await,
    }
}
