//! Calls from the guest to the host: Python code sends a name and a JSON text, and waits for the reply.
//!
//! In the guest, `_belljar.host.call` reaches [`host_call`]. The owner of an interpreter registers a handler for each
//! name ([`crate::Interpreter::register_host_call`]). A request is untrusted: its length is bounded here, and its
//! handler validates its content.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use belljar_core::HoldingWait;
use belljar_emscripten::Readings;
use belljar_emscripten::fs::Filesystem;
use belljar_emscripten::guest_caller::GuestCaller;
use belljar_emscripten::host::{Call, Host};
use belljar_emscripten::recording::{HostCall as RecordedHostCall, Recording, RequestDigest};
use belljar_emscripten::termination::Termination;
use belljar_emscripten::wasmtime;
use belljar_emscripten::watchdog::Pause;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::c_api::Object;

/// The maximum length of a request, in bytes.
const MAX_REQUEST: u32 = 16 << 20;
/// The maximum length of a reply, in bytes.
const MAX_REPLY: usize = 64 << 20;
/// The calls that replayed code makes again: their replies depend on nothing else.
const REPEATED: [&str; 1] = ["show"];
/// The interval at which a wait checks if the code was stopped meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A handler for calls of the running code to the host.
pub trait HostCall: Send + Sync {
    /// Handles one call. `request` is a JSON object chosen by the code. The reply is JSON.
    ///
    /// Runs on the interpreter's thread, which is blocked meanwhile. Long work that may have to be abandoned belongs on
    /// another thread: see [`HostCallContext::wait_for_work`].
    ///
    /// # Errors
    /// [`CallError::Refused`] becomes an exception in the code; [`CallError::Terminated`] ends it.
    fn call(&self, request: &RawValue, context: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError>;
}

/// An error of a call to the host.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The host rejected the call, or failed to do the work; the text is shown to the author of the code.
    #[error("{0}")]
    Refused(String),
    /// The code has to end.
    #[error(transparent)]
    Terminated(#[from] Termination),
}

/// The interpreter that made a call.
pub struct HostCallContext<'a>(Caller<'a>);

enum Caller<'a> {
    /// An interpreter of this process.
    Local {
        host: &'a mut Host,
        /// Set if the code is recorded.
        recorded: Option<RecordedCall>,
    },
    /// One in another process, which pauses the time limit of its code by itself.
    Remote(RemoteCall<'a>),
}

/// A call of code in another process.
pub(crate) struct RemoteCall<'a> {
    /// The files that cross with the call.
    pub(crate) files: &'a mut Filesystem,
    /// The code that waits.
    pub(crate) caller: &'a dyn RemoteCaller,
    /// The state of the handler, if the call continues in this process.
    pub(crate) continued: Option<&'a [u8]>,
    /// The reason for the end of the code's recording, once it has ended.
    pub(crate) incomplete: Cell<Option<&'static str>>,
}

/// Code in another process that waits for a reply of the host.
pub trait RemoteCaller {
    /// Returns whether the code was interrupted since it made the call, or before and has not received it.
    fn is_interrupted(&self) -> bool;

    /// Returns whether the code was killed.
    fn is_killed(&self) -> bool;

    /// Returns the recording of the code so far, with which it can be continued elsewhere: it then makes this call
    /// again, with `state`. The process has chosen the bytes.
    ///
    /// # Errors
    /// Returns the reason why the code cannot be continued elsewhere.
    fn save(&self, state: &[u8]) -> Result<Vec<u8>, Cow<'static, str>>;
}

/// A call of recorded code.
struct RecordedCall {
    recording: Recording,
    digest: RequestDigest,
    /// The state that the handler has given to [`HostCallContext::save`], if the call continues in another process.
    continued: Option<Vec<u8>>,
}

/// The reason why [`HostCallContext::wait`] returned without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitError {
    /// The code was interrupted (Ctrl-C); it receives the signal when the call returns.
    Interrupted,
    /// The timeout has elapsed.
    TimedOut,
    /// The sender was dropped without sending a result.
    Disconnected,
}

impl<'a> HostCallContext<'a> {
    /// Creates the context of a call of code in another process.
    pub(crate) fn remote(call: RemoteCall<'a>) -> Self {
        Self(Caller::Remote(call))
    }

