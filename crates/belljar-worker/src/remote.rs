//! An interpreter in a worker, on the side of the broker.

use std::io::{self, BufReader};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::kernel::{InterruptHandle, KernelError};
use belljar_core::{
    ExitReason, LimitKind, Limits, UsageMeter, add_processor_time, gives_way, is_processor_time_measured,
};
use belljar_python::GuestReturn;
use belljar_python::isolation::{
    FinishReturn, InterpreterProcess, LayerArchive, MountPoint, ProcessCall, ProcessHost, ProcessHostCall,
    ProcessHostReply, ProcessReturn, RemoteCaller as _, SavedPart, ValueFile,
};

use crate::frames::{self, FrameError};
use crate::messages::{
    Command, Event, InterpreterLimits, MAX_HOST_REQUEST, MAX_OUTPUT, MAX_STATE_PART, SeenSignals, TimeLimits,
};
use crate::pool::{ImageWorkers, Worker};
use crate::remote_handle::RemoteHandle;
use crate::remote_recording::{REPLAY_TIME, RemoteRecording, WaitingCode};
use crate::silence::Silence;
use crate::timed_channel::{self, TimedChannel};

/// The time after the limits of a call at which a worker that has not returned is killed. Busy machines may need it.
const RETURN_GRACE: Duration = Duration::from_secs(5);
/// The longest wait for a worker to be sealed.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest wait until a worker that has returned reads that its interpreter is discarded. It waits for commands.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);
/// The most calls of the host in one call of the guest package.
const MAX_HOST_CALLS: u32 = 100_000;
/// The most times that the memory of an interpreter may be asked to grow in one call of the guest package.
const MAX_GROWTHS: u32 = 100_000;
/// The longest name of a call of the host, in bytes.
const MAX_HOST_NAME: usize = 64;
/// The most workers that are tried until one reads its commands.
const MAX_REPLACEMENTS: usize = 3;
/// The size of the buffer for messages: that of a short call's.
pub(crate) const BUFFER: usize = 8 << 10;

/// An interpreter in a worker.
pub(crate) struct RemoteInterpreter {
    /// The worker; `None` once it has failed.
    pub(crate) worker: Option<Worker>,
    handle: Arc<RemoteHandle>,
    pub(crate) number: u64,
    pub(crate) limits: InterpreterLimits,
    pub(crate) mounts: Vec<MountPoint>,
    memory: InitialMemory,
    owner: Option<Arc<str>>,
    workers: Arc<ImageWorkers>,
    pub(crate) is_restored: bool,
    /// True for the interpreter of a session.
    pub(crate) is_session: bool,
    /// True once the worker has sent anything that shows that the code has begun.
    pub(crate) has_begun: bool,
    /// True once the interpreter of a session has ended. Its worker, which has its files, may go on.
    has_ended: bool,
    /// The bytes of output that the code may still write.
    output_left: u64,
    pub(crate) recording: RemoteRecording,
}

/// The memory that an interpreter begins with.
#[derive(Clone)]
pub(crate) struct InitialMemory {
    /// The meter of its owner, which is charged with it.
    pub(crate) meter: Option<Arc<dyn UsageMeter>>,
    pub(crate) bytes: u64,
}

impl InitialMemory {
    /// Charges the owner with the interpreter, which is in this worker from now on.
    fn begin(&self, worker: &Worker) {
        worker.control.usage.begin(self.meter.clone(), self.bytes);
        // The time until then is not that of the owner's code.
        worker.control.count_processor_time();
    }
}

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

impl RemoteInterpreter {
    pub(crate) fn new(
        worker: Worker,
        number: u64,
        (limits, mounts): (&Limits, Vec<MountPoint>),
        memory: InitialMemory,
        owner: Option<Arc<str>>,
        workers: Arc<ImageWorkers>,
    ) -> Self {
        memory.begin(&worker);
        let handle = RemoteHandle::new(number, worker.control.clone());
        Self {
            worker: Some(worker),
            handle,
            number,
            limits: limits.into(),
            mounts,
            memory,
            owner,
            workers,
            is_restored: false,
            is_session: false,
            has_begun: false,
            has_ended: false,
            output_left: limits.output,
            recording: RemoteRecording::default(),
        }
    }

    /// Makes this the interpreter of a session: its end is not that of its worker, which has its files.
    pub(crate) fn set_session(&mut self) {
        self.is_session = true;
        self.handle.keep_worker();
    }

    /// Takes the worker away from an interpreter that has ended. Returns whether it was killed, too.
    pub(crate) fn end_worker(&mut self) -> (bool, Option<Worker>) {
        if let Some(worker) = &self.worker {
            worker.control.usage.end();
        }
        (self.handle.disarm(), self.worker.take())
    }

