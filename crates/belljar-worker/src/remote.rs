//! An interpreter in a worker, on the side of the broker.

use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::kernel::InterruptHandle;
use belljar_core::{ExitReason, LimitKind, Limits};
use belljar_python::GuestReturn;
use belljar_python::isolation::{
    InterpreterProcess, ProcessCall, ProcessHost, ProcessHostCall, ProcessHostReply, ProcessReturn, RemoteSignals,
    ValueFile,
};
use parking_lot::Mutex;

use crate::frames::{self, FrameError};
use crate::messages::{Command, Event, InterpreterLimits, SeenSignals, TimeLimits};
use crate::pool::{ImageWorkers, Worker, WorkerControl};

/// The time after the limits of a call at which a worker that has not returned is killed. Busy machines may need it.
const RETURN_GRACE: Duration = Duration::from_secs(5);
/// The longest wait for a worker to be sealed.
const READY_TIMEOUT: Duration = Duration::from_secs(20);
/// The most calls of the host in one call of the guest package.
const MAX_HOST_CALLS: u32 = 100_000;
/// The largest request of a call of the host, in bytes.
const MAX_HOST_REQUEST: usize = 16 << 20;
/// The longest name of a call of the host, in bytes.
const MAX_HOST_NAME: usize = 64;
/// The most buffers of one message.
const MAX_FILES: usize = 10_000;
/// The most bytes of one message with output.
const MAX_OUTPUT_MESSAGE: usize = 64 << 10;
/// The most workers that are tried until one reads its commands.
const MAX_REPLACEMENTS: usize = 3;
/// The size of the buffer for messages: that of a short call's.
const BUFFER: usize = 8 << 10;

/// An interpreter in a worker.
pub(crate) struct RemoteInterpreter {
    /// The worker; `None` once it has failed.
    worker: Option<Worker>,
    handle: Arc<RemoteHandle>,
    number: u64,
    limits: InterpreterLimits,
    owner: Option<Arc<str>>,
    workers: Arc<ImageWorkers>,
    is_restored: bool,
    /// The bytes of output that the code may still write.
    output_left: u64,
}

/// The reason why a worker is ended.
#[derive(Debug, thiserror::Error)]
enum WorkerFailure {
    #[error("its worker failed: {0}")]
    Frame(#[from] FrameError),
    #[error("its worker process sent an unexpected message")]
    Unexpected,
    #[error("its worker process asked for more than it may")]
    Excess,
    #[error("its code wrote more than it may")]
    Output,
}

impl RemoteInterpreter {
    pub(crate) fn new(
        worker: Worker,
        number: u64,
        limits: &Limits,
        owner: Option<Arc<str>>,
        workers: Arc<ImageWorkers>,
    ) -> Self {
        let state = HandleState { worker: Some(worker.control.clone()), was_killed: false, interrupts: 0 };
        Self {
            worker: Some(worker),
            handle: Arc::new(RemoteHandle { number, state: Mutex::new(state) }),
            number,
            limits: limits.into(),
            owner,
            workers,
            is_restored: false,
            output_left: limits.output,
        }
    }

    /// Replaces a worker that has ended before the code began. Returns false if the call was killed, or another worker
    /// cannot be started.
    fn replace_worker(&mut self) -> bool {
        let mut state = self.handle.state.lock();
        if state.was_killed {
            return false;
        }
        let Ok(worker) = self.workers.take(self.owner.as_ref()) else { return false };
        state.worker = Some(worker.control.clone());
        drop(state);
        self.worker = Some(worker);
        self.is_restored = false;
        true
    }

