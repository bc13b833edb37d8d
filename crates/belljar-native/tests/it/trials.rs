//! Tests of native kernels through the interface that sessions use: real kernels, with every policy of the sandbox.
//!
//! The program is the launcher of its sandboxes, so it has a `main`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests panic when they fail")]

mod cells;
mod environments;
mod files;
mod harness;
mod network;
mod packages;
mod rich_output;
mod shell_requests;
mod termination;

use std::process::ExitCode;

use belljar_testing::Trial;

pub(crate) fn main() -> ExitCode {
    belljar_sandbox::run_fork_server_if_child();
    if let [_, part, folder] = std::env::args().collect::<Vec<_>>().as_slice()
        && part == environments::PART
    {
        environments::make(folder);
        return ExitCode::SUCCESS;
    }
    let trials: Vec<Trial> = [
        cells::trials(),
        shell_requests::trials(),
        rich_output::trials(),
        termination::trials(),
        files::trials(),
        packages::trials(),
        network::trials(),
        environments::trials(),
    ]
    .into_iter()
    .flatten()
    .collect();
    let status = belljar_testing::run(trials);
    network::end();
    harness::end();
    status
}
