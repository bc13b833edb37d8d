//! Runs on the disk: cells that wait, and the sessions that they run in.
//!
//! ```text
//! DIR/key                  the key that signs what follows
//! DIR/SESSION/waiting      the snapshot of a session whose cell waits, and its run
//! DIR/SESSION/resumed      the same, once the cell has gone on: it is not continued a second time
//! DIR/SESSION/start        the file `waiting` from which the cell's interpreter was restored: its recording begins there
//! DIR/SESSION/sent         the calls that were sent since the snapshot was taken, one per line
//! DIR/runs/RUN/answer      an answer to the run's question, or the wish to end the run: `belljar runs`
//! DIR/runs/RUN/result      the result of a run whose client had left: see `results`
//! ```
//!
//! A cell goes on only after its file was renamed to `resumed`. A process that ends afterwards loses the cell: its
//! session continues from the state before it, and the run is listed as lost.

use std::io::{self, Write as _};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::journal::{MAX_SENT, RunJournal, SentCalls, parse_sent};
use super::start::StartFile;
use super::state_file;
use super::{PendingSync, Store, StoreError};
use crate::id::SessionId;
use crate::runs::{Question, RunId, RunInfo};
use belljar_core::activity::CallOrigin;
use belljar_core::kernel::KernelSnapshot;

pub(crate) const WAITING: &str = "waiting";
const NEW_WAITING: &str = "waiting.new";
pub(crate) const RESUMED: &str = "resumed";
pub(crate) const START: &str = "start";
pub(crate) const SENT: &str = "sent";
pub(super) const RUNS: &str = "runs";

/// A waiting run, as its file has it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredRun {
    /// The facts that do not change.
    pub info: RunInfo,
    /// The questions that the run waits for.
    pub questions: Vec<Question>,
    /// The time at which the run goes on by itself, in milliseconds since 1970.
    pub wake_at: Option<u64>,
    /// The server's calls: see [`RunCalls`](crate::RunCalls).
    pub calls: Value,
    /// The number of calls, if the code can make any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_count: Option<u64>,
    /// True if calls go on without an answer: those that were sent, or had one.
    pub(crate) has_sent_calls: bool,
    /// The session's files before the cell: path, size and modification time in nanoseconds.
    pub(crate) files: Vec<(String, u64, i64)>,
    /// The file with the beginning of the snapshot's data; `None` if this one has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<StartFile>,
    /// The number of lines of input that the code has received.
    #[serde(default)]
    pub(crate) inputs: u64,
    /// The call that began the run: empty in files of earlier builds, and without an audit log and traces.
    #[serde(default, skip_serializing_if = "CallOrigin::is_empty")]
    pub(crate) origin: CallOrigin,
}

/// A run of a store.
#[derive(Debug)]
pub struct ListedRun {
    /// The session.
    pub session: SessionId,
    /// The owner of the session.
    pub owner: Option<String>,
    /// The run.
    pub run: StoredRun,
    /// True if the cell had gone on when its process ended.
    pub is_lost: bool,
}

impl Store {
    /// Saves the session of a cell that waits. Returns the journal of what is sent from now on, and a pending sync,
    /// which the caller must finish before the next write.
    pub(crate) fn write_waiting(
        &self,
        id: &SessionId,
        owner: Option<&str>,
        snapshot: &KernelSnapshot,
        run: &StoredRun,
        last_used: std::time::Duration,
    ) -> Result<(RunJournal, PendingSync), StoreError> {
        let (failed, signer) = (StoreError::io("write"), self.signer()?);
        let value = serde_json::to_value(run).map_err(|error| failed(io::Error::other(error).into()))?;
        let bytes = state_file::encode_run(id, owner, snapshot, last_used, value, &signer);
        let bytes = bytes.map_err(|error| failed(error.into()))?;
        let directory = self.root.subdirectory(id.as_str(), true).map_err(failed)?;
        let write = || {
            let mut file = directory.create(NEW_WAITING)?;
            file.write_all(&bytes)?;
            directory.rename(NEW_WAITING, WAITING)?;
            // After the renaming: the calls in it belong to the file that was replaced.
            directory.remove(SENT)?;
            Ok((file, directory.open_to_append(SENT)?))
        };
        let (file, sent) = write().map_err(failed)?;
        let pending = PendingSync { directory, waiting: Some(file) };
        Ok((RunJournal(Some((sent, signer, run.info.id.clone()))), pending))
    }

    /// Continues the journal of a session whose cell waits.
    pub(crate) fn open_journal(&self, id: &SessionId, run: &RunId) -> Result<RunJournal, StoreError> {
        let file = self.directory(id)?.open_to_append(SENT).map_err(StoreError::io("write"))?;
        Ok(RunJournal(Some((file, self.signer()?, run.clone()))))
    }

