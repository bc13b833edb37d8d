//! The records of runs: any replica finds the replica of a run, lists the runs of all, and has the results of those
//! that have ended.
//!
//! ```text
//! records/runs/RUN          the session, the replica, the owner, the code, and the open questions or the result
//! contents/runs/RUN/WRITE   a result that is too large for the record
//!
//!  (none) ── saved, or its ID is given out ──▶ active ── ends, its client has left ──▶ ended ── --run-ttl ──▶ (none)
//!                                                └────── ends, its client has the result ──────────────────▶ (none)
//! ```
//!
//! The state of a run is in its session, and the owner of the session writes the record. An end is written over the
//! record that the same replica has written last: a replica that has lost the run changes nothing.

use std::collections::HashMap;
use std::sync::Arc;

use belljar_store::{Record, RecordVersion};
use serde_json::Value;

use super::cleaning::{encode, has_passed};
use super::run_record::{RecordedEnd, RecordedResult, RunRecord};
use super::{Cluster, MAX_ADDRESSES, Node, wait};
use crate::id::SessionId;
use crate::runs::{Question, Run, RunId, RunInfo, RunOutcome, RunState};
use crate::sessions::{Owner, milliseconds_now};
use crate::store::{Store, StoreError, StoredRun};

/// The collection of the records.
const RUNS: &str = "runs";
/// The maximum number of runs of other replicas that are listed.
const MAX_LISTED: usize = 200;
/// The maximum size of a result in a record, in bytes.
const MAX_RESULT_HERE: usize = 16 << 10;

/// The knowledge about the record of a run.
#[derive(Default)]
pub(super) enum KnownRecord {
    /// This replica has neither written nor read it.
    #[default]
    Nothing,
    /// It was written by this replica, or is that of a run that has ended.
    Written(Box<RunRecord>, RecordVersion),
    /// It was deleted, or another replica has the run.
    Over,
}

/// The knowledge about a record, which is locked while the record is written.
pub(super) type SharedRunRecord = Arc<tokio::sync::Mutex<KnownRecord>>;

/// A run of another replica, or one that no replica has.
#[derive(Debug, Clone)]
pub struct RemoteRun {
    /// The facts that do not change. The code may be its beginning only, and the arguments are missing.
    pub info: RunInfo,
    /// The session.
    pub session: SessionId,
    /// The client, with authentication.
    pub owner: Option<Owner>,
    /// The state: [`RunState::Running`], [`RunState::Waiting`] or [`RunState::Completed`].
    pub state: RunState,
    /// The outcome, if the run waits or has ended, unless an earlier build has stored the end.
    pub outcome: Option<RunOutcome>,
    /// The number of calls, if the run has ended and its code could make any.
    pub call_count: Option<u64>,
    /// The questions that the run waits for.
    pub questions: Vec<Question>,
}

/// A run that was found by its record.
pub(crate) enum FoundRun {
    /// The session of a run that has not ended.
    Active(SessionId),
    /// A run that has ended, with its result.
    Completed(Arc<Run>),
}

impl Cluster {
    /// Stores a session whose cell waits, and the record of its run. Blocks.
    ///
    /// # Errors
    /// As [`Cluster::commit`].
    pub(crate) fn commit_run(
        &self,
        store: &Store,
        session: &SessionId,
        owner: Option<&str>,
        run: &StoredRun,
    ) -> Result<(), StoreError> {
        self.commit(store, session)?;
        let record = RunRecord::from_saved(&self.node, session, owner, run);
        let noted = self.noted_run(&run.info.id);
        wait(&self.handle, async {
            let mut noted = noted.lock().await;
            self.write_run(&run.info.id, record, &mut noted).await
        })
    }

    /// Notes in the record of a run which has come here that this replica has it, in the background.
    pub(crate) fn note_run(self: &Arc<Self>, session: &SessionId, owner: Option<&str>, run: &StoredRun) {
        // Locked now: the record of the end of the run is written afterwards.
        let Ok(mut noted) = self.noted_run(&run.info.id).try_lock_owned() else { return };
        let record = RunRecord::from_saved(&self.node, session, owner, run);
        let (this, id) = (self.clone(), run.info.id.clone());
        self.handle.spawn(async move {
            if let Err(error) = this.write_run(&id, record, &mut noted).await {
                tracing::warn!(%error, "failed to write the record of a run of another replica");
            }
        });
    }

    /// Has other replicas find a run whose ID a client is about to get.
    ///
    /// # Errors
    /// Fails if the coordinator does not answer.
    pub(crate) async fn publish_run(&self, run: &Run) -> Result<(), StoreError> {
        let id = &run.info.id;
        let noted = self.noted_run(id);
        let mut noted = noted.lock().await;
        if !matches!(*noted, KnownRecord::Nothing) {
            return Ok(());
        }
        if run.result().is_some() {
            self.drop_run(id);
            return Ok(());
        }
        self.write_run(id, RunRecord::from_run(&self.node, run), &mut noted).await
    }

