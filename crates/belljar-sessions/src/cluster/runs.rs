//! The records of runs that wait: any replica finds the session of a run, and lists the runs of all.
//!
//! ```text
//! records/runs/RUN   the session, the owner, the code and the open questions, as JSON
//! ```
//!
//! The state of a run is in its session. A record is written before a question is put, and deleted when the run ends.

use std::collections::{HashMap, HashSet};

use belljar_store::RecordVersion;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Cluster, is_due, wait};
use crate::id::SessionId;
use crate::runs::{Question, RunId, RunInfo};
use crate::sessions::Owner;
use crate::store::{Store, StoreError, StoredRun};

/// The collection of the records.
const RUNS: &str = "runs";
/// The maximum number of characters of code in a record.
const MAX_CODE: usize = 4_000;
/// The maximum number of questions in a record.
const MAX_QUESTIONS: usize = 32;
/// The maximum number of characters of a question in a record.
const MAX_QUESTION: usize = 2_000;
/// The maximum number of runs of other replicas that are listed.
const MAX_LISTED: usize = 200;

/// The record of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RunRecord {
    session: String,
    owner: Option<String>,
    code: String,
    began: u64,
    is_new_session: bool,
    is_program: bool,
    questions: Vec<Question>,
}

impl RunRecord {
    fn of(session: &SessionId, owner: Option<&str>, stored: &StoredRun) -> Self {
        let RunInfo { code, began, is_new_session, is_program, .. } = &stored.info;
        let question = |question: &Question| {
            let message = question.message.chars().take(MAX_QUESTION).collect();
            Question { call: question.call, message }
        };
        Self {
            session: session.as_str().to_owned(),
            owner: owner.map(str::to_owned),
            code: code.chars().take(MAX_CODE).collect(),
            began: *began,
            is_new_session: *is_new_session,
            is_program: *is_program,
            questions: stored.questions.iter().take(MAX_QUESTIONS).map(question).collect(),
        }
    }
}

/// A run that waits in another replica, or that no replica has.
#[derive(Debug, Clone)]
pub struct DistantRun {
    /// The facts that do not change. The code may be its beginning only, and the arguments are missing.
    pub info: RunInfo,
    /// The session.
    pub session: SessionId,
    /// The client, with authentication.
    pub owner: Option<Owner>,
    /// The questions that the run waits for.
    pub questions: Vec<Question>,
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
        let record = RunRecord::of(session, owner, run);
        let id = &run.info.id;
        if self.noted_runs.lock().get(id).is_some_and(|noted| noted.as_ref() == Some(&record)) {
            return Ok(());
        }
        let value =
            serde_json::to_vec(&record).map_err(|error| StoreError::io("write")(std::io::Error::other(error)))?;
        wait(&self.handle, async {
            let records = self.services.records(RUNS)?;
            let mut version: Option<RecordVersion> = None;
            // Only the owner of the session writes, so that it has lost at most one race: that against an earlier one.
            while records.put(id.as_str(), version.as_ref(), &value).await?.is_none() {
                version = records.get(id.as_str()).await?.map(|found| found.version);
            }
            Ok::<_, StoreError>(())
        })?;
        self.noted_runs.lock().insert(id.clone(), Some(record));
        Ok(())
    }

    /// Deletes what other replicas know of a run, in the background.
    pub(crate) fn forget_run(&self, run: &RunId) {
        if self.noted_runs.lock().remove(run).is_none() {
            return;
        }
        let (services, name) = (self.services.clone(), run.as_str().to_owned());
        self.handle.spawn(async move {
            let deleted = async { services.records(RUNS)?.delete(&name).await };
            if let Err(error) = deleted.await {
                tracing::warn!(%error, "failed to delete the record of a run");
            }
        });
    }

    /// Has the record of a run that has come here deleted when the run ends.
    pub(crate) fn note_run(&self, run: &RunId) {
        self.noted_runs.lock().entry(run.clone()).or_default();
    }

    /// Finds the session of a run.
    pub(crate) async fn session_of_run(&self, run: &RunId) -> Result<Option<SessionId>, StoreError> {
        Ok(self.read_run(run).await?.map(|run| run.session))
    }

    /// Returns the runs, with their sessions, that no replica may have, except for those in `known`. Looks for them now
    /// and then only. The caller reports where it found a run to be, so that its record is not read again before the
    /// replica that has it is gone.
    pub(crate) async fn runs_to_adopt(&self, known: &[RunId]) -> Vec<(RunId, SessionId)> {
        if !is_due(&self.next_adoption, Self::ADOPTION_INTERVAL) {
            return Vec::new();
        }
        self.unowned_runs(known).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to look for runs of other replicas");
            Vec::new()
        })
    }

    async fn unowned_runs(&self, known: &[RunId]) -> Result<Vec<(RunId, SessionId)>, StoreError> {
        let runs = self.other_runs(known).await?;
        let located = {
            let mut located = self.located_runs.lock();
            located.retain(|run, _| runs.contains(run));
            located.clone()
        };
        let (mut found, mut alive) = (Vec::new(), HashMap::new());
        for run in runs {
            let Some((session, node)) = located.get(&run) else {
                found.extend(self.read_run(&run).await?.map(|read| (run, read.session)));
                continue;
            };
            let is_alive = match alive.get(node) {
                Some(is_alive) => *is_alive,
                None => *alive.entry(node).or_insert(self.is_alive(node).await),
            };
            if !is_alive {
                found.push((run, session.clone()));
            }
        }
        Ok(found)
    }

    /// Records that another replica has the session of a run.
    pub(crate) fn locate_run(&self, run: RunId, session: SessionId, node: String) {
        self.located_runs.lock().insert(run, (session, node));
    }

    /// Deletes the record of a run whose session does not exist any more.
    pub(crate) fn remove_run(&self, run: &RunId) {
        self.note_run(run);
        self.forget_run(run);
    }

    /// Returns the runs that wait, except for those in `known`. The oldest are first.
    ///
    /// # Errors
    /// When the coordinator does not answer.
    pub(crate) async fn distant_runs(&self, known: &[RunId]) -> Result<Vec<DistantRun>, StoreError> {
        let mut runs = Vec::new();
        for run in self.other_runs(known).await?.into_iter().take(MAX_LISTED) {
            runs.extend(self.read_run(&run).await?);
        }
        runs.sort_by_key(|run| run.info.began);
        Ok(runs)
    }

    /// Returns the runs with records, except for those in `known`.
    async fn other_runs(&self, known: &[RunId]) -> Result<HashSet<RunId>, StoreError> {
        let names = self.services.records(RUNS)?.list("").await?;
        Ok(names.iter().filter_map(|name| RunId::parse(name)).filter(|run| !known.contains(run)).collect())
    }

    async fn read_run(&self, run: &RunId) -> Result<Option<DistantRun>, StoreError> {
        let Some(found) = self.services.records(RUNS)?.get(run.as_str()).await? else { return Ok(None) };
        let Ok(record) = serde_json::from_slice::<RunRecord>(&found.value) else { return Ok(None) };
        let Some(session) = SessionId::parse(&record.session) else { return Ok(None) };
        let RunRecord { owner, code, began, is_new_session, is_program, questions, .. } = record;
        let info = RunInfo { id: run.clone(), code, arguments: Value::Null, began, is_new_session, is_program };
        Ok(Some(DistantRun { info, session, owner: owner.as_deref().map(Into::into), questions }))
    }
}
