//! Sandboxes on a Belljar server: the calls of `runtime` and `session`, over streamable HTTP.
//!
//! | file | subject |
//! | --- | --- |
//! | `connection` | connections to a server, and calls of its tools with their output |
//! | `session` | sessions on a server, and their files |

mod connection;
mod session;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::executor::start;
use crate::job::{Job, check_process};
use crate::results;
use crate::runtime::{Request, parse_policy};
use connection::{Answer, CodeCall, Server};
pub(crate) use session::RemoteSession;

/// The settings of a connection.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    token: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The seconds within which the server must accept a connection.
    timeout: f64,
    /// The seconds that a call waits for a server that sends nothing.
    read_timeout: f64,
}

/// A sandbox on a server.
#[pyclass(frozen, module = "belljar._native")]
pub(crate) struct RemoteRuntime {
    server: Arc<Server>,
}

#[pymethods]
impl RemoteRuntime {
    /// Creates a sandbox with these settings, a JSON object. Connects with the first call.
    #[new]
    fn new(settings: &str) -> PyResult<Self> {
        check_process()?;
        let settings: Settings = serde_json::from_str(settings).map_err(|error| argument(error.to_string()))?;
        Ok(Self { server: Arc::new(Server::new(&settings)?) })
    }

    /// Runs code in an interpreter of its own.
    #[pyo3(signature = (request, buffers, callbacks, streams, on_end))]
    fn run(
        &self,
        request: &str,
        buffers: Vec<Bound<'_, PyBytes>>,
        callbacks: Option<Py<PyAny>>,
        streams: bool,
        on_end: Option<Py<PyAny>>,
    ) -> PyResult<Job> {
        let mut request = Request::parse(request)?;
        let report = request.report_request(&buffers);
        let Request { code, packages, timeout, network, .. } = request;
        let arguments = json!({ "python_code": code, "dependencies": packages, "timeout": timeout });
        let client = streams.then(|| Client::new(callbacks, true, None));
        let (server, tool) = (self.server.clone(), "run_python_code");
        let call = CodeCall { tool, arguments, report, network, client };
        start_code(on_end, async move { server.run_code(call).await })
    }

    /// Creates a session, which starts with its first call. `network` is a policy as JSON, which narrows that of the
    /// server.
    fn session(&self, network: Option<&str>) -> PyResult<RemoteSession> {
        Ok(RemoteSession::new(self.server.clone(), network.map(parse_policy).transpose()?))
    }

    /// Fails: a server accepts no dumps.
    fn load(&self, dump: &[u8]) -> PyResult<RemoteSession> {
        let _ = dump;
        let instead = "a server restores no memory that a client sends. Load it with a Sandbox in this process";
        Err(unsupported("load", instead).into())
    }

    /// Connects.
    #[pyo3(signature = (sessions, callbacks, on_end))]
    fn prepare(&self, sessions: bool, callbacks: Option<Py<PyAny>>, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let _ = (sessions, callbacks);
        let server = self.server.clone();
        start(on_end, async move { server.connect().await }, |py, ()| Ok(py.None()))
    }

    /// Closes the connections.
    #[pyo3(signature = (on_end))]
    fn close(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let server = self.server.clone();
        start(on_end, async move { server.close().await }, |py, ()| Ok(py.None()))
    }
}

fn argument(message: String) -> Error {
    Error::new(ErrorKind::Argument, message)
}

/// Returns the error of an operation that servers do not offer, with the reason and what to use instead.
fn unsupported(operation: &str, instead: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{operation}: {instead}"))
}

/// Starts a call that runs code. If its job is cancelled, the request is cancelled on the server.
fn start_code(
    on_end: Option<Py<PyAny>>,
    call: impl Future<Output = Result<Answer, Error>> + Send + 'static,
) -> PyResult<Job> {
    start(on_end, call, |py, Answer { report, uses }| results::to_python(py, report, uses))
}

fn seconds(value: f64, name: &str) -> Result<Duration, Error> {
    let duration = Duration::try_from_secs_f64(value).ok().filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| argument(format!("{name}: {value} is not a positive number of seconds")))
}

/// Returns a text of a result of the server, or an error that names its path.
fn text_at<'a>(value: &'a Value, path: &str) -> Result<&'a str, Error> {
    let missing =
        || Error::new(ErrorKind::Server, format!("the server's answer lacks {path}: is it a Belljar server?"));
    value.pointer(path).and_then(Value::as_str).ok_or_else(missing)
}
