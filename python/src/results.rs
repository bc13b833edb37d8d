//! Results as Python objects: dictionaries, which the Python code turns into its own types.

use belljar_core::kernel::CellError;
use belljar_core::mime::{Image, MimeBundle};
use belljar_core::{
    CellResult, CellStatus, EncodedValue, ExitReason, LimitKind, Limits, MissingDependency, Obstacle, Outcome, Output,
    RunReport, Statistics, Stream,
};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList};

use crate::client::Client;

/// Returns the result of a run.
pub(crate) fn of_run(py: Python<'_>, report: RunReport, client: &Client) -> PyResult<Py<PyAny>> {
    let result = PyDict::new(py);
    match report.outcome {
        Outcome::Success(value) => {
            result.set_item("status", "success")?;
            if let Some(value) = value {
                result.set_item("json", value.strict_json.as_ref().unwrap_or(&value.json))?;
                result.set_item("value", value.json)?;
                result.set_item("buffers", byte_arrays(py, &report.buffers)?)?;
            }
        }
        Outcome::Error(error) => {
            result.set_item("status", "error")?;
            result.set_item("error", (error.kind, error.message, error.traceback))?;
        }
        Outcome::Exited(reason) => set_exit(&result, &reason, &report.limits)?,
        Outcome::InstallError(reason) => {
            result.set_item("status", "install-error")?;
            result.set_item("error", ("InstallError", reason, ""))?;
        }
    }
    if let Some(missing) = &report.missing_dependency {
        result.set_item("hint", hint(missing))?;
    }
    result.set_item("dependencies", report.dependencies)?;
    set_statistics(&result, &report.statistics)?;
    set_images(py, &result, report.images.iter())?;
    let pieces = std::mem::take(&mut *client.output.lock());
    let pieces = pieces.iter().map(|(stream, bytes)| (*stream == Stream::Stdout, String::from_utf8_lossy(bytes)));
    result.set_item("output", PyList::new(py, pieces)?)?;
    result.set_item("installed", client.installed.lock().take())?;
    Ok(result.into_any().unbind())
}

/// Returns the result of a cell. `limits` are those that held.
pub(crate) fn of_cell(
    py: Python<'_>,
    cell: CellResult,
    limits: &Limits,
    statistics: &Statistics,
    client: &Client,
) -> PyResult<Py<PyAny>> {
    let result = PyDict::new(py);
    match &cell.status {
        CellStatus::Ok => result.set_item("status", "success")?,
        CellStatus::Error(CellError { name, message, traceback }) => {
            result.set_item("status", "error")?;
            result.set_item("error", (name, message, traceback.join("\n")))?;
        }
        CellStatus::TimedOut { traceback, .. } => {
            set_exit(&result, &ExitReason::Limit(LimitKind::WallTime), limits)?;
            let message = cell.status.error(limits).map(|error| error.message).unwrap_or_default();
            result.set_item("error", ("TimeoutError", message, traceback.join("\n")))?;
        }
        CellStatus::KernelDied(reason) => set_exit(&result, reason, limits)?,
    }
    if let Some(EncodedValue { json, buffers }) = client.value.lock().take() {
        result.set_item("value", json.get())?;
        result.set_item("buffers", byte_arrays(py, &buffers)?)?;
    }
    set_statistics(&result, statistics)?;
    let bundles = cell.outputs.iter().filter_map(|output| match output {
        Output::Display(bundle) | Output::ExecuteResult(bundle) => Some(bundle),
        Output::Text { .. } => None,
    });
    let images: Vec<Image> = bundles.clone().filter_map(Image::from_bundle).collect();
    set_images(py, &result, images.iter())?;
    let displays = bundles.map(to_json).collect::<Vec<_>>();
    result.set_item("displays", displays)?;
    let text = cell.outputs.iter().rev().find_map(|output| match output {
        Output::ExecuteResult(bundle) => belljar_core::mime::text_plain(bundle),
        _ => None,
    });
    result.set_item("text", text)?;
    let pieces = cell.outputs.iter().filter_map(|output| match output {
        Output::Text { stream, text } => Some((*stream == Stream::Stdout, text)),
        _ => None,
    });
    result.set_item("output", PyList::new(py, pieces)?)?;
    result.set_item("installed", client.installed.lock().take())?;
    result.set_item("number", cell.execution_count)?;
    Ok(result.into_any().unbind())
}

fn to_json(bundle: &MimeBundle) -> String {
    serde_json::to_string(bundle).unwrap_or_else(|_| "{}".into())
}

fn set_exit(result: &Bound<'_, PyDict>, reason: &ExitReason, limits: &Limits) -> PyResult<()> {
    let error = reason.to_cell_error(limits);
    let status = match reason {
        ExitReason::Limit(limit) => {
            result.set_item("limit", limit.name())?;
            "limit"
        }
        ExitReason::Exit(code) => {
            result.set_item("exit_code", code)?;
            "exit"
        }
        ExitReason::Cancelled => "cancelled",
        ExitReason::Signal(_) | ExitReason::Crash(_) => "crash",
    };
    result.set_item("status", status)?;
    // The texts are those of cells.
    let message = error.message.replace("the cell", "the code");
    result.set_item("error", (error.name, message, ""))
}

fn set_statistics(result: &Bound<'_, PyDict>, statistics: &Statistics) -> PyResult<()> {
    let Statistics { start, run, peak_memory } = statistics;
    result.set_item("stats", (start.as_secs_f64(), run.as_secs_f64(), *peak_memory))
}

fn set_images<'a>(py: Python<'_>, result: &Bound<'_, PyDict>, images: impl Iterator<Item = &'a Image>) -> PyResult<()> {
    let images: Vec<_> = images.map(|image| (image.format.mime_type(), PyBytes::new(py, &image.bytes()))).collect();
    result.set_item("images", images)
}

/// Returns the buffers of a value: byte arrays, so that arrays that use them can be changed.
fn byte_arrays<'py>(py: Python<'py>, buffers: &[Vec<u8>]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, buffers.iter().map(|bytes| PyByteArray::new(py, bytes)))
}

/// Returns what to do about a package that the code lacked.
fn hint(MissingDependency { module, package, obstacle }: &MissingDependency) -> String {
    match obstacle {
        Obstacle::DeclaredByCode => {
            format!("add {package}, which provides {module}, to the dependencies of the `# /// script` block")
        }
        Obstacle::Effects => format!("packages=[{package:?}] installs {module} ahead of time"),
        Obstacle::NotInstallable(reason) => format!("{module} cannot be installed: {reason}"),
    }
}