    /// Replaces a worker that has ended before the code began. Returns false if the call was killed, or another worker
    /// cannot be started.
    fn replace_worker(&mut self) -> bool {
        let start = || self.workers.take(self.owner.as_ref()).ok();
        let Some(worker) = self.handle.replace_worker(start, |worker| worker.control.clone()) else { return false };
        if let Some(ended) = &self.worker {
            ended.control.usage.end();
        }
        self.memory.begin(&worker);
        self.worker = Some(worker);
        self.is_restored = false;
        true
    }

    /// Returns the processor time of the worker, if that of the caller's work is measured.
    fn measured_time(&self) -> Option<Duration> {
        let worker = self.worker.as_ref().filter(|_| is_processor_time_measured())?;
        worker.control.process.processor_time()
    }

    /// Sends a call, and receives events until it has returned.
    fn try_call(&mut self, call: &ProcessCall<'_>, host: &mut dyn ProcessHost) -> Result<ProcessReturn, WorkerFailure> {
        let Some(worker) = &mut self.worker else { return Err(FrameError::Closed.into()) };
        if call.is_new_cell {
            self.output_left = self.limits.output;
        }
        self.recording.begin_call(call.recording);
        let mut deadline = deadline(call.limits);
        if let Some(limits) = call.finish {
            deadline = deadline.and_then(|deadline| deadline.checked_add(limits.wall_time?)?.checked_add(limits.grace));
        }
        if self.recording.is_replaying {
            deadline = deadline.and_then(|deadline| deadline.checked_add(REPLAY_TIME));
        }
        let mut waits = Waits::new(call.limits);
        let mut commands = Vec::new();
        if !self.is_restored {
            self.is_restored = true;
            worker.runs += 1;
            let (number, limits, mounts) = (self.number, self.limits, self.mounts.clone());
            let restore = Command::Restore { number, limits, mounts };
            frames::append(&mut commands, &restore).map_err(FrameError::from)?;
        }
        let time = TimeLimits::from(call.limits);
        let (arguments, files) = (call.arguments.to_owned(), call.files.to_vec());
        let &ProcessCall { function, is_new_cell, asleep, network, recording, .. } = call;
        let asks_memory = worker.control.usage.limits_memory();
        let interrupts = self.handle.interrupts();
        let command = Command::Call {
            function,
            arguments,
            files,
            time,
            is_new_cell,
            asleep,
            asks_memory,
            network,
            interrupts,
            recording,
            finish: call.finish.map(TimeLimits::from),
            gives_way: gives_way(),
        };
        frames::append(&mut commands, &command).map_err(FrameError::from)?;
        timed_channel::write(&worker.channel, &commands, deadline).map_err(FrameError::from)?;
        let channel = TimedChannel::with_silence(&worker.channel, deadline, Silence::new(&worker.control));
        let mut channel = BufReader::with_capacity(BUFFER, channel);
        if !worker.is_ready {
            wait_until_ready(&mut channel)?;
            worker.is_ready = true;
            channel.get_mut().set_deadline(deadline);
        }
        let (mut host_calls, mut growths) = (0, 0);
        loop {
            let event = frames::read::<Event>(&mut channel);
            if let Some(waited) = waits.end() {
                let event = event.as_ref();
                if event.is_err_and(|error| matches!(error, FrameError::TimedOut)) {
                    return Err(WorkerFailure::Waited);
                }
                deadline = deadline.and_then(|deadline| deadline.checked_add(waited));
                channel.get_mut().set_deadline(deadline);
            }
            let event = event?;
            self.has_begun = true;
            // Code that sleeps may ask for memory, and has not gone on for that.
            if self.recording.is_asleep && !matches!(event, Event::Grow(_)) {
                self.recording.is_asleep = false;
                host.end_sleep().map_err(WorkerFailure::Aborted)?;
            }
            match event {
                Event::Output { stream, bytes } => {
                    // Messages without output would have no bound but that of time.
                    if bytes.is_empty() || bytes.len() > MAX_OUTPUT {
                        return Err(WorkerFailure::Excess);
                    }
                    self.output_left = self.output_left.checked_sub(bytes.len() as u64).ok_or(WorkerFailure::Output)?;
                    host.write(stream.into(), &bytes);
                }
                Event::HostCall { name, request, files, signals: seen, continued } => {
                    host_calls += 1;
                    if host_calls > MAX_HOST_CALLS || request.len() > MAX_HOST_REQUEST || name.len() > MAX_HOST_NAME {
                        return Err(WorkerFailure::Excess);
                    }
                    check_files(&files)?;
                    self.recording.check_continued(continued.as_deref())?;
                    let begin = Instant::now();
                    let call = ProcessHostCall { name: &name, request: &request, files, continued };
                    let code = WaitingCode::new(worker, &self.handle, &mut channel, seen, &self.recording);
                    let reply = host.host_call(call, &code);
                    code.end()?;
                    // The worker's limits of time are paused meanwhile.
                    deadline = deadline.and_then(|deadline| deadline.checked_add(begin.elapsed()));
                    channel.get_mut().set_deadline(deadline);
                    let mut frames = Vec::new();
                    let reply = match reply {
                        Ok(ProcessHostReply { text, files, layers, incomplete }) => {
                            for layer in layers {
                                append_layer(&mut frames, layer).map_err(FrameError::from)?;
                            }
                            Command::HostReply { result: Ok(text), files, incomplete: incomplete.map(str::to_owned) }
                        }
                        Err(failure) => {
                            Command::HostReply { result: Err(failure), files: Vec::new(), incomplete: None }
                        }
                    };
                    frames::append(&mut frames, &reply).map_err(FrameError::from)?;
                    timed_channel::write(&worker.channel, &frames, deadline).map_err(FrameError::from)?;
                }
                Event::Grow(bytes) if asks_memory => {
                    growths += 1;
                    if growths > MAX_GROWTHS || bytes == 0 || bytes > self.limits.memory {
                        return Err(WorkerFailure::Excess);
                    }
                    send(worker, &Command::Grown(worker.control.usage.grow(bytes)), deadline)?;
                }
                Event::Network(request) if network => {
                    let reply = host.network(request, self.handle.begin_request()).ok_or(WorkerFailure::Excess)?;
                    send(worker, &Command::Network(reply), deadline)?;
                }
                Event::Mount(request) => {
                    let result = host.mounts(request).ok_or(WorkerFailure::Excess)?;
                    send(worker, &Command::Mount(result), deadline)?;
                }
                Event::Asleep(elapsed) => {
                    self.recording.begin_sleep()?;
                    let begin = Instant::now();
                    let seen = SeenSignals::default();
                    let code = WaitingCode::new(worker, &self.handle, &mut channel, seen, &self.recording);
                    host.on_sleep(elapsed, &|| code.save(&[]));
                    code.end()?;
                    deadline = deadline.and_then(|deadline| deadline.checked_add(begin.elapsed()));
                    channel.get_mut().set_deadline(deadline);
                    self.recording.sleep_on();
                    send(worker, &Command::SleepOn, deadline)?;
                }
                Event::ReplayEnded => {
                    self.recording.end_replay()?;
                    host.end_replay();
                    deadline = self::deadline(call.limits);
                    channel.get_mut().set_deadline(deadline);
                }
                Event::Waiting if network => channel.get_mut().set_deadline(waits.begin()),
                Event::Returned { result, files, peak_memory, has_used_streams, recording, finish } => {
                    check_files(&files)?;
                    if finish.is_some() && call.finish.is_none() {
                        return Err(WorkerFailure::Unexpected);
                    }
                    let recording = self.recording.check_end(recording)?;
                    // Nothing follows before the next command.
                    if !channel.buffer().is_empty() {
                        return Err(WorkerFailure::Unexpected);
                    }
                    let result = result.map_err(ExitReason::from);
                    return Ok(ProcessReturn {
                        returned: GuestReturn { result, peak_memory, has_used_streams },
                        files,
                        recording,
                        finish: finish
                            .map(|(result, time)| FinishReturn { result: result.map_err(ExitReason::from), time }),
                    });
                }
                Event::Ready
                | Event::Started(_)
                | Event::Files(_)
                | Event::StatePart(_)
                | Event::Saved(_)
                | Event::Grow(_)
                | Event::Network(_)
                | Event::Waiting
                | Event::ReplayPrepared(_) => {
                    return Err(WorkerFailure::Unexpected);
                }
            }
        }
    }
}