    /// Writes the record of a run that this replica has, unless it is as it was written last.
    async fn write_run(&self, run: &RunId, record: RunRecord, noted: &mut KnownRecord) -> Result<(), StoreError> {
        let mut version = match &*noted {
            KnownRecord::Written(last, _) if **last == record => return Ok(()),
            KnownRecord::Written(_, version) => Some(version.clone()),
            KnownRecord::Nothing | KnownRecord::Over => None,
        };
        let (records, value) = (self.services.records(RUNS)?, encode(&record)?);
        let version = loop {
            if let Some(version) = records.put(run.as_str(), version.as_ref(), &value).await? {
                break version;
            }
            // An earlier owner of the session has written it.
            version = match records.get(run.as_str()).await? {
                Some(found) if found.value.is_empty() => {
                    records.delete(run.as_str()).await?;
                    None
                }
                found => found.map(|found| found.version),
            };
        };
        *noted = KnownRecord::Written(Box::new(record), version);
        Ok(())
    }

    /// Stores the result of a run whose client has left, and ends the run then, in the background: no client sees the
    /// result before it is stored.
    pub(crate) fn complete_run(self: &Arc<Self>, run: Arc<Run>, result: Value, outcome: RunOutcome) {
        let this = self.clone();
        let mut completing = self.completing.lock();
        // Those that have ended.
        while completing.try_join_next().is_some() {}
        let complete = async move {
            if let Err(error) = this.write_end(&run, &result, Some(outcome)).await {
                tracing::warn!(%error, "the result of a run is not stored: it is lost when the server ends");
            }
            run.complete(result, Some(outcome));
        };
        completing.spawn_on(complete, &self.handle);
    }

    /// Waits until the results of runs that have ended are stored.
    pub(crate) async fn finish_results(&self) {
        let completing = std::mem::take(&mut *self.completing.lock());
        completing.join_all().await;
    }

    /// Stores the result of a run in its record, unless it is there.
    async fn write_end(&self, run: &Run, result: &Value, outcome: Option<RunOutcome>) -> Result<(), StoreError> {
        let id = &run.info.id;
        let noted = self.noted_run(id);
        let mut noted = noted.lock().await;
        // Without a lease, it is not certain that this replica still has the run.
        self.replica.check()?;
        let (mut record, version) = match &*noted {
            KnownRecord::Over => return Ok(()),
            KnownRecord::Written(record, _) if record.end.is_some() => return Ok(()),
            KnownRecord::Written(record, version) => (RunRecord::clone(record), Some(version.clone())),
            KnownRecord::Nothing => (RunRecord::from_run(&self.node, run), None),
        };
        let records = self.services.records(RUNS)?;
        let bytes = encode(result)?;
        let result = if bytes.len() <= MAX_RESULT_HERE {
            RecordedResult::Here(result.clone())
        } else {
            let size = bytes.len();
            RecordedResult::Content { name: records.put_content(id.as_str(), bytes.into()).await?, size }
        };
        record.questions.clear();
        record.is_waiting = false;
        let (ended, call_count) = (milliseconds_now(), run.call_count());
        record.end = Some(RecordedEnd { ended, is_fetched: false, outcome, call_count, result });
        let written = records.put(id.as_str(), version.as_ref(), &encode(&record)?).await?;
        *noted = written.map_or(KnownRecord::Over, |version| KnownRecord::Written(Box::new(record), version));
        Ok(())
    }

    /// Notes in the record of a run that a client has polled its result.
    async fn write_fetched(&self, run: &RunId) -> Result<(), StoreError> {
        let noted = self.noted_run(run);
        let mut noted = noted.lock().await;
        let KnownRecord::Written(record, version) = &*noted else { return Ok(()) };
        let mut record = record.clone();
        match &mut record.end {
            Some(end) if !end.is_fetched => end.is_fetched = true,
            _ => return Ok(()),
        }
        let value = encode(&record)?;
        let written = self.services.records(RUNS)?.put(run.as_str(), Some(version), &value).await?;
        *noted = written.map_or(KnownRecord::Over, |version| KnownRecord::Written(record, version));
        Ok(())
    }

