//! Values and calls that cross between code and its caller: the host's side of `guest/exchange.py`.
//!
//! Buffers of values cross as files of a directory in the guest. The guest can change them, as it can change all of its
//! files: what is read from them is as untrusted as the value itself.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use belljar_core::kernel::{CellObserver, KernelError};
use belljar_core::{Buffer, EncodedValue, Exchange, FunctionCall, FunctionError, FunctionReply, ReplySender, Waker};
use belljar_emscripten::fs::Filesystem;
use belljar_emscripten::termination::Termination;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use crate::host_calls::{CallError, HostCall, HostCallContext, WaitError};
use crate::interpreter::Interpreter;

/// The directory of the files.
const DIRECTORY: &str = "/var/lib/belljar";
/// The maximum number of buffers of one value.
const MAX_BUFFERS: usize = 10_000;
/// The maximum size of the buffers of the arguments of a call, in bytes.
const MAX_ARGUMENTS: u64 = 256 << 20;
/// The time for which a call waits if the guest sets no limit.
const MAX_WAIT: Duration = Duration::from_secs(7 * 24 * 3600);

/// The interval at which the observer is informed that the code holds its thread while it waits.
const HOLDING_INTERVAL: Duration = Duration::from_millis(100);

/// The names of the host calls.
const NAMES: [&str; 3] = ["call_function", "await_functions", "cancel_function"];

/// The maximum time for which more replies are collected once there is one, and the interval at which they are looked
/// for.
const MAX_LINGER: Duration = Duration::from_millis(1);
const LINGER_INTERVAL: Duration = Duration::from_micros(200);

/// The maximum size of the replies that the guest receives at once, in bytes. One reply may be larger.
const MAX_BATCH: usize = 16 << 20;

/// Prepares an interpreter for a request with an exchange: writes the buffers of the variables, and registers the host
/// calls for the functions, and for those of the module `tools`. Returns these calls.
///
/// # Errors
/// Returns an error if the buffers do not fit into the code's file system.
pub(super) fn begin(
    interpreter: &mut Interpreter,
    exchange: Option<&Exchange>,
    tools: bool,
    observer: &Arc<dyn CellObserver>,
    waker: Option<&Waker>,
) -> Result<Option<RunCalls>, KernelError> {
    let can_call = tools || exchange.is_some_and(|exchange| !exchange.functions.is_empty());
    let calls = can_call.then(|| RunCalls::register(interpreter, Calls::new(observer.clone(), waker.cloned(), 0, 0)));
    let Some(exchange) = exchange else { return Ok(calls) };
    let files = interpreter.files();
    for (at, buffer) in exchange.buffers.iter().enumerate() {
        write_buffer(files, &format!("in-{at}"), &buffer.contiguous()).map_err(|error| {
            KernelError::Failed(format!("the variables do not fit into the code's file system: {error}").into())
        })?;
    }
    Ok(calls)
}

/// The calls of functions of the host by one run or cell. Cheap to clone.
#[derive(Clone)]
pub(super) struct RunCalls(Arc<Calls>);

/// The state of the calls of a cell that waits, for another process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct SavedCalls {
    /// The number of the next call.
    next: u64,
    /// The number of buffers that were written for replies.
    buffers: u64,
}

impl RunCalls {
    /// Registers the host calls of the calls of a cell that waited in another interpreter.
    pub(super) fn restore(
        interpreter: &mut Interpreter,
        saved: SavedCalls,
        observer: Arc<dyn CellObserver>,
        waker: Waker,
    ) -> Self {
        Self::register(interpreter, Calls::new(observer, Some(waker), saved.next, saved.buffers))
    }

    fn register(interpreter: &mut Interpreter, calls: Calls) -> Self {
        let calls = Arc::new(calls);
        interpreter.register_host_call(NAMES[0], Arc::new(CallFunction(calls.clone())));
        interpreter.register_host_call(NAMES[1], Arc::new(AwaitFunctions(calls.clone())));
        interpreter.register_host_call(NAMES[2], Arc::new(CancelFunction(calls.clone())));
        Self(calls)
    }

