//! Runs on the disk: cells that wait, what was sent for them meanwhile, and answers that arrive from outside.
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

use std::fs::File;
use std::io::{self, Write as _};

use hmac::{Hmac, Mac};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;

use super::private_directory::PrivateDirectory;
use super::start::StartFile;
use super::state_file;
use super::{PendingSync, Store, StoreError};
use crate::id::SessionId;
use crate::runs::{Question, RunAnswer, RunId, RunInfo};
use belljar_core::kernel::KernelSnapshot;

pub(crate) const WAITING: &str = "waiting";
const NEW_WAITING: &str = "waiting.new";
pub(crate) const RESUMED: &str = "resumed";
pub(crate) const START: &str = "start";
pub(crate) const SENT: &str = "sent";
const KEY: &str = "key";
const NEW_KEY: &str = "key.new";
pub(super) const RUNS: &str = "runs";
const ANSWER: &str = "answer";
/// The length of the key and of a signature, in bytes.
pub(super) const KEY_LENGTH: usize = 32;
/// The maximum size of an answer and of the list of sent calls, in bytes.
const MAX_ANSWER: u64 = 1 << 20;
const MAX_SENT: u64 = 16 << 20;

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
}

/// The calls that were sent since a run was saved, and whether each may be sent again without harm.
pub(crate) type SentCalls = Vec<(u64, bool)>;

/// The command of an operator for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunCommand {
    /// Answers a question.
    Answer {
        /// The number of the call that asked it.
        call: u64,
        /// The answer.
        answer: RunAnswer,
    },
    /// Ends the run.
    Cancel,
}

/// A command, as its file has it.
#[derive(Deserialize)]
struct StoredCommand {
    run: RunId,
    command: RunCommand,
}

impl StoredCommand {
    /// Parses a file. Returns `None` if it is not a command for this run.
    fn parse(content: &[u8], run: &RunId) -> Option<RunCommand> {
        let stored: Self = serde_json::from_slice(content).ok()?;
        (stored.run == *run).then_some(stored.command)
    }
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

/// The journal of the calls that a run sends while its snapshot is on the disk.
#[derive(Debug, Default)]
pub(crate) struct RunJournal(Option<(File, Signer, RunId)>);

impl RunJournal {
    /// Records a call, unless the run is not saved. Returns whether it is.
    pub(crate) fn append(&self, call: u64, is_repeatable: bool) -> io::Result<bool> {
        let Some((file, signer, run)) = &self.0 else { return Ok(false) };
        let line = sent_line(run, call, is_repeatable);
        let mut file = file;
        file.write_all(format!("{line} {}\n", hex(&signer.sign(line.as_bytes()))).as_bytes())?;
        Ok(true)
    }

    /// Ends the journal: the run goes on, or is put to sleep, and opens another one when it is saved or woken.
    pub(crate) fn close(&mut self) {
        self.0 = None;
    }
}

fn sent_line(run: &RunId, call: u64, is_repeatable: bool) -> String {
    format!("{} {call} {}", run.as_str(), u8::from(is_repeatable))
}

/// Signs with the key of a store.
#[derive(Clone)]
pub(super) struct Signer([u8; KEY_LENGTH]);

impl std::fmt::Debug for Signer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Signer(…)")
    }
}

impl Signer {
    pub(super) fn new(key: [u8; KEY_LENGTH]) -> Self {
        Self(key)
    }

    fn mac(&self, bytes: &[u8]) -> Hmac<Sha256> {
        // An HMAC takes keys of any length.
        #[expect(clippy::expect_used, reason = "the length is valid")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a valid length");
        mac.update(bytes);
        mac
    }

    pub(super) fn sign(&self, bytes: &[u8]) -> [u8; KEY_LENGTH] {
        self.mac(bytes).finalize().into_bytes().into()
    }

    /// Returns whether a signature is valid. Takes the same time for every wrong one.
    pub(super) fn is_valid(&self, bytes: &[u8], signature: &[u8]) -> bool {
        self.mac(bytes).verify_slice(signature).is_ok()
    }
}

impl Store {
    /// Returns a key for a purpose other than signing. Each process with this directory gets the same one.
    ///
    /// # Errors
    /// Fails if the key of the directory cannot be read or created.
    pub fn derive_key(&self, purpose: &str) -> Result<[u8; KEY_LENGTH], StoreError> {
        Ok(self.signer()?.sign(format!("key: {purpose}").as_bytes()))
    }

