//! Reads and writes notebooks (nbformat 4.5).

use serde_json::{Map, Value, json};

use belljar_core::kernel::CellError;
use belljar_core::mime::MimeBundle;
use belljar_core::{CellResult, Limits, Output, Stream};

/// The name of Belljar's object in the metadata of a cell, which nbformat leaves to applications.
const METADATA: &str = "belljar";
/// The maximum number of cells of a notebook.
const MAX_CELLS: usize = 10_000;

/// Returns the notebook form of a cell that was run.
pub fn code_cell(code: &str, result: &CellResult, limits: &Limits) -> Value {
    let outputs = result.outputs.iter().map(|output| notebook_output(output, result.execution_count));
    let outputs: Vec<Value> = outputs.chain(result.status.error(limits).as_ref().map(error_output)).collect();
    json!({
        "cell_type": "code",
        "execution_count": result.execution_count,
        "metadata": {},
        "outputs": outputs,
        "source": lines(code),
    })
}

fn notebook_output(output: &Output, count: u64) -> Value {
    match output {
        Output::Text { stream, text } => {
            let name = if *stream == Stream::Stdout { "stdout" } else { "stderr" };
            json!({ "output_type": "stream", "name": name, "text": lines(text) })
        }
        Output::Display(bundle) => json!({ "output_type": "display_data", "data": data(bundle), "metadata": {} }),
        Output::ExecuteResult(bundle) => json!({
            "output_type": "execute_result", "execution_count": count, "data": data(bundle), "metadata": {},
        }),
    }
}

fn error_output(error: &CellError) -> Value {
    json!({ "output_type": "error", "ename": error.name, "evalue": error.message, "traceback": error.traceback })
}

/// Returns the data of a MIME bundle in notebook form: text as a list of lines, JSON unchanged.
fn data(bundle: &MimeBundle) -> Map<String, Value> {
    let form = |(mime, value): (&String, &Value)| {
        let value = match value.as_str() {
            Some(text) if mime.starts_with("text/") || mime.ends_with("+xml") => lines(text),
            _ => value.clone(),
        };
        (mime.clone(), value)
    };
    bundle.iter().map(form).collect()
}

fn lines(text: &str) -> Value {
    text.split_inclusive('\n').collect()
}

/// Returns a notebook of these cells.
pub fn from_cells(cells: Vec<Value>) -> Value {
    let cells: Vec<Value> = (1..).zip(cells).map(|(number, cell)| with_id(cell, number)).collect();
    json!({
        "cells": cells,
        "metadata": {
            "kernelspec": { "display_name": "Python 3", "language": "python", "name": "python3" },
            "language_info": { "name": "python", "file_extension": ".py", "mimetype": "text/x-python" },
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    })
}

/// Adds an ID to a cell, which nbformat 4.5 requires.
fn with_id(mut cell: Value, number: usize) -> Value {
    if let Some(cell) = cell.as_object_mut() {
        cell.entry("id").or_insert_with(|| format!("cell-{number}").into());
    }
    cell
}

/// The error of a text that is not a usable notebook.
#[derive(Debug, thiserror::Error)]
pub enum NotebookError {
    /// The text is not JSON.
    #[error("not a JSON document: {0}")]
    Json(#[from] serde_json::Error),
    /// The notebook has another format than 4, or the document is not a notebook.
    #[error("not a notebook of format 4")]
    UnsupportedFormat,
    /// The notebook does not have a list of cells.
    #[error("the notebook has no list of cells")]
    NoCells,
    /// The notebook has too many cells: this number.
    #[error("the notebook has {0} cells; the maximum is {MAX_CELLS}")]
    TooManyCells(usize),
    /// The cell of this number does not have a source.
    #[error("cell {0} has no source")]
    NoSource(usize),
}

/// A notebook whose code cells can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Notebook {
    content: Value,
}

impl Notebook {
    /// Parses a notebook.
    ///
    /// # Errors
    /// Fails if the text is not a notebook of format 4.
    pub fn parse(text: &str) -> Result<Self, NotebookError> {
        let content: Value = serde_json::from_str(text)?;
        if content["nbformat"].as_u64() != Some(4) {
            return Err(NotebookError::UnsupportedFormat);
        }
        let cells = content["cells"].as_array().ok_or(NotebookError::NoCells)?;
        if cells.len() > MAX_CELLS {
            return Err(NotebookError::TooManyCells(cells.len()));
        }
        for (number, cell) in (1..).zip(cells) {
            if !cell.is_object() || source(cell).is_none() {
                return Err(NotebookError::NoSource(number));
            }
        }
        Ok(Self { content })
    }

    /// Returns the indices and sources of the code cells.
    pub fn code(&self) -> Vec<(usize, String)> {
        let cells = self.content["cells"].as_array().map_or(&[][..], Vec::as_slice);
        let code = cells.iter().enumerate().filter(|(_, cell)| cell["cell_type"] == "code");
        code.map(|(index, cell)| (index, source(cell).unwrap_or_default())).collect()
    }

    /// Replaces the outputs and the execution count of a cell, and removes what an earlier run has noted in its
    /// metadata; the rest of the cell stays.
    pub fn set_result(&mut self, index: usize, result: &CellResult, limits: &Limits) {
        let cell_with_outputs = code_cell("", result, limits);
        if let Some(cell) = self.content["cells"].get_mut(index).and_then(Value::as_object_mut) {
            for name in ["execution_count", "outputs"] {
                cell.insert(name.into(), cell_with_outputs[name].clone());
            }
            remove_notes(cell);
        }
    }

    /// Notes facts about the run of a cell, such as its calls of tools, in its metadata.
    pub fn set_notes(&mut self, index: usize, notes: Map<String, Value>) {
        if let Some(cell) = self.content["cells"].get_mut(index).and_then(Value::as_object_mut) {
            let metadata = cell.entry("metadata").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert(METADATA.into(), notes.into());
            }
        }
    }

    /// Removes what a run has added to a cell that was not run this time.
    pub fn clear_outputs(&mut self, index: usize) {
        if let Some(cell) = self.content["cells"].get_mut(index).and_then(Value::as_object_mut) {
            cell.insert("execution_count".into(), Value::Null);
            cell.insert("outputs".into(), json!([]));
            remove_notes(cell);
        }
    }

    /// Returns the content of the notebook's file.
    pub fn text(&self) -> String {
        let text = serde_json::to_string_pretty(&self.content).unwrap_or_default();
        format!("{text}\n")
    }
}