    /// Returns the state of the calls; `None` if replies have arrived that the code has not received.
    pub(super) fn save(&self) -> Option<SavedCalls> {
        let mut state = self.0.state.lock();
        state.collect();
        state.early.is_empty().then_some(SavedCalls { next: state.next, buffers: state.buffers })
    }

    /// Returns the sender of replies.
    pub(super) fn replies(&self) -> ReplySender {
        self.0.replies.clone()
    }

    /// Returns the effects of the calls.
    pub(super) fn effects(&self) -> CallEffects {
        self.0.effects.clone()
    }
}

/// The effects that calls of functions of the host may have had.
#[derive(Debug, Clone, Default)]
pub struct CallEffects(Arc<AtomicBool>);

impl CallEffects {
    /// Returns whether the code has made a call that may have had an effect.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Registers the host calls with which code calls functions of the host: `observer` receives them. Returns their
/// effects.
pub fn register_calls(interpreter: &mut Interpreter, observer: Arc<dyn CellObserver>) -> CallEffects {
    RunCalls::register(interpreter, Calls::new(observer, None, 0, 0)).effects()
}

/// Registers `handler` for the host calls of functions, after the cell that could make them.
pub(super) fn end(interpreter: &mut Interpreter, handler: &Arc<dyn HostCall>) {
    for name in NAMES {
        interpreter.register_host_call(name, handler.clone());
    }
}

/// Reads and removes the buffers of a value, at most `limit` bytes.
pub(super) fn take_buffers(files: &mut Filesystem, limit: u64) -> Vec<Buffer> {
    let (mut buffers, mut left) = (Vec::new(), limit);
    while buffers.len() < MAX_BUFFERS {
        let path = format!("{DIRECTORY}/out-{}", buffers.len());
        let Ok(parts) = files.take_file(&path, left) else { break };
        let buffer = Buffer::from(parts);
        left -= buffer.len() as u64;
        buffers.push(buffer);
    }
    buffers
}

fn write_buffer(files: &mut Filesystem, name: &str, bytes: &[u8]) -> Result<(), belljar_emscripten::fs::FileError> {
    files.create_dir_all(DIRECTORY)?;
    files.write_file(&format!("{DIRECTORY}/{name}"), bytes)
}

/// The calls of one run or cell.
struct Calls {
    observer: Arc<dyn CellObserver>,
    replies: ReplySender,
    state: Mutex<State>,
    effects: CallEffects,
}

struct State {
    /// The number of the next call.
    next: u64,
    arrived: Receiver<FunctionReply>,
    /// Replies that arrived while another call was waited for.
    early: VecDeque<FunctionReply>,
    /// The number of buffers that were written for replies.
    buffers: u64,
}

impl State {
    /// Receives the replies that have arrived.
    fn collect(&mut self) {
        self.early.extend(self.arrived.try_iter());
    }

    /// Receives replies until there are `count`, for at most [`MAX_LINGER`]. One sleep for many replies takes less
    /// processor time than waking up for each.
    fn linger(&mut self, count: usize, context: &HostCallContext<'_>) {
        self.collect();
        if self.early.len() >= count {
            return;
        }
        let _pause = context.pause();
        let start = Instant::now();
        while self.early.len() < count && start.elapsed() < MAX_LINGER {
            std::thread::sleep(LINGER_INTERVAL);
            self.collect();
        }
    }

    /// Takes the first replies, up to a size.
    fn take_batch(&mut self) -> Vec<FunctionReply> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some(reply) = self.early.front() {
            bytes += reply.result.as_ref().map_or(0, |value| value.json.get().len());
            if !batch.is_empty() && bytes > MAX_BATCH {
                break;
            }
            batch.extend(self.early.pop_front());
        }
        batch
    }
}

