//! The official conformance suite for servers: every scored check of both revisions against a server with the suite's
//! fixtures on Belljar's transports, and the checks without fixtures against `belljar` itself.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use belljar_testing::install::run;

use super::fetched::conformance_suite;
use super::http::Listening;

/// The server with the suite's fixtures. It is killed when dropped.
struct Fixtures {
    child: Child,
    url: String,
}

impl Fixtures {
    fn start() -> Self {
        // Cargo builds the examples with the tests, next to their directory.
        let tests = std::env::current_exe().unwrap();
        let server = tests.ancestors().nth(2).unwrap().join("examples/conformance_server");
        assert!(server.exists(), "{} is not there: run `cargo test --workspace`", server.display());
        let mut child = Command::new(server).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let url = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        Self { child, url }
    }
}

impl Drop for Fixtures {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the suite with these arguments and returns its summary.
fn suite(url: &str, arguments: &[&str]) -> String {
    let suite = conformance_suite();
    let results = tempfile::tempdir().unwrap();
    run(Command::new(suite.join(".bin/node"))
        .arg(suite.join("@modelcontextprotocol/conformance/dist/index.js"))
        .args(["server", "--url", url])
        .args(arguments)
        .arg("--output-dir")
        .arg(results.path()))
}

/// Returns the number of checks that passed.
fn passed(text: &str) -> usize {
    let line = text.lines().rev().find_map(|line| line.strip_prefix("Total: "));
    let number = line.and_then(|line| line.split(' ').next()?.parse().ok());
    number.unwrap_or_else(|| panic!("{text}"))
}

fn requirements(revision: &str, least: usize) {
    let server = Fixtures::start();
    // The status depends on scored checks only. Extensions, and scenarios newer than the revision, run as well.
    let text = suite(&server.url, &["--requirements", revision]);
    assert!(passed(&text) >= least, "{text}");
}

#[test]
fn the_requirements_of_2025_11_25_are_met() {
    requirements("2025-11-25", 75);
}

#[test]
fn the_requirements_of_2026_07_28_are_met() {
    requirements("2026-07-28", 140);
}

#[test]
fn conformance_checks_without_fixtures_pass_for_belljar() {
    let server = Listening::start("streamable-http", ["--no-install"]);
    for (revision, scenarios) in [
        (
            "2025-11-25",
            &[
                "server-initialize",
                "logging-set-level",
                "ping",
                "tools-list",
                "server-sse-multiple-streams",
                "server-session-lifecycle",
                "dns-rebinding-protection",
            ][..],
        ),
        ("2026-07-28", &["tools-list", "server-sse-multiple-streams", "dns-rebinding-protection"]),
    ] {
        for scenario in scenarios {
            let text = suite(&server.url, &["--scenario", scenario, "--spec-version", revision]);
            assert!(
                text.contains(" 0 failed, 0 warnings") && !text.contains("Passed: 0/"),
                "{revision} {scenario}:\n{text}"
            );
        }
    }
}
