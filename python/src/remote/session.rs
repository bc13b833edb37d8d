//! Sessions on a server. Calls of one session are sent one after the other, in the order in which they were made.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_sessions::{FileAddress, SessionId};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use serde_json::{Value, json};

use super::connection::{CodeCall, Server, network_options};
use super::{start, start_code, text_at, unsupported};
use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::job::Job;
use crate::runtime::Request;

/// The maximum number of bytes of a file in one answer. Base64 makes them a third longer, and clients accept 16 MiB.
const MAX_PART: usize = 8 << 20;

/// A session on a server.
#[pyclass(frozen, module = "belljar._native")]
pub(crate) struct RemoteSession {
    shared: Arc<Shared>,
}

struct Shared {
    server: Arc<Server>,
    /// The policy that narrows the network of the session.
    network: Option<Value>,
    /// Locked while a call of this session is in progress. Callers obtain the lock in order.
    state: tokio::sync::Mutex<State>,
}

enum State {
    /// The first call creates it.
    New,
    Open(SessionId),
    Closed,
}

impl Shared {
    /// Returns the session's ID, after creating it if need be: with an empty cell, so that a first cell that is
    /// cancelled leaves the session usable.
    async fn open(&self, state: &mut State) -> Result<SessionId, Error> {
        match state {
            State::Open(id) => return Ok(id.clone()),
            State::Closed => return Err(Error::new(ErrorKind::Failed, "the session is closed")),
            State::New => {}
        }
        let options = network_options(self.network.clone());
        let answer = self.server.call_with("execute_code", json!({ "code": "" }), options).await?;
        if let Some(error) = answer.get("error").and_then(Value::as_str) {
            return Err(Error::new(ErrorKind::Server, error));
        }
        let id = parse_id(text_at(&answer, "/session_info/session_id")?)?;
        *state = State::Open(id.clone());
        Ok(id)
    }

    /// Calls a tool that has no arguments besides the session.
    async fn call(&self, tool: &str) -> Result<Value, Error> {
        let mut state = self.state.lock().await;
        let id = self.open(&mut state).await?;
        self.server.call(tool, json!({ "session_id": id.as_str() })).await
    }
}

fn parse_id(text: &str) -> Result<SessionId, Error> {
    SessionId::parse(text).ok_or_else(|| Error::new(ErrorKind::Server, "the server sent an invalid session ID"))
}

impl RemoteSession {
    pub(super) fn new(server: Arc<Server>, network: Option<Value>) -> Self {
        Self::with_state(server, network, State::New)
    }

    fn with_state(server: Arc<Server>, network: Option<Value>, state: State) -> Self {
        Self { shared: Arc::new(Shared { server, network, state: tokio::sync::Mutex::new(state) }) }
    }
}

#[pymethods]
impl RemoteSession {
    /// Runs a cell.
    #[pyo3(signature = (request, buffers, callbacks, streams, on_end))]
    fn execute(
        &self,
        request: &str,
        buffers: Vec<Bound<'_, PyBytes>>,
        callbacks: Option<Py<PyAny>>,
        streams: bool,
        on_end: Option<Py<PyAny>>,
    ) -> PyResult<Job> {
        let mut request = Request::parse(request)?;
        let report = request.report_request(&buffers);
        let client = streams.then(|| Client::new(callbacks, true, None));
        let shared = self.shared.clone();
        start_code(on_end, async move {
            let mut state = shared.state.lock().await;
            let id = shared.open(&mut state).await?;
            let arguments = json!({ "code": request.code, "session_id": id.as_str(), "timeout": request.timeout });
            shared.server.run_code(CodeCall { tool: "execute_code", arguments, report, network: None, client }).await
        })
    }

    /// Lists the session's files: their paths and sizes.
    fn list_files(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let shared = self.shared.clone();
        let list = async move {
            let answer = shared.call("list_session_files").await?;
            let files = answer.get("files").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let size = |file: &Value| file.get("size").and_then(Value::as_u64).unwrap_or_default();
            files.iter().map(|file| Ok((text_at(file, "/name")?.to_owned(), size(file)))).collect()
        };
        start(on_end, list, |py, files: Vec<(String, u64)>| Ok(PyList::new(py, files)?.into_any().unbind()))
    }

    /// Reads a file, in parts.
    fn read_file(&self, path: String, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let shared = self.shared.clone();
        let read = async move {
            let mut state = shared.state.lock().await;
            let address = FileAddress::format(&shared.open(&mut state).await?, &path);
            let mut bytes = Vec::new();
            loop {
                let uri = format!("{address}?offset={}&length={MAX_PART}", bytes.len());
                let part = shared.server.read(&uri).await?;
                bytes.extend_from_slice(&part);
                if part.len() < MAX_PART {
                    return Ok(bytes);
                }
            }
        };
        start(on_end, read, |py, bytes: Vec<u8>| Ok(PyBytes::new(py, &bytes).into_any().unbind()))
    }

    /// Writes a file.
    fn write_file(&self, path: String, bytes: Vec<u8>, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let shared = self.shared.clone();
        let write = async move {
            let mut state = shared.state.lock().await;
            let id = shared.open(&mut state).await?;
            let arguments = json!({ "session_id": id.as_str(), "name": path, "base64": STANDARD.encode(bytes) });
            let written = shared.server.call("upload_file", arguments).await;
            written.map_err(|error| Error { kind: ErrorKind::File, ..error })
        };
        start(on_end, write, |py, _| Ok(py.None()))
    }

    /// Creates a session with the same variables and files.
    fn fork(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let shared = self.shared.clone();
        let fork = async move {
            let answer = shared.call("fork_session").await?;
            let id = parse_id(text_at(&answer, "/session_id")?)?;
            Ok(Self::with_state(shared.server.clone(), shared.network.clone(), State::Open(id)))
        };
        start(on_end, fork, |py, session| Ok(Py::new(py, session)?.into_any()))
    }

    /// Fails: a server sends no dumps.
    #[pyo3(signature = (on_end))]
    fn dump(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let _ = on_end;
        let instead = "a server does not send the memory of its sessions. `fork` copies a session there, and \
             files.read returns its files";
        Err(unsupported("dump", instead).into())
    }

    /// Replaces the interpreter by a new one. The files stay.
    fn restart(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let shared = self.shared.clone();
        start(on_end, async move { shared.call("restart_session").await }, |py, _| Ok(py.None()))
    }

    /// Ends the session and deletes its files on the server.
    fn close(&self, on_end: Option<Py<PyAny>>) -> PyResult<Job> {
        let shared = self.shared.clone();
        let close = async move {
            let mut state = shared.state.lock().await;
            match std::mem::replace(&mut *state, State::Closed) {
                State::Open(id) => {
                    shared.server.call("clear_session", json!({ "session_id": id.as_str() })).await.map(drop)
                }
                State::New | State::Closed => Ok(()),
            }
        };
        start(on_end, close, |py, ()| Ok(py.None()))
    }
}
