//! Sessions: IPython in an interpreter that keeps its variables. Calls run in the order in which they were made.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::files::{FileError, MAX_READ, Range, check_path};
use belljar_core::kernel::{Backend as _, CellRequest, Kernel, KernelError, KernelSnapshot};
use belljar_core::{CellResult, CellStatus, NoProgress, Report, Statistics};
use belljar_python::WasmBackend;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use serde_json::Value;

use crate::client::Client;
use crate::dump::Dump;
use crate::error::{Error, ErrorKind};
use crate::job::{Job, JobEnd, check_process, pool};
use crate::paused::{self, PausedCode};
use crate::paused_cell::{CellCall, PausedCell};
use crate::results;
use crate::runtime::Request;
use crate::tools::HostTools;

/// The time between the interrupt of a cell whose call was cancelled and the kill of its interpreter.
pub(crate) const CANCEL_GRACE: Duration = Duration::from_secs(5);

pub(crate) type Work = Box<dyn FnOnce(&mut State) + Send>;

pub(crate) struct State {
    pub(crate) backend: WasmBackend,
    pub(crate) tools: Option<HostTools>,
    kernel: KernelState,
    /// The cell that is paused.
    pub(crate) paused: Option<PausedCell>,
}

enum KernelState {
    /// The first call starts it.
    New,
    /// The first call continues it.
    Dumped(KernelSnapshot),
    Running(Box<dyn Kernel>),
    /// A cell has ended the interpreter. The next call starts another one, with the same files.
    Stopped(Box<dyn Kernel>),
    Closed,
}

impl State {
    /// Returns the kernel, which is started if need be, unless a cell is paused.
    pub(crate) fn kernel(&mut self) -> Result<&mut dyn Kernel, Error> {
        match self.paused {
            None => self.any_kernel(),
            Some(_) => Err(Error::new(
                ErrorKind::Failed,
                "a cell of the session is paused: continue it with `resume` of its run, or restart the session",
            )),
        }
    }

    /// Returns the kernel, which is started if need be. A cell may be paused in it.
    pub(crate) fn any_kernel(&mut self) -> Result<&mut dyn Kernel, Error> {
        self.kernel = match std::mem::replace(&mut self.kernel, KernelState::Closed) {
            KernelState::New => match self.backend.start(None, &NoProgress) {
                Ok(kernel) => KernelState::Running(kernel),
                Err(error) => {
                    self.kernel = KernelState::New;
                    return Err(error.into());
                }
            },
            KernelState::Dumped(snapshot) => match self.backend.restore(&snapshot, &|| None, None, &NoProgress) {
                Ok(kernel) => KernelState::Running(kernel),
                Err(error) => {
                    self.kernel = KernelState::Dumped(snapshot);
                    return Err(error.into());
                }
            },
            KernelState::Stopped(mut kernel) => match kernel.restart() {
                Ok(()) => KernelState::Running(kernel),
                Err(error) => {
                    self.kernel = KernelState::Stopped(kernel);
                    return Err(error.into());
                }
            },
            other => other,
        };
        match &mut self.kernel {
            KernelState::Running(kernel) => Ok(&mut **kernel),
            _ => Err(Error::new(ErrorKind::Failed, "the session is closed")),
        }
    }

    /// Returns the session as bytes, with the cell that is paused.
    pub(crate) fn dump(&mut self) -> Result<Vec<u8>, Error> {
        // Before the snapshot, which is not taken once a reply has arrived.
        let paused = self.paused.as_ref().map(PausedCell::save);
        let snapshot = match &self.kernel {
            // Nothing has been continued.
            KernelState::Dumped(snapshot) => snapshot.clone(),
            _ => self.any_kernel()?.snapshot()?,
        };
        Dump { snapshot, is_session: true, paused }.to_bytes()
    }

    /// Records that a cell has ended the interpreter.
    pub(crate) fn end_kernel(&mut self) {
        if let KernelState::Running(kernel) = std::mem::replace(&mut self.kernel, KernelState::Closed) {
            self.kernel = KernelState::Stopped(kernel);
        }
    }
}

/// The calls of a session, which a guest thread runs one after the other.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    state: Mutex<State>,
    tools: Option<HostTools>,
}

#[derive(Default)]
struct Waiting {
    work: VecDeque<Work>,
    is_running: bool,
}

impl Queue {
    /// Returns the tools of the session.
    pub(crate) fn tools(&self) -> Option<HostTools> {
        self.tools.clone()
    }