    /// Returns the signer of this store. The first one creates the key.
    pub(super) fn signer(&self) -> Result<Signer, StoreError> {
        if let Some(signer) = self.signer.get() {
            return Ok(signer.clone());
        }
        let failed = StoreError::io("sign");
        let read = || self.root.read(KEY, KEY_LENGTH as u64 + 1);
        let bytes = match read() {
            Err(error) if error.is_missing() => {
                let mut key = [0; KEY_LENGTH];
                getrandom::fill(&mut key).map_err(|error| failed(io::Error::other(error).into()))?;
                let mut file = self.root.create(NEW_KEY).map_err(failed)?;
                file.write_all(&key).and_then(|()| file.sync_data()).map_err(|error| failed(error.into()))?;
                // Another process may create the key at the same time: the first one counts.
                drop(self.root.link(NEW_KEY, KEY));
                self.root.remove(NEW_KEY).map_err(failed)?;
                read().map_err(failed)?
            }
            other => other.map_err(failed)?,
        };
        let key = <[u8; KEY_LENGTH]>::try_from(&*bytes);
        let key = key.map_err(|_| StoreError::Damaged("the key of the data directory has another length"))?;
        Ok(self.signer.get_or_init(|| Signer(key)).clone())
    }

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

    /// Leaves a command for the process that has a run, or will have it.
    ///
    /// # Errors
    /// Fails if the command cannot be written.
    pub fn command_run(&self, run: &RunId, command: &RunCommand) -> Result<(), StoreError> {
        self.write_of_run(run, ANSWER, &serde_json::json!({ "run": run, "command": command }))
    }

    /// Returns the command for a run that no server has taken yet.
    pub fn pending_run_command(&self, run: &RunId) -> Option<RunCommand> {
        let directory = self.root.subdirectory(RUNS, false).ok()?.subdirectory(run.as_str(), false).ok()?;
        StoredCommand::parse(&self.read_signed(&directory, ANSWER, MAX_ANSWER)?, run)
    }

    /// Takes the commands for runs.
    pub(crate) fn take_run_commands(&self) -> Vec<(RunId, RunCommand)> {
        let Ok(runs) = self.root.subdirectory(RUNS, false) else { return Vec::new() };
        let ids = runs.names().unwrap_or_default().into_iter().filter_map(|name| RunId::parse(&name));
        let take = |id: RunId| {
            let directory = runs.subdirectory(id.as_str(), false).ok()?;
            let content = self.read_signed(&directory, ANSWER, MAX_ANSWER)?;
            // Removed first: a command is carried out once.
            directory.remove(ANSWER).ok()?;
            StoredCommand::parse(&content, &id).map(|command| (id, command))
        };
        ids.filter_map(take).collect()
    }

    /// Writes a signed file of a run.
    pub(super) fn write_of_run(
        &self,
        run: &RunId,
        name: &'static str,
        content: &impl Serialize,
    ) -> Result<(), StoreError> {
        let failed = StoreError::io("write");
        let mut bytes = serde_json::to_vec(content).map_err(|error| failed(io::Error::other(error).into()))?;
        let signature = self.signer()?.sign(&bytes);
        bytes.extend_from_slice(&signature);
        let write = || {
            let directory = self.root.subdirectory(RUNS, true)?.subdirectory(run.as_str(), true)?;
            let new = if name == ANSWER { "answer.new" } else { "result.new" };
            directory.create(new)?.write_all(&bytes)?;
            directory.rename(new, name)
        };
        write().map_err(failed)
    }

    /// Reads a signed file. A file with another signature is left alone.
    pub(super) fn read_signed(&self, directory: &PrivateDirectory, name: &'static str, max: u64) -> Option<Vec<u8>> {
        if !directory.contains(name) {
            return None;
        }
        let mut bytes = directory.read(name, max).ok()?;
        let signature = bytes.split_off(bytes.len().checked_sub(KEY_LENGTH)?);
        if self.signer().ok()?.is_valid(&bytes, &signature) {
            return Some(bytes);
        }
        tracing::warn!(name, "a file of a run in the data directory is damaged, or another program wrote it");
        None
    }
}

pub(super) fn parse_run(run: Option<Value>) -> Result<StoredRun, StoreError> {
    let run = run.ok_or(StoreError::Damaged("it has no run"))?;
    serde_json::from_value(run).map_err(|_| StoreError::Damaged("its run is invalid"))
}

/// Parses the calls that were sent.
fn parse_sent(text: &str, run: &RunId, signer: &Signer) -> Result<SentCalls, StoreError> {
    let invalid = || StoreError::Damaged("the record of its calls is invalid");
    let mut sent = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(owner), Some(call), Some(flag), Some(signature)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(invalid());
        };
        // The server ended before it deleted the record of an earlier run.
        if owner != run.as_str() {
            continue;
        }
        let call: u64 = call.parse().map_err(|_| invalid())?;
        let is_repeatable = flag == "1";
        let signature: Option<Vec<u8>> = signature
            .as_bytes()
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
            .collect();
        let signed = sent_line(run, call, is_repeatable);
        if !signature.is_some_and(|signature| signer.is_valid(signed.as_bytes(), &signature)) {
            return Err(invalid());
        }
        sent.push((call, is_repeatable));
    }
    Ok(sent)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
