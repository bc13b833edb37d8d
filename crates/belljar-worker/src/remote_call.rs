//! One call of an interpreter in a worker, on the side of the broker: the events until it returns, and their checks.
//!
//! The checks here are those of the table in the crate's documentation: the worker is not trusted.

use std::io;
use std::time::{Duration, Instant};

use belljar_core::{ExitReason, Limits};
use belljar_python::GuestReturn;
use belljar_python::isolation::{
    FinishReturn, LayerArchive, ProcessCall, ProcessHost, ProcessHostCall, ProcessHostReply, ProcessReturn,
    RemoteCaller as _, ValueFile,
};

use crate::frames::{self, FrameError};
use crate::image_workers::Worker;
use crate::messages::{Command, Event, InterpreterLimits, MAX_HOST_REQUEST, MAX_OUTPUT, MAX_STATE_PART, SeenSignals};
use crate::remote::{Source, send};
use crate::remote_handle::RemoteHandle;
use crate::remote_recording::{REPLAY_TIME, RemoteRecording, WaitingCode};
use crate::timed_channel;

/// The time after the limits of a call at which a worker that has not returned is killed. Busy machines may need it.
const RETURN_GRACE: Duration = Duration::from_secs(5);
/// The most calls of the host in one call of the guest package.
const MAX_HOST_CALLS: u32 = 100_000;
/// The most times that the memory of an interpreter may be asked to grow in one call of the guest package.
const MAX_GROWTHS: u32 = 100_000;
/// The longest name of a call of the host, in bytes.
const MAX_HOST_NAME: usize = 64;

/// The reason why a worker is ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WorkerFailure {
    #[error("its worker failed: {0}")]
    Frame(#[from] FrameError),
    #[error("its worker process sent an unexpected message")]
    Unexpected,
    #[error("its worker process asked for more than it may")]
    Excess,
    #[error("its code wrote more than it may")]
    Output,
    #[error("its code waited for longer than it may")]
    Waited,
    #[error("{0}")]
    Aborted(String),
}

/// A call that was sent to a worker.
pub(crate) struct RemoteCall<'a> {
    pub(crate) call: &'a ProcessCall<'a>,
    pub(crate) worker: &'a Worker,
    pub(crate) handle: &'a RemoteHandle,
    pub(crate) limits: InterpreterLimits,
    /// True if the worker asks before its interpreter's memory grows.
    pub(crate) asks_memory: bool,
    pub(crate) recording: &'a mut RemoteRecording,
    /// The bytes of output that the code may still write.
    pub(crate) output_left: &'a mut u64,
    /// Set once the worker has sent anything.
    pub(crate) has_begun: &'a mut bool,
    pub(crate) channel: Source<'a>,
    /// The time at which the worker is killed, outside of waits; `None` without a limit of time.
    pub(crate) deadline: Option<Instant>,
    pub(crate) waits: Waits,
    pub(crate) host_calls: u32,
    pub(crate) growths: u32,
}

