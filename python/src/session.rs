//! Sessions: IPython in an interpreter that keeps its variables. Calls run in the order in which they were made.

use std::collections::VecDeque;
use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::files::{FileError, MAX_READ, Range, check_path};
use belljar_core::kernel::{Backend as _, CellRequest, Kernel, KernelError, KernelSnapshot};
use belljar_core::{CellStatus, NoProgress, Report, Statistics};
use belljar_python::WasmBackend;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::job::{Job, JobEnd, check_process, pool};
use crate::results;
use crate::runtime::Request;
use crate::tools::HostTools;

/// The time between the interrupt of a cell whose call was cancelled and the kill of its interpreter.
const CANCEL_GRACE: Duration = Duration::from_secs(5);
/// The first bytes of a dump, with the version of the format.
const MAGIC: &[u8; 8] = b"belljar1";
/// The zstd level of dumps.
const COMPRESSION_LEVEL: i32 = 1;
/// The maximum size of a dump's contents, in bytes: memory is at most 4 GiB.
const MAX_DUMP: u64 = (4 << 30) + (128 << 20);

/// The description of a dump, before its data.
#[derive(Serialize, Deserialize)]
struct DumpHeader {
    metadata: serde_json::Value,
    base: Option<String>,
}

type Work = Box<dyn FnOnce(&mut State) + Send>;

struct State {
    backend: WasmBackend,
    tools: Option<HostTools>,
    kernel: KernelState,
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
    /// Returns the kernel, which is started if need be.
    fn kernel(&mut self) -> Result<&mut dyn Kernel, Error> {
        self.kernel = match std::mem::replace(&mut self.kernel, KernelState::Closed) {
            KernelState::New => match self.backend.start(None, &NoProgress) {
                Ok(kernel) => KernelState::Running(kernel),
                Err(error) => {
                    self.kernel = KernelState::New;
                    return Err(error.into());
                }
            },
            KernelState::Dumped(snapshot) => match self.backend.restore(&snapshot, None, None, &NoProgress) {
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

    /// Records that a cell has ended the interpreter.
    fn end_kernel(&mut self) {
        if let KernelState::Running(kernel) = std::mem::replace(&mut self.kernel, KernelState::Closed) {
            self.kernel = KernelState::Stopped(kernel);
        }
    }
}

/// The calls of a session, which a guest thread runs one after the other.
struct Queue {
    waiting: Mutex<Waiting>,
    state: Mutex<State>,
}

#[derive(Default)]
struct Waiting {
    work: VecDeque<Work>,
    is_running: bool,
}

impl Queue {
    /// Adds work for the session's state.
    fn submit(self: &Arc<Self>, work: Work) -> Result<(), Error> {
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
    tools: Option<HostTools>,
}

impl Session {
    pub(crate) fn new(backend: WasmBackend, tools: Option<&HostTools>) -> Self {
        Self::with_kernel(backend, tools, KernelState::New)
    }

    pub(crate) fn from_dump(backend: WasmBackend, tools: Option<&HostTools>, dump: &[u8]) -> Result<Self, Error> {
        let damaged = || Error::new(ErrorKind::Dump, "the bytes are not a session that was saved by this version");
        let rest = dump.strip_prefix(MAGIC).ok_or_else(damaged)?;
        let (length, rest) = rest.split_at_checked(4).ok_or_else(damaged)?;
        let length = u32::from_le_bytes(length.try_into().map_err(|_| damaged())?) as usize;
        let (header, compressed) = rest.split_at_checked(length).ok_or_else(damaged)?;
        let DumpHeader { metadata, base } = serde_json::from_slice(header).map_err(|_| damaged())?;
        let mut data = Vec::new();
        let decoder = zstd::Decoder::new(compressed).map_err(|_| damaged())?;
        decoder.take(MAX_DUMP).read_to_end(&mut data).map_err(|_| damaged())?;
        let snapshot = KernelSnapshot { metadata, data, is_copy: true, base };
        Ok(Self::with_kernel(backend, tools, KernelState::Dumped(snapshot)))
    }

    fn with_kernel(backend: WasmBackend, tools: Option<&HostTools>, kernel: KernelState) -> Self {
        let tools = tools.map(HostTools::for_session);
        let state = Mutex::new(State { backend, tools: tools.clone(), kernel });
        Self { queue: Arc::new(Queue { waiting: Mutex::default(), state }), tools }
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
            code: request.code,
            timeout,
            exchange,
            tools: self.tools.is_some(),
            ..CellRequest::default()
        };
        let (job, end) = Job::new(on_end, Some(CANCEL_GRACE));
        let cancellation = job.cancellation();
        let tools = self.tools.as_ref().map(|tools| tools.start_run(py, callbacks.as_ref())).transpose()?;
        let client = Client::new(callbacks, streams, tools);
        self.queue.submit(Box::new(move |state| {
            let limits = *state.backend.limits();
            let begin = Instant::now();
            let result = state.kernel().and_then(|kernel| {
                if !cancellation.begin_running(kernel.interrupt_handle()) {
                    return Err(KernelError::Cancelled.into());
                }
                Ok(client.attached(|| kernel.execute(&cell, client.clone())))
            });
            cancellation.finish();
            match result {
                Ok(result) => {
                    if matches!(result.status, CellStatus::KernelDied(_)) {
                        state.end_kernel();
                    }
                    let limits = limits.with_timeout(timeout);
                    let statistics = Statistics { run: begin.elapsed(), ..Statistics::default() };
                    let mut report = Report::of_cell(result.status, result.outputs, &limits, &statistics);
                    report.value = client.value.lock().take().map(Into::into);
                    let calls = client.finish_calls();
                    end.finish(Box::new(move |py| {
                        drop(client);
                        results::to_python(py, report, calls)
                    }));
                }
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
        let fork = |state: &mut State| {
            let kernel = state.kernel()?.fork(None)?;
            Ok(Self::with_kernel(state.backend.clone(), state.tools.as_ref(), KernelState::Running(kernel)))
        };
        self.start(on_end, fork, |py, session| Ok(Py::new(py, session)?.into_any()))
    }

    /// Returns the session's variables and files as bytes.
    fn dump(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let dump = |state: &mut State| {
            let KernelSnapshot { metadata, data, base, .. } = state.kernel()?.snapshot()?;
            let failed = |error: String| Error::new(ErrorKind::Dump, error);
            let header =
                serde_json::to_vec(&DumpHeader { metadata, base }).map_err(|error| failed(error.to_string()))?;
            let length = u32::try_from(header.len()).map_err(|error| failed(error.to_string()))?;
            let mut bytes = MAGIC.to_vec();
            bytes.extend(length.to_le_bytes());
            bytes.extend(header);
            zstd::stream::copy_encode(&data[..], &mut bytes, COMPRESSION_LEVEL)
                .map_err(|error| failed(error.to_string()))?;
            Ok(bytes)
        };
        self.start(on_end, dump, |py, bytes| Ok(PyBytes::new(py, &bytes).into_any().unbind()))
    }

    /// Replaces the interpreter by a new one. The files stay.
    fn restart(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        self.start(on_end, |state| Ok(state.kernel()?.restart()?), |py, ()| Ok(py.None()))
    }

    /// Ends the session and frees its memory.
    fn close(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let close = |state: &mut State| {
            state.kernel = KernelState::Closed;
            Ok(())
        };
        self.start(on_end, close, |py, ()| Ok(py.None()))
    }
}

fn fail(end: JobEnd, client: Arc<Client>, error: Error) {
    client.release();
    end.finish(Box::new(move |_| Err(error.into())));
}
