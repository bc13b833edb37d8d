//! Values and calls that cross between code and its caller: the host's side of `guest/exchange.py`.
//!
//! Buffers of values cross as files of a directory in the guest. The guest can change them, as it can change all of its
//! files: what is read from them is as untrusted as the value itself.

mod calls;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{CellObserver, KernelError};
use belljar_core::{Buffer, EncodedValue, Exchange, FunctionCall, FunctionError, FunctionReply, ReplySender, Waker};
use belljar_emscripten::fs::Filesystem;
use belljar_network::Scrubber;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::held_cell::{BinaryReplies, HeldCell};
use crate::host_calls::{CallError, HostCall, HostCallContext, WaitError};
use crate::interpreter::Interpreter;
use crate::isolation::ValueFile;

pub use calls::CallEffects;
pub(super) use calls::SavedCalls;
use calls::{Calls, MAX_WAIT, PendingCall, State};

/// The directory of the files.
const DIRECTORY: &str = "/var/lib/belljar";
/// The maximum number of buffers of one value.
const MAX_BUFFERS: usize = 10_000;
/// The maximum size of the buffers of the arguments of a call, in bytes.
const MAX_ARGUMENTS: u64 = 256 << 20;

/// The names of the host calls.
pub(crate) const NAMES: [&str; 3] = ["call_function", "await_functions", "cancel_function"];

/// Prepares an interpreter for a request with an exchange: writes the buffers of the variables, and registers the host
/// calls for the functions, and for those of the module `tools`. Returns these calls, whose arguments are without
/// secrets.
///
/// # Errors
/// Returns an error if the buffers do not fit into the code's file system.
pub(super) fn begin(
    interpreter: &mut Interpreter,
    exchange: Option<&Exchange>,
    tools: bool,
    observer: &Arc<dyn CellObserver>,
    waker: Option<&Waker>,
    held: Option<Arc<HeldCell>>,
    scrubber: &Scrubber,
) -> Result<Option<RunCalls>, KernelError> {
    let calls = calls_of(exchange, tools, observer, waker, held, scrubber);
    if let Some(calls) = &calls {
        calls.register(interpreter);
    }
    let Some(exchange) = exchange else { return Ok(calls) };
    let files = interpreter.files();
    for (at, buffer) in exchange.buffers.iter().enumerate() {
        write_buffer(files, &format!("in-{at}"), &buffer.contiguous()).map_err(|error| {
            KernelError::Failed(format!("the variables do not fit into the code's file system: {error}").into())
        })?;
    }
    Ok(calls)
}

/// Returns the calls of functions of the host by code with this exchange, if it can make any.
pub(super) fn calls_of(
    exchange: Option<&Exchange>,
    tools: bool,
    observer: &Arc<dyn CellObserver>,
    waker: Option<&Waker>,
    held: Option<Arc<HeldCell>>,
    scrubber: &Scrubber,
) -> Option<RunCalls> {
    let can_call = tools || exchange.is_some_and(|exchange| !exchange.functions.is_empty());
    let new = || Calls::new(observer.clone(), waker.cloned(), SavedCalls::default(), held, scrubber.clone());
    can_call.then(|| RunCalls::new(new()))
}

/// Returns the buffers of the variables for code in another process.
pub(super) fn variables_of(exchange: &Exchange) -> Vec<ValueFile> {
    let buffers = exchange.buffers.iter().enumerate();
    buffers.map(|(at, buffer)| ValueFile { name: format!("in-{at}"), bytes: buffer.contiguous().into() }).collect()
}

/// The calls of functions of the host by one run or cell. Cheap to clone.
#[derive(Clone)]
pub(super) struct RunCalls(Arc<Calls>);

impl RunCalls {
    /// Returns the calls of code that waited in another interpreter.
    pub(super) fn restored(
        saved: SavedCalls,
        observer: Arc<dyn CellObserver>,
        waker: Waker,
        held: Option<Arc<HeldCell>>,
        scrubber: Scrubber,
    ) -> Self {
        Self::new(Calls::new(observer, Some(waker), saved, held, scrubber))
    }

    fn new(calls: Calls) -> Self {
        Self(Arc::new(calls))
    }