fn remove_notes(cell: &mut Map<String, Value>) {
    if let Some(metadata) = cell.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.shift_remove(METADATA);
    }
}

/// Returns the source of a cell, which a notebook contains as one string or as a list of lines.
fn source(cell: &Value) -> Option<String> {
    match &cell["source"] {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => lines.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use belljar_core::CellStatus;

    use super::*;

    #[test]
    fn set_result_replaces_outputs_and_keeps_the_rest() {
        let text = r##"{"nbformat": 4, "nbformat_minor": 5, "metadata": {"x": 1}, "cells": [
            {"cell_type": "markdown", "source": "# Title", "metadata": {}, "id": "a"},
            {"cell_type": "code", "source": ["1\n", "2"], "metadata": {"tags": ["t"]}, "id": "b", "outputs": [{"old": 1}], "execution_count": 9}
        ]}"##;
        let mut notebook = Notebook::parse(text).unwrap();
        assert_eq!(notebook.code(), [(1, "1\n2".to_owned())]);
        let value = MimeBundle::from([("text/plain".into(), Value::from("2"))]);
        let result =
            CellResult { execution_count: 1, status: CellStatus::Ok, outputs: vec![Output::ExecuteResult(value)] };
        notebook.set_result(1, &result, &Limits::default());
        let whole: Value = serde_json::from_str(&notebook.text()).unwrap();
        assert_eq!(whole["cells"][1]["outputs"][0]["data"]["text/plain"], json!(["2"]));
        assert_eq!(
            (&whole["cells"][1]["execution_count"], &whole["cells"][1]["metadata"]["tags"][0]),
            (&json!(1), &json!("t"))
        );
        assert_eq!((&whole["metadata"]["x"], &whole["cells"][0]["source"]), (&json!(1), &json!("# Title")));
    }

    #[test]
    fn notes_are_those_of_the_last_run() {
        let text = r#"{"nbformat": 4, "metadata": {}, "cells": [
            {"cell_type": "code", "source": "1", "metadata": {"tags": [], "belljar": {"calls": [1]}}},
            {"cell_type": "code", "source": "2", "metadata": {"belljar": {"calls": [2]}}},
            {"cell_type": "code", "source": "3"}
        ]}"#;
        let mut notebook = Notebook::parse(text).unwrap();
        let result = CellResult { execution_count: 1, status: CellStatus::Ok, outputs: Vec::new() };
        notebook.set_result(0, &result, &Limits::default());
        notebook.clear_outputs(1);
        notebook.set_notes(2, json!({ "calls": [3] }).as_object().unwrap().clone());
        let whole: Value = serde_json::from_str(&notebook.text()).unwrap();
        let metadata = [0, 1, 2].map(|index| whole["cells"][index]["metadata"].clone());
        assert_eq!(metadata, [json!({ "tags": [] }), json!({}), json!({ "belljar": { "calls": [3] } })]);
    }

    #[test]
    fn invalid_notebooks_are_refused_with_a_reason() {
        for (text, wanted) in [
            ("x", "not a JSON document"),
            (r#"{"nbformat": 3}"#, "format 4"),
            (r#"{"nbformat": 4}"#, "list of cells"),
            (r#"{"nbformat": 4, "cells": [{"cell_type": "code", "source": [1]}]}"#, "cell 1 has no source"),
        ] {
            assert!(Notebook::parse(text).unwrap_err().to_string().contains(wanted), "{text}");
        }
    }
}
