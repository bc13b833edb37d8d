//! Prints the capabilities of this machine: `cargo run -p belljar-testing --example capabilities`.

#![expect(clippy::print_stdout, reason = "the example's result")]

use belljar_testing::Capability;

fn main() {
    #[cfg(target_os = "linux")]
    belljar_sandbox::run_fork_server_if_child();
    for capability in Capability::ALL {
        match capability.missing() {
            None => println!("{capability:18} available"),
            Some(reason) => println!("{capability:18} missing: {reason}"),
        }
    }
}
