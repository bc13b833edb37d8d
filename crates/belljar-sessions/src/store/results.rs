//! Results on the disk, of runs whose clients had left.

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::private_directory::PrivateDirectory;
use super::waiting::RUNS;
use super::{Store, StoreError};
use crate::runs::{RunId, RunInfo, RunOutcome};

const RESULT: &str = "result";
/// The maximum size of a result, in bytes.
const MAX_RESULT: u64 = 64 << 20;

/// A result, as its file has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredResult {
    /// The facts about the run that do not change.
    pub info: RunInfo,
    /// The session.
    pub session: String,
    /// The owner of the session.
    pub owner: Option<String>,
    /// The time of the end, in milliseconds since 1970.
    pub ended: u64,
    /// The result, in the form that the client receives.
    pub result: Value,
    /// The outcome, unless an earlier build has stored the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// The number of calls of tools, if the code could make any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_count: Option<u64>,
}

impl Store {
    /// Writes the result of a run whose client has left.
    pub(crate) fn write_result(&self, result: &StoredResult) -> Result<(), StoreError> {
        self.write_of_run(&result.info.id, RESULT, result)
    }

    /// Reads the results of all runs whose clients had left.
    pub(crate) fn results(&self) -> Vec<StoredResult> {
        let Ok(runs) = self.root.subdirectory(RUNS, false) else { return Vec::new() };
        let ids = runs.names().unwrap_or_default().into_iter().filter_map(|name| RunId::parse(&name));
        ids.filter_map(|id| self.result_in(&runs, &id)).collect()
    }

    /// Reads the result of a run, if the run has ended and its client had left.
    pub fn result(&self, run: &RunId) -> Option<StoredResult> {
        self.result_in(&self.root.subdirectory(RUNS, false).ok()?, run)
    }

    fn result_in(&self, runs: &PrivateDirectory, run: &RunId) -> Option<StoredResult> {
        let directory = runs.subdirectory(run.as_str(), false).ok()?;
        let content = self.read_signed(&directory, RESULT, MAX_RESULT)?;
        serde_json::from_slice(&content).ok()
    }

    /// Deletes the result of a run.
    pub(crate) fn remove_result(&self, run: &RunId) {
        let path = self.path.join(RUNS).join(run.as_str());
        if let Err(error) = std::fs::remove_dir_all(path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "failed to delete the result of a run");
        }
    }
}
