//! Results as Python objects: dictionaries, which the Python code turns into its own types.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::mime::MimeBundle;
use belljar_core::{Buffer, RecordedConnections, Report, ReportError, ReportValue};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList};

use crate::client::Client;
use crate::paused::{self, PausedCode};
use crate::tools::{self, Call};

/// The tools and connections of the host that code has used.
#[derive(Default)]
pub(crate) struct HostUses {
    /// The calls of tools of MCP servers.
    pub(crate) calls: Vec<Call>,
    /// The connections.
    pub(crate) connections: RecordedConnections,
}

/// Returns a report as a dictionary, with what the code has used of the host.
pub(crate) fn to_python(py: Python<'_>, report: Report, calls: HostUses) -> PyResult<Py<PyAny>> {
    let result = PyDict::new(py);
    result.set_item("status", report.status.name())?;
    if let Some(ReportError { name, message, traceback }) = report.error {
        result.set_item("error", (name, message, traceback))?;
    }
    if let Some(ReportValue { json, is_encoded, strict_json, buffers }) = report.value {
        if !is_encoded {
            result.set_item("json", strict_json.as_ref().unwrap_or(&json))?;
        }
        result.set_item("value", json)?;
        result.set_item("is_encoded", is_encoded)?;
        result.set_item("buffers", byte_arrays(py, &buffers)?)?;
    }
    result.set_item("exit_code", report.exit_code)?;
    result.set_item("limit", report.limit)?;
    result.set_item("hint", report.hint)?;
    result.set_item("packages", report.packages)?;
    let (start, run) = report.seconds;
    result.set_item("stats", (start, run, report.peak_memory))?;
    let images = report.images.iter().map(|image| {
        // The bytes were checked where the image was received from the guest. A server's may be anything.
        (&image.mime_type, PyBytes::new(py, &STANDARD.decode(&image.base64).unwrap_or_default()))
    });
    result.set_item("images", PyList::new(py, images.collect::<Vec<_>>())?)?;
    result.set_item("displays", report.displays.iter().map(to_json).collect::<Vec<_>>())?;
    result.set_item("text", report.text)?;
    result.set_item("output", PyList::new(py, report.output)?)?;
    let HostUses { calls, connections } = calls;
    if !connections.is_empty() {
        let json = serde_json::to_string(&connections.connections).unwrap_or_default();
        result.set_item("connections", json)?;
    }
    if !calls.is_empty() {
        result.set_item("tool_calls", tools::to_python(py, calls)?)?;
    }
    Ok(result.into_any().unbind())
}

/// Returns code that is paused as a dictionary like that of a report.
pub(crate) fn paused_to_python(py: Python<'_>, client: &Client, code: PausedCode) -> PyResult<Py<PyAny>> {
    let result = paused::describe(py, client.output(), client.deferred())?;
    result.bind(py).set_item("paused", Py::new(py, code)?)?;
    Ok(result)
}

fn to_json(bundle: &MimeBundle) -> String {
    serde_json::to_string(bundle).unwrap_or_else(|_| "{}".into())
}

/// Returns the buffers of a value: byte arrays, so that arrays that use them can be changed.
pub(crate) fn byte_arrays<'py>(py: Python<'py>, buffers: &[Buffer]) -> PyResult<Bound<'py, PyList>> {
    let array = |buffer: &Buffer| {
        PyByteArray::new_with(py, buffer.len(), |bytes| {
            buffer.copy_to(bytes);
            Ok(())
        })
    };
    PyList::new(py, buffers.iter().map(array).collect::<PyResult<Vec<_>>>()?)
}