    /// Has the record of a run that has ended have its result, and that a client has polled it, in the background.
    pub(crate) fn update_result(self: &Arc<Self>, run: &Arc<Run>) {
        let Some(result) = run.result() else { return };
        let is_current = match self.noted_run(&run.info.id).try_lock() {
            // It is being written.
            Err(_) => true,
            Ok(noted) => match &*noted {
                KnownRecord::Nothing => false,
                KnownRecord::Over => true,
                KnownRecord::Written(record, _) => {
                    record.end.as_ref().is_some_and(|end| end.is_fetched || !run.is_fetched())
                }
            },
        };
        if is_current {
            return;
        }
        let (this, run) = (self.clone(), run.clone());
        self.handle.spawn(async move {
            let update = async {
                this.write_end(&run, &result, run.outcome()).await?;
                if run.is_fetched() { this.write_fetched(&run.info.id).await } else { Ok(()) }
            };
            if let Err(error) = update.await {
                tracing::debug!(%error, "failed to update the record of a run that has ended");
            }
        });
    }

    /// Deletes the record of a run that has ended and whose result no client needs, in the background.
    pub(crate) fn forget_run(self: &Arc<Self>, run: &RunId) {
        let noted = self.noted_runs.lock().get(run).cloned();
        let Some(noted) = noted else { return };
        self.forgotten_runs.lock().insert(run.clone());
        let (this, run) = (self.clone(), run.clone());
        self.handle.spawn(async move {
            if let Err(error) = this.remove_run(&run, &noted).await {
                tracing::warn!(%error, "failed to delete the record of a run");
            }
        });
    }

    async fn remove_run(&self, run: &RunId, noted: &tokio::sync::Mutex<KnownRecord>) -> Result<(), StoreError> {
        let mut noted = noted.lock().await;
        self.replica.check()?;
        if let KnownRecord::Written(record, version) = &*noted {
            let records = self.services.records(RUNS)?;
            if record.has_content() {
                records.delete_contents(run.as_str()).await?;
            }
            // It stays if another replica has written it, which has the run then.
            records.remove(run.as_str(), version).await?;
        }
        *noted = KnownRecord::Over;
        self.drop_run(run);
        Ok(())
    }

    /// Tries again to delete the records of runs that have ended.
    pub(crate) fn forget_again(self: &Arc<Self>) {
        let runs: Vec<RunId> = self.forgotten_runs.lock().iter().cloned().collect();
        runs.iter().for_each(|run| self.forget_run(run));
    }

    /// Drops what this replica knows of the record of a run.
    pub(crate) fn drop_run(&self, run: &RunId) {
        self.noted_runs.lock().remove(run);
        self.forgotten_runs.lock().remove(run);
    }

    /// Finds a run by its record.
    pub(crate) async fn find_run(&self, run: &RunId) -> Result<Option<FoundRun>, StoreError> {
        let records = self.services.records(RUNS)?;
        let Some(Record { value, version }) = records.get(run.as_str()).await? else { return Ok(None) };
        let Some(record) = RunRecord::parse(&value) else { return Ok(None) };
        let Some(session) = SessionId::parse(&record.session) else { return Ok(None) };
        let Some(end) = &record.end else {
            let mut nodes = self.run_nodes.lock();
            if nodes.len() >= MAX_ADDRESSES {
                nodes.clear();
            }
            nodes.insert(session.clone(), record.node.clone());
            return Ok(Some(FoundRun::Active(session)));
        };
        let result: Value = match &end.result {
            RecordedResult::Here(result) => result.clone(),
            RecordedResult::Content { name, size } => {
                let Some(bytes) = records.content(name, *size).await? else { return Ok(None) };
                serde_json::from_slice(&bytes).map_err(|_| StoreError::Damaged("the result of its run is invalid"))?
            }
        };
        let ended = Run::new(record.info(run), session, record.owner.as_deref().map(Into::into), RunState::Asleep);
        if end.is_fetched {
            ended.set_fetched();
        }
        ended.set_call_count(end.call_count);
        ended.complete(result, end.outcome);
        *self.noted_run(run).lock().await = KnownRecord::Written(Box::new(record), version);
        Ok(Some(FoundRun::Completed(Arc::new(ended))))
    }

    /// Finds the replica that has a run in a session, as the record of the run has it that was found last. The store
    /// does not have a session whose first cell has not ended.
    pub(crate) async fn node_with_run_in(&self, session: &SessionId) -> Option<Node> {
        let node = self.run_nodes.lock().get(session).cloned()?;
        if node == self.node || !self.is_alive(&node).await {
            return None;
        }
        self.find_node(&node).await
    }