impl Calls {
    /// Creates the calls of code whose next call has the number `next`, and that has received `buffers` buffers.
    fn new(observer: Arc<dyn CellObserver>, waker: Option<Waker>, next: u64, buffers: u64) -> Self {
        let (replies, arrived) = mpsc::channel();
        let replies = ReplySender::new(replies, waker);
        let state = State { next, arrived, early: VecDeque::new(), buffers };
        Self { observer, replies, state: Mutex::new(state), effects: CallEffects::default() }
    }

    /// Waits for a reply while the code holds its thread, and informs the observer of that from time to time.
    fn wait_holding(
        &self,
        arrived: &Receiver<FunctionReply>,
        timeout: Duration,
        context: &HostCallContext<'_>,
    ) -> Result<Result<FunctionReply, WaitError>, Termination> {
        let start = Instant::now();
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            match context.wait(arrived, left.min(HOLDING_INTERVAL))? {
                Err(WaitError::TimedOut) if left > HOLDING_INTERVAL => self.observer.on_holding_wait(),
                other => return Ok(other),
            }
        }
    }

    fn start(&self, call: FunctionCall) {
        if call.may_have_effects() {
            self.effects.0.store(true, Ordering::Relaxed);
        }
        self.observer.call_function(call, &self.replies);
    }
}

/// A reply, as the guest receives it.
#[derive(Serialize)]
struct GuestReply {
    id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    buffers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<FunctionError>,
}

impl GuestReply {
    /// Writes the buffers of a reply, which must fit into the code's file system.
    fn new(FunctionReply { id, result }: FunctionReply, state: &mut State, files: &mut Filesystem) -> Self {
        let mut reply = Self { id, value: None, buffers: Vec::new(), error: None };
        match result {
            Ok(EncodedValue { json, buffers }) => {
                reply.value = Some(json);
                for buffer in buffers {
                    state.buffers += 1;
                    let name = format!("reply-{}", state.buffers);
                    if let Err(error) = write_buffer(files, &name, &buffer.contiguous()) {
                        let message = format!("the result does not fit into the code's file system: {error}");
                        let error = Some(FunctionError { name: "MemoryError".into(), message });
                        return Self { id, value: None, buffers: Vec::new(), error };
                    }
                    reply.buffers.push(name);
                }
            }
            Err(error) => reply.error = Some(error),
        }
        reply
    }
}

fn to_answer(answer: &impl Serialize) -> Result<Box<RawValue>, CallError> {
    to_raw_value(answer).map_err(|error| CallError::Refused(error.to_string()))
}

fn parse<'a, T: Deserialize<'a>>(request: &'a RawValue) -> Result<T, CallError> {
    serde_json::from_str(request.get())
        .map_err(|_| CallError::Refused("the call of a function of the host has an unexpected form".into()))
}

/// The host call `call_function`: starts a call. The answer is its reply, if it has one already or if the guest waits
/// for it, and its number otherwise.
struct CallFunction(Arc<Calls>);

impl HostCall for CallFunction {
    fn call(&self, request: &RawValue, context: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        #[derive(Deserialize)]
        struct CallRequest {
            name: String,
            wait: bool,
            buffers: Vec<String>,
            arguments: Box<RawValue>,
        }
        #[derive(Serialize)]
        struct Started {
            id: u64,
        }
        let CallRequest { name, wait, buffers, arguments } = parse(request)?;
        let buffers = read_arguments(context.files(), &buffers)?;
        let Calls { observer, state, .. } = &*self.0;
        let mut state = state.lock();
        let id = state.next;
        state.next += 1;
        let call = FunctionCall { id, name, arguments: EncodedValue { json: arguments, buffers } };
        {
            // A function that returns at once runs here; the time that it takes is not the code's.
            let _pause = context.pause();
            self.0.start(call);
        }
        loop {
            match state.arrived.try_recv() {
                Ok(reply) if reply.id == id => {
                    return to_answer(&GuestReply::new(reply, &mut state, context.files()));
                }
                Ok(reply) => {
                    state.early.push_back(reply);
                    continue;
                }
                Err(_) if !wait => return to_answer(&Started { id }),
                Err(_) => {}
            }
            match self.0.wait_holding(&state.arrived, MAX_WAIT, context)? {
                Ok(reply) if reply.id == id => {
                    return to_answer(&GuestReply::new(reply, &mut state, context.files()));
                }
                Ok(reply) => state.early.push_back(reply),
                Err(reason) => {
                    observer.cancel_function(id);
                    let reason = match reason {
                        WaitError::Interrupted => "interrupted while waiting for a function of the host",
                        WaitError::TimedOut | WaitError::Disconnected => "the function of the host did not reply",
                    };
                    return Err(CallError::Refused(reason.into()));
                }
            }
        }
    }
}