    /// Adds work for the session's state.
    pub(crate) fn submit(self: &Arc<Self>, work: Work) -> Result<(), Error> {
        let mut waiting = self.waiting.lock();
        waiting.work.push_back(work);
        if !waiting.is_running {
            let queue = self.clone();
            pool().submit(move |_permit| queue.run())?;
            waiting.is_running = true;
        }
        Ok(())
    }

    fn run(&self) {
        // Restores the flag if work panics.
        struct Running<'a>(&'a Queue);
        impl Drop for Running<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    let mut waiting = self.0.waiting.lock();
                    waiting.is_running = false;
                    waiting.work.clear();
                }
            }
        }
        let _running = Running(self);
        loop {
            let work = {
                let mut waiting = self.waiting.lock();
                match waiting.work.pop_front() {
                    Some(work) => work,
                    None => {
                        waiting.is_running = false;
                        return;
                    }
                }
            };
            work(&mut self.state.lock());
        }
    }
}

/// A session.
#[pyclass(frozen, module = "belljar._native")]
pub(crate) struct Session {
    queue: Arc<Queue>,
    /// The policy that narrows the network of the session. Its first cell sets it.
    network: Option<Value>,
}

impl Session {
    pub(crate) fn new(backend: WasmBackend, tools: Option<&HostTools>, network: Option<Value>) -> Self {
        Self { network, ..Self::with_kernel(backend, tools, KernelState::New) }
    }

    /// Creates a session that continues from a dump.
    pub(crate) fn from_dump(backend: WasmBackend, tools: Option<&HostTools>, dump: Dump) -> Self {
        let session = Self::with_kernel(backend, tools, KernelState::Dumped(dump.snapshot));
        session.queue.state.lock().paused = dump.paused.map(PausedCell::saved);
        session
    }

    fn with_kernel(backend: WasmBackend, tools: Option<&HostTools>, kernel: KernelState) -> Self {
        let tools = tools.map(HostTools::for_session);
        let state = Mutex::new(State { backend, tools: tools.clone(), kernel, paused: None });
        let queue = Queue { waiting: Mutex::default(), state, tools: tools.clone() };
        Self { queue: Arc::new(queue), network: None }
    }

    /// Starts work that does not run the session's code.
    fn start<T: Send + 'static>(
        &self,
        on_end: Option<Py<PyAny>>,
        work: impl FnOnce(&mut State) -> Result<T, Error> + Send + 'static,
        to_python: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<Job> {
        check_process()?;
        let (job, end) = Job::new(on_end, Some(CANCEL_GRACE));
        let cancellation = job.cancellation();
        self.queue.submit(Box::new(move |state| {
            let result = if cancellation.is_cancelled() { Err(KernelError::Cancelled.into()) } else { work(state) };
            cancellation.finish();
            end.finish(Box::new(move |py| to_python(py, result?)));
        }))?;
        Ok(job)
    }
}

#[pymethods]
impl Session {
    /// Runs a cell.
    #[pyo3(signature = (request, buffers, callbacks, streams, on_end))]
    fn execute(
        &self,
        py: Python<'_>,
        request: &str,
        buffers: Vec<Bound<'_, PyBytes>>,
        callbacks: Option<Py<PyAny>>,
        streams: bool,
        on_end: Option<Py<PyAny>>,
    ) -> PyResult<Job> {
        check_process()?;
        let mut request = Request::parse(request)?;
        let (timeout, exchange) = (request.timeout()?, request.exchange(&buffers));
        let cell = CellRequest {
            code: std::mem::take(&mut request.code),
            timeout,
            exchange,
            tools: self.queue.tools.is_some(),
            network: self.network.clone(),
            ..CellRequest::default()
        };
        let (job, end) = Job::new(on_end, Some(CANCEL_GRACE));
        let cancellation = job.cancellation();
        let pauses = request.pauses();
        if pauses.any() {
            let client = paused::client(py, self.queue.tools.as_ref(), callbacks, &pauses, streams)?;
            let call = CellCall { queue: self.queue.clone(), client, cancellation, timeout: request.timeout };
            self.queue.submit(Box::new(move |state| call.begin(state, &cell, pauses, end)))?;
            return Ok(job);
        }
        let tools = self.queue.tools.as_ref().map(|tools| tools.start_run(py, callbacks.as_ref())).transpose()?;
        let client = Client::new(callbacks, streams, tools);
        self.queue.submit(Box::new(move |state| {
            let begin = Instant::now();
            let result = state.kernel().and_then(|kernel| {
                if !cancellation.begin_running(kernel.interrupt_handle()) {
                    return Err(KernelError::Cancelled.into());
                }
                Ok(client.attached(|| kernel.execute(&cell, client.clone())))
            });
            cancellation.finish();
            match result {
                Ok(result) => complete(state, end, client, result, timeout, begin.elapsed()),
                Err(error) => fail(end, client, error),
            }
        }))?;
        Ok(job)
    }

