//! The recording of code in a worker, on the side of the broker: it is saved while the code waits for the host or
//! sleeps, and replayed in another worker.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use belljar_core::kernel::KernelError;
use belljar_python::isolation::{CallRecording, RecordingState, RemoteCaller};

use crate::frames;
use crate::image_workers::Worker;
use crate::messages::{Command, Event, MAX_HANDLER_STATE, MAX_REASON, MAX_STATE_PART, SeenSignals};
use crate::remote::{RemoteInterpreter, Source, send};
use crate::remote_call::WorkerFailure;
use crate::remote_handle::RemoteHandle;
use crate::remote_session::{STATE_TIMEOUT, read_state};

/// The bytes of a saved recording beyond its entries: the states of handlers, and the files that are made later.
const MAX_RECORDING_REST: usize = 4 << 20;
/// The shortest time from the end of one request to save sleeping code to the next: such code has slept for a second.
const MIN_SLEEP: Duration = Duration::from_millis(900);
/// The time that a replay may take in addition to the limit of time. Busy machines may need it.
pub(crate) const REPLAY_TIME: Duration = Duration::from_secs(120);

/// The recording of an interpreter's code.
#[derive(Debug, Default)]
pub(crate) struct RemoteRecording {
    /// The most bytes of its entries, if the code of the call that runs is recorded.
    max_bytes: Option<u64>,
    /// True while the code repeats what it did.
    pub(crate) is_replaying: bool,
    /// True until replayed code has gone on with the call in which it waited.
    may_continue: bool,
    /// True while the code sleeps in which it was saved.
    pub(crate) is_asleep: bool,
    /// The end of the last request to save sleeping code.
    last_saved: Option<Instant>,
}

impl RemoteRecording {
    /// Begins a call with this recording.
    pub(crate) fn begin_call(&mut self, recording: CallRecording) {
        match recording {
            CallRecording::None => *self = Self::default(),
            CallRecording::New { max_bytes } => *self = Self { max_bytes: Some(max_bytes), ..Self::default() },
            CallRecording::Continued => {}
        }
    }

    /// Begins the replay that a worker has prepared.
    fn begin_replay(&mut self, max_bytes: u64) {
        *self = Self { max_bytes: Some(max_bytes), is_replaying: true, may_continue: true, ..Self::default() };
    }

    /// Receives the end of the replay.
    pub(crate) fn end_replay(&mut self) -> Result<(), WorkerFailure> {
        if std::mem::take(&mut self.is_replaying) { Ok(()) } else { Err(WorkerFailure::Unexpected) }
    }

    /// Checks the state of a handler in a call of the host: that of the call in which replayed code waited.
    pub(crate) fn check_continued(&mut self, state: Option<&[u8]>) -> Result<(), WorkerFailure> {
        match state {
            None => Ok(()),
            Some(state) if state.len() > MAX_HANDLER_STATE => Err(WorkerFailure::Excess),
            Some(_) if std::mem::take(&mut self.may_continue) => Ok(()),
            Some(_) => Err(WorkerFailure::Unexpected),
        }
    }

    /// Begins a request to save sleeping code.
    pub(crate) fn begin_sleep(&mut self) -> Result<(), WorkerFailure> {
        let is_early = self.last_saved.is_some_and(|last| last.elapsed() < MIN_SLEEP);
        match self.max_bytes {
            Some(_) if is_early => Err(WorkerFailure::Excess),
            Some(_) => Ok(()),
            None => Err(WorkerFailure::Unexpected),
        }
    }

    /// Ends the request: the code sleeps on.
    pub(crate) fn sleep_on(&mut self) {
        (self.is_asleep, self.last_saved) = (true, Some(Instant::now()));
    }

    /// Checks the state at the end of a call, and returns it.
    pub(crate) fn check_end(&self, state: Option<RecordingState>) -> Result<Option<RecordingState>, WorkerFailure> {
        let divergence = state.as_ref().and_then(|state| state.divergence.as_deref());
        if divergence.is_some_and(|reason| reason.len() > MAX_REASON) {
            return Err(WorkerFailure::Excess);
        }
        Ok(state.filter(|_| self.max_bytes.is_some()))
    }
}

