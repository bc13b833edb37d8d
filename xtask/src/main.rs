//! Chores for contributors, run as `cargo xtask CHORE`.
#![expect(clippy::print_stdout, reason = "a chore's report goes to standard output, like any command's")]

mod cargo_graph;
mod check_targets;
mod cpython_tests;
mod dist;
mod features;
mod fuzz;
mod os;
mod packages;
mod reproducible;
mod soak;
mod style;
mod test_arm64;
mod test_run;
mod wheel;
mod workspace;

use std::process::ExitCode;

const USAGE: &str = "\
Usage: cargo xtask CHORE [OPTIONS]

Chores:
  check-targets   type-check the crates for the platforms that this machine cannot run
  cpython-tests   run CPython's own tests in the sandbox; see tests/cpython/README.md
  dist            make the files of a release: archives, bundles, SBOMs and manifests
  features        check the MCP client with each of its features alone
  fuzz            run the fuzz targets on their corpora, and beyond
  soak            put an MCP server under mixed load with faults, for a while
  style           count avoided patterns of speech in comments and docs, and fail above the limits
  test            run all tests, and once more by themselves the few that fail
  test-arm64      build tests for Linux on arm64, and run them in an emulator
  wheel           build the Python wheel, install it and run its tests";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let result = match arguments.next().as_deref() {
        Some("check-targets") => check_targets::main(arguments),
        Some("cpython-tests") => cpython_tests::main(arguments),
        Some("dist") => dist::main(arguments),
        Some("features") => features::main(arguments),
        Some("fuzz") => fuzz::main(arguments),
        Some("soak") => soak::main(arguments),
        Some("style") => style::main(arguments),
        Some("test") => test_run::main(arguments),
        Some("test-arm64") => test_arm64::main(arguments),
        Some("wheel") => wheel::main(arguments),
        Some("help" | "--help" | "-h") => {
            println!("{USAGE}");
            Ok(true)
        }
        Some(other) => Err(format!("unknown chore {other}\n\n{USAGE}")),
        None => Err(USAGE.to_owned()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}
