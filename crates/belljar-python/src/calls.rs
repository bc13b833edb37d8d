//! Calls from the guest to the host: Python code asks for something by name, with a JSON text, and waits for the answer.
//!
//! In the guest, `_belljar.host.call` reaches [`host_call`]. Which names there are, and what they do, each interpreter's
//! owner decides ([`crate::Interpreter::answer`]). A request is hostile like everything that the guest says: its length
//! is bounded here, and what it says is checked by whoever answers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use belljar_emscripten::console::Stream;
use belljar_emscripten::fs::Filesystem;
use belljar_emscripten::host::{Call, Host, Termination};
use belljar_emscripten::reentry::Reentry;
use belljar_emscripten::stop::Stop;
use belljar_emscripten::wasmtime;
use belljar_emscripten::watchdog::Pause;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::interop::Object;

/// Longest request that is taken, in bytes.
const MAX_REQUEST: u32 = 16 << 20;
/// Longest answer that is given, in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// How often a wait looks whether the code was stopped meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// Something that the host does for the code that runs.
pub trait HostCall: Send + Sync {
    /// Answers one call. `request` is JSON that the code chose: an object. The answer is JSON.
    ///
    /// Runs on the interpreter's own thread, which waits. Work that takes long, and may have to be given up, belongs on
    /// another one: see [`Scene::wait`].
    ///
    /// # Errors
    /// [`CallError::Refused`] becomes an exception in the code; [`CallError::Ended`] ends it.
    fn call(&self, request: &RawValue, scene: &mut Scene<'_>) -> Result<Box<RawValue>, CallError>;
}

/// Why a call has no answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The host does not do it, or failed at it; the text is for whoever wrote the code.
    #[error("{0}")]
    Refused(String),
    /// The code is to end.
    #[error(transparent)]
    Ended(#[from] Termination),
}

/// The interpreter that made a call.
pub struct Scene<'a> {
    host: &'a mut Host,
}

/// Why [`Scene::wait`] gave up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GaveUp {
    /// The code was interrupted (Ctrl-C): it will see that when the call returns.
    Interrupted,
    /// The time was up.
    TimeUp,
    /// Whoever was to send the result is gone.
    Abandoned,
}

impl Scene<'_> {
    /// The code's files.
    pub fn files(&mut self) -> &mut Filesystem {
        &mut self.host.files
    }

    /// Writes to the code's standard output or error, as if it had.
    ///
    /// # Errors
    /// When that is more than it may write.
    pub fn write(&mut self, stream: Stream, text: &str) -> Result<(), Termination> {
        self.host.console.write(stream, text.as_bytes())
    }

    /// Waits for the result of work that goes on elsewhere, for at most `patience`. The clock of the code's time limit
    /// stands still meanwhile.
    ///
    /// # Errors
    /// When the code is to end.
    pub fn wait<T>(&self, result: &Receiver<T>, patience: Duration) -> Result<Result<T, GaveUp>, Termination> {
        let stop: &Arc<Stop> = &self.host.stop;
        let _pause = Pause::start(stop);
        let begin = Instant::now();
        loop {
            match result.recv_timeout(LOOK) {
                Ok(result) => return Ok(Ok(result)),
                Err(RecvTimeoutError::Disconnected) => return Ok(Err(GaveUp::Abandoned)),
                Err(RecvTimeoutError::Timeout) => {}
            }
            stop.check()?;
            if stop.signal_pending() {
                return Ok(Err(GaveUp::Interrupted));
            }
            if begin.elapsed() > patience {
                return Ok(Err(GaveUp::TimeUp));
            }
        }
    }
}

/// The calls that one interpreter answers, by name.
#[derive(Clone, Default)]
pub(crate) struct Calls(pub(crate) BTreeMap<String, Arc<dyn HostCall>>);

/// What the guest sends.
#[derive(Deserialize)]
struct Request<'a> {
    name: &'a str,
    #[serde(borrow)]
    request: &'a RawValue,
}

/// What it gets.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Answer(Box<RawValue>),
    Error(String),
}

/// `PyObject *host_call(PyObject *self, PyObject *request)`: a `PyCFunction` with one argument, a `str`.
pub(crate) fn host_call(mut call: Call<'_>, _self: Object, request: Object) -> wasmtime::Result<Object> {
    let Some(text) = read(&mut Reentry::new(&mut call), request)? else { return Ok(0) };
    let answer = match text.and_then(|text| answer(call.data_mut(), &text)) {
        Ok(answer) => Answer::Answer(answer),
        Err(CallError::Refused(reason)) => Answer::Error(reason),
        Err(CallError::Ended(termination)) => return Err(termination.into()),
    };
    // It may have taken a while.
    call.data().stop.check()?;
    let text = serde_json::to_string(&answer).ok().filter(|text| text.len() <= MAX_ANSWER);
    let text = text.unwrap_or_else(|| r#"{"error":"the host's answer is too long"}"#.into());
    write(&mut Reentry::new(&mut call), &text)
}

fn answer(host: &mut Host, text: &str) -> Result<Box<RawValue>, CallError> {
    let refused = |reason: &str| CallError::Refused(reason.into());
    let Request { name, request } =
        serde_json::from_str(text).map_err(|_| refused("a call is a JSON object with `name` and `request`"))?;
    let calls = host.embedder.clone().and_then(|embedder| embedder.downcast::<Calls>().ok());
    let handler = calls.and_then(|calls| calls.0.get(name).cloned());
    let handler = handler.ok_or_else(|| CallError::Refused(format!("the host does not answer `{name}` here")))?;
    handler.call(request, &mut Scene { host })
}

/// The text of a `str`. `None` when it is none, or cannot be encoded: Python's exception is set then.
fn read(guest: &mut Reentry<'_, '_>, object: Object) -> wasmtime::Result<Option<Result<String, CallError>>> {
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
    let too_long = || CallError::Refused(format!("a call of the host is at most {MAX_REQUEST} bytes of text"));
    Ok(Some(text.ok_or_else(too_long)))
}

/// A new `str`; null, with `MemoryError` set, when there is no memory for it.
fn write(guest: &mut Reentry<'_, '_>, text: &str) -> wasmtime::Result<Object> {
    // `MAX_ANSWER` is far below 4 GiB.
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
