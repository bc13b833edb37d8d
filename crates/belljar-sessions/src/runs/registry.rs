//! The runs of a server, by ID.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::{Run, RunId, RunResumer};
use crate::sessions::Owner;

/// The runs of a server.
#[derive(Default)]
pub(crate) struct RunRegistry {
    runs: Mutex<HashMap<RunId, Arc<Run>>>,
    pub(crate) resumer: OnceLock<Arc<dyn RunResumer>>,
}

impl RunRegistry {
    pub(crate) fn insert(&self, run: Arc<Run>) {
        self.runs.lock().insert(run.info.id.clone(), run);
    }

    pub(crate) fn remove(&self, id: &RunId) {
        self.runs.lock().remove(id);
    }

    /// Returns a run of a client. A run with an owner exists for that client only.
    pub(crate) fn find(&self, id: &RunId, caller: Option<&Owner>) -> Option<Arc<Run>> {
        let run = self.runs.lock().get(id).cloned()?;
        (run.owner.is_none() || run.owner.as_ref() == caller).then_some(run)
    }

    /// Returns all runs, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Run>> {
        let mut runs: Vec<Arc<Run>> = self.runs.lock().values().cloned().collect();
        runs.sort_by_key(|run| run.info.began);
        runs
    }
}