/// Reads the buffers of the arguments of a call, which the guest removes.
fn read_arguments(files: &mut Filesystem, names: &[String]) -> Result<Vec<Buffer>, CallError> {
    let mut left = MAX_ARGUMENTS;
    if names.len() > MAX_BUFFERS {
        return Err(CallError::Refused(format!("a call has at most {MAX_BUFFERS} large arguments")));
    }
    let mut buffers = Vec::with_capacity(names.len());
    for name in names {
        let path = format!("{DIRECTORY}/{name}");
        let bytes = files.read_file(&path, left);
        let bytes = bytes.map_err(|error| CallError::Refused(format!("failed to read an argument: {error}")))?;
        left -= bytes.len() as u64;
        buffers.push(bytes.into());
    }
    Ok(buffers)
}

/// The host call `await_functions`: starts calls, waits for at least one reply and shortly for `count` of them, and
/// returns those that have arrived, up to a size, with the number of the first of the calls. Those after it have the
/// next numbers.
struct AwaitFunctions(Arc<Calls>);

impl HostCall for AwaitFunctions {
    fn call(&self, request: &RawValue, context: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        #[derive(Deserialize)]
        struct AwaitRequest {
            timeout: Option<f64>,
            count: usize,
            calls: Vec<CallRequest>,
        }
        #[derive(Deserialize)]
        struct CallRequest {
            name: String,
            arguments: Box<RawValue>,
        }
        #[derive(Serialize)]
        struct AwaitAnswer {
            first: u64,
            replies: Vec<GuestReply>,
        }
        let AwaitRequest { timeout, count, calls } = parse(request)?;
        let timeout = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
        let timeout = timeout.unwrap_or(MAX_WAIT).min(MAX_WAIT);
        let mut state = self.0.state.lock();
        let first = state.next;
        if !calls.is_empty() {
            // The time that starting them takes is not the code's.
            let _pause = context.pause();
            for CallRequest { name, arguments } in calls {
                let id = state.next;
                state.next += 1;
                self.0.start(FunctionCall {
                    id,
                    name,
                    arguments: EncodedValue { json: arguments, buffers: Vec::new() },
                });
            }
        }
        if state.early.is_empty() {
            state.collect();
        }
        if !timeout.is_zero() {
            if state.early.is_empty()
                && let Ok(reply) = self.0.wait_holding(&state.arrived, timeout, context)?
            {
                state.early.push_back(reply);
            }
            if !state.early.is_empty() {
                state.linger(count, context);
            }
        }
        let arrived = state.take_batch();
        let replies: Vec<GuestReply> =
            arrived.into_iter().map(|reply| GuestReply::new(reply, &mut state, context.files())).collect();
        to_answer(&AwaitAnswer { first, replies })
    }
}

/// The host call `cancel_function`: the code does not wait for a call any more.
struct CancelFunction(Arc<Calls>);

impl HostCall for CancelFunction {
    fn call(&self, request: &RawValue, _: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        #[derive(Deserialize)]
        struct CancelRequest {
            id: u64,
        }
        let CancelRequest { id } = parse(request)?;
        self.0.observer.cancel_function(id);
        to_answer(&())
    }
}
