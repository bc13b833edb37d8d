//! The questions of runs: asking the client, its answers, and what the client may see before the run is saved.

use std::collections::BTreeMap;
use std::time::Duration;

use belljar_core::Party;
use serde::{Deserialize, Serialize};

use super::{Run, RunState, RunUpdate};
use crate::sessions::milliseconds_now;

/// The interval at which a run that asks is looked at. If its code has not begun to wait then, it holds its thread, and
/// the question is put although the run is not saved.
const UNSAVED_QUESTION_DELAY: Duration = Duration::from_millis(500);

/// A question to the client of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// The number of the call that waits for the answer, which is unique in the run.
    pub call: u64,
    /// The text.
    pub message: String,
}

/// An answer to a [`Question`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunAnswer {
    /// A line of text.
    Text(String),
    /// The user refused to answer.
    Declined,
}

/// The error of an answer to a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run does not wait for this answer: it was answered before, or the run has ended")]
pub struct NoSuchQuestion;

pub(super) struct OpenQuestion {
    message: String,
    /// True if the run was saved since it asked, or cannot be saved.
    is_visible: bool,
}

impl Run {
    /// Tells operators that what the run asks has changed.
    fn note_questions(&self) {
        if let Some(record) = self.record() {
            record.note_questions();
        }
    }

    /// Returns the questions that the run waits for.
    pub fn questions(&self) -> Vec<Question> {
        let progress = self.progress.lock();
        let question = |(call, open): (&u64, &OpenQuestion)| Question { call: *call, message: open.message.clone() };
        progress.questions.iter().map(question).collect()
    }

    /// Returns the questions that may be put to a client.
    pub fn visible_questions(&self) -> Vec<Question> {
        let progress = self.progress.lock();
        let visible = progress.questions.iter().filter(|(_, open)| open.is_visible);
        visible.map(|(call, open)| Question { call: *call, message: open.message.clone() }).collect()
    }

    /// Returns whether the run waits for answers.
    pub(crate) fn has_questions(&self) -> bool {
        !self.progress.lock().questions.is_empty()
    }

    /// Returns whether the run asks something that the client must not see before the run is saved.
    pub(crate) fn has_hidden_questions(&self) -> bool {
        has_hidden(&self.progress.lock().questions)
    }

    /// Asks the client, and waits for its answer, or for that of an operator. Returns the answer and the party that
    /// gave it. A question that was open before, or whose answer has arrived, is the same one. When the future is
    /// dropped, the question is withdrawn.
    ///
    /// `holds_thread` is set if the code holds its thread while it waits: unless it is recorded, such a run cannot be
    /// saved, and its question is put at once.
    pub async fn ask(&self, call: u64, message: String, holds_thread: bool) -> (RunAnswer, Party) {
        let suspensions = self.progress.lock().suspensions;
        let _withdrawn = WithdrawOnDrop { run: self, call, suspensions };
        let mut changed = self.changed.subscribe();
        {
            let mut progress = self.progress.lock();
            if !progress.answers.contains_key(&call) {
                let is_visible = holds_thread && !progress.is_recorded;
                progress.questions.entry(call).or_insert(OpenQuestion { message, is_visible });
            }
        }
        if holds_thread {
            self.changed.send_replace(());
            self.note_questions();
        } else {
            self.wake();
        }
        let shown_later = async {
            loop {
                tokio::time::sleep(UNSAVED_QUESTION_DELAY).await;
                if self.is_shown(call) {
                    // A timer for each of the runs that wait for their users would use up processor time.
                    std::future::pending::<()>().await;
                }
                if self.state() == RunState::Running && !self.progress.lock().is_held {
                    self.show_questions();
                }
            }
        };
        let answered = async {
            loop {
                changed.mark_unchanged();
                {
                    let mut progress = self.progress.lock();
                    if holds_thread && progress.suspensions != suspensions {
                        // The code asks again, in another interpreter.
                        return (RunAnswer::Declined, Party::Client);
                    }
                    if progress.suspensions == suspensions
                        && !progress.is_suspending
                        && let Some(answer) = progress.answers.remove(&call)
                    {
                        return answer;
                    }
                }
                // The sender is a part of the run.
                let _ = changed.changed().await;
            }
        };
        tokio::select! {
            answer = answered => answer,
            () = shown_later => (RunAnswer::Declined, Party::Client),
        }
    }

