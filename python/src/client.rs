//! The receiver of output and of calls of host functions, while code runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;

use belljar_core::kernel::{CellObserver, InputError, InputReply};
use belljar_core::progress::{NoProgress, ProgressStep, StepProgress};
use belljar_core::{
    ConnectionLog, ConnectionRecord, EncodedValue, FunctionCall, FunctionError, FunctionReply, Progress, ReplySender,
    Stream,
};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::value::RawValue;

use crate::deferred::{DeferredCalls, InProgress};
use crate::paused::{Answer, AnswerKind};
use crate::results::{HostUses, byte_arrays};
use crate::runtime::shared;
use crate::tools::ToolCalls;

/// The receiver of what one run or cell does. `callbacks` is a `belljar._calls.Callbacks`.
pub(crate) struct Client {
    callbacks: Option<Py<PyAny>>,
    /// True if output is passed to the callbacks while the code runs.
    streams: AtomicBool,
    output: Mutex<Vec<(Stream, Vec<u8>)>>,
    pub(crate) value: Mutex<Option<EncodedValue>>,
    /// The calls of tools of MCP servers.
    tools: Option<ToolCalls>,
    deferred: Arc<DeferredCalls>,
    connections: ConnectionLog,
}

impl Client {
    pub(crate) fn new(callbacks: Option<Py<PyAny>>, streams: bool, tools: Option<ToolCalls>) -> Arc<Self> {
        Self::with_deferred(callbacks, streams, tools, Arc::default())
    }

    /// Creates the receiver of what code does that may pause.
    pub(crate) fn with_deferred(
        callbacks: Option<Py<PyAny>>,
        streams: bool,
        tools: Option<ToolCalls>,
        deferred: Arc<DeferredCalls>,
    ) -> Arc<Self> {
        let (streams, connections) = (AtomicBool::new(streams), ConnectionLog::default());
        let (output, value) = (Mutex::default(), Mutex::default());
        Arc::new(Self { callbacks, streams, output, value, tools, deferred, connections })
    }

    /// Sets whether output is passed to the callbacks while the code runs.
    pub(crate) fn set_streams(&self, streams: bool) {
        self.streams.store(streams, Ordering::Relaxed);
    }

    /// Returns the calls of deferred functions.
    pub(crate) fn deferred(&self) -> &DeferredCalls {
        &self.deferred
    }

    /// Returns the calls of tools of MCP servers.
    pub(crate) fn tools(&self) -> Option<&ToolCalls> {
        self.tools.as_ref()
    }

    /// Returns whether code that waits can only go on by its own timers and by its caller.
    pub(crate) fn waits_for_caller(&self) -> bool {
        let has_active = || self.tools.as_ref().is_some_and(ToolCalls::are_active);
        self.deferred.has_pending() && !self.deferred.has_others() && !has_active()
    }

    /// Answers calls of code that waited in another process, and continues those of tools.
    pub(crate) fn resume_calls(&self, replies: ReplySender, answers: Vec<Answer>) {
        self.deferred.set_replies(replies.clone());
        // Before the calls ask for their approval once more.
        self.answer(answers);
        if let Some(tools) = &self.tools {
            tools.resume(&replies);
        }
    }

    /// Answers calls that wait. Answers to other calls are ignored.
    pub(crate) fn answer(&self, answers: Vec<Answer>) {
        for (id, answer) in answers {
            match answer {
                AnswerKind::Reply(result) => drop(self.deferred.answer(id, result)),
                AnswerKind::Approval(approval) => self.deferred.approve(id, approval),
            }
        }
    }

    /// Returns what the code has written so far.
    pub(crate) fn output(&self) -> Vec<(Stream, Vec<u8>)> {
        self.output.lock().clone()
    }

    /// Sets what the code has written in another process.
    pub(crate) fn set_output(&self, output: Vec<(Stream, Vec<u8>)>) {
        *self.output.lock() = output;
    }

    /// Ends the calls of tools of MCP servers, and returns them and the connections.
    pub(crate) fn finish_calls(&self) -> HostUses {
        let calls = self.tools.as_ref().map(ToolCalls::finish).unwrap_or_default();
        HostUses { calls, connections: self.connections.take() }
    }

    /// Runs work that may call the callbacks. Python keeps its state of this thread until the work has ended: making
    /// it for each call would take longer than most functions.
    pub(crate) fn attached<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        if self.callbacks.is_none() {
            return work();
        }
        Python::attach(|py| py.detach(work))
    }

    /// Returns what the code has written.
    pub(crate) fn take_output(&self) -> Vec<(Stream, Vec<u8>)> {
        std::mem::take(&mut *self.output.lock())
    }

    /// Drops the callbacks with the GIL.
    pub(crate) fn release(self: Arc<Self>) {
        if self.callbacks.is_some() {
            Python::attach(|_| drop(self));
        }
    }
}

