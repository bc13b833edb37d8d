//! The interpreter of a session in a worker, on the side of the broker: its beginning, its files and its state.

use std::time::{Duration, Instant};

use belljar_core::kernel::KernelError;
use belljar_python::isolation::{FileFailure, FileReply, FileRequest, SavedPart, SessionProcess, SessionStart};

use crate::frames::{self, FrameError};
use crate::image_workers::Worker;
use crate::messages::{Command, Event, InterpreterLimits, MAX_BUFFERS, MAX_REASON, MAX_STATE, MAX_STATE_PART};
use crate::remote::{BUFFER, RemoteInterpreter, Source, wait_until_ready};
use crate::remote_call::WorkerFailure;
use crate::timed_channel::{self, TimedChannel};

/// The longest wait for a worker that restores or saves an interpreter.
pub(crate) const STATE_TIMEOUT: Duration = Duration::from_secs(120);
/// The longest wait for a worker that lists, reads or writes files.
const FILES_TIMEOUT: Duration = Duration::from_secs(60);

impl RemoteInterpreter {
    /// Creates the interpreter of a session, or of code that goes on. It is called before anything else.
    ///
    /// # Errors
    /// Returns [`KernelError::IncompatibleSnapshot`] if it cannot be restored.
    pub(crate) fn begin_with(&mut self, start: SessionStart<'_>) -> Result<(), KernelError> {
        let (part, state): (_, &[u8]) = match start {
            SessionStart::New => (None, &[]),
            SessionStart::Files(bytes) => (Some(SavedPart::Files), bytes),
            SessionStart::State(bytes) => (Some(SavedPart::State), bytes),
        };
        if state.len() > MAX_STATE {
            return Err(KernelError::IncompatibleSnapshot(too_large(state.len()).into()));
        }
        let (number, limits) = (self.number, self.limits);
        (self.is_restored, self.has_begun) = (true, true);
        let parts = state.chunks(MAX_STATE_PART).map(|part| Command::StatePart(part.to_vec()));
        let commands =
            parts.chain([Command::StartSession { number, limits, start: part, mounts: self.mounts.clone() }]);
        let started = self.exchange(STATE_TIMEOUT, commands, |channel| match frames::read(channel)? {
            Event::Started(Err(reason)) if reason.len() > MAX_REASON => Err(WorkerFailure::Excess),
            Event::Started(started) => Ok(started),
            _ => Err(WorkerFailure::Unexpected),
        });
        let reason = match (started, part) {
            (Ok(Ok(())), _) => return Ok(()),
            (Ok(Err(reason)), Some(_)) => return Err(KernelError::IncompatibleSnapshot(reason.into())),
            (Ok(Err(reason)), None) => reason,
            (Err(failure), _) => failure.to_string(),
        };
        Err(KernelError::Start(format!("failed to start the interpreter of a session: {reason}").into()))
    }

    /// Saves a part of the interpreter: see [`belljar_python::isolation::InterpreterProcess::save`].
    ///
    /// # Errors
    /// The same.
    pub(crate) fn save_part(&mut self, part: SavedPart) -> Result<Vec<u8>, KernelError> {
        let max = max_state(&self.limits);
        let saved = self.exchange(STATE_TIMEOUT, [Command::Save(part)].into_iter(), |channel| read_state(channel, max));
        let saved = saved.map_err(|_| KernelError::ProcessEnded)?;
        saved.map_err(|reason| KernelError::Failed(format!("failed to save the interpreter: {reason}").into()))
    }