    /// Lists the session's files: their paths and sizes.
    fn list_files(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let list = |state: &mut State| Ok(state.kernel()?.files());
        self.start(on_end, list, |py, files| {
            let files = files.into_iter().map(|file| (file.path, file.size));
            Ok(PyList::new(py, files.collect::<Vec<_>>())?.into_any().unbind())
        })
    }

    /// Reads a file.
    fn read_file(&self, path: String, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let read = move |state: &mut State| {
            check_path(&path)?;
            let kernel = state.kernel()?;
            let mut bytes = Vec::new();
            loop {
                let range = Range { offset: bytes.len() as u64, length: Some(MAX_READ) };
                let part = kernel.read(&path, range)?;
                if part.is_empty() {
                    return Ok(bytes);
                }
                bytes.extend_from_slice(&part);
            }
        };
        self.start(on_end, read, |py, bytes| Ok(PyBytes::new(py, &bytes).into_any().unbind()))
    }

    /// Writes a file.
    fn write_file(&self, path: String, bytes: Vec<u8>, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let write = move |state: &mut State| {
            check_path(&path)?;
            if path.contains('/') {
                return Err(FileError::Name(path).into());
            }
            Ok(state.kernel()?.write(&path, &bytes)?)
        };
        self.start(on_end, write, |py, ()| Ok(py.None()))
    }

    /// Creates a session with the same variables and files.
    fn fork(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let network = self.network.clone();
        let fork = move |state: &mut State| {
            let kernel = state.kernel()?.fork(None)?;
            let fork = Self::with_kernel(state.backend.clone(), state.tools.as_ref(), KernelState::Running(kernel));
            Ok(Self { network, ..fork })
        };
        self.start(on_end, fork, |py, session| Ok(Py::new(py, session)?.into_any()))
    }

    /// Returns the session's variables and files as bytes.
    fn dump(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        self.start(on_end, State::dump, |py, bytes| Ok(PyBytes::new(py, &bytes).into_any().unbind()))
    }

    /// Returns the paused cell, or nothing. Waits for the cells before.
    fn paused(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let queue = self.queue.clone();
        let token = move |state: &mut State| Ok(state.paused.as_ref().map(|paused| paused.token(&queue)));
        self.start(on_end, token, |py, token| match token {
            Some(token) => Ok(Py::new(py, PausedCode::of_cell(token))?.into_any()),
            None => Ok(py.None()),
        })
    }

    /// Replaces the interpreter by a new one. The files stay.
    fn restart(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let restart = |state: &mut State| {
            state.paused = None;
            Ok(state.any_kernel()?.restart()?)
        };
        self.start(on_end, restart, |py, ()| Ok(py.None()))
    }

    /// Ends the session and frees its memory.
    fn close(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let close = |state: &mut State| {
            (state.kernel, state.paused) = (KernelState::Closed, None);
            Ok(())
        };
        self.start(on_end, close, |py, ()| Ok(py.None()))
    }
}

/// Ends the job of a cell that has ended.
pub(crate) fn complete(
    state: &mut State,
    end: JobEnd,
    client: Arc<Client>,
    result: CellResult,
    timeout: Option<Duration>,
    run: Duration,
) {
    if matches!(result.status, CellStatus::KernelDied(_)) {
        state.end_kernel();
    }
    let limits = state.backend.limits().with_timeout(timeout);
    let statistics = Statistics { run, ..Statistics::default() };
    let mut report = Report::from_cell(result.status, result.outputs, &limits, &statistics);
    report.value = client.value.lock().take().map(Into::into);
    let calls = client.finish_calls();
    end.finish(Box::new(move |py| {
        drop(client);
        results::to_python(py, report, calls)
    }));
}

pub(crate) fn fail(end: JobEnd, client: Arc<Client>, error: Error) {
    client.release();
    end.finish(Box::new(move |_| Err(error.into())));
}