impl RemoteCall<'_> {
    /// Receives and answers events until the call has returned.
    ///
    /// # Errors
    /// Fails if the worker ends, is silent for too long, or does what it may not.
    pub(crate) fn receive(mut self, host: &mut dyn ProcessHost) -> Result<ProcessReturn, WorkerFailure> {
        loop {
            match self.next_event(host)? {
                Event::Output { stream, bytes } => {
                    self.count_output(&bytes)?;
                    host.write(stream.into(), &bytes);
                }
                Event::HostCall { name, request, files, signals, continued } => {
                    let call = ProcessHostCall { name: &name, request: &request, files, continued };
                    self.call_host(call, signals, host)?;
                }
                Event::Grow(bytes) if self.asks_memory => self.grow(bytes)?,
                Event::Network(request) if self.call.network => {
                    let reply = host.network(request, self.handle.begin_request()).ok_or(WorkerFailure::Excess)?;
                    self.send(&Command::Network(reply))?;
                }
                Event::Mount(request) => {
                    let result = host.mounts(request).ok_or(WorkerFailure::Excess)?;
                    self.send(&Command::Mount(result))?;
                }
                Event::Asleep(elapsed) => self.save_asleep(elapsed, host)?,
                Event::ReplayEnded => {
                    self.recording.end_replay()?;
                    host.end_replay();
                    self.set_deadline(deadline(self.call.limits));
                }
                Event::Waiting if self.call.network => {
                    let end = self.waits.begin();
                    self.channel.get_mut().set_deadline(end);
                }
                Event::Returned { result, files, peak_memory, has_used_streams, recording, finish } => {
                    check_files(&files)?;
                    // Nothing follows before the next command.
                    if !self.channel.buffer().is_empty() || (finish.is_some() && self.call.finish.is_none()) {
                        return Err(WorkerFailure::Unexpected);
                    }
                    let recording = self.recording.check_end(recording)?;
                    let result = result.map_err(ExitReason::from);
                    let returned = GuestReturn { result, peak_memory, has_used_streams };
                    let finish =
                        finish.map(|(result, time)| FinishReturn { result: result.map_err(ExitReason::from), time });
                    return Ok(ProcessReturn { returned, files, recording, finish });
                }
                Event::Ready
                | Event::Started(_)
                | Event::Files(_)
                | Event::StatePart(_)
                | Event::Saved(_)
                | Event::Grow(_)
                | Event::Network(_)
                | Event::Waiting
                | Event::ReplayPrepared(_) => return Err(WorkerFailure::Unexpected),
            }
        }
    }

    /// Receives an event, which ends the wait or the sleep of the code.
    fn next_event(&mut self, host: &mut dyn ProcessHost) -> Result<Event, WorkerFailure> {
        let event = frames::read::<Event>(&mut self.channel);
        if let Some(waited) = self.waits.end() {
            let event = event.as_ref();
            if event.is_err_and(|error| matches!(error, FrameError::TimedOut)) {
                return Err(WorkerFailure::Waited);
            }
            self.postpone(waited);
        }
        let event = event?;
        *self.has_begun = true;
        // Code that sleeps may ask for memory, and has not gone on for that.
        if self.recording.is_asleep && !matches!(event, Event::Grow(_)) {
            self.recording.is_asleep = false;
            host.end_sleep().map_err(WorkerFailure::Aborted)?;
        }
        Ok(event)
    }

    /// Checks the size of output, and subtracts it from what the code may still write.
    fn count_output(&mut self, bytes: &[u8]) -> Result<(), WorkerFailure> {
        // Messages without output would have no bound but that of time.
        if bytes.is_empty() || bytes.len() > MAX_OUTPUT {
            return Err(WorkerFailure::Excess);
        }
        *self.output_left = self.output_left.checked_sub(bytes.len() as u64).ok_or(WorkerFailure::Output)?;
        Ok(())
    }

    /// Handles a call of the host, and sends the reply. `seen` are the signals that the code had received.
    fn call_host(
        &mut self,
        call: ProcessHostCall<'_>,
        seen: SeenSignals,
        host: &mut dyn ProcessHost,
    ) -> Result<(), WorkerFailure> {
        self.host_calls += 1;
        let is_too_long = call.request.len() > MAX_HOST_REQUEST || call.name.len() > MAX_HOST_NAME;
        if self.host_calls > MAX_HOST_CALLS || is_too_long {
            return Err(WorkerFailure::Excess);
        }
        check_files(&call.files)?;
        self.recording.check_continued(call.continued.as_deref())?;
        let begin = Instant::now();
        let code = WaitingCode::new(self.worker, self.handle, &mut self.channel, seen, self.recording);
        let reply = host.host_call(call, &code);
        code.end()?;
        // The worker's limits of time are paused meanwhile.
        self.postpone(begin.elapsed());
        let mut frames = Vec::new();
        let reply = match reply {
            Ok(ProcessHostReply { text, files, layers, incomplete }) => {
                for layer in layers {
                    append_layer(&mut frames, layer).map_err(FrameError::from)?;
                }
                Command::HostReply { result: Ok(text), files, incomplete: incomplete.map(str::to_owned) }
            }
            Err(failure) => Command::HostReply { result: Err(failure), files: Vec::new(), incomplete: None },
        };
        frames::append(&mut frames, &reply).map_err(FrameError::from)?;
        timed_channel::write(&self.worker.channel, &frames, self.deadline).map_err(FrameError::from)?;
        Ok(())
    }

    /// Asks the owner's quota for memory of the interpreter.
    fn grow(&mut self, bytes: u64) -> Result<(), WorkerFailure> {
        self.growths += 1;
        if self.growths > MAX_GROWTHS || bytes == 0 || bytes > self.limits.memory {
            return Err(WorkerFailure::Excess);
        }
        self.send(&Command::Grown(self.worker.control.usage.grow(bytes)))
    }

    /// Saves code that has slept for this time, which then sleeps on.
    fn save_asleep(&mut self, elapsed: Duration, host: &mut dyn ProcessHost) -> Result<(), WorkerFailure> {
        self.recording.begin_sleep()?;
        let begin = Instant::now();
        let seen = SeenSignals::default();
        let code = WaitingCode::new(self.worker, self.handle, &mut self.channel, seen, self.recording);
        host.on_sleep(elapsed, &|| code.save(&[]));
        code.end()?;
        self.postpone(begin.elapsed());
        self.recording.sleep_on();
        self.send(&Command::SleepOn)
    }

    /// Gives the call more time.
    fn postpone(&mut self, time: Duration) {
        self.set_deadline(self.deadline.and_then(|deadline| deadline.checked_add(time)));
    }

    fn set_deadline(&mut self, deadline: Option<Instant>) {
        self.deadline = deadline;
        self.channel.get_mut().set_deadline(deadline);
    }

    fn send(&self, command: &Command) -> Result<(), WorkerFailure> {
        Ok(send(self.worker, command, self.deadline)?)
    }
}

