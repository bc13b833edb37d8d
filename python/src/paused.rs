//! Code that is paused: it waits for answers to its calls of deferred functions, in memory or as bytes.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{Backend as _, KernelError};
use belljar_core::{
    CallCancellation, EncodedValue, FunctionCall, FunctionError, Report, RestoredRun, Stream, WaitingRun,
};
use belljar_python::WasmBackend;
use belljar_tools::{Approval, SavedRun};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use serde_json::value::RawValue;

use crate::client::Client;
use crate::deferred::{DeferredCalls, PendingApproval};
use crate::dump::{Dump, SavedCode};
use crate::error::{Error, ErrorKind};
use crate::job::{Job, JobEnd, check_process, pool};
use crate::paused_cell::CellToken;
use crate::results::{self, byte_arrays};
use crate::runtime::shared;
use crate::session::CANCEL_GRACE;
use crate::steps::{RunEnd, Waits, WakeSignal};
use crate::tools::HostTools;

/// An answer of the Python code: the call's number, and the encoded result with its buffers, or the name and the text
/// of an exception, or an approval.
type PythonAnswer<'py> = (u64, Option<(String, Vec<Bound<'py, PyBytes>>)>, Option<(String, String)>, Option<String>);

/// An answer to a call that waits: its number, and the answer.
pub(crate) type Answer = (u64, AnswerKind);

/// The kind of an answer.
pub(crate) enum AnswerKind {
    /// The result of a deferred function.
    Reply(Result<EncodedValue, FunctionError>),
    /// The decision about a call of an MCP server's tool.
    Approval(Approval),
}

/// A run or a cell that is paused. It goes on once.
#[pyclass(frozen, module = "belljar._native")]
pub(crate) struct PausedCode {
    state: Mutex<State>,
}

enum State {
    /// Code in an interpreter of its own.
    Run(PausedRun),
    /// Code that was paused in another process.
    Dumped(Box<DumpedRun>),
    /// A cell of a session.
    Cell(CellToken),
    /// The code has gone on.
    Resumed,
}

/// Code in an interpreter of its own that is paused.
pub(crate) struct PausedRun {
    pub(crate) run: Box<dyn WaitingRun>,
    pub(crate) client: Arc<Client>,
    pub(crate) signal: Arc<WakeSignal>,
    pub(crate) cancellation: CallCancellation,
    pub(crate) code: RunSettings,
}

/// The settings of a call of `Sandbox.run`.
#[derive(Clone)]
pub(crate) struct RunSettings {
    pub(crate) timeout: Option<f64>,
    pub(crate) pauses: Pauses,
    /// True if the value is returned encoded.
    pub(crate) is_encoded: bool,
}

/// The reasons for which code may pause.
#[derive(Clone, Default)]
pub(crate) struct Pauses {
    /// The names of the deferred functions.
    pub(crate) deferred: Vec<String>,
    /// True if it pauses for calls of MCP servers' tools that need approval.
    pub(crate) for_approval: bool,
}

impl Pauses {
    /// Returns whether code may pause at all.
    pub(crate) fn any(&self) -> bool {
        self.for_approval || !self.deferred.is_empty()
    }
}

struct DumpedRun {
    backend: WasmBackend,
    tools: Option<HostTools>,
    dump: Dump,
}

fn went_on() -> Error {
    Error::new(ErrorKind::Failed, "the run has gone on already: resume the run that `resume` has returned")
}

impl PausedCode {
    pub(crate) fn of_run(run: PausedRun) -> Self {
        Self { state: Mutex::new(State::Run(run)) }
    }

    pub(crate) fn of_cell(cell: CellToken) -> Self {
        Self { state: Mutex::new(State::Cell(cell)) }
    }

    /// Creates the run of a dump, whose interpreter starts when it is resumed.
    pub(crate) fn from_dump(backend: WasmBackend, tools: Option<&HostTools>, dump: Dump) -> Self {
        let tools = tools.cloned();
        Self { state: Mutex::new(State::Dumped(Box::new(DumpedRun { backend, tools, dump }))) }
    }
}

