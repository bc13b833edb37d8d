//! Sandboxes: one-shot runs, and the creation of sessions.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::{Backend as _, KernelError, OneShotRequest};
use belljar_core::{Buffer, Bytes, Exchange, HostFunction, Report, ReportRequest, Scope};
use belljar_network::Policy;
use belljar_python::{BackendOptions, RuntimeLoader, WasmBackend};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::client::Client;
use crate::dump::Dump;
use crate::error::{Error, ErrorKind};
use crate::executor::start;
use crate::job::{Job, check_process, pool};
use crate::paused::{self, PausedCode, Pauses, RunSettings};
use crate::results;
use crate::session::Session;
use crate::settings::Settings;
use crate::steps::Waits;
use crate::tools::{HostTools, ToolSettings};

/// A request of the Python code.
#[derive(Deserialize)]
pub(crate) struct Request {
    pub(crate) code: String,
    pub(crate) timeout: Option<f64>,
    #[serde(default)]
    pub(crate) packages: Vec<String>,
    /// Variables in plain JSON, for which the value is JSON as well.
    globals: Option<Box<RawValue>>,
    /// Encoded variables. Set, unless `globals` is.
    variables: Option<Box<RawValue>>,
    #[serde(default)]
    functions: Vec<HostFunction>,
    /// The names of the deferred functions among them.
    #[serde(default)]
    deferred: Vec<String>,
    /// True if code pauses for calls of tools that need approval.
    #[serde(default)]
    pauses_for_approval: bool,
    /// The policy that narrows the network of the run.
    pub(crate) network: Option<Value>,
    /// True if the value is returned as JSON instead of encoded.
    #[serde(default)]
    json: bool,
}

impl Request {
    pub(crate) fn parse(json: &str) -> Result<Self, Error> {
        serde_json::from_str(json).map_err(|error| Error::new(ErrorKind::Argument, error.to_string()))
    }

    pub(crate) fn timeout(&self) -> Result<Option<Duration>, Error> {
        let invalid = |_| Error::new(ErrorKind::Argument, "timeout: not a number of seconds");
        self.timeout.map(Duration::try_from_secs_f64).transpose().map_err(invalid)
    }

    /// Returns the reasons for which the code may pause.
    pub(crate) fn pauses(&self) -> Pauses {
        Pauses { deferred: self.deferred.clone(), for_approval: self.pauses_for_approval }
    }