    /// Returns the handlers of the host calls, by their names.
    pub(super) fn handlers(&self) -> [(&'static str, Arc<dyn HostCall>); 3] {
        let Self(calls) = self;
        [
            (NAMES[0], Arc::new(CallFunction(calls.clone()))),
            (NAMES[1], Arc::new(AwaitFunctions(calls.clone()))),
            (NAMES[2], Arc::new(CancelFunction(calls.clone()))),
        ]
    }

    pub(super) fn register(&self, interpreter: &mut Interpreter) {
        for (name, handler) in self.handlers() {
            interpreter.register_host_call(name, handler);
        }
    }

    /// Returns the number of buffers of replies that were written so far.
    pub(super) fn written_buffers(&self) -> u64 {
        self.0.state.lock().buffers
    }

    /// Returns the state of the calls; `None` if replies have arrived that the code has not received.
    pub(super) fn save(&self) -> Option<SavedCalls> {
        let mut state = self.0.state.lock();
        state.collect();
        state.early.is_empty().then(|| state.save().ok()).flatten()
    }

    /// Returns the state of the calls of a cell that is recorded, with the replies that the code has not received.
    pub(super) fn save_held(&self) -> Result<SavedCalls, BinaryReplies> {
        let mut state = self.0.state.lock();
        state.collect();
        state.save()
    }

    /// Returns the number of replies that the code has not received.
    pub(super) fn replies_left(&self) -> usize {
        let mut state = self.0.state.lock();
        state.collect();
        state.early.len()
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

/// Registers the host calls with which code calls functions of the host: `observer` receives them, without the secrets
/// of the network that the interpreter has by then. Returns their effects.
pub fn register_calls(interpreter: &mut Interpreter, observer: Arc<dyn CellObserver>) -> CallEffects {
    let scrubber = interpreter.scrubber().clone();
    let calls = RunCalls::new(Calls::new(observer, None, SavedCalls::default(), None, scrubber));
    calls.register(interpreter);
    calls.effects()
}

/// Removes buffers with these names and returns those that exist, at most `limit` bytes.
pub(super) fn take_files(
    files: &mut Filesystem,
    names: impl IntoIterator<Item = String>,
    limit: u64,
) -> Vec<ValueFile> {
    let mut left = limit;
    let take = |name: String| {
        let parts = files.take_file(&format!("{DIRECTORY}/{name}"), left).ok()?;
        let bytes = parts.concat();
        left -= bytes.len() as u64;
        Some(ValueFile { name, bytes })
    };
    names.into_iter().filter_map(take).collect()
}

/// Returns the buffers with these names, at most `limit` bytes, for another process. The guest chose the names.
///
/// # Errors
/// Fails if a buffer cannot be read, or there are too many.
pub(crate) fn read_files(files: &mut Filesystem, names: Vec<String>, limit: u64) -> Result<Vec<ValueFile>, CallError> {
    let mut left = limit;
    if names.len() > MAX_BUFFERS {
        return Err(CallError::Refused(format!("a call has at most {MAX_BUFFERS} large arguments")));
    }
    let read = |name: String| {
        let bytes = match ValueFile::is_valid_name(&name) {
            true => files.read_file(&format!("{DIRECTORY}/{name}"), left).map_err(|error| error.to_string()),
            false => Err("its name is not one of a buffer".into()),
        };
        let bytes = bytes.map_err(|reason| CallError::Refused(format!("failed to read an argument: {reason}")))?;
        left -= bytes.len() as u64;
        Ok(ValueFile { name, bytes })
    };
    names.into_iter().map(read).collect()
}

/// Removes the buffers of a value and returns them, at most `limit` bytes, for another process.
pub(crate) fn take_value(files: &mut Filesystem, limit: u64) -> Vec<ValueFile> {
    // Code in a process of its own has no network, and so no secrets.
    let buffers = take_buffers(files, limit, &Scrubber::default()).into_iter().enumerate();
    buffers.map(|(at, buffer)| ValueFile { name: format!("out-{at}"), bytes: buffer.contiguous().into() }).collect()
}

/// Reads and removes the buffers of a value, at most `limit` bytes. Returns them without secrets.
pub(super) fn take_buffers(files: &mut Filesystem, limit: u64, scrubber: &Scrubber) -> Vec<Buffer> {
    let (mut buffers, mut left) = (Vec::new(), limit);
    while buffers.len() < MAX_BUFFERS {
        let path = format!("{DIRECTORY}/out-{}", buffers.len());
        let Ok(parts) = files.take_file(&path, left) else { break };
        let buffer = Buffer::from(parts);
        left -= buffer.len() as u64;
        buffers.push(scrubbed(buffer, scrubber));
    }
    buffers
}

/// Returns a buffer without secrets.
fn scrubbed(buffer: Buffer, scrubber: &Scrubber) -> Buffer {
    if scrubber.is_empty() {
        return buffer;
    }
    match scrubber.scrub(&buffer.contiguous()) {
        Cow::Owned(bytes) => bytes.into(),
        Cow::Borrowed(_) => buffer,
    }
}

/// Writes a buffer of a value that has come from another process, or goes to it.
///
/// # Errors
/// Fails if the buffer does not fit.
pub(crate) fn write_buffer(
    files: &mut Filesystem,
    name: &str,
    bytes: &[u8],
) -> Result<(), belljar_emscripten::fs::FileError> {
    files.create_dir_all(DIRECTORY)?;
    files.write_file(&format!("{DIRECTORY}/{name}"), bytes)
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
    fn new(FunctionReply { id, result }: FunctionReply, state: &mut State, context: &mut HostCallContext<'_>) -> Self {
        let mut reply = Self { id, value: None, buffers: Vec::new(), error: None };
        match result {
            Ok(EncodedValue { json, buffers }) => {
                reply.value = Some(json);
                if !buffers.is_empty() {
                    context.set_incomplete("a function of the host returned binary data");
                }
                for buffer in buffers {
                    state.buffers += 1;
                    let name = format!("reply-{}", state.buffers);
                    if let Err(error) = write_buffer(context.files(), &name, &buffer.contiguous()) {
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

/// A reply to one of the calls that the guest waits for.
#[derive(Serialize)]
#[serde(untagged)]
enum AwaitedReply {
    /// The number of the call, and its value, which has no buffers.
    Pair(u64, Box<RawValue>),
    /// Any other reply, and each for guests of earlier builds.
    Full(GuestReply),
}

impl AwaitedReply {
    /// Does the same as [`GuestReply::new`]. `pairs` is true if the guest accepts pairs.
    fn new(reply: FunctionReply, pairs: bool, state: &mut State, context: &mut HostCallContext<'_>) -> Self {
        match reply {
            FunctionReply { id, result: Ok(EncodedValue { json, buffers }) } if pairs && buffers.is_empty() => {
                Self::Pair(id, json)
            }
            other => Self::Full(GuestReply::new(other, state, context)),
        }
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
        let mut state = self.0.state.lock();
        let pending = match context.continued::<PendingCall>()? {
            Some(pending) => pending.continued(),
            None => {
                let buffers = read_arguments(context.files(), &buffers)?;
                let id = state.next;
                state.next += 1;
                let call = FunctionCall { id, name, arguments: EncodedValue { json: arguments, buffers } };
                // A function that returns at once runs here; the time that it takes is not the code's.
                let _pause = context.pause();
                self.0.start(call);
                PendingCall::new(id, None)
            }
        };
        let id = pending.first;
        state.collect();
        if !wait && state.early.iter().all(|reply| reply.id != id) {
            return to_answer(&Started { id });
        }
        let waited = self
            .0
            .wait_holding(&mut state, &pending, context, |state| state.early.iter().any(|reply| reply.id == id))?;
        match (waited, state.take(id)) {
            (Ok(()), Some(reply)) => to_answer(&GuestReply::new(reply, &mut state, context)),
            (waited, _) => {
                self.0.observer.cancel_function(id);
                let reason = match waited {
                    Err(WaitError::Interrupted) => "interrupted while waiting for a function of the host",
                    _ => "the function of the host did not reply",
                };
                Err(CallError::Refused(reason.into()))
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
/// next numbers. With `pairs`, replies are pairs of number and value where that is all they have.
struct AwaitFunctions(Arc<Calls>);

impl HostCall for AwaitFunctions {
    fn call(&self, request: &RawValue, context: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        #[derive(Deserialize)]
        struct AwaitRequest {
            timeout: Option<f64>,
            count: usize,
            #[serde(default)]
            pairs: bool,
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
            replies: Vec<AwaitedReply>,
        }
        let AwaitRequest { timeout, count, pairs, calls } = parse(request)?;
        let mut state = self.0.state.lock();
        let pending = match context.continued::<PendingCall>()? {
            Some(pending) => pending.continued(),
            None => {
                let timeout = timeout.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
                let pending = PendingCall::new(state.next, timeout.map(|timeout| timeout.min(MAX_WAIT)));
                if !calls.is_empty() {
                    // The time that starting them takes is not the code's.
                    let _pause = context.pause();
                    for CallRequest { name, arguments } in calls {
                        let id = state.next;
                        state.next += 1;
                        let arguments = EncodedValue { json: arguments, buffers: Vec::new() };
                        self.0.start(FunctionCall { id, name, arguments });
                    }
                }
                pending
            }
        };
        if state.early.is_empty() {
            state.collect();
        }
        if !pending.timeout.is_zero() {
            // Without a reply in time, the answer has none.
            let _ = self.0.wait_holding(&mut state, &pending, context, |state| !state.early.is_empty())?;
            if !state.early.is_empty() {
                state.linger(count, context);
            }
        }
        let arrived = state.take_batch();
        let replies: Vec<AwaitedReply> =
            arrived.into_iter().map(|reply| AwaitedReply::new(reply, pairs, &mut state, context)).collect();
        to_answer(&AwaitAnswer { first: pending.first, replies })
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