#[pymethods]
impl PausedCode {
    /// Answers calls and continues the code. For the code of a dump, `callbacks` are those of the new process and
    /// `deferred` are the names of its deferred functions.
    #[pyo3(signature = (answers, callbacks, deferred, streams, on_end))]
    fn resume(
        &self,
        py: Python<'_>,
        answers: Vec<PythonAnswer<'_>>,
        callbacks: Option<Py<PyAny>>,
        deferred: Vec<String>,
        streams: bool,
        on_end: Option<Py<PyAny>>,
    ) -> PyResult<Job> {
        check_process()?;
        let answers = answers.into_iter().map(parse_answer).collect::<PyResult<Vec<_>>>()?;
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Resumed) {
            State::Run(run) => {
                run.client.set_streams(streams);
                let (job, end) = Job::with_cancellation(on_end, None, run.cancellation.clone());
                pool().submit(move |_permit| run.resume(answers, end)).map_err(Error::from)?;
                Ok(job)
            }
            State::Dumped(dumped) => {
                let (job, end) = Job::new(on_end, None);
                let code = dumped.dump.paused.clone().ok_or_else(went_on)?;
                let client = restored_client(py, code, dumped.tools.as_ref(), callbacks, deferred, streams)?;
                let cancellation = job.cancellation();
                pool().submit(move |_permit| dumped.resume(client, cancellation, answers, end)).map_err(Error::from)?;
                Ok(job)
            }
            State::Cell(cell) => {
                let cancellation = cell.cancellation();
                let (job, end) = Job::with_cancellation(on_end, Some(CANCEL_GRACE), cancellation.clone());
                cell.resume(py, callbacks, deferred, streams, answers, cancellation, end)?;
                Ok(job)
            }
            State::Resumed => Err(went_on().into()),
        }
    }

    /// Returns the code and its interpreter as bytes, for `Sandbox.load`. The code stays paused.
    fn dump(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        check_process()?;
        let mut state = self.state.lock();
        if let State::Cell(cell) = &*state {
            return cell.dump(on_end);
        }
        let (job, end) = Job::new(on_end, None);
        // A dump takes milliseconds and does not run the code: it needs no guest thread.
        let bytes = match &mut *state {
            State::Run(run) => run.dump(),
            State::Dumped(dumped) => dumped.dump.to_bytes(),
            State::Cell(_) | State::Resumed => Err(went_on()),
        };
        end.finish(Box::new(move |py| Ok(PyBytes::new(py, &bytes?).into_any().unbind())));
        Ok(job)
    }

    /// Returns the output so far and the calls that wait: see [`to_python`].
    fn describe(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &*self.state.lock() {
            State::Run(run) => describe(py, run.client.output(), run.client.deferred()),
            State::Dumped(dumped) => {
                let code = dumped.dump.paused.clone().ok_or_else(went_on)?;
                describe_saved(py, code)
            }
            State::Cell(cell) => cell.describe(py),
            State::Resumed => Err(went_on().into()),
        }
    }
}

/// Returns a description of saved code.
pub(crate) fn describe_saved(py: Python<'_>, code: SavedCode) -> PyResult<Py<PyAny>> {
    let pending = code.pending.into_iter().map(FunctionCall::from).collect();
    to_python(py, code.output, pending, code.approvals)
}

/// Returns a description of code that is paused.
pub(crate) fn describe(
    py: Python<'_>,
    output: Vec<(Stream, Vec<u8>)>,
    deferred: &DeferredCalls,
) -> PyResult<Py<PyAny>> {
    to_python(py, texts(output), deferred.pending(), deferred.approvals())
}

/// Returns a dictionary with `output`; with `pending`, the number, the name, the arguments and their buffers of each
/// call of a function; and with `approvals`, the number, the server, the tool and the arguments of each call of a tool.
fn to_python(
    py: Python<'_>,
    output: Vec<(bool, String)>,
    pending: Vec<FunctionCall>,
    approvals: Vec<PendingApproval>,
) -> PyResult<Py<PyAny>> {
    let result = PyDict::new(py);
    result.set_item("output", PyList::new(py, output)?)?;
    result.set_item("pending", pending_to_python(py, pending)?)?;
    let tuple = |PendingApproval { id, server, tool, arguments }| (id, server, tool, arguments);
    result.set_item("approvals", PyList::new(py, approvals.into_iter().map(tuple).collect::<Vec<_>>())?)?;
    Ok(result.into_any().unbind())
}

fn pending_to_python(py: Python<'_>, pending: Vec<FunctionCall>) -> PyResult<Bound<'_, PyList>> {
    let calls = pending.into_iter().map(|FunctionCall { id, name, arguments }| {
        Ok((id, name, arguments.json.get().to_owned(), byte_arrays(py, &arguments.buffers)?))
    });
    PyList::new(py, calls.collect::<PyResult<Vec<_>>>()?)
}

fn texts(output: Vec<(Stream, Vec<u8>)>) -> Vec<(bool, String)> {
    let text =
        |(stream, bytes): (Stream, Vec<u8>)| (stream == Stream::Stdout, String::from_utf8_lossy(&bytes).into_owned());
    output.into_iter().map(text).collect()
}

fn parse_answer((id, value, error, approval): PythonAnswer<'_>) -> PyResult<Answer> {
    if let Some(approval) = approval {
        return Ok((id, AnswerKind::Approval(Approval::from_answer(&approval))));
    }
    let result = match (value, error) {
        (_, Some((name, message))) => Err(FunctionError { name, message }),
        (Some((json, buffers)), None) => {
            let json = RawValue::from_string(json);
            let json = json.map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))?;
            Ok(EncodedValue { json, buffers: shared(&buffers) })
        }
        (None, None) => {
            return Err(Error::new(ErrorKind::Argument, "an answer has neither a value nor an error").into());
        }
    };
    Ok((id, AnswerKind::Reply(result)))
}

