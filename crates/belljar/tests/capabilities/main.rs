//! Tests that need a capability which not every machine has. Without it they are ignored; see `belljar-testing`.
//!
//! The program has a `main` of its own, since libtest cannot ignore a test at run time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod apps;
mod attacked_kernels;
mod changing_names;
mod cluster_soak;
mod console;
mod console_cells;
mod console_modules;
mod console_operations;
mod databases;
mod full_disk;
mod host_paths;
mod manual_pages;
mod matplotlib;
mod monty_values;
mod native_calls;
mod native_code_execution;
mod native_folders;
mod native_jupyter;
mod native_network;
mod native_spans;
mod native_tools;
mod network_services;
mod offline_packages;
mod scientific_images;
mod service;
mod snippets;
mod stalled_index;

#[path = "../attacks/mod.rs"]
#[allow(dead_code, reason = "the tests in `it` use the rest")]
mod attacks;
#[path = "../support/browser.rs"]
mod browser;
#[path = "../support/certificates.rs"]
mod certificates;
#[path = "../support/code_execution.rs"]
#[allow(dead_code, reason = "shared with the tests in `it`, which use more of it")]
mod code_execution;
#[path = "../support/harness.rs"]
#[allow(dead_code, reason = "shared with the tests in `it`, which use more of it")]
mod harness;
#[path = "../support/jupyter.rs"]
#[allow(dead_code, reason = "shared with the tests in `it`, which use more of it")]
mod jupyter;
#[path = "../support/monty_worker.rs"]
#[allow(dead_code, reason = "shared with the tests in `it`, which use more of it")]
mod monty_worker;
#[path = "../support/network_servers.rs"]
#[allow(dead_code, reason = "shared with the tests in `it`, which use more of it")]
mod network_servers;
#[path = "../support/operator.rs"]
#[allow(dead_code, reason = "shared with the tests in `it`, which use more of it")]
mod operator;
#[path = "../support/otlp_receiver.rs"]
#[allow(dead_code, reason = "shared with the tests in `it`, which use more of it")]
mod otlp_receiver;
#[path = "../support/tool_client.rs"]
#[allow(dead_code, reason = "shared with the tests in `it`, which use more of it")]
mod tool_client;
#[path = "../support/wheels.rs"]
#[allow(dead_code, reason = "shared with the tests in `it`, which use more of it")]
mod wheels;
#[path = "../support/wire.rs"]
#[allow(dead_code, reason = "shared with the tests in `it`, which use more of it")]
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    let status = belljar_testing::main(|| {
        let modules = [
            apps::trials(),
            attacked_kernels::trials(),
            changing_names::trials(),
            cluster_soak::trials(),
            console::trials(),
            console_cells::trials(),
            console_modules::trials(),
            console_operations::trials(),
            full_disk::trials(),
            host_paths::trials(),
            manual_pages::trials(),
            matplotlib::trials(),
            monty_values::trials(),
            native_calls::trials(),
            native_code_execution::trials(),
            native_folders::trials(),
            native_jupyter::trials(),
            native_network::trials(),
            native_spans::trials(),
            native_tools::trials(),
            databases::trials(),
            network_services::trials(),
            offline_packages::trials(),
            scientific_images::trials(),
            service::trials(),
            snippets::trials(),
            stalled_index::trials(),
        ];
        modules.into_iter().flatten().collect()
    });
    snippets::print_counts();
    status
}