    /// Reads the session of a cell that waits, with its run and the calls that were sent since.
    pub(crate) fn read_waiting(&self, id: &SessionId) -> Result<(KernelSnapshot, StoredRun, SentCalls), StoreError> {
        let directory = self.directory(id)?;
        let signer = self.signer()?;
        let bytes = directory.read(WAITING, state_file::MAX_FILE).map_err(StoreError::missing_or_io("read"))?;
        let (stored, run) = state_file::decode_run(&bytes, id, &signer)?;
        let run: StoredRun = parse_run(run)?;
        let mut snapshot = stored.snapshot;
        if let Some(start) = &run.start {
            let mut data = self.read_start(id, start)?;
            data.append(&mut snapshot.data);
            snapshot.data = data;
        }
        let sent = match directory.read(SENT, MAX_SENT) {
            Err(error) if error.is_missing() => Vec::new(),
            read => read.map_err(StoreError::io("read"))?,
        };
        let sent = parse_sent(&String::from_utf8_lossy(&sent), &run.info.id, &signer)?;
        Ok((snapshot, run, sent))
    }

    /// Copies the session `id`, whose cell waits, as the session `new`, whose cell waits as the run `run`. Returns
    /// `None` if calls of the cell are in progress, which cannot be copied.
    pub(crate) fn fork_waiting(
        &self,
        id: &SessionId,
        new: &SessionId,
        run: RunId,
    ) -> Result<Option<ListedRun>, StoreError> {
        let (mut snapshot, mut stored, sent) = self.read_waiting(id)?;
        if stored.has_sent_calls || !sent.is_empty() {
            return Ok(None);
        }
        let header = state_file::read_header(self.directory(id)?.open(WAITING).map_err(StoreError::io("read"))?, id)?;
        (snapshot.is_copy, stored.info.id, stored.start) = (true, run, None);
        match self.export(id) {
            Ok((state, cells)) => self.import(new, &state, &cells)?,
            // The waiting cell is the session's first.
            Err(StoreError::Missing) => {}
            Err(error) => return Err(error),
        }
        let owner = header.owner();
        let (_, pending) = self.write_waiting(new, owner.as_deref(), &snapshot, &stored, header.last_used())?;
        pending.sync()?;
        Ok(self.listed_run(new.clone()))
    }

    /// Returns whether calls were sent for a session's cell since it was saved.
    pub(crate) fn has_sent_calls(&self, id: &SessionId) -> bool {
        let sent = self.directory(id).ok().and_then(|directory| directory.open(SENT).ok());
        sent.and_then(|file| file.metadata().ok()).is_some_and(|metadata| metadata.len() > 0)
    }

    /// Notes that the cell of a session goes on.
    pub(crate) fn resume_waiting(&self, id: &SessionId) -> Result<(), StoreError> {
        let directory = self.directory(id)?;
        directory.rename(WAITING, RESUMED).map_err(StoreError::io("write"))
    }

    /// Deletes what the store has of a session's run.
    pub(crate) fn remove_waiting(&self, id: &SessionId) -> Result<(), StoreError> {
        let directory = match self.directory(id) {
            Err(StoreError::Missing) => return Ok(()),
            other => other?,
        };
        for name in [WAITING, RESUMED, START, SENT] {
            directory.remove(name).map_err(StoreError::io("delete"))?;
        }
        Ok(())
    }

    /// Returns the runs of all sessions, as their headers have them: the signature is checked when a run goes on.
    ///
    /// # Errors
    /// Fails if the directory cannot be read.
    pub fn runs(&self) -> io::Result<Vec<ListedRun>> {
        let ids = self.root.names()?.into_iter().filter_map(|name| SessionId::parse(&name));
        let mut runs: Vec<ListedRun> = ids.filter_map(|id| self.listed_run(id)).collect();
        runs.sort_by_key(|listed| listed.run.info.began);
        Ok(runs)
    }

    /// Returns the bases of the sessions whose cells wait.
    pub(super) fn waiting_bases(&self) -> io::Result<Vec<String>> {
        let ids = self.root.names()?.into_iter().filter_map(|name| SessionId::parse(&name));
        let base = |id: SessionId| {
            let file = self.directory(&id).ok()?.open(WAITING).ok()?;
            state_file::read_header(file, &id).ok()?.base().map(str::to_owned)
        };
        Ok(ids.filter_map(base).collect())
    }

    pub(crate) fn listed_run(&self, session: SessionId) -> Option<ListedRun> {
        let directory = self.directory(&session).ok()?;
        let header = |name| state_file::read_header(directory.open(name).ok()?, &session).ok();
        let (header, is_lost) = match header(WAITING) {
            Some(header) => (header, false),
            None => (header(RESUMED)?, true),
        };
        let owner = header.owner().map(|owner| owner.to_string());
        let run = parse_run(header.run).ok()?;
        Some(ListedRun { session, owner, run, is_lost })
    }
}

pub(super) fn parse_run(run: Option<Value>) -> Result<StoredRun, StoreError> {
    let run = run.ok_or(StoreError::Damaged("it has no run"))?;
    serde_json::from_value(run).map_err(|_| StoreError::Damaged("its run is invalid"))
}