impl Progress for Client {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        if let Some(callbacks) = &self.callbacks {
            Python::attach(|py| {
                if let Err(error) = callbacks.call_method1(py, "on_progress", (&step.name,)) {
                    error.write_unraisable(py, None);
                }
            });
        }
        NoProgress.start(step)
    }
}

impl CellObserver for Client {
    fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        {
            let mut output = self.output.lock();
            match output.last_mut() {
                Some((last, held)) if *last == stream => held.extend_from_slice(bytes),
                _ => output.push((stream, bytes.to_vec())),
            }
        }
        if let (true, Some(callbacks)) = (self.streams.load(Ordering::Relaxed), &self.callbacks) {
            Python::attach(|py| {
                let bytes = PyBytes::new(py, bytes);
                if let Err(error) = callbacks.call_method1(py, "on_stream", (stream == Stream::Stdout, bytes)) {
                    error.write_unraisable(py, None);
                }
            });
        }
    }

    fn request_input(&self, _: &str, _: bool) -> Result<Receiver<InputReply>, InputError> {
        Err(InputError::Unavailable)
    }

    fn on_connection(&self, record: &ConnectionRecord) {
        self.connections.push(record.clone());
    }

    fn on_value(&self, value: EncodedValue) {
        *self.value.lock() = Some(value);
    }

    fn call_function(&self, call: FunctionCall, replies: &ReplySender) {
        if let Some(tools) = self.tools.as_ref().filter(|_| ToolCalls::handles(&call)) {
            return tools.start(call, replies);
        }
        let Some(call) = self.deferred.defer(call, replies) else { return };
        let FunctionCall { id, name, arguments } = call;
        let Some(callbacks) = &self.callbacks else {
            let message = format!("the host has no function {name:?}");
            // Ignore send errors: the code may have ended.
            let _ =
                replies.send(FunctionReply { id, result: Err(FunctionError { name: "NameError".into(), message }) });
            return;
        };
        Python::attach(|py| {
            let sender = Some((replies.clone(), self.deferred.begin_other()));
            let reply = Reply { id, sender: Mutex::new(sender) };
            let called = (|| {
                let buffers = byte_arrays(py, &arguments.buffers)?;
                let reply = Py::new(py, reply)?;
                callbacks.call_method1(py, "on_call", (id, name, arguments.json.get(), buffers, reply))
            })();
            if let Err(error) = called {
                let message = error.value(py).to_string();
                let name = error.get_type(py).name().map_or_else(|_| "Exception".into(), |name| name.to_string());
                // Ignore send errors: the code may have ended.
                let _ = replies.send(FunctionReply { id, result: Err(FunctionError { name, message }) });
            }
        });
    }

    fn on_holding_wait(&self) {
        if self.waits_for_caller() {
            self.deferred.refuse();
        }
    }

    fn cancel_function(&self, id: u64) {
        self.deferred.cancel(id);
        if let Some(tools) = &self.tools {
            tools.cancel(id);
        }
        let Some(callbacks) = &self.callbacks else { return };
        Python::attach(|py| {
            if let Err(error) = callbacks.call_method1(py, "on_cancel", (id,)) {
                error.write_unraisable(py, None);
            }
        });
    }
}

/// The reply to one call of a host function. It is sent once; later replies are ignored.
#[pyclass(frozen, module = "belljar._native")]
pub(crate) struct Reply {
    id: u64,
    sender: Mutex<Option<(ReplySender, InProgress)>>,
}

#[pymethods]
impl Reply {
    /// Sends the function's result: its encoded value and the buffers of that.
    fn value(&self, json: String, buffers: Vec<Bound<'_, PyBytes>>) -> PyResult<()> {
        let json = RawValue::from_string(json);
        let json = json.map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))?;
        let buffers = shared(&buffers);
        self.send(Ok(EncodedValue { json, buffers }));
        Ok(())
    }

    /// Sends the exception that the function raised.
    fn error(&self, name: String, message: String) {
        self.send(Err(FunctionError { name, message }));
    }
}

impl Reply {
    fn send(&self, result: Result<EncodedValue, FunctionError>) {
        if let Some((sender, in_progress)) = self.sender.lock().take() {
            // Ignore send errors: the code may have ended.
            let _ = sender.send(FunctionReply { id: self.id, result });
            drop(in_progress);
        }
    }
}
