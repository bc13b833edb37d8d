//! The official conformance suite for clients, both sets of requirements, with all scored checks.

use std::process::Command;

use crate::harness::conformance_suite;

/// Runs the suite against the example `conformance`.
fn run(requirements: &str) {
    let suite = conformance_suite();
    // Cargo builds the examples along with the tests, next to their directory.
    let tests = std::env::current_exe().unwrap();
    let client = tests.ancestors().nth(2).unwrap().join("examples/conformance");
    assert!(client.exists(), "{} is not there: run `cargo test -p belljar-mcp-client`", client.display());
    let results = tempfile::tempdir().unwrap();
    let mut command = isolated();
    command
        .arg(suite.join(".bin/node"))
        .arg(suite.join("@modelcontextprotocol/conformance/dist/index.js"))
        .args(["client", "--requirements", requirements, "--command"])
        .arg(client)
        .arg("--output-dir")
        .arg(results.path());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    // The exit status covers the scored checks only. The suite also runs extensions and scenarios newer than the
    // revision.
    assert!(output.status.success(), "{text}");
    let total = text.lines().find_map(|line| line.strip_prefix("Total: ")).unwrap_or_else(|| panic!("{text}"));
    let passed: usize = total.split(' ').next().unwrap().parse().unwrap();
    assert!(passed >= 300, "only {passed} checks passed:\n{text}");
}

/// Returns a command in a network namespace, if the system allows it: the suite's servers listen on all interfaces.
fn isolated() -> Command {
    let allowed = Command::new("unshare").args(["-rn", "true"]).output().is_ok_and(|output| output.status.success());
    if allowed {
        let mut command = Command::new("unshare");
        command.args(["-rn", "sh", "-c", r#"ip link set lo up 2>/dev/null || true; exec "$@""#, "sh"]);
        return command;
    }
    eprintln!("no network namespace can be made here: the suite's servers listen on all interfaces");
    Command::new("env")
}

#[test]
fn the_requirements_of_2025_11_25_are_met() {
    run("2025-11-25");
}

#[test]
fn the_requirements_of_2026_07_28_are_met() {
    run("2026-07-28");
}