    /// Sends commands, and reads their reply, after which nothing follows. A failure ends the worker.
    pub(crate) fn exchange<T>(
        &mut self,
        timeout: Duration,
        commands: impl Iterator<Item = Command>,
        read: impl FnOnce(&mut Source<'_>) -> Result<T, WorkerFailure>,
    ) -> Result<T, WorkerFailure> {
        let Some(worker) = &mut self.worker else { return Err(FrameError::Closed.into()) };
        worker.control.usage.begin_exchange();
        let result = exchange(worker, timeout, commands, read);
        worker.control.usage.end_exchange();
        if let Err(failure) = &result {
            tracing::warn!(%failure, "the worker process of a session has failed");
            drop(self.end_worker());
        }
        result
    }
}

fn exchange<T>(
    worker: &mut Worker,
    timeout: Duration,
    commands: impl Iterator<Item = Command>,
    read: impl FnOnce(&mut Source<'_>) -> Result<T, WorkerFailure>,
) -> Result<T, WorkerFailure> {
    let deadline = Some(Instant::now() + timeout);
    for command in commands {
        let mut frame = Vec::new();
        frames::append(&mut frame, &command).map_err(FrameError::from)?;
        timed_channel::write(&worker.channel, &frame, deadline).map_err(FrameError::from)?;
    }
    let mut channel = Source::with_capacity(BUFFER, TimedChannel::new(&worker.channel, deadline));
    if !worker.is_ready {
        wait_until_ready(&mut channel)?;
        worker.is_ready = true;
        channel.get_mut().set_deadline(deadline);
    }
    let result = read(&mut channel)?;
    match channel.buffer() {
        [] => Ok(result),
        _ => Err(WorkerFailure::Unexpected),
    }
}

/// Returns the most bytes of the state of an interpreter with these limits: its memory with the masks of its pages, and
/// its files.
fn max_state(&InterpreterLimits { memory, disk, files, .. }: &InterpreterLimits) -> usize {
    /// The most bytes of what surrounds all that.
    const REST: u64 = 64 << 20;
    /// The most bytes of a file around its content.
    const FILE: u64 = 8 << 10;
    let bytes =
        [memory / 32, disk, FILE.saturating_mul(files.into()), REST].into_iter().fold(memory, u64::saturating_add);
    usize::try_from(bytes).unwrap_or(MAX_STATE).min(MAX_STATE)
}

/// Reads the parts of a state until the worker has sent all, at most `max` bytes.
pub(crate) fn read_state(channel: &mut Source<'_>, max: usize) -> Result<Result<Vec<u8>, String>, WorkerFailure> {
    let mut state = Vec::new();
    loop {
        match frames::read(channel)? {
            // Messages without bytes would have no bound but that of time.
            Event::StatePart(part) if part.is_empty() || part.len() > MAX_STATE_PART => {
                return Err(WorkerFailure::Excess);
            }
            Event::StatePart(part) if part.len() > max - state.len() => return Err(WorkerFailure::Excess),
            Event::StatePart(part) => state.extend(part),
            Event::Saved(Ok(())) => return Ok(Ok(state)),
            Event::Saved(Err(reason)) if reason.len() <= MAX_REASON => return Ok(Err(reason)),
            Event::Saved(Err(_)) => return Err(WorkerFailure::Excess),
            _ => return Err(WorkerFailure::Unexpected),
        }
    }
}

impl SessionProcess for RemoteInterpreter {
    fn files(&mut self, request: &FileRequest) -> Result<FileReply, KernelError> {
        if let FileRequest::Write { bytes, .. } = request
            && bytes.len() > MAX_BUFFERS
        {
            let reason = format!("it has more than {} MB", MAX_BUFFERS >> 20);
            return Ok(FileReply::Written(Err(FileFailure::Other(reason))));
        }
        let commands = [Command::Files(request.clone())].into_iter();
        let replied = self.exchange(FILES_TIMEOUT, commands, |channel| match frames::read(channel)? {
            Event::Files(reply) => request.check(reply).ok_or(WorkerFailure::Excess),
            _ => Err(WorkerFailure::Unexpected),
        });
        replied.map_err(|_| KernelError::ProcessEnded)
    }

    fn prepare_replay(&mut self, recording: &[u8], max_bytes: u64) -> Result<(), KernelError> {
        self.begin_replay(recording, max_bytes)
    }

    fn has_ended(&self) -> bool {
        self.worker.as_ref().is_none_or(|worker| worker.control.process.has_ended())
    }
}

fn too_large(length: usize) -> String {
    format!("the saved session has {} MB, and may have {} in a worker process", length >> 20, MAX_STATE >> 20)
}
