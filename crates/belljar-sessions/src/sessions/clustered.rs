//! Sessions of a cluster: where they are, and how they move from one replica to another.

use std::io;
use std::sync::Arc;

use super::Sessions;
use super::durable::StoredRuns;
use super::table::SessionEntry;
use crate::cluster::{Cluster, DistantRun, Place};
use crate::error::SessionError;
use crate::history::AbsenceReason;
use crate::id::SessionId;
use crate::runs::{Run, RunId};
use crate::store::Store;

impl Sessions {
    /// Returns the cluster of which this server is a replica.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.shared.cluster()
    }

    /// Checks that this server accepts sessions.
    ///
    /// # Errors
    /// With the reason why it does not.
    pub fn readiness(&self) -> Result<(), String> {
        self.cluster().and_then(|cluster| cluster.refusal()).map_or(Ok(()), Err)
    }

    /// Finds out where a session is active. One that no replica has becomes active here.
    ///
    /// # Errors
    /// When the cluster's store cannot be used.
    pub async fn locate(&self, id: &SessionId) -> Result<Place, SessionError> {
        let Some(store) = &self.shared.services.store else { return Ok(Place::Here) };
        match store.cluster() {
            None => Ok(Place::Here),
            Some(cluster) => {
                // Its call may take a while until it is in the session's queue. The session stays here until then.
                if cluster.expect_call(id) {
                    return Ok(Place::Here);
                }
                let place = cluster.activate(store, id, true).await?;
                match &place {
                    Place::Here => self.adopt_run(store, id),
                    Place::Elsewhere(_) => {}
                    Place::Nowhere => self.note_end_elsewhere(id),
                }
                Ok(place)
            }
        }
    }

    /// Notes that a session which this server has given up does not exist any more.
    fn note_end_elsewhere(&self, id: &SessionId) {
        let Some(history) = self.shared.history.get() else { return };
        let absence = history.find(id).and_then(|found| found.absence());
        if absence.is_some_and(|absence| absence.reason == AbsenceReason::Away) {
            history.set_absent(id, AbsenceReason::Completed);
        }
    }

    /// Goes on with the cell that waits in a session which has just become active here.
    fn adopt_run(&self, store: &Store, id: &SessionId) {
        let Some(listed) = store.listed_run(id.clone()) else { return };
        if let Some(cluster) = self.cluster() {
            cluster.note_run(&listed.run.info.id);
        }
        let mut adopted = self.shared.adopted.lock();
        if listed.is_lost {
            adopted.lost.extend(self.lost_run(store, listed));
        } else {
            adopted.waiting.extend(self.resume_stored(store, listed));
        }
    }

    /// Takes the runs that have come from other replicas since the last call.
    pub fn take_adopted_runs(&self) -> StoredRuns {
        std::mem::take(&mut *self.shared.adopted.lock())
    }

    /// Finds the session of a run that any replica has.
    ///
    /// # Errors
    /// When the cluster's store cannot be used.
    pub async fn session_of_run(&self, run: &str) -> Result<Option<SessionId>, SessionError> {
        let (Some(cluster), Some(id)) = (self.cluster(), RunId::parse(run)) else { return Ok(None) };
        match self.shared.runs.all().into_iter().find(|run| run.info.id == id) {
            Some(run) => Ok(Some(run.session.clone())),
            None => Ok(cluster.session_of_run(&id).await?),
        }
    }

    /// Returns the runs of this client that wait in other replicas, or that no replica has.
    ///
    /// # Errors
    /// When the cluster's store cannot be used.
    pub async fn distant_runs(&self) -> Result<Vec<DistantRun>, SessionError> {
        let Some(cluster) = self.cluster() else { return Ok(Vec::new()) };
        let known: Vec<RunId> = self.shared.runs.all().into_iter().map(|run| run.info.id.clone()).collect();
        let mut runs = cluster.distant_runs(&known).await?;
        runs.retain(|run| run.owner.is_none() || run.owner == self.owner);
        Ok(runs)
    }

    /// Goes on with the runs of replicas that have ended. Must be called every minute or so.
    pub(super) async fn adopt_runs(&self) {
        let Some(cluster) = self.cluster() else { return };
        let known: Vec<RunId> = self.shared.runs.all().into_iter().map(|run| run.info.id.clone()).collect();
        for (run, session) in cluster.runs_to_adopt(&known).await {
            match self.locate(&session).await {
                Ok(Place::Here) => {}
                Ok(Place::Elsewhere(node)) => cluster.locate_run(run, session, node.id),
                Ok(Place::Nowhere) => cluster.remove_run(&run),
                Err(error) => tracing::warn!(%error, "failed to look after the run of another replica"),
            }
        }
    }

    /// Has the journal of a run committed before a call is sent.
    pub(super) fn commit_journal_of(&self, run: &Run) {
        if self.cluster().is_none() {
            return;
        }
        let (shared, session) = (Arc::downgrade(&self.shared), run.session.clone());
        let commit = move || match shared.upgrade() {
            Some(shared) => match &shared.services.store {
                Some(store) => store.commit(&session).map_err(io::Error::other),
                None => Ok(()),
            },
            None => Ok(()),
        };
        let _ = run.commit.set(Box::new(commit));
    }

    /// Deletes what other replicas know of a run.
    pub(super) fn forget_run(&self, run: &Run) {
        if let Some(cluster) = self.cluster() {
            cluster.forget_run(&run.info.id);
        }
    }

    /// Puts a session to sleep once its calls have ended, and gives it up, so that another replica can have it.
    ///
    /// # Errors
    /// When its state cannot be stored.
    pub async fn hand_over(&self, id: &SessionId) -> Result<(), SessionError> {
        let session = match self.shared.table.lock().get(id) {
            Some(SessionEntry::Active(session)) => Some(session.clone()),
            _ => None,
        };
        let (Some(store), Some(cluster)) = (&self.shared.services.store, self.cluster()) else { return Ok(()) };
        match session {
            Some(session) => self.hibernate(session).await,
            // It was made active for a call that did not use it.
            None if cluster.owns(id) => {
                let (shared, id) = (self.shared.clone(), id.clone());
                let store_of = move || match (&shared.services.store, shared.cluster()) {
                    (Some(store), Some(cluster)) => cluster.release(store, &id, || false).map(drop),
                    _ => Ok(()),
                };
                let released = tokio::task::spawn_blocking(store_of).await;
                released.map_err(|_| SessionError::Gone)??;
            }
            None => {}
        }
        if cluster.owns(id) {
            tracing::debug!(persistent = store.is_persistent(), "a session is not handed over");
            return Err(SessionError::Gone);
        }
        Ok(())
    }
}