    /// Sends a call, and receives events until it has returned.
    fn try_call(&mut self, call: &ProcessCall<'_>, host: &mut dyn ProcessHost) -> Result<ProcessReturn, WorkerFailure> {
        let Some(worker) = &mut self.worker else { return Err(FrameError::Closed.into()) };
        let mut deadline = deadline(call.limits);
        let mut commands = Vec::new();
        if !self.is_restored {
            self.is_restored = true;
            worker.runs += 1;
            let restore = Command::Restore { number: self.number, limits: self.limits };
            frames::append(&mut commands, &restore).map_err(FrameError::from)?;
        }
        let time = TimeLimits::from(call.limits);
        let (arguments, files) = (call.arguments.to_owned(), call.files.to_vec());
        let command = Command::Call { function: call.function, arguments, files, time };
        frames::append(&mut commands, &command).map_err(FrameError::from)?;
        worker.channel.write_all(&commands).map_err(FrameError::from)?;
        let mut channel = BufReader::with_capacity(BUFFER, &worker.channel);
        let first = if worker.is_ready { deadline } else { Some(Instant::now() + READY_TIMEOUT) };
        set_timeout(&worker.channel, first)?;
        if !worker.is_ready {
            match receive(&mut channel, first)? {
                Event::Ready => worker.is_ready = true,
                _ => return Err(WorkerFailure::Unexpected),
            }
            set_timeout(&worker.channel, deadline)?;
        }
        let mut host_calls = 0;
        loop {
            match receive(&mut channel, deadline)? {
                Event::Output { stream, bytes } => {
                    if bytes.len() > MAX_OUTPUT_MESSAGE {
                        return Err(WorkerFailure::Excess);
                    }
                    self.output_left = self.output_left.checked_sub(bytes.len() as u64).ok_or(WorkerFailure::Output)?;
                    host.write(stream.into(), &bytes);
                }
                Event::HostCall { name, request, files, signals: seen } => {
                    host_calls += 1;
                    if host_calls > MAX_HOST_CALLS || request.len() > MAX_HOST_REQUEST || name.len() > MAX_HOST_NAME {
                        return Err(WorkerFailure::Excess);
                    }
                    check_files(&files)?;
                    let begin = Instant::now();
                    let call = ProcessHostCall { name: &name, request: &request, files };
                    let reply = host.host_call(call, &CallSignals { handle: &self.handle, seen });
                    // The worker's limits of time are paused meanwhile.
                    deadline = deadline.and_then(|deadline| deadline.checked_add(begin.elapsed()));
                    set_timeout(&worker.channel, deadline)?;
                    let (result, files) = match reply {
                        Ok(ProcessHostReply { text, files }) => (Ok(text), files),
                        Err(reason) => (Err(reason), Vec::new()),
                    };
                    let mut reply = Vec::new();
                    frames::append(&mut reply, &Command::HostReply { result, files }).map_err(FrameError::from)?;
                    (&worker.channel).write_all(&reply).map_err(FrameError::from)?;
                }
                Event::Returned { result, files, peak_memory, has_used_streams } => {
                    check_files(&files)?;
                    // Nothing follows before the next command.
                    if !channel.buffer().is_empty() {
                        return Err(WorkerFailure::Unexpected);
                    }
                    let result = result.map_err(ExitReason::from);
                    return Ok(ProcessReturn {
                        returned: GuestReturn { result, peak_memory, has_used_streams },
                        files,
                    });
                }
                Event::Ready => return Err(WorkerFailure::Unexpected),
            }
        }
    }
}

impl InterpreterProcess for RemoteInterpreter {
    fn call(&mut self, call: &ProcessCall<'_>, host: &mut dyn ProcessHost) -> ProcessReturn {
        let is_first = !self.is_restored;
        let mut result = self.try_call(call, host);
        for _ in 0..MAX_REPLACEMENTS {
            // The worker has ended while it was not used: the code has not begun.
            if !(is_first && matches!(result, Err(WorkerFailure::Frame(FrameError::Unread))) && self.replace_worker()) {
                break;
            }
            result = self.try_call(call, host);
        }
        let failure = match result {
            Ok(returned) => {
                if returned.returned.result.is_err() {
                    // The interpreter has ended, and its worker with it: whatever broke it may have broken more.
                    self.handle.disarm();
                    self.worker = None;
                }
                return returned;
            }
            Err(failure) => failure,
        };
        let was_killed = self.handle.disarm();
        self.worker = None;
        let reason = match failure {
            _ if was_killed => ExitReason::Cancelled,
            WorkerFailure::Output => ExitReason::Limit(LimitKind::Output),
            WorkerFailure::Frame(FrameError::TimedOut) => ExitReason::Limit(LimitKind::WallTime),
            failure => {
                tracing::warn!(%failure, "a worker process has failed");
                ExitReason::Crash(failure.to_string())
            }
        };
        let returned = GuestReturn { result: Err(reason), peak_memory: 0, has_used_streams: true };
        ProcessReturn { returned, files: Vec::new() }
    }