/// The broker's end of a channel, for reading.
pub(crate) type Source<'a> = BufReader<TimedChannel<'a>>;

/// Waits until a new worker is sealed.
pub(crate) fn wait_until_ready(channel: &mut Source<'_>) -> Result<(), WorkerFailure> {
    channel.get_mut().set_deadline(Some(Instant::now() + READY_TIMEOUT));
    match frames::read::<Event>(channel)? {
        Event::Ready => Ok(()),
        _ => Err(WorkerFailure::Unexpected),
    }
}

impl InterpreterProcess for RemoteInterpreter {
    fn call(&mut self, call: &ProcessCall<'_>, host: &mut dyn ProcessHost) -> ProcessReturn {
        if self.has_ended {
            let result = Err(ExitReason::Crash("it has ended".into()));
            let returned = GuestReturn { result, peak_memory: 0, has_used_streams: true };
            return ProcessReturn { returned, files: Vec::new(), recording: None, finish: None };
        }
        let handle = self.handle.clone();
        let call_end = handle.begin_call();
        let before = self.measured_time();
        let mut result = self.try_call(call, host);
        for _ in 0..MAX_REPLACEMENTS {
            // A worker that has ended while it was not used has not read its commands. One that ends before it has read
            // a reply fails in the same way, but its code has begun, and must not be run again.
            let is_unread = matches!(result, Err(WorkerFailure::Frame(FrameError::Unread)));
            if self.has_begun || !is_unread || !self.replace_worker() {
                break;
            }
            result = self.try_call(call, host);
        }
        drop(call_end);
        // The time of a worker that has ended is not known any more.
        if let (Some(before), Some(after)) = (before, self.measured_time()) {
            add_processor_time(after.saturating_sub(before));
        }
        if let Some(worker) = &self.worker {
            worker.control.count_processor_time();
        }
        let failure = match result {
            Ok(returned) => {
                let has_ended =
                    returned.returned.result.is_err() || returned.finish.as_ref().is_some_and(|it| it.result.is_err());
                if has_ended {
                    match self.is_session {
                        true => self.has_ended = true,
                        // The interpreter has ended, and its worker with it: whatever broke it may have broken more.
                        false => drop(self.end_worker()),
                    }
                }
                return returned;
            }
            Err(failure) => failure,
        };
        let (was_killed, worker) = self.end_worker();
        let has_exceeded_memory = worker.is_some_and(|worker| worker.control.has_exceeded_memory());
        let reason = match failure {
            _ if was_killed => ExitReason::Cancelled,
            _ if has_exceeded_memory => ExitReason::Limit(LimitKind::Memory),
            WorkerFailure::Output => ExitReason::Limit(LimitKind::Output),
            WorkerFailure::Waited => ExitReason::Limit(LimitKind::WaitTime),
            WorkerFailure::Frame(FrameError::TimedOut) => ExitReason::Limit(LimitKind::WallTime),
            failure => {
                tracing::warn!(%failure, "a worker process has failed");
                ExitReason::Crash(failure.to_string())
            }
        };
        let returned = GuestReturn { result: Err(reason), peak_memory: 0, has_used_streams: true };
        ProcessReturn { returned, files: Vec::new(), recording: None, finish: None }
    }

