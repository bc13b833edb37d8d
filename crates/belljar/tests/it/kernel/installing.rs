//! `belljar kernel install` and its errors.

use serde_json::{Value, json};

use crate::harness::{Belljar, program};

#[test]
fn kernelspec_contains_the_start_command() {
    let prefix = tempfile::tempdir().unwrap();
    let install = ["kernel", "install", "--name", "science", "--display-name", "Science", "--prefix"];
    let run = Belljar::without_cache().args(install).arg(prefix.path()).args(["--", "--memory", "4GB"]).run();
    assert_eq!(run.status, Some(0), "{run:?}");
    let path = prefix.path().join("share/jupyter/kernels/science/kernel.json");
    let spec: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let argv = ["kernel", "run", "-f", "{connection_file}", "--sandbox", "wasm", "--memory", "4GB"];
    assert_eq!(spec["argv"].as_array().unwrap()[1..], argv.map(Value::from));
    assert_eq!(spec["argv"][0], program());
    assert_eq!((&spec["display_name"], &spec["language"]), (&json!("Science"), &json!("python")));
    assert_eq!(spec["interrupt_mode"], "message");
}

#[test]
fn kernels_of_a_user_are_listed_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let belljar = |args: &[&str]| {
        let belljar = Belljar::without_cache().args(args).env("JUPYTER_DATA_DIR", home.path());
        belljar.env("VIRTUAL_ENV", home.path().join("none")).run()
    };
    assert_eq!(belljar(&["kernel", "install"]).status, Some(0));
    let listed = belljar(&["kernel", "list"]);
    assert!(listed.stdout.starts_with("belljar ") && listed.stdout.contains("Python (Belljar)"), "{listed:?}");
    assert_eq!(belljar(&["kernel", "uninstall"]).status, Some(0));
    assert_eq!(belljar(&["kernel", "list"]).stdout, "");
    let again = belljar(&["kernel", "uninstall"]);
    assert!(again.status == Some(2) && again.stderr.contains("does not exist"), "{again:?}");
}

#[test]
fn unknown_kernel_options_are_refused() {
    let prefix = tempfile::tempdir().unwrap();
    let run = Belljar::without_cache().args(["kernel", "install", "--prefix"]).arg(prefix.path());
    let run = run.args(["--", "--memroy", "4GB"]).run();
    assert!(run.status == Some(2) && run.stderr.contains("--memroy"), "{run:?}");
    assert_eq!(std::fs::read_dir(prefix.path()).unwrap().count(), 0);
}

#[test]
fn invalid_connection_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("connection.json");
    std::fs::write(&file, "{}").unwrap();
    let run = Belljar::new().args(["kernel", "run", "-f"]).arg(&file).run();
    assert!(run.status == Some(2) && run.stderr.contains("connection.json"), "{run:?}");
}
