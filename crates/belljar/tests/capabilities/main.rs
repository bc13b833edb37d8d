//! Tests that need a capability which not every machine has. Without it they are ignored; see `belljar-testing`.
//!
//! The program has a `main` of its own, since libtest cannot ignore a test at run time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod apps;
#[cfg(target_os = "linux")]
mod attacked_kernels;
mod changing_names;
mod cluster_soak;
mod console;
mod console_cells;
mod console_modules;
mod console_operations;
mod databases;
mod full_disk;
#[cfg(target_os = "linux")]
mod host_paths;
mod manual_pages;
mod matplotlib;
mod monty_values;
#[cfg(target_os = "linux")]
mod native_calls;
#[cfg(target_os = "linux")]
mod native_code_execution;
#[cfg(target_os = "linux")]
mod native_folders;
#[cfg(target_os = "linux")]
mod native_jupyter;
#[cfg(target_os = "linux")]
mod native_network;
#[cfg(target_os = "linux")]
mod native_spans;
#[cfg(target_os = "linux")]
mod native_tools;
mod network_services;
mod offline_packages;
mod scientific_images;
mod service;
mod snippets;
#[cfg(target_os = "linux")]
mod stalled_index;

#[cfg(target_os = "linux")]
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
            #[cfg(target_os = "linux")]
            attacked_kernels::trials(),
            changing_names::trials(),
            cluster_soak::trials(),
            console::trials(),
            console_cells::trials(),
            console_modules::trials(),
            console_operations::trials(),
            full_disk::trials(),
            #[cfg(target_os = "linux")]
            host_paths::trials(),
            manual_pages::trials(),
            matplotlib::trials(),
            monty_values::trials(),
            #[cfg(target_os = "linux")]
            native_calls::trials(),
            #[cfg(target_os = "linux")]
            native_code_execution::trials(),
            #[cfg(target_os = "linux")]
            native_folders::trials(),
            #[cfg(target_os = "linux")]
            native_jupyter::trials(),
            #[cfg(target_os = "linux")]
            native_network::trials(),
            #[cfg(target_os = "linux")]
            native_spans::trials(),
            #[cfg(target_os = "linux")]
            native_tools::trials(),
            databases::trials(),
            network_services::trials(),
            offline_packages::trials(),
            scientific_images::trials(),
            service::trials(),
            snippets::trials(),
            #[cfg(target_os = "linux")]
            stalled_index::trials(),
        ];
        modules.into_iter().flatten().collect()
    });
    snippets::print_counts();
    status
}
