//! The results of runs that wait for their clients: only the newest of each client are stored.

use std::sync::Arc;

use super::Sessions;
use crate::runs::{Run, RunState};

/// The maximum number of results that wait for one client. Clients without authentication count as one.
const MAX_RESULTS: usize = 1000;

impl Sessions {
    /// Deletes the oldest results of the run's client beyond the maximum number.
    pub fn limit_results(&self, of: &Run) {
        let mut results = self.shared.runs.all();
        results.retain(|run| run.owner == of.owner && run.state() == RunState::Completed);
        results.sort_by_key(|run| run.ended());
        let surplus = results.len().saturating_sub(MAX_RESULTS);
        results.iter().take(surplus).for_each(|run| self.delete_result(run));
    }

    fn delete_result(&self, run: &Arc<Run>) {
        if let Some(store) = &self.shared.services.store {
            store.remove_result(&run.info.id);
        }
        self.shared.runs.remove(&run.info.id);
    }
}