/// Code in a worker that waits: for the reply to a call of the host, or for the end of a sleep.
pub(crate) struct WaitingCode<'a, 'c> {
    worker: &'a Worker,
    handle: &'a RemoteHandle,
    channel: RefCell<&'a mut Source<'c>>,
    /// The signals that the code had received when it began to wait.
    seen: SeenSignals,
    max_bytes: Option<u64>,
    /// The failure of the worker while the code was saved.
    failure: Cell<Option<WorkerFailure>>,
}

impl<'a, 'c> WaitingCode<'a, 'c> {
    pub(crate) fn new(
        worker: &'a Worker,
        handle: &'a RemoteHandle,
        channel: &'a mut Source<'c>,
        seen: SeenSignals,
        recording: &RemoteRecording,
    ) -> Self {
        let (channel, max_bytes, failure) = (RefCell::new(channel), recording.max_bytes, Cell::default());
        Self { worker, handle, channel, seen, max_bytes, failure }
    }

    /// Ends the wait.
    ///
    /// # Errors
    /// Fails if the worker has failed meanwhile.
    pub(crate) fn end(self) -> Result<(), WorkerFailure> {
        self.failure.into_inner().map_or(Ok(()), Err)
    }

    fn try_save(&self, state: &[u8], max: usize) -> Result<Result<Vec<u8>, String>, WorkerFailure> {
        let deadline = Some(Instant::now() + STATE_TIMEOUT);
        let mut channel = self.channel.borrow_mut();
        channel.get_mut().set_deadline(deadline);
        send(self.worker, &Command::SaveRecording(state.to_vec()), deadline)?;
        read_state(&mut channel, max)
    }
}

impl RemoteCaller for WaitingCode<'_, '_> {
    fn is_interrupted(&self) -> bool {
        self.handle.is_interrupted(self.seen)
    }

    fn is_killed(&self) -> bool {
        let failure = self.failure.take();
        let has_failed = failure.is_some();
        self.failure.set(failure);
        has_failed || self.handle.was_killed()
    }

    fn save(&self, state: &[u8]) -> Result<Vec<u8>, Cow<'static, str>> {
        let Some(max_bytes) = self.max_bytes else { return Err("it is not recorded".into()) };
        if state.len() > MAX_HANDLER_STATE {
            return Err("too many calls wait".into());
        }
        if self.is_killed() {
            return Err("it has ended".into());
        }
        let max = usize::try_from(max_bytes).unwrap_or(usize::MAX).saturating_add(MAX_RECORDING_REST);
        self.worker.control.usage.begin_exchange();
        let saved = self.try_save(state, max);
        self.worker.control.usage.end_exchange();
        match saved {
            Ok(Ok(recording)) => Ok(recording),
            Ok(Err(reason)) => Err(reason.into()),
            Err(failure) => {
                self.failure.set(Some(failure));
                Err("its worker process has failed".into())
            }
        }
    }
}

impl RemoteInterpreter {
    /// Prepares a replay: see [`belljar_python::isolation::SessionProcess::prepare_replay`].
    ///
    /// # Errors
    /// The same.
    pub(crate) fn begin_replay(&mut self, recording: &[u8], max_bytes: u64) -> Result<(), KernelError> {
        let parts = recording.chunks(MAX_STATE_PART).map(|part| Command::StatePart(part.to_vec()));
        let commands = parts.chain([Command::PrepareReplay { max_bytes }]);
        let prepared = self.exchange(STATE_TIMEOUT, commands, |channel| match frames::read(channel)? {
            Event::ReplayPrepared(is_prepared) => Ok(is_prepared),
            _ => Err(WorkerFailure::Unexpected),
        });
        if !prepared.map_err(|_| KernelError::ProcessEnded)? {
            return Err(KernelError::IncompatibleSnapshot("the recording is damaged".into()));
        }
        self.recording.begin_replay(max_bytes);
        Ok(())
    }
}
