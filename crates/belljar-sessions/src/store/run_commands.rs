//! Commands for runs that arrive from outside of the server: `belljar runs` leaves them in the directory.

use serde::{Deserialize, Serialize};

use super::waiting::RUNS;
use super::{Store, StoreError};
use crate::runs::{RunAnswer, RunId};

pub(super) const ANSWER: &str = "answer";
/// The maximum size of a command, in bytes.
const MAX_ANSWER: u64 = 1 << 20;

/// The command of an operator for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunCommand {
    /// Answers a question.
    Answer {
        /// The number of the call that asked it.
        call: u64,
        /// The answer.
        answer: RunAnswer,
    },
    /// Ends the run.
    Cancel,
}

/// A command, as its file has it.
#[derive(Deserialize)]
struct StoredCommand {
    run: RunId,
    command: RunCommand,
}

impl StoredCommand {
    /// Parses a file. Returns `None` if it is not a command for this run.
    fn parse(content: &[u8], run: &RunId) -> Option<RunCommand> {
        let stored: Self = serde_json::from_slice(content).ok()?;
        (stored.run == *run).then_some(stored.command)
    }
}

impl Store {
    /// Leaves a command for the process that has a run, or will have it.
    ///
    /// # Errors
    /// Fails if the command cannot be written.
    pub fn command_run(&self, run: &RunId, command: &RunCommand) -> Result<(), StoreError> {
        self.write_of_run(run, ANSWER, &serde_json::json!({ "run": run, "command": command }))
    }

    /// Returns the command for a run that no server has taken yet.
    pub fn pending_run_command(&self, run: &RunId) -> Option<RunCommand> {
        let directory = self.root.subdirectory(RUNS, false).ok()?.subdirectory(run.as_str(), false).ok()?;
        StoredCommand::parse(&self.read_signed(&directory, ANSWER, MAX_ANSWER)?, run)
    }

    /// Takes the commands for runs.
    pub(crate) fn take_run_commands(&self) -> Vec<(RunId, RunCommand)> {
        let Ok(runs) = self.root.subdirectory(RUNS, false) else { return Vec::new() };
        let ids = runs.names().unwrap_or_default().into_iter().filter_map(|name| RunId::parse(&name));
        let take = |id: RunId| {
            let directory = runs.subdirectory(id.as_str(), false).ok()?;
            let content = self.read_signed(&directory, ANSWER, MAX_ANSWER)?;
            // Removed first: a command is carried out once.
            directory.remove(ANSWER).ok()?;
            StoredCommand::parse(&content, &id).map(|command| (id, command))
        };
        ids.filter_map(take).collect()
    }
}
