//! Notebooks that are run from the command line.

use serde_json::{Value, json};

use crate::harness::Belljar;

fn notebook(cells: &[&str]) -> String {
    let code = |source: &&str| json!({ "cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": null });
    let mut cells: Vec<Value> = cells.iter().map(code).collect();
    cells.insert(0, json!({ "cell_type": "markdown", "source": "# Title", "metadata": {} }));
    json!({ "nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells }).to_string()
}

#[test]
fn a_notebook_is_run_and_its_outputs_written() {
    let directory = tempfile::tempdir().unwrap();
    let (input, output) = (directory.path().join("in.ipynb"), directory.path().join("out.ipynb"));
    std::fs::write(
        &input,
        notebook(&["x = 6", "%who\nprint('six')\nx * 7", "display({'text/html': '<b>'}, raw=True)"]),
    )
    .unwrap();
    let run = Belljar::new().arg("run").arg(&input).arg("-o").arg(&output).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    let ran: Value = serde_json::from_slice(&std::fs::read(&output).unwrap()).unwrap();
    assert_eq!(ran["cells"][0]["source"], "# Title");
    assert_eq!(
        ran["cells"][2]["outputs"][0],
        json!({ "output_type": "stream", "name": "stdout", "text": ["x\t \n", "six\n"] })
    );
    assert_eq!(ran["cells"][2]["outputs"][1]["data"]["text/plain"], json!(["42"]));
    assert_eq!(ran["cells"][2]["execution_count"], 2);
    assert_eq!(ran["cells"][3]["outputs"][0]["data"]["text/html"], json!(["<b>"]));
    let whole: Value = serde_json::from_slice(&std::fs::read(&input).unwrap()).unwrap();
    assert_eq!(whole["cells"][2]["outputs"], json!([]), "the input was written to");
}

#[test]
fn failing_cell_ends_the_run_and_keeps_outputs() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("in.ipynb");
    std::fs::write(&input, notebook(&["print('before')", "1/0", "print('after')"])).unwrap();
    let run = Belljar::new().arg("run").arg(&input).run();
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(run.stderr.contains("cell 3") && run.stderr.contains("ZeroDivisionError: division by zero"), "{run:?}");
    let ran: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"));
    assert_eq!(ran["cells"][1]["outputs"][0]["text"], json!(["before\n"]));
    assert_eq!(ran["cells"][2]["outputs"][0]["ename"], "ZeroDivisionError");
    assert_eq!(ran["cells"][3]["outputs"], json!([]));
}

#[test]
fn invalid_notebook_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("in.ipynb");
    std::fs::write(&input, "{}").unwrap();
    let run = Belljar::new().arg("run").arg(&input).run();
    assert!(run.status == Some(2) && run.stderr.contains("not a notebook of format 4"), "{run:?}");
}

#[test]
fn options_may_follow_the_notebook() {
    let directory = tempfile::tempdir().unwrap();
    let (input, output) = (directory.path().join("in.ipynb"), directory.path().join("out.ipynb"));
    std::fs::write(&input, notebook(&["while True:\n    pass"])).unwrap();
    let run =
        Belljar::new().arg("run").arg(&input).arg("-o").arg(&output).args(["--timeout", "1.5", "--no-install"]).run();
    assert_eq!(run.status, Some(1), "{run:?}");
    assert!(run.stderr.contains("ran longer than 1.5 s") && output.exists(), "{run:?}");
}
