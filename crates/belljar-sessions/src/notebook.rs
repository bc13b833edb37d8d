//! Notebooks (nbformat 4.5): cells with their outputs, read and written.

use serde_json::{Map, Value, json};

use belljar_core::kernel::{Bundle, End, Executed, Output, Stream};

/// Cells of a notebook that are read.
const MOST_CELLS: usize = 10_000;

/// A cell that was run, as a notebook holds it.
pub fn code_cell(code: &str, executed: &Executed) -> Value {
    let mut outputs: Vec<Value> = executed.outputs.iter().map(|output| output_of(output, executed.count)).collect();
    match &executed.end {
        End::Success => {}
        End::Raised { error, traceback } => outputs.push(error_of(error, traceback)),
        End::Died(reason) => outputs.push(error_of(reason, &[])),
    }
    json!({
        "cell_type": "code",
        "execution_count": executed.count,
        "metadata": {},
        "outputs": outputs,
        "source": lines(code),
    })
}

fn output_of(output: &Output, count: u64) -> Value {
    match output {
        Output::Text { stream, text } => {
            let name = if *stream == Stream::Stdout { "stdout" } else { "stderr" };
            json!({ "output_type": "stream", "name": name, "text": lines(text) })
        }
        Output::Shown(bundle) => json!({ "output_type": "display_data", "data": data(bundle), "metadata": {} }),
        Output::Value(bundle) => json!({
            "output_type": "execute_result", "execution_count": count, "data": data(bundle), "metadata": {},
        }),
    }
}

fn error_of(error: &str, traceback: &[String]) -> Value {
    let (name, value) = error.split_once(": ").unwrap_or((error, ""));
    json!({ "output_type": "error", "ename": name, "evalue": value, "traceback": traceback })
}

/// Text forms as lists of lines, as notebooks have them; JSON as it is.
fn data(bundle: &Bundle) -> Map<String, Value> {
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

/// A notebook of these cells.
pub fn of_cells(cells: Vec<Value>) -> Value {
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

/// Cells have names since nbformat 4.5.
fn with_id(mut cell: Value, number: usize) -> Value {
    if let Some(cell) = cell.as_object_mut() {
        cell.entry("id").or_insert_with(|| format!("cell-{number}").into());
    }
    cell
}

/// A notebook whose code cells can be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Notebook {
    whole: Value,
}

impl Notebook {
    /// Reads a notebook.
    ///
    /// # Errors
    /// When it is not one of format 4, in words that say what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let whole: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
        if whole["nbformat"].as_u64() != Some(4) {
            return Err(
                "it is no notebook of format 4; `jupyter nbconvert --to notebook` makes one of older ones".into()
            );
        }
        let cells = whole["cells"].as_array().ok_or("it has no list of cells")?;
        if cells.len() > MOST_CELLS {
            return Err(format!("it has {} cells, and at most {MOST_CELLS} are run", cells.len()));
        }
        for (number, cell) in (1..).zip(cells) {
            if !cell.is_object() || source(cell).is_none() {
                return Err(format!("cell {number} has no source"));
            }
        }
        Ok(Self { whole })
    }

    /// The places and sources of the code cells.
    pub fn code(&self) -> Vec<(usize, String)> {
        let cells = self.whole["cells"].as_array().map_or(&[][..], Vec::as_slice);
        let code = cells.iter().enumerate().filter(|(_, cell)| cell["cell_type"] == "code");
        code.map(|(place, cell)| (place, source(cell).unwrap_or_default())).collect()
    }

    /// Puts what running a cell came to in its place; what else the cell has stays.
    pub fn set(&mut self, place: usize, executed: &Executed) {
        let ran = code_cell("", executed);
        if let Some(cell) = self.whole["cells"].get_mut(place).and_then(Value::as_object_mut) {
            for name in ["execution_count", "outputs"] {
                cell.insert(name.into(), ran[name].clone());
            }
        }
    }

    /// Takes away the outputs of a cell, which was not run.
    pub fn clear(&mut self, place: usize) {
        if let Some(cell) = self.whole["cells"].get_mut(place).and_then(Value::as_object_mut) {
            cell.insert("execution_count".into(), Value::Null);
            cell.insert("outputs".into(), json!([]));
        }
    }

    /// The notebook as its file's text.
    pub fn text(&self) -> String {
        let text = serde_json::to_string_pretty(&self.whole).unwrap_or_default();
        format!("{text}\n")
    }
}

/// A cell's source: one text, or a list of lines.
fn source(cell: &Value) -> Option<String> {
    match &cell["source"] {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => lines.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_take_the_place_of_those_before_and_the_rest_stays() {
        let text = r##"{"nbformat": 4, "nbformat_minor": 5, "metadata": {"x": 1}, "cells": [
            {"cell_type": "markdown", "source": "# Title", "metadata": {}, "id": "a"},
            {"cell_type": "code", "source": ["1\n", "2"], "metadata": {"tags": ["t"]}, "id": "b", "outputs": [{"old": 1}], "execution_count": 9}
        ]}"##;
        let mut notebook = Notebook::parse(text).unwrap();
        assert_eq!(notebook.code(), [(1, "1\n2".to_owned())]);
        let value = Bundle::from([("text/plain".into(), Value::from("2"))]);
        let executed = Executed { count: 1, end: End::Success, outputs: vec![Output::Value(value)] };
        notebook.set(1, &executed);
        let whole: Value = serde_json::from_str(&notebook.text()).unwrap();
        assert_eq!(whole["cells"][1]["outputs"][0]["data"]["text/plain"], json!(["2"]));
        assert_eq!(
            (&whole["cells"][1]["execution_count"], &whole["cells"][1]["metadata"]["tags"][0]),
            (&json!(1), &json!("t"))
        );
        assert_eq!((&whole["metadata"]["x"], &whole["cells"][0]["source"]), (&json!(1), &json!("# Title")));
    }

    #[test]
    fn what_is_no_notebook_is_refused_in_words() {
        for (text, wanted) in [
            ("x", "no JSON"),
            (r#"{"nbformat": 3}"#, "format 4"),
            (r#"{"nbformat": 4}"#, "list of cells"),
            (r#"{"nbformat": 4, "cells": [{"cell_type": "code", "source": [1]}]}"#, "cell 1 has no source"),
        ] {
            assert!(Notebook::parse(text).unwrap_err().contains(wanted), "{text}");
        }
    }
}
