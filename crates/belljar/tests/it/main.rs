//! Tests of the whole program from outside, and of the library as a server uses it.
//!
//! All tests are in one binary, so that it is linked once and CPython is compiled once; see [`harness`]. Tests that
//! need a capability of the machine are in `tests/capabilities`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[macro_use]
mod isolations;

mod apps;
#[cfg(unix)]
mod attacked_interpreters;
mod audit;
mod cells;
mod cluster;
mod command_line;
mod console;
mod deployment;
mod fuzz_corpora;
mod hostile;
mod kernel;
mod library;
mod monty;
#[cfg(unix)]
mod native_setup;
mod network;
mod packages;
mod runtime_files;
mod serve;
mod sessions;
mod snippets;
mod worker;

#[cfg(unix)]
#[path = "../attacks/mod.rs"]
mod attacks;
#[path = "../support/certificates.rs"]
mod certificates;
#[path = "../support/code_execution.rs"]
mod code_execution;
#[path = "../support/harness.rs"]
#[allow(dead_code, reason = "shared with the tests in `capabilities`")]
mod harness;
#[path = "../support/jupyter.rs"]
mod jupyter;
#[path = "../support/monty_worker.rs"]
mod monty_worker;
#[path = "../support/network_servers.rs"]
mod network_servers;
#[path = "../support/operator.rs"]
mod operator;
#[path = "../support/otlp_receiver.rs"]
mod otlp_receiver;
#[path = "../support/tool_client.rs"]
mod tool_client;
#[path = "../support/tool_servers.rs"]
#[allow(dead_code, reason = "shared with a benchmark, which uses more of it")]
mod tool_servers;
#[path = "../support/wheels.rs"]
mod wheels;
#[path = "../support/wire.rs"]
mod wire;

use harness::Belljar;

#[test]
fn harness_runs_the_program() {
    let run = Belljar::run_with(["-c", "print(6 * 7)"]);
    assert_eq!((run.status, run.stdout.as_str(), run.stderr.as_str()), (Some(0), "42\n", ""));
    let (json, status) = Belljar::new().args(["run", "--json", "-c", "6 * 7"]).json();
    assert_eq!((json["value"].as_i64(), status), (Some(42), Some(0)));
}
