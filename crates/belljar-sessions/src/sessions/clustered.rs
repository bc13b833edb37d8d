//! Sessions of a cluster: where they are, and how they move from one replica to another.

use std::io;
use std::sync::Arc;

use belljar_store::HeaderCache;
use serde_json::Value;

use super::Sessions;
use super::durable::StoredRuns;
use super::table::SessionEntry;
use crate::cluster::{Cluster, FoundRun, Place, RemoteRun};
use crate::error::SessionError;
use crate::history::AbsenceReason;
use crate::id::SessionId;
use crate::runs::{Run, RunId, RunOutcome};
use crate::store::{Store, StoreError};

impl Sessions {
    /// Returns the cluster of which this server is a replica.
    pub fn cluster(&self) -> Option<&Arc<Cluster>> {
        self.shared.cluster()
    }

    /// Finds out where a session is active. One that no replica has becomes active here.
    ///
    /// # Errors
    /// Fails if the cluster's store cannot be used.
    pub async fn locate(&self, id: &SessionId) -> Result<Place, SessionError> {
        let Some(store) = &self.shared.services.store else { return Ok(Place::Here) };
        let Some(cluster) = store.cluster() else { return Ok(Place::Here) };
        // Its call may take a while until it is in the session's queue. The session stays here until then.
        if cluster.expect_call(id) {
            return Ok(Place::Here);
        }
        let (this, store, cluster, id) = (self.clone(), store.clone(), cluster.clone(), id.clone());
        // It goes on if the request is dropped: the session would be left with this replica, and its run forgotten.
        let located = tokio::spawn(async move {
            let place = cluster.activate(&store, &id, true).await?;
            match place {
                Place::Here => this.adopt_run(&store, &id),
                Place::Elsewhere(_) => {}
                Place::Nowhere => {
                    if let Some(node) = cluster.node_with_run_in(&id).await {
                        return Ok(Place::Elsewhere(node));
                    }
                    this.note_end_elsewhere(&id);
                }
            }
            Ok::<_, StoreError>(place)
        });
        Ok(located.await.map_err(|_| SessionError::Gone)??)
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
            cluster.note_run(id, listed.owner.as_deref(), &listed.run);
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

    /// Finds the session of a run that any replica has. Returns `None` for a run that has ended: its result is here
    /// then, wherever its session is.
    ///
    /// # Errors
    /// Fails if the cluster's store cannot be used.
    pub async fn session_of_run(&self, run: &str) -> Result<Option<SessionId>, SessionError> {
        let (Some(cluster), Some(id)) = (self.cluster(), RunId::parse(run)) else { return Ok(None) };
        if let Some(run) = self.shared.runs.get(&id) {
            return Ok(run.result().is_none().then(|| run.session.clone()));
        }
        match cluster.find_run(&id).await? {
            None => Ok(None),
            Some(FoundRun::Active(session)) => Ok(Some(session)),
            Some(FoundRun::Completed(run)) => {
                self.shared.runs.insert(run);
                Ok(None)
            }
        }
    }

    /// Has every replica find a run. Must be called before a client gets the ID of a run that its call does not wait
    /// for any more.
    pub async fn publish_run(&self, run: &Run) {
        let Some(cluster) = self.cluster() else { return };
        if let Err(error) = cluster.publish_run(run).await {
            tracing::warn!(%error, "other replicas do not find a run");
        }
    }

    /// Returns the runs of this client that are in other replicas, or that no replica has, with those whose results
    /// wait.
    ///
    /// # Errors
    /// Fails if the cluster's store cannot be used.
    pub async fn remote_runs(&self) -> Result<Vec<RemoteRun>, SessionError> {
        let Some(cluster) = self.cluster() else { return Ok(Vec::new()) };
        let known: Vec<RunId> = self.shared.runs.all().into_iter().map(|run| run.info.id.clone()).collect();
        let caller = self.owner.as_deref();
        Ok(cluster.remote_runs(&known, |owner| owner.is_none() || owner == caller).await?)
    }

    /// Goes on with the runs of replicas that have ended, and ends those that were lost with them.
    pub(super) async fn adopt_runs(&self) {
        let Some(cluster) = self.cluster() else { return };
        cluster.forget_again();
        let orphaned = cluster.orphaned_runs().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to look for runs of other replicas");
            Vec::new()
        });
        for (run, session) in orphaned {
            let adopted = async {
                match self.locate(&session).await? {
                    // That replica goes on with it.
                    Place::Elsewhere(_) => Ok(()),
                    Place::Here | Place::Nowhere => self.end_if_lost(cluster, &run, &session).await,
                }
            };
            if let Err(error) = adopted.await {
                tracing::warn!(%error, "failed to look after the run of another replica");
            }
        }
    }

    /// Ends a run whose replica has ended, unless it goes on here.
    async fn end_if_lost(&self, cluster: &Cluster, run: &RunId, session: &SessionId) -> Result<(), SessionError> {
        let goes_on = || {
            let store = self.shared.services.store.as_deref();
            let listed = store.and_then(|store| store.listed_run(session.clone()));
            self.shared.runs.get(run).is_some() || listed.is_some_and(|listed| listed.run.info.id == *run)
        };
        if goes_on() {
            return Ok(());
        }
        if let Some(lost) = cluster.claim_run(run).await? {
            self.shared.runs.insert(lost.clone());
            self.shared.adopted.lock().lost.push(lost);
        }
        Ok(())
    }

    /// Deletes expired sessions and unused objects in the cluster's store, again and again. Returns at once without a
    /// cluster.
    pub async fn clean_up_store(&self) {
        let Some(cluster) = self.cluster() else { return };
        let mut headers = HeaderCache::default();
        loop {
            tokio::time::sleep(cluster.clean_up_interval()).await;
            // Sessions whose cells wait are taken over, and not deleted.
            self.adopt_runs().await;
            cluster.clean_up(&mut headers).await;
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

    /// Ends a run of a cluster with a result.
    pub(super) fn complete_in_cluster(&self, cluster: &Arc<Cluster>, run: &Run, result: Value, outcome: RunOutcome) {
        let id = &run.info.id;
        match self.shared.runs.get(id) {
            Some(run) if run.is_detached() => cluster.complete_run(run, result, outcome),
            _ => {
                cluster.forget_run(id);
                self.shared.runs.remove(id);
                run.complete(result, Some(outcome));
            }
        }
    }

    /// Has the records of runs that have ended have their results, and whether clients have polled these.
    pub(super) fn update_results(&self) {
        let Some(cluster) = self.cluster() else { return };
        for run in self.shared.runs.all() {
            cluster.update_result(&run);
        }
    }

    /// Gives up the sessions that were made active here for calls which did not use them.
    pub(super) async fn release_unused(&self) {
        let Some(cluster) = self.cluster() else { return };
        for id in cluster.owned_sessions() {
            if self.shared.table.lock().contains_key(&id) {
                continue;
            }
            if let Err(error) = self.release_session(&id).await {
                tracing::warn!(%error, "failed to give up a session that is not used");
            }
        }
    }

    /// Gives up a session that is active here, unless a call has come to use it.
    async fn release_session(&self, id: &SessionId) -> Result<(), SessionError> {
        let (shared, id) = (self.shared.clone(), id.clone());
        let release = move || match (&shared.services.store, shared.cluster()) {
            (Some(store), Some(cluster)) => {
                let is_wanted = || shared.table.lock().contains_key(&id);
                cluster.release(store, &id, None, is_wanted).map(drop)
            }
            _ => Ok(()),
        };
        Ok(tokio::task::spawn_blocking(release).await.map_err(|_| SessionError::Gone)??)
    }

    /// Puts a session to sleep once its calls have ended, and gives it up, so that another replica can have it.
    ///
    /// # Errors
    /// Fails if the session's state cannot be stored.
    pub async fn hand_over(&self, id: &SessionId) -> Result<(), SessionError> {
        let Some(cluster) = self.cluster() else { return Ok(()) };
        let session = match self.shared.table.lock().get(id) {
            Some(SessionEntry::Active(session)) => Some(session.clone()),
            _ => None,
        };
        match session {
            Some(session) => self.hibernate(session).await,
            // It was made active for a call that did not use it.
            None if cluster.owns(id) => self.release_session(id).await?,
            None => {}
        }
        cluster.release_record(id).await?;
        if cluster.owns(id) {
            tracing::debug!("a session is not handed over");
            return Err(SessionError::Gone);
        }
        Ok(())
    }
}
