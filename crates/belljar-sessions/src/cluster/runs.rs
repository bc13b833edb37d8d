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

use std::sync::Arc;

use belljar_store::{Record, RecordVersion};
use serde_json::Value;

use super::cleaning::{encode, has_passed};
use super::run_record::{RecordedEnd, RecordedResult, RunRecord};
use super::{Cluster, wait};
use crate::id::SessionId;
use crate::runs::{Run, RunId, RunOutcome};
use crate::sessions::milliseconds_now;
use crate::store::{Store, StoreError, StoredRun};

/// The collection of the records.
pub(super) const RUNS: &str = "runs";
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

    pub(super) async fn read_records(&self) -> Result<Vec<(String, Record)>, StoreError> {
        let mut cache = self.run_cache.lock().await;
        Ok(self.services.records(RUNS)?.read_all(&mut cache).await?)
    }

    pub(super) fn noted_run(&self, run: &RunId) -> SharedRunRecord {
        self.noted_runs.lock().entry(run.clone()).or_default().clone()
    }
}