    fn interrupt_handle(&self) -> Arc<dyn InterruptHandle> {
        self.handle.clone()
    }

    fn is_dead(&self) -> bool {
        self.worker.is_none()
    }
}

impl Drop for RemoteInterpreter {
    fn drop(&mut self) {
        let was_killed = self.handle.disarm();
        let Some(mut worker) = self.worker.take() else { return };
        let mut command = Vec::new();
        // A worker in the middle of a call never gets here: its call has failed, or it waits between two of them.
        let sent = frames::append(&mut command, &Command::Discard).and_then(|()| worker.channel.write_all(&command));
        if sent.is_ok() && !was_killed {
            self.workers.put_back(worker, self.owner.take());
        }
    }
}

/// Checks the names and the number of buffers of a worker.
fn check_files(files: &[ValueFile]) -> Result<(), WorkerFailure> {
    match files.len() <= MAX_FILES && files.iter().all(ValueFile::has_valid_name) {
        true => Ok(()),
        false => Err(WorkerFailure::Excess),
    }
}

fn deadline(limits: &Limits) -> Option<Instant> {
    let time = limits.wall_time?.checked_add(limits.grace)?.checked_add(RETURN_GRACE)?;
    Instant::now().checked_add(time)
}

fn set_timeout(channel: &UnixStream, deadline: Option<Instant>) -> Result<(), FrameError> {
    let left =
        deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
    Ok(channel.set_read_timeout(left)?)
}

fn receive(channel: &mut BufReader<&UnixStream>, deadline: Option<Instant>) -> Result<Event, FrameError> {
    let check = || match deadline {
        Some(deadline) if Instant::now() > deadline => Err(FrameError::TimedOut),
        _ => Ok(()),
    };
    check()?;
    frames::read(channel, check)
}

/// The signals for code that waits for a reply of this process.
struct CallSignals<'a> {
    handle: &'a RemoteHandle,
    /// The signals that the code had received when it made the call.
    seen: SeenSignals,
}

impl RemoteSignals for CallSignals<'_> {
    fn is_interrupted(&self) -> bool {
        self.seen.is_pending || self.handle.state.lock().interrupts > self.seen.interrupts
    }

    fn is_killed(&self) -> bool {
        self.handle.state.lock().was_killed
    }
}

/// Interrupts and kills the code of one interpreter. Does nothing once its worker is free for another one.
struct RemoteHandle {
    number: u64,
    state: Mutex<HandleState>,
}

struct HandleState {
    /// The worker, while the interpreter is in it.
    worker: Option<Arc<WorkerControl>>,
    was_killed: bool,
    /// The number of interrupts that the worker was sent.
    interrupts: u64,
}

impl RemoteHandle {
    /// Disconnects the handle. Returns whether it has killed the worker.
    fn disarm(&self) -> bool {
        let mut state = self.state.lock();
        state.worker = None;
        state.was_killed
    }
}

impl InterruptHandle for RemoteHandle {
    fn interrupt(&self) {
        let mut state = self.state.lock();
        state.interrupts += 1;
        if let Some(worker) = &state.worker {
            // It may have ended.
            let _ = (&worker.interrupts).write_all(&self.number.to_le_bytes());
        }
    }

    fn kill(&self) {
        let mut state = self.state.lock();
        state.was_killed = true;
        if let Some(worker) = &state.worker {
            worker.process.kill();
        }
    }
}
