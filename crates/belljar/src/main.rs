//! The program `belljar`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // This program re-executes itself to create sandboxes and worker processes.
    #[cfg(target_os = "linux")]
    {
        belljar_sandbox::run_fork_server_if_child();
        belljar_worker::run_template_if_child();
    }
    belljar_command::run(std::env::args_os().collect(), None)
}
