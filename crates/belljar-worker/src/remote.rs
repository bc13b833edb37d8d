//! An interpreter in a worker, on the side of the broker.

use std::io::BufReader;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::kernel::{InterruptHandle, KernelError};
use belljar_core::{
    ExitReason, LimitKind, Limits, UsageMeter, add_processor_time, gives_way, is_processor_time_measured,
};
use belljar_python::GuestReturn;
use belljar_python::isolation::{InterpreterProcess, MountPoint, ProcessCall, ProcessHost, ProcessReturn, SavedPart};

use crate::frames::{self, FrameError};
use crate::image_workers::{ImageWorkers, Worker};
use crate::messages::{Command, Event, InterpreterLimits, TimeLimits};
use crate::remote_call::{self, RemoteCall, Waits, WorkerFailure};
use crate::remote_handle::RemoteHandle;
use crate::remote_recording::RemoteRecording;
use crate::silence::Silence;
use crate::timed_channel::{self, TimedChannel};

/// The longest wait for a worker to be sealed.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// The longest wait until a worker that has returned reads that its interpreter is discarded. It waits for commands.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);
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

    /// Returns the processor time of the worker before a call, if that of the caller's work is measured. It is right if
    /// the worker has not ended after the call.
    fn time_before_call(&self) -> Option<Duration> {
        let worker = self.worker.as_ref().filter(|_| is_processor_time_measured())?;
        worker.control.process.unchecked_processor_time()
    }

    /// Adds the processor time of the worker since `before` to that of the caller's work. That of a worker that has
    /// ended is not known any more.
    fn add_time_since(&self, before: Option<Duration>) {
        let after = before.and(self.worker.as_ref()).and_then(|worker| worker.control.process.processor_time());
        if let (Some(before), Some(after)) = (before, after) {
            add_processor_time(after.saturating_sub(before));
        }
    }

    /// Sends a call, and receives events until it has returned.
    fn try_call(&mut self, call: &ProcessCall<'_>, host: &mut dyn ProcessHost) -> Result<ProcessReturn, WorkerFailure> {
        let Some(worker) = &mut self.worker else { return Err(FrameError::Closed.into()) };
        if call.is_new_cell {
            self.output_left = self.limits.output;
        }
        self.recording.begin_call(call.recording);
        let deadline = remote_call::first_deadline(call, &self.recording);
        let asks_memory = worker.control.usage.limits_memory();
        let mut commands = Vec::new();
        if !self.is_restored {
            self.is_restored = true;
            worker.runs += 1;
            let (number, limits, mounts) = (self.number, self.limits, self.mounts.clone());
            let restore = Command::Restore { number, limits, mounts };
            frames::append(&mut commands, &restore).map_err(FrameError::from)?;
        }
        let command = Command::Call {
            function: call.function,
            arguments: call.arguments.to_owned(),
            files: call.files.to_vec(),
            time: TimeLimits::from(call.limits),
            is_new_cell: call.is_new_cell,
            asleep: call.asleep,
            asks_memory,
            network: call.network,
            interrupts: self.handle.interrupts(),
            recording: call.recording,
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
        let call = RemoteCall {
            call,
            worker,
            handle: &self.handle,
            limits: self.limits,
            asks_memory,
            recording: &mut self.recording,
            output_left: &mut self.output_left,
            has_begun: &mut self.has_begun,
            channel,
            deadline,
            waits: Waits::new(call.limits),
            host_calls: 0,
            growths: 0,
        };
        call.receive(host)
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
        let mut before = self.time_before_call();
        let mut result = self.try_call(call, host);
        for _ in 0..MAX_REPLACEMENTS {
            // A worker that has ended while it was not used has not read its commands. One that ends before it has read
            // a reply fails in the same way, but its code has begun, and must not be run again.
            let is_unread = matches!(result, Err(WorkerFailure::Frame(FrameError::Unread)));
            if self.has_begun || !is_unread || !self.replace_worker() {
                break;
            }
            before = self.time_before_call();
            result = self.try_call(call, host);
        }
        drop(call_end);
        self.add_time_since(before);
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
