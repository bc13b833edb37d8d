//! Runs whose code holds its thread while it waits: their questions of `input()`, and whether they are recorded.

use std::sync::atomic::Ordering;

use super::Run;

/// The number of the first question of `input()`. Calls of tools have smaller numbers.
const FIRST_INPUT: u64 = 1 << 48;

impl Run {
    /// Returns whether a question is one of `input()`.
    pub fn is_input(call: u64) -> bool {
        call >= FIRST_INPUT
    }

    /// Returns the number of the next question of `input()`, which recorded code asks again with the same number.
    pub fn next_input(&self) -> u64 {
        FIRST_INPUT + self.inputs.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the number of lines of input that the code has asked for.
    pub(crate) fn inputs(&self) -> u64 {
        self.inputs.load(Ordering::Relaxed)
    }

    pub(crate) fn set_inputs(&self, inputs: u64) {
        self.inputs.store(inputs, Ordering::Relaxed);
    }

    /// Returns whether the last line of input that the code has asked for is still waited for.
    pub(crate) fn asks_for_input(&self) -> bool {
        let last = self.inputs().checked_sub(1).map(|last| FIRST_INPUT + last);
        last.is_some_and(|last| self.progress.lock().questions.contains_key(&last))
    }

    /// Returns whether an answer to this question has arrived.
    pub fn has_answer(&self, call: u64) -> bool {
        self.progress.lock().answers.contains_key(&call)
    }

    /// Returns the reason why the code does not survive its process while it holds its thread, if it does not.
    pub fn not_durable(&self) -> Option<String> {
        self.progress.lock().not_durable.clone()
    }

    /// Notes whether the code is recorded, so that it can be saved while it holds its thread.
    pub(crate) fn set_recorded(&self, is_recorded: bool) {
        self.progress.lock().is_recorded = is_recorded;
    }

    /// Notes whether recorded code holds its thread in a wait.
    pub(crate) fn set_held(&self, is_held: bool) {
        self.progress.lock().is_held = is_held;
    }

    /// Notes that the code cannot be saved any more while it holds its thread.
    pub(crate) fn set_not_durable(&self, reason: String) {
        {
            let mut progress = self.progress.lock();
            (progress.is_recorded, progress.is_held) = (false, false);
            progress.not_durable = Some(reason);
        }
        self.show_questions();
    }
}
