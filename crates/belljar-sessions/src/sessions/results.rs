//! The results of runs that wait for their clients: only the last of each client are stored.

use super::Sessions;
use crate::runs::Run;

/// The maximum number of results that wait for one client. Clients without authentication count as one.
const MAX_RESULTS: usize = 1000;

impl Sessions {
    /// Deletes the oldest results of the run's client beyond the maximum number.
    pub fn limit_results(&self, of: &Run) {
        for run in self.shared.runs.surplus_results(of.owner.as_ref(), MAX_RESULTS) {
            if let Some(store) = &self.shared.services.store {
                store.remove_result(&run.info.id);
            }
            if let Some(cluster) = self.cluster() {
                cluster.forget_run(&run.info.id);
            }
            self.shared.runs.remove(&run.info.id);
        }
    }
}