/// Returns the time until which a call has to return, as long as it does not wait; `None` without a limit of time.
pub(crate) fn first_deadline(call: &ProcessCall<'_>, recording: &RemoteRecording) -> Option<Instant> {
    let mut deadline = deadline(call.limits)?;
    if let Some(limits) = call.finish {
        deadline = deadline.checked_add(limits.wall_time?)?.checked_add(limits.grace)?;
    }
    if recording.is_replaying {
        deadline = deadline.checked_add(REPLAY_TIME)?;
    }
    Some(deadline)
}

fn deadline(limits: &Limits) -> Option<Instant> {
    let time = limits.wall_time?.checked_add(limits.grace)?.checked_add(RETURN_GRACE)?;
    Instant::now().checked_add(time)
}

/// Appends the messages with the files of a package.
fn append_layer(frames: &mut Vec<u8>, LayerArchive { id, bytes }: LayerArchive) -> io::Result<()> {
    let mut parts = bytes.chunks(MAX_STATE_PART).peekable();
    while let Some(part) = parts.next() {
        let id = parts.peek().is_none().then(|| id.clone());
        frames::append(frames, &Command::LayerPart { bytes: part.to_vec(), id })?;
    }
    Ok(())
}

/// Checks the names of buffers of a worker.
fn check_files(files: &[ValueFile]) -> Result<(), WorkerFailure> {
    match files.iter().all(ValueFile::has_valid_name) {
        true => Ok(()),
        false => Err(WorkerFailure::Excess),
    }
}

/// The waits of a call for its connections.
pub(crate) struct Waits {
    /// The time that is left for them, with [`RETURN_GRACE`] for all together; `None` without a limit.
    left: Option<Duration>,
    /// The beginning of the wait, while there is one.
    since: Option<Instant>,
}

impl Waits {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { left: limits.wait_time.map(|limit| limit.saturating_add(RETURN_GRACE)), since: None }
    }

    /// Begins a wait. Returns the time at which it has to end.
    fn begin(&mut self) -> Option<Instant> {
        let now = Instant::now();
        self.since = Some(now);
        now.checked_add(self.left?)
    }

    /// Ends the wait. Returns its time, or `None` outside of one.
    fn end(&mut self) -> Option<Duration> {
        let waited = self.since.take()?.elapsed();
        self.left = self.left.map(|left| left.saturating_sub(waited));
        Some(waited)
    }
}
