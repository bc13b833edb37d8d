//! The questions of a recorded cell: put by its code and by approvals, answered by operators.

use std::sync::Arc;

use belljar_core::{OperatorAnswer, Party};
use tokio::sync::{Semaphore, oneshot};

use super::{CellRecord, bounded};
use crate::history::{CellQuestion, SessionChange};
use crate::runs::{Run, RunAnswer, RunState};

/// The maximum number of bytes of a question.
const MAX_QUESTION: usize = 8 << 10;
/// The maximum number of open questions of a cell. Further calls of tools ask once others have their answers.
const MAX_QUESTIONS: usize = 64;

impl CellRecord {
    /// Returns the open questions of the cell, and of the run that it is.
    pub fn questions(&self) -> Vec<CellQuestion> {
        let mut questions = self.state.lock().questions.open();
        if let Some(run) = self.run().filter(|run| run.state() != RunState::Completed) {
            let visible = run.visible_questions().into_iter().take(MAX_QUESTIONS);
            questions.extend(visible.map(|question| CellQuestion {
                is_approval: !Run::is_input(question.call),
                number: question.call,
                message: bounded(&question.message, MAX_QUESTION),
            }));
        }
        questions
    }

    /// Answers a question with a line, or declines it. Returns false if the cell does not wait for this answer.
    pub fn answer(&self, number: u64, line: Option<String>) -> bool {
        let reply = self.state.lock().questions.take(number);
        let is_answered = match reply {
            Some(reply) => {
                reply(line);
                true
            }
            None => self.run().is_some_and(|run| {
                let answer = line.map_or(RunAnswer::Declined, RunAnswer::Text);
                run.answer(number, answer, Party::Operator).is_ok()
            }),
        };
        if is_answered {
            self.note_questions();
        }
        is_answered
    }

    /// Tells operators that the questions have changed.
    pub(crate) fn note_questions(&self) {
        self.send(SessionChange::QuestionsChanged);
    }

    fn permits(&self) -> Arc<Semaphore> {
        self.asking.get_or_init(|| Arc::new(Semaphore::new(MAX_QUESTIONS))).clone()
    }

    /// Puts a question about a call of a tool, and waits for the answer of an operator, or for the end of the cell.
    pub(crate) async fn ask(self: Arc<Self>, message: String) -> OperatorAnswer {
        let Ok(permit) = self.permits().acquire_owned().await else { return OperatorAnswer::Withdrawn };
        let (answer, receiver) = oneshot::channel();
        let reply = Box::new(move |line| drop(answer.send(line)));
        let message = bounded(&message, MAX_QUESTION);
        let asked = self.update(|state| {
            let is_running = state.ended.is_none();
            is_running.then(|| state.questions.ask(message, true, reply, permit))
        });
        let Some(number) = asked else { return OperatorAnswer::Withdrawn };
        let _withdrawn = WithdrawOnDrop { record: &self, number };
        self.send(SessionChange::QuestionsChanged);
        match receiver.await {
            Ok(Some(line)) => OperatorAnswer::Line(line),
            Ok(None) => OperatorAnswer::Declined,
            Err(_) => OperatorAnswer::Withdrawn,
        }
    }

    /// Puts a question of `input()`. `reply` receives the line. Returns false if too many questions are open.
    pub(crate) fn ask_for_line(&self, prompt: &str, reply: impl FnOnce(Option<String>) + Send + 'static) -> bool {
        let Ok(permit) = self.permits().try_acquire_owned() else { return false };
        let prompt = if prompt.trim().is_empty() { "The code requests a line of input" } else { prompt };
        let prompt = bounded(prompt, MAX_QUESTION);
        self.update(|state| state.questions.ask(prompt, false, Box::new(reply), permit));
        self.send(SessionChange::QuestionsChanged);
        true
    }
}

/// Withdraws a question when the call that asked it ends.
struct WithdrawOnDrop<'a> {
    record: &'a CellRecord,
    number: u64,
}

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        let withdrawn = self.record.state.lock().questions.take(self.number);
        if withdrawn.is_some() {
            self.record.send(SessionChange::QuestionsChanged);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;
    use crate::error::SessionError;
    use crate::history::History;
    use crate::id::SessionId;

    /// Returns the answer to a question, after `act` has done something with its cell.
    async fn answer_after(act: impl FnOnce(&CellRecord)) -> OperatorAnswer {
        let history = Arc::new(History::default());
        let record = history.begin_cell(&SessionId::random().unwrap(), None, "1", false);
        let mut asking = pin!(record.clone().ask("Allow it?".into()));
        assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        act(&record);
        asking.await
    }

    #[tokio::test]
    async fn question_of_a_cell_that_ends_is_withdrawn_and_not_declined() {
        let answered = |line: Option<&str>| {
            let line = line.map(str::to_owned);
            answer_after(move |record| assert!(record.answer(1, line)))
        };
        assert_eq!(answered(Some("yes")).await, OperatorAnswer::Line("yes".into()));
        assert_eq!(answered(None).await, OperatorAnswer::Declined);
        let ended = answer_after(|record| record.complete(&Err(SessionError::Gone))).await;
        assert_eq!(ended, OperatorAnswer::Withdrawn);
        assert_eq!(answer_after(CellRecord::abandon).await, OperatorAnswer::Withdrawn);
    }
}