    /// Returns the runs, with their sessions, whose replicas have ended, in the order of their IDs.
    ///
    /// # Errors
    /// Fails if the coordinator does not answer.
    pub(crate) async fn orphaned_runs(&self) -> Result<Vec<(RunId, SessionId)>, StoreError> {
        let (mut orphaned, mut alive) = (Vec::new(), HashMap::from([(self.node.clone(), true)]));
        for (run, record) in self.read_runs().await? {
            if record.end.is_some() {
                continue;
            }
            let is_alive = match alive.get(&record.node) {
                Some(is_alive) => *is_alive,
                None => self.is_alive(&record.node).await,
            };
            alive.insert(record.node, is_alive);
            if !is_alive {
                orphaned.extend(SessionId::parse(&record.session).map(|session| (run, session)));
            }
        }
        Ok(orphaned)
    }

    /// Has this replica be the one that ends a run which was lost with its replica. Returns `None` if another one is,
    /// or if the run has ended.
    pub(crate) async fn claim_run(&self, run: &RunId) -> Result<Option<Arc<Run>>, StoreError> {
        let noted = self.noted_run(run);
        let mut noted = noted.lock().await;
        let records = self.services.records(RUNS)?;
        let Some(Record { value, version }) = records.get(run.as_str()).await? else { return Ok(None) };
        let active = RunRecord::parse(&value).filter(|record| record.end.is_none());
        let Some(mut record) = active else { return Ok(None) };
        let Some(session) = SessionId::parse(&record.session) else { return Ok(None) };
        if record.node == self.node || self.is_alive(&record.node).await {
            return Ok(None);
        }
        record.node.clone_from(&self.node);
        let written = records.put(run.as_str(), Some(&version), &encode(&record)?).await?;
        let Some(version) = written else { return Ok(None) };
        let owner = record.owner.as_deref().map(Into::into);
        let lost = Run::new(record.info(run), session, owner, RunState::Asleep);
        *noted = KnownRecord::Written(Box::new(record), version);
        Ok(Some(Arc::new(lost)))
    }

    /// Returns the runs of clients for which `is_listed` is true, except for those in `known` and for those whose
    /// results a client has polled. If there are too many, those that have not ended are preferred. The oldest are
    /// first.
    ///
    /// # Errors
    /// Fails if the coordinator does not answer.
    pub(crate) async fn distant_runs(
        &self,
        known: &[RunId],
        is_listed: impl Fn(Option<&str>) -> bool,
    ) -> Result<Vec<RemoteRun>, StoreError> {
        let mut found = self.read_runs().await?;
        found.retain(|(run, record)| {
            let is_fetched = record.end.as_ref().is_some_and(|end| end.is_fetched);
            !is_fetched && is_listed(record.owner.as_deref()) && !known.contains(run)
        });
        let mut runs: Vec<RemoteRun> = found.into_iter().filter_map(|(run, record)| distant(&run, record)).collect();
        runs.sort_by_key(|run| (run.state == RunState::Completed, run.info.began));
        runs.truncate(MAX_LISTED);
        runs.sort_by_key(|run| run.info.began);
        Ok(runs)
    }

    /// Deletes the results whose time is over.
    pub(super) async fn delete_old_runs(&self) -> Result<(), StoreError> {
        let records = self.services.records(RUNS)?;
        for (name, Record { value, version }) in self.read_records().await? {
            if value.is_empty() {
                // Its removal was interrupted.
                records.delete(&name).await?;
                continue;
            }
            let Some(record) = RunRecord::parse(&value) else { continue };
            if record.end.as_ref().is_some_and(|end| has_passed(end.ended, self.run_ttl)) {
                if record.has_content() {
                    records.delete_contents(&name).await?;
                }
                records.remove(&name, &version).await?;
            }
        }
        Ok(())
    }

    /// Returns the records of all runs, in the order of their IDs.
    async fn read_runs(&self) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        let parse = |(name, record): (String, Record)| Some((RunId::parse(&name)?, RunRecord::parse(&record.value)?));
        Ok(self.read_records().await?.into_iter().filter_map(parse).collect())
    }

    async fn read_records(&self) -> Result<Vec<(String, Record)>, StoreError> {
        let mut cache = self.run_cache.lock().await;
        Ok(self.services.records(RUNS)?.read_all(&mut cache).await?)
    }

    fn noted_run(&self, run: &RunId) -> SharedRunRecord {
        self.noted_runs.lock().entry(run.clone()).or_default().clone()
    }
}

fn distant(run: &RunId, record: RunRecord) -> Option<RemoteRun> {
    let session = SessionId::parse(&record.session)?;
    let (state, outcome, call_count) = match &record.end {
        Some(end) => (RunState::Completed, end.outcome, end.call_count),
        None if record.is_waiting => (RunState::Waiting, Some(RunOutcome::Paused), None),
        None => (RunState::Running, None, None),
    };
    let (info, owner) = (record.info(run), record.owner.as_deref().map(Into::into));
    Some(RemoteRun { info, session, owner, state, outcome, call_count, questions: record.questions })
}
