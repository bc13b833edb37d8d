//! Programs of Jupyter's that run cells.

use super::Installed;

#[test]
fn jupyters_own_tests_of_kernels_pass() {
    let told = Installed::new().run("conformance.py", &[]);
    assert!(told.contains("Ran 13 tests") && !told.contains("skipped"), "{told}");
}

#[test]
fn they_pass_for_native_kernels_which_run_notebooks_too() {
    let Some(installed) = Installed::native() else { return };
    let told = installed.run("conformance.py", &[]);
    assert!(told.contains("Ran 13 tests") && !told.contains("skipped"), "{told}");
    installed.run("notebook.py", &[]);
}

#[test]
fn a_frontend_over_tcp_finds_all_that_it_needs() {
    Installed::new().run("client.py", &["tcp"]);
}

#[test]
fn a_frontend_over_unix_sockets_does_too() {
    let installed = Installed::new();
    installed.run("client.py", &["ipc"]);
    let left = std::fs::read_dir(installed.prefix.path()).unwrap().flatten().map(|entry| entry.file_name());
    let sockets: Vec<_> = left.filter(|name| name.to_string_lossy().contains("ipc-")).collect();
    assert!(sockets.is_empty(), "sockets are left: {sockets:?}");
}

#[test]
fn nbclient_runs_a_notebook() {
    Installed::new().run("notebook.py", &[]);
}

#[test]
fn a_kernel_ends_with_the_frontend_that_started_it() {
    Installed::new().run("orphan.py", &[]);
}

#[test]
fn a_kernel_that_cannot_have_python_says_so_in_the_notebook() {
    let empty = tempfile::tempdir().unwrap();
    Installed::with(&["--offline", "--cache", empty.path().to_str().unwrap()]).run("without_python.py", &[]);
}