/// Creates the receiver of what code does that may pause.
pub(crate) fn client(
    py: Python<'_>,
    tools: Option<&HostTools>,
    callbacks: Option<Py<PyAny>>,
    pauses: &Pauses,
    streams: bool,
) -> Result<Arc<Client>, Error> {
    let deferred = Arc::new(DeferredCalls::new(pauses.deferred.clone()));
    let start = |tools: &HostTools| {
        tools.restore_run(py, callbacks.as_ref(), Some((&deferred, pauses.for_approval)), SavedRun::default())
    };
    let tools = tools.map(start).transpose()?;
    Ok(Client::with_deferred(callbacks, streams, tools, deferred))
}

/// Creates the receiver of what code does that waited in another process.
pub(crate) fn restored_client(
    py: Python<'_>,
    code: SavedCode,
    tools: Option<&HostTools>,
    callbacks: Option<Py<PyAny>>,
    deferred: Vec<String>,
    streams: bool,
) -> Result<Arc<Client>, Error> {
    let saved = code.tools.unwrap_or_default();
    let names = code.deferred.into_iter().chain(deferred).collect();
    let pending = code.pending.into_iter().map(FunctionCall::from).collect();
    let deferred = Arc::new(DeferredCalls::restored(names, pending, code.approvals));
    let pauses = Some((&deferred, code.pauses_for_approval));
    let tools = tools.map(|tools| tools.restore_run(py, callbacks.as_ref(), pauses, saved)).transpose()?;
    let client = Client::with_deferred(callbacks, streams, tools, deferred);
    let stream = |is_stdout| if is_stdout { Stream::Stdout } else { Stream::Stderr };
    client
        .set_output(code.output.into_iter().map(|(is_stdout, text)| (stream(is_stdout), text.into_bytes())).collect());
    Ok(client)
}

/// Returns the library's half of code that is paused, for a dump.
pub(crate) fn saved_code(client: &Client, timeout: Option<f64>, pauses: Pauses) -> SavedCode {
    let Pauses { deferred, for_approval: pauses_for_approval } = pauses;
    SavedCode {
        timeout,
        approvals: client.deferred().approvals(),
        pauses_for_approval,
        output: texts(client.output()),
        pending: client.deferred().pending().into_iter().map(Into::into).collect(),
        deferred,
        tools: client.tools().map(crate::tools::ToolCalls::save),
    }
}

impl PausedRun {
    fn resume(mut self, answers: Vec<Answer>, end: JobEnd) {
        self.run.exclude_wait();
        self.client.answer(answers);
        let Self { run, client, signal, cancellation, code } = self;
        let ended = client.attached(|| Waits::new(&client, &signal).run(run.resume()));
        finish(ended, client, signal, cancellation, code, end);
    }

    fn dump(&mut self) -> Result<Vec<u8>, Error> {
        let RunSettings { timeout, pauses, .. } = self.code.clone();
        // Before the snapshot, which is not taken once a reply has arrived.
        let paused = Some(saved_code(&self.client, timeout, pauses));
        let snapshot = self.run.snapshot()?;
        Dump { snapshot, is_session: false, paused }.to_bytes()
    }
}

impl DumpedRun {
    fn resume(self, client: Arc<Client>, cancellation: CallCancellation, answers: Vec<Answer>, end: JobEnd) {
        let Self { backend, dump, .. } = self;
        let signal = client.deferred().signal().clone();
        let (timeout, pauses) = dump.paused.map_or((None, Pauses::default()), |code| (code.timeout, code.pauses()));
        let code = RunSettings { timeout, pauses, is_encoded: true };
        let ended = client.attached(|| {
            let RestoredRun { mut run, replies } =
                backend.restore_run(&dump.snapshot, client.clone(), &cancellation, signal.waker())?;
            run.exclude_wait();
            client.resume_calls(replies, answers);
            Waits::new(&client, &signal).run(run.resume())
        });
        finish(ended, client, signal, cancellation, code, end);
    }
}

/// Ends the job of code that has ended or is paused.
pub(crate) fn finish(
    ended: Result<RunEnd, KernelError>,
    client: Arc<Client>,
    signal: Arc<WakeSignal>,
    cancellation: CallCancellation,
    code: RunSettings,
    end: JobEnd,
) {
    match ended {
        Ok(RunEnd::Completed(completed)) => {
            let report = Report::from_run(completed.report, code.is_encoded, client.take_output());
            let calls = client.finish_calls();
            end.finish(Box::new(move |py| {
                drop(client);
                results::to_python(py, report, calls)
            }));
            // The result does not wait for the interpreter's memory to be freed.
            drop(completed.interpreter);
        }
        Ok(RunEnd::Paused(run)) => {
            let described = client.clone();
            let paused = PausedCode::of_run(PausedRun { run, client, signal, cancellation, code });
            end.finish(Box::new(move |py| results::paused_to_python(py, &described, paused)));
        }
        Err(error) => {
            client.release();
            let error = Error::from(error);
            end.finish(Box::new(move |_| Err(error.into())));
        }
    }
}

/// Returns a time limit in seconds as a duration.
pub(crate) fn duration(seconds: Option<f64>) -> Option<Duration> {
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}
