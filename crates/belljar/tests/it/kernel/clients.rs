//! Jupyter's own programs, which run cells.

use crate::jupyter::Installed;
use crate::tool_client::tool_server;

#[test]
fn jupyter_kernel_test_passes() {
    let output = Installed::new().run("conformance.py", &[]);
    assert!(output.contains("Ran 13 tests") && !output.contains("skipped"), "{output}");
}

#[test]
fn frontend_over_tcp_gets_all_it_needs() {
    Installed::new().run("client.py", &["tcp"]);
}

#[test]
fn frontend_over_unix_sockets_gets_all_it_needs() {
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
fn cells_call_tools() {
    Installed::with_options(&[&tool_server("t", "plain")]).run("tools.py", &[]);
}

#[test]
fn kernel_ends_with_its_frontend() {
    Installed::new().run("orphan.py", &[]);
}

#[test]
fn missing_python_is_reported_in_the_notebook() {
    let empty = tempfile::tempdir().unwrap();
    Installed::with_options(&["--offline", "--cache", empty.path().to_str().unwrap()]).run("without_python.py", &[]);
}
