//! Runs that this replica does not have: they are found and listed by their records, and those that were lost with
//! their replica are claimed.

use std::collections::HashMap;
use std::sync::Arc;

use belljar_store::Record;
use serde_json::Value;

use super::cleaning::encode;
use super::run_record::{RecordedResult, RunRecord};
use super::runs::{KnownRecord, RUNS};
use super::{Cluster, MAX_ADDRESSES, Node};
use crate::id::SessionId;
use crate::runs::{Question, Run, RunId, RunInfo, RunOutcome, RunState};
use crate::sessions::Owner;
use crate::store::StoreError;

/// The maximum number of runs of other replicas that are listed.
const MAX_LISTED: usize = 200;

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
    pub(crate) async fn remote_runs(
        &self,
        known: &[RunId],
        is_listed: impl Fn(Option<&str>) -> bool,
    ) -> Result<Vec<RemoteRun>, StoreError> {
        let mut found = self.read_runs().await?;
        found.retain(|(run, record)| {
            let is_fetched = record.end.as_ref().is_some_and(|end| end.is_fetched);
            !is_fetched && is_listed(record.owner.as_deref()) && !known.contains(run)
        });
        let mut runs: Vec<RemoteRun> = found.into_iter().filter_map(|(run, record)| remote_run(&run, record)).collect();
        runs.sort_by_key(|run| (run.state == RunState::Completed, run.info.began));
        runs.truncate(MAX_LISTED);
        runs.sort_by_key(|run| run.info.began);
        Ok(runs)
    }

    /// Returns the records of all runs, in the order of their IDs.
    async fn read_runs(&self) -> Result<Vec<(RunId, RunRecord)>, StoreError> {
        let parse = |(name, record): (String, Record)| Some((RunId::parse(&name)?, RunRecord::parse(&record.value)?));
        Ok(self.read_records().await?.into_iter().filter_map(parse).collect())
    }
}

fn remote_run(run: &RunId, record: RunRecord) -> Option<RemoteRun> {
    let session = SessionId::parse(&record.session)?;
    let (state, outcome, call_count) = match &record.end {
        Some(end) => (RunState::Completed, end.outcome, end.call_count),
        None if record.is_waiting => (RunState::Waiting, Some(RunOutcome::Paused), None),
        None => (RunState::Running, None, None),
    };
    let (info, owner) = (record.info(run), record.owner.as_deref().map(Into::into));
    Some(RemoteRun { info, session, owner, state, outcome, call_count, questions: record.questions })
}