    fn save(&mut self, part: SavedPart) -> Result<Vec<u8>, KernelError> {
        self.save_part(part)
    }

    fn interrupt_handle(&self) -> Arc<dyn InterruptHandle> {
        self.handle.clone()
    }

    fn is_dead(&self) -> bool {
        self.worker.is_none() || self.has_ended
    }
}

impl Drop for RemoteInterpreter {
    fn drop(&mut self) {
        let (was_killed, worker) = self.end_worker();
        // The worker of a session runs no other code.
        let Some(worker) = worker.filter(|_| !self.is_session) else { return };
        let mut command = Vec::new();
        // A worker in the middle of a call never gets here: its call has failed, or it waits between two of them.
        let deadline = Some(Instant::now() + DISCARD_TIMEOUT);
        let sent = frames::append(&mut command, &Command::Discard)
            .and_then(|()| timed_channel::write(&worker.channel, &command, deadline));
        if sent.is_ok() && !was_killed {
            self.workers.put_back(worker, self.owner.take());
        }
    }
}

/// Sends a message to a worker.
pub(crate) fn send(worker: &Worker, command: &Command, deadline: Option<Instant>) -> Result<(), FrameError> {
    let mut frame = Vec::new();
    frames::append(&mut frame, command)?;
    Ok(timed_channel::write(&worker.channel, &frame, deadline)?)
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

fn deadline(limits: &Limits) -> Option<Instant> {
    let time = limits.wall_time?.checked_add(limits.grace)?.checked_add(RETURN_GRACE)?;
    Instant::now().checked_add(time)
}

/// The waits of a call for its connections.
struct Waits {
    /// The time that is left for them, with [`RETURN_GRACE`] for all together; `None` without a limit.
    left: Option<Duration>,
    /// The beginning of the wait, while there is one.
    since: Option<Instant>,
}

impl Waits {
    fn new(limits: &Limits) -> Self {
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