    /// Returns the variables for a server.
    pub(crate) fn report_request(&mut self, buffers: &[Bound<'_, PyBytes>]) -> ReportRequest {
        let variables = self.variables.take().map(|json| Box::<str>::from(json).into());
        ReportRequest { variables, buffers: shared(buffers) }
    }

    pub(crate) fn exchange(&mut self, buffers: &[Bound<'_, PyBytes>]) -> Option<Exchange> {
        let (variables, functions) = (self.variables.take(), std::mem::take(&mut self.functions));
        if self.json && functions.is_empty() {
            return None;
        }
        let is_resumable = self.pauses().any();
        Some(Exchange { variables, buffers: shared(buffers), functions, is_resumable })
    }
}

/// Returns the contents of `bytes` objects, which are kept and not copied.
pub(crate) fn shared(buffers: &[Bound<'_, PyBytes>]) -> Vec<Buffer> {
    buffers.iter().map(|buffer| Bytes::from_owner(PyBackedBytes::from(buffer.clone())).into()).collect()
}

/// A sandbox: settings, and CPython when it is first used.
#[pyclass(frozen, module = "belljar._native")]
pub(crate) struct Runtime {
    backend: WasmBackend,
    loader: Arc<RuntimeLoader>,
    tools: Option<HostTools>,
}

#[pymethods]
impl Runtime {
    /// Creates a sandbox with these settings and those of its tools, JSON objects.
    #[new]
    #[pyo3(signature = (settings, tools))]
    fn new(settings: &str, tools: Option<&str>) -> PyResult<Self> {
        check_process()?;
        let settings = Settings::parse(settings)?;
        let loader = Arc::new(settings.loader()?);
        let (limits, network) = (settings.limits()?, settings.network()?);
        let options = BackendOptions { limits, network, ..BackendOptions::default() };
        let backend = WasmBackend::with_options(loader.clone(), options);
        let tools = tools.map(|json| {
            let invalid = |error: serde_json::Error| Error::new(ErrorKind::Argument, format!("tools: {error}"));
            serde_json::from_str::<ToolSettings>(json).map_err(invalid)?.open()
        });
        Ok(Self { backend, loader, tools: tools.transpose()? })
    }

    /// Runs code in an interpreter of its own. `request` is a JSON object, `buffers` are those of its variables.
    #[pyo3(signature = (request, buffers, callbacks, streams, on_end))]
    fn run(
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
        let pauses = request.pauses();
        let Request { code, packages, globals, timeout: seconds, network, .. } = request;
        let is_encoded = exchange.is_some();
        let tools = self.tools.is_some();
        let request = OneShotRequest {
            code,
            globals,
            dependencies: packages,
            timeout,
            exchange,
            tools,
            network,
            owner: None,
            scope: Scope::default(),
        };
        let (job, end) = Job::new(on_end, None);
        let (backend, cancellation) = (self.backend.clone(), job.cancellation());
        if pauses.any() {
            let client = paused::client(py, self.tools.as_ref(), callbacks, &pauses, streams)?;
            let code = RunSettings { timeout: seconds, pauses, is_encoded };
            let submitted = pool().submit(move |_permit| {
                let signal = client.deferred().signal().clone();
                let ended = client.attached(|| {
                    let begun = backend.begin_run(request, client.clone(), &cancellation, signal.waker());
                    Waits::new(&client, &signal).run(begun)
                });
                paused::finish(ended, client, signal, cancellation, code, end);
            });
            submitted.map_err(Error::from)?;
            return Ok(job);
        }
        let tools = self.tools.as_ref().map(|tools| tools.start_run(py, callbacks.as_ref())).transpose()?;
        let client = Client::new(callbacks, streams, tools);
        let submitted = pool().submit(move |permit| {
            let ran = if cancellation.is_cancelled() {
                Err(KernelError::Cancelled)
            } else {
                client.attached(|| backend.run_once(request, client.clone(), &cancellation))
            };
            drop(permit);
            match ran {
                Ok(completed) => {
                    let report = Report::from_run(completed.report, is_encoded, client.take_output());
                    let calls = client.finish_calls();
                    end.finish(Box::new(move |py| {
                        drop(client);
                        results::to_python(py, report, calls)
                    }));
                    // The result does not wait for the interpreter's memory to be freed.
                    drop(completed.interpreter);
                }
                Err(error) => {
                    client.release();
                    let error = Error::from(error);
                    end.finish(Box::new(move |_| Err(error.into())));
                }
            }
        });
        submitted.map_err(Error::from)?;
        Ok(job)
    }

    /// Creates a session, whose interpreter starts with its first call. `network` is a policy as JSON, which narrows
    /// that of the sandbox.
    fn session(&self, network: Option<&str>) -> PyResult<Session> {
        Ok(Session::new(self.backend.clone(), self.tools.as_ref(), network.map(parse_policy).transpose()?))
    }

    /// Creates a session, or paused code, that continues from the bytes of a dump.
    fn load(&self, py: Python<'_>, dump: &[u8]) -> PyResult<Py<PyAny>> {
        let (backend, tools, dump) = (self.backend.clone(), self.tools.as_ref(), Dump::from_bytes(dump)?);
        if dump.is_session {
            return Ok(Py::new(py, Session::from_dump(backend, tools, dump))?.into_any());
        }
        if dump.paused.is_none() {
            return Err(Error::new(ErrorKind::Dump, "the bytes are not those of a run that is paused").into());
        }
        Ok(Py::new(py, PausedCode::from_dump(backend, tools, dump))?.into_any())
    }

    /// Makes CPython ready, and the image of sessions if `sessions` is set. The result is a message for the user, if
    /// the files that were installed with the package do not fit.
    #[pyo3(signature = (sessions, callbacks, on_end))]
    fn prepare(&self, sessions: bool, callbacks: Option<Py<PyAny>>, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        check_process()?;
        let (job, end) = Job::new(on_end, None);
        let (backend, loader) = (self.backend.clone(), self.loader.clone());
        let client = Client::new(callbacks, false, None);
        let submitted = pool().submit(move |_permit| {
            let prepared = loader.get(&*client).map_err(KernelError::Start).and_then(|runtime| {
                if sessions {
                    backend.warm_up_sessions()?;
                }
                Ok(runtime.python.notice().map(str::to_owned))
            });
            client.release();
            let prepared = prepared.map_err(Error::from);
            end.finish(Box::new(move |py| Ok(prepared?.into_pyobject(py)?.into_any().unbind())));
        });
        submitted.map_err(Error::from)?;
        Ok(job)
    }

    /// Returns Python stubs of the tools of MCP servers, which are connected for that.
    fn stubs(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let tools = self.tools.clone();
        let stubs = async move {
            Ok(match tools {
                Some(tools) => tools.stubs().await,
                None => String::new(),
            })
        };
        start(on_end, stubs, |py, text| Ok(text.into_pyobject(py)?.into_any().unbind()))
    }

    /// Disconnects from MCP servers. A call of their tools connects again.
    fn close(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let tools = self.tools.clone();
        let close = async move {
            if let Some(tools) = tools {
                tools.close().await;
            }
            Ok(())
        };
        start(on_end, close, |py, ()| Ok(py.None()))
    }
}

/// Returns the policy of a session from JSON.
pub(crate) fn parse_policy(json: &str) -> Result<Value, Error> {
    let invalid = |error: String| Error::new(ErrorKind::Argument, format!("network: {error}"));
    let policy: Value = serde_json::from_str(json).map_err(|error| invalid(error.to_string()))?;
    Policy::from_json(&policy).map_err(|error| invalid(error.to_string()))?;
    Ok(policy)
}