    /// Returns the reason why the code in another process is not recorded any more, if this call has one.
    pub(crate) fn incomplete(&self) -> Option<&'static str> {
        match &self.0 {
            Caller::Local { .. } => None,
            Caller::Remote(call) => call.incomplete.get(),
        }
    }

    /// Returns the code's file system, or that of the files that cross from another process.
    pub fn files(&mut self) -> &mut Filesystem {
        match &mut self.0 {
            Caller::Local { host, .. } => &mut host.files,
            Caller::Remote(call) => call.files,
        }
    }

    /// Returns the recording of the code so far, with which it can be continued elsewhere: this call then begins again,
    /// and [`HostCallContext::continued`] returns `state`.
    ///
    /// # Errors
    /// Returns the reason why the code cannot be continued elsewhere.
    pub fn save(&self, state: &[u8]) -> Result<Vec<u8>, Cow<'static, str>> {
        match &self.0 {
            Caller::Local { recorded: None, .. } => Err("it is not recorded".into()),
            Caller::Local { host, recorded: Some(call) } => {
                call.recording.save(call.digest, state, host.clock.monotonic_of_host())
            }
            Caller::Remote(call) => call.caller.save(state),
        }
    }

    /// Returns the bytes that the handler has given to [`HostCallContext::save`], if the call began in another process.
    pub fn continued_state(&self) -> Option<&[u8]> {
        match &self.0 {
            Caller::Local { recorded, .. } => recorded.as_ref()?.continued.as_deref(),
            Caller::Remote(call) => call.continued,
        }
    }

    /// Returns the state of the call, if it began in another process.
    pub(crate) fn continued<'s, T: Deserialize<'s>>(&'s self) -> Result<Option<T>, CallError> {
        let Some(state) = self.continued_state() else { return Ok(None) };
        let state = serde_json::from_slice(state);
        state.map(Some).map_err(|_| CallError::Refused("the state of the call cannot be read".into()))
    }

    /// Notes that the code receives something that is not recorded.
    pub(crate) fn set_incomplete(&self, reason: &'static str) {
        match &self.0 {
            Caller::Local { recorded: None, .. } => {}
            Caller::Local { recorded: Some(call), .. } => call.recording.set_incomplete(reason),
            Caller::Remote(call) => call.incomplete.set(Some(reason)),
        }
    }

    /// Drops the recording of the code, if it is recorded, for a reason that another process has given.
    pub fn drop_recording(&self, reason: String) {
        if let Caller::Local { recorded: Some(call), .. } = &self.0 {
            call.recording.set_incomplete(reason);
        }
    }

    /// Returns how often the code has read random numbers and the time; `None` for code in another process.
    pub(crate) fn readings(&self) -> Option<Readings> {
        match &self.0 {
            Caller::Local { host, .. } => Some(host.readings()),
            Caller::Remote(_) => None,
        }
    }

    /// Pauses the code's time limit until the result is dropped.
    pub fn pause(&self) -> Option<Pause> {
        match &self.0 {
            Caller::Local { host, .. } => Some(Pause::start(&host.stop)),
            Caller::Remote(_) => None,
        }
    }

    /// Returns whether the code was interrupted and has not received the signal.
    ///
    /// # Errors
    /// Returns an error if the code has to end.
    pub fn is_interrupted(&self) -> Result<bool, Termination> {
        match &self.0 {
            Caller::Local { host, .. } => {
                host.stop.check()?;
                Ok(host.stop.signal_pending())
            }
            Caller::Remote(call) if call.caller.is_killed() => Err(Termination::Stopped),
            Caller::Remote(call) => Ok(call.caller.is_interrupted()),
        }
    }

    /// Waits at most `timeout` for something that is not work of this machine, such as a reply. The code's time limit
    /// is paused meanwhile, and the wait counts among those that hold their thread.
    ///
    /// # Errors
    /// Returns an error if the code has to end.
    pub fn wait<T>(&self, result: &Receiver<T>, timeout: Duration) -> Result<Result<T, WaitError>, Termination> {
        let _wait = HoldingWait::begin();
        self.wait_for_work(result, timeout)
    }

    /// Waits at most `timeout` for the result of work on another thread. The code's time limit is paused meanwhile.
    ///
    /// # Errors
    /// Returns an error if the code has to end.
    pub fn wait_for_work<T>(
        &self,
        result: &Receiver<T>,
        timeout: Duration,
    ) -> Result<Result<T, WaitError>, Termination> {
        let _pause = self.pause();
        let start = Instant::now();
        loop {
            match result.recv_timeout(POLL_INTERVAL.min(timeout.saturating_sub(start.elapsed()))) {
                Ok(result) => return Ok(Ok(result)),
                Err(RecvTimeoutError::Disconnected) => return Ok(Err(WaitError::Disconnected)),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.is_interrupted()? {
                return Ok(Err(WaitError::Interrupted));
            }
            if start.elapsed() >= timeout {
                return Ok(Err(WaitError::TimedOut));
            }
        }
    }
}

/// The handlers of one interpreter, by name.
#[derive(Clone, Default)]
pub(crate) struct HostCallRegistry(pub(crate) BTreeMap<String, Arc<dyn HostCall>>);

/// A request of the guest.
#[derive(Deserialize)]
struct Request<'a> {
    name: &'a str,
    #[serde(borrow)]
    request: &'a RawValue,
}

/// The reply to the guest.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Reply {
    Answer(Box<RawValue>),
    Error(String),
}