    /// Returns whether clients see the question of a call, or it was answered.
    fn is_shown(&self, call: u64) -> bool {
        self.progress.lock().questions.get(&call).is_none_or(|question| question.is_visible)
    }

    /// Answers a question. `by` is the party that has answered.
    ///
    /// # Errors
    /// Fails if the run does not wait for this answer.
    pub fn answer(&self, call: u64, answer: RunAnswer, by: Party) -> Result<(), NoSuchQuestion> {
        {
            let mut progress = self.progress.lock();
            progress.questions.remove(&call).ok_or(NoSuchQuestion)?;
            progress.answers.insert(call, (answer, by));
            progress.updated = milliseconds_now();
        }
        self.changed.send_replace(());
        self.note_questions();
        // A run that is asleep has no call that would continue it.
        self.wake();
        Ok(())
    }

    /// Waits until the run asks something, or has a result.
    pub async fn next_update(&self) -> RunUpdate {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            {
                let progress = self.progress.lock();
                if let Some(result) = &progress.result {
                    return RunUpdate::Completed(result.clone());
                }
                if let Some((call, open)) = progress.questions.iter().find(|(_, open)| open.is_visible) {
                    return RunUpdate::Question(Question { call: *call, message: open.message.clone() });
                }
            }
            let _ = changed.changed().await;
        }
    }

    /// Waits until a question was answered or withdrawn.
    pub async fn answered(&self, call: u64) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            if !self.progress.lock().questions.contains_key(&call) {
                return;
            }
            let _ = changed.changed().await;
        }
    }

    /// Returns whether answers have arrived that no call has received.
    pub(crate) fn has_answers(&self) -> bool {
        !self.progress.lock().answers.is_empty()
    }

    /// Leaves the questions to later calls, if `can_suspend` still returns true once no call can receive an answer any
    /// more. Returns false if the calls go on.
    ///
    /// An answer that has arrived before would be forgotten: its call would have it without acting on it, or never look
    /// for it again, and nothing would wake the run. A question that is not visible yet is not in the saved run: it
    /// would never be put, and the run would wait for ever.
    pub(crate) fn suspend(&self, can_suspend: impl FnOnce() -> bool) -> bool {
        {
            let mut progress = self.progress.lock();
            if !progress.answers.is_empty() || has_hidden(&progress.questions) {
                return false;
            }
            progress.is_suspending = true;
        }
        // Not locked: calls lock their own state before the run's.
        let can_suspend = can_suspend();
        let mut progress = self.progress.lock();
        let is_suspended = can_suspend && !has_hidden(&progress.questions);
        progress.is_suspending = false;
        progress.suspensions += u64::from(is_suspended);
        drop(progress);
        // The calls look for answers again.
        self.changed.send_replace(());
        is_suspended
    }

    /// Adds the questions of a saved run.
    pub(crate) fn restore_questions(&self, questions: &[Question]) {
        let mut progress = self.progress.lock();
        for Question { call, message } in questions {
            progress.questions.insert(*call, OpenQuestion { message: message.clone(), is_visible: true });
        }
    }

    /// Puts the questions to the client: the run is saved.
    pub(crate) fn show_questions(&self) {
        let mut progress = self.progress.lock();
        let hidden = progress.questions.values_mut().filter(|question| !question.is_visible);
        let mut any = false;
        hidden.for_each(|question| (question.is_visible, any) = (true, true));
        if any {
            progress.updated = milliseconds_now();
        }
        drop(progress);
        if any {
            self.changed.send_replace(());
            self.note_questions();
        }
    }
}

fn has_hidden(questions: &BTreeMap<u64, OpenQuestion>) -> bool {
    questions.values().any(|question| !question.is_visible)
}

/// Withdraws a question when the call that asked it ends.
struct WithdrawOnDrop<'a> {
    run: &'a Run,
    call: u64,
    suspensions: u64,
}

impl Drop for WithdrawOnDrop<'_> {
    fn drop(&mut self) {
        let mut progress = self.run.progress.lock();
        if progress.suspensions != self.suspensions {
            return;
        }
        // The call was cancelled before it received its answer.
        progress.answers.remove(&self.call);
        if progress.questions.remove(&self.call).is_some() {
            drop(progress);
            self.run.changed.send_replace(());
        }
    }
}
