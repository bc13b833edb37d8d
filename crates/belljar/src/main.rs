//! The program `belljar`.

use std::process::ExitCode;

fn main() -> ExitCode {
    belljar_command::run_if_child();
    belljar_command::run(std::env::args_os().collect(), None)
}
