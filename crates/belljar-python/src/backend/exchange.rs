//! Values and calls that cross between code and its caller: the host's side of `guest/exchange.py`.

mod buffers;
mod calls;
mod handlers;

use std::sync::Arc;

use belljar_core::kernel::{CellObserver, KernelError};
use belljar_core::{Exchange, ReplySender, Waker};
use belljar_network::Scrubber;

use super::held_cell::{BinaryReplies, HeldCell};
use crate::host_calls::HostCall;
use crate::interpreter::Interpreter;

pub(crate) use buffers::{read_files, take_value, write_buffer};
pub(super) use buffers::{take_buffers, take_files, variables_of};
pub use calls::CallEffects;
use calls::Calls;
pub(super) use calls::SavedCalls;
use handlers::{AwaitFunctions, CallFunction, CancelFunction};

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
