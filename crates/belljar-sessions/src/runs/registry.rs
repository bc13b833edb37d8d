//! The runs of a server, by ID.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::{Run, RunId, RunResumer, RunState};
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

    pub(crate) fn get(&self, id: &RunId) -> Option<Arc<Run>> {
        self.runs.lock().get(id).cloned()
    }

    /// Returns a run of a client. A run with an owner exists for that client only.
    pub(crate) fn find(&self, id: &RunId, caller: Option<&Owner>) -> Option<Arc<Run>> {
        let run = self.runs.lock().get(id).cloned()?;
        (run.owner.is_none() || run.owner.as_ref() == caller).then_some(run)
    }

    /// Returns the runs of an owner that have ended, without the last `max` ones.
    pub(crate) fn surplus_results(&self, owner: Option<&Owner>, max: usize) -> Vec<Arc<Run>> {
        let runs = self.runs.lock();
        let ended = |run: &&Arc<Run>| run.owner.as_ref() == owner && run.state() == RunState::Completed;
        let mut results: Vec<Arc<Run>> = runs.values().filter(ended).cloned().collect();
        results.sort_by_key(|run| run.ended());
        results.truncate(results.len().saturating_sub(max));
        results
    }

    /// Returns all runs, the oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Run>> {
        let mut runs: Vec<Arc<Run>> = self.runs.lock().values().cloned().collect();
        runs.sort_by_key(|run| run.info.began);
        runs
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

    use super::*;
    use crate::id::SessionId;
    use crate::runs::RunInfo;

    #[test]
    fn oldest_results_of_an_owner_are_surplus() {
        let registry = RunRegistry::default();
        let add = |owner: Option<&str>, has_ended: bool| {
            let id = RunId::random().unwrap();
            let info = RunInfo {
                id: id.clone(),
                code: String::new(),
                arguments: Value::Null,
                began: 0,
                is_new_session: false,
                is_program: false,
            };
            let run = Run::new(info, SessionId::random().unwrap(), owner.map(Into::into), RunState::Pending);
            if has_ended {
                run.complete(Value::Null, None);
                // The times of the ends differ.
                std::thread::sleep(Duration::from_millis(2));
            }
            registry.insert(Arc::new(run));
            id
        };
        let surplus = |owner: Option<&str>| -> Vec<RunId> {
            let runs = registry.surplus_results(owner.map(Into::into).as_ref(), 2);
            runs.iter().map(|run| run.info.id.clone()).collect()
        };
        add(Some("alice"), false);
        let first = add(Some("alice"), true);
        add(None, true);
        add(Some("bob"), true);
        let second = add(Some("alice"), true);
        assert_eq!(surplus(Some("alice")), []);
        add(Some("alice"), true);
        assert_eq!(surplus(Some("alice")), std::slice::from_ref(&first));
        add(Some("alice"), true);
        assert_eq!(surplus(Some("alice")), [first, second]);
        assert_eq!((surplus(Some("bob")), surplus(None)), (vec![], vec![]));
    }
}
