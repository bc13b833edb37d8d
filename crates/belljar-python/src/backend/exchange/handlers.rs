//! The handlers of the host calls with which code calls functions of the host, and the replies that the guest receives.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::{EncodedValue, FunctionCall, FunctionError, FunctionReply};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::buffers::{read_arguments, write_buffer};
use super::calls::{Calls, MAX_WAIT, PendingCall, State};
use crate::host_calls::{CallError, HostCall, HostCallContext, WaitError};

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
pub(super) struct CallFunction(pub(super) Arc<Calls>);

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

/// The host call `await_functions`: starts calls, waits for at least one reply and shortly for `count` of them, and
/// returns those that have arrived, up to a size, with the number of the first of the calls. Those after it have the
/// next numbers. With `pairs`, replies are pairs of number and value where that is all they have.
pub(super) struct AwaitFunctions(pub(super) Arc<Calls>);

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
pub(super) struct CancelFunction(pub(super) Arc<Calls>);

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