/// `PyObject *host_call(PyObject *self, PyObject *request)`: a `PyCFunction` with one argument, a `str`.
pub(crate) fn host_call(mut call: Call<'_>, _self: Object, request: Object) -> wasmtime::Result<Object> {
    let Some(text) = read(&mut GuestCaller::new(&mut call), request)? else { return Ok(0) };
    let reply = match text {
        Ok(text) => reply(call.data_mut(), &text)?,
        Err(error) => to_text(Err(error))?,
    };
    // The code may have been stopped while the handler ran.
    call.data().stop.check()?;
    write(&mut GuestCaller::new(&mut call), &reply)
}

/// Returns the reply to a request: that of its handler, or the recorded one if the code is replayed.
fn reply(host: &mut Host, text: &str) -> Result<String, Termination> {
    let Ok(request) = serde_json::from_str::<Request<'_>>(text) else {
        let reason = "the request is not a JSON object with `name` and `request`";
        return to_text(Err(CallError::Refused(reason.into())));
    };
    let recording = host.recording().filter(|_| !REPEATED.contains(&request.name)).cloned();
    let Some(recording) = recording else {
        if let Some(recording) = host.recording() {
            recording.end_sleep()?;
        }
        return to_text(dispatch(host, request, None));
    };
    let (digest, continued) = match recording.host_call(text.as_bytes()) {
        RecordedHostCall::New(digest) => {
            recording.end_sleep()?;
            (digest, None)
        }
        RecordedHostCall::Pending(digest, state) => (digest, Some(state)),
        // Only the host has written the reply, and it was text.
        RecordedHostCall::Replied(reply) => return Ok(String::from_utf8_lossy(&reply).into_owned()),
        RecordedHostCall::Diverged => return Err(Termination::Stopped),
    };
    let recorded = RecordedCall { recording: recording.clone(), digest, continued };
    let reply = to_text(dispatch(host, request, Some(recorded)))?;
    recording.reply(digest, reply.as_bytes());
    Ok(reply)
}

/// Returns the text of a reply.
fn to_text(result: Result<Box<RawValue>, CallError>) -> Result<String, Termination> {
    let reply = match result {
        Ok(answer) => Reply::Answer(answer),
        Err(CallError::Refused(reason)) => Reply::Error(reason),
        Err(CallError::Terminated(termination)) => return Err(termination),
    };
    let text = serde_json::to_string(&reply).ok().filter(|text| text.len() <= MAX_REPLY);
    Ok(text.unwrap_or_else(|| r#"{"error":"the host's reply is too long"}"#.into()))
}

fn dispatch(
    host: &mut Host,
    Request { name, request }: Request<'_>,
    recorded: Option<RecordedCall>,
) -> Result<Box<RawValue>, CallError> {
    let calls = host.embedder.clone().and_then(|embedder| embedder.downcast::<HostCallRegistry>().ok());
    let handler = calls.and_then(|calls| calls.0.get(name).cloned());
    let handler = handler.ok_or_else(|| CallError::Refused(format!("the host has no handler for `{name}`")))?;
    handler.call(request, &mut HostCallContext(Caller::Local { host, recorded }))
}

/// Returns the text of a `str`. `None` if the object is not a `str` or cannot be encoded: Python's exception is set
/// then.
fn read(guest: &mut GuestCaller<'_, '_>, object: Object) -> wasmtime::Result<Option<Result<String, CallError>>> {
    let length_at = guest.call("malloc", &[4])?;
    if length_at == 0 {
        guest.call("PyErr_NoMemory", &[])?;
        return Ok(None);
    }
    let utf8 = guest.call("PyUnicode_AsUTF8AndSize", &[object, length_at])?;
    let length = guest.memory()?.read_u32(length_at);
    guest.call("free", &[length_at])?;
    if utf8 == 0 {
        return Ok(None);
    }
    let length = length.ok().filter(|length| *length <= MAX_REQUEST);
    let bytes = length.and_then(|length| guest.memory().ok()?.slice(utf8, length).ok().map(<[u8]>::to_vec));
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let too_long = || CallError::Refused(format!("the request is longer than {MAX_REQUEST} bytes"));
    Ok(Some(text.ok_or_else(too_long)))
}

/// Creates a `str`. Returns null, with `MemoryError` set, if memory is exhausted.
fn write(guest: &mut GuestCaller<'_, '_>, text: &str) -> wasmtime::Result<Object> {
    // `MAX_REPLY` is far below 4 GiB.
    let length = u32::try_from(text.len()).unwrap_or(0);
    let at = guest.call("malloc", &[length.max(1)])?;
    if at == 0 {
        return guest.call("PyErr_NoMemory", &[]);
    }
    let written = guest.memory()?.write(at, text.as_bytes());
    let object = match written {
        Ok(()) => guest.call("PyUnicode_FromStringAndSize", &[at, length])?,
        Err(_) => guest.call("PyErr_NoMemory", &[])?,
    };
    guest.call("free", &[at])?;
    Ok(object)
}
