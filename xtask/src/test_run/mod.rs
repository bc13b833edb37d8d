//! `cargo xtask test`: runs the tests of the workspace, and once more by themselves the few that fail.
//!
//! Two thousand tests start servers, interpreters and browsers, and wait for them: two programs at a time take less
//! time than one after another. On a machine with two cores, a test may exceed a limit that it keeps when it runs
//! alone. A second run tells such a test from a defect, and names it.
//!
//! | file | subject |
//! | --- | --- |
//! | `programs` | the programs: building, ordering and running them |
//! | `report` | the results in their output |

mod programs;
mod report;

use std::process::Command;

use crate::packages;
use crate::workspace::{as_by_hand, cargo, workspace};
use programs::{Run, run_all, watch};
use report::Report;

const USAGE: &str = "\
Usage: cargo xtask test [--portable]

Runs the tests of `cargo test --workspace --locked --no-fail-fast`, two programs at a time, and those of documentation
after them. If at most eight tests fail, each of them runs a second time, while no other test runs. Those that pass then
are listed as unsteady, and the chore succeeds. Tests of documentation, and programs that end without a result, do not
get a second run. The last lines name each test that failed, with the end of its output.

With --portable, only the packages that are meant for all systems are tested: not native kernels, the sandbox and worker
processes.";

/// Runs the chore. Returns whether all tests have passed, at the latest in their second run.
pub(crate) fn main(mut arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let selected: Vec<&str> = match arguments.next().as_deref() {
        None => vec!["--workspace"],
        Some("--portable") => packages::portable().collect(),
        Some("--help" | "-h") => {
            println!("{USAGE}");
            return Ok(true);
        }
        Some(other) => return Err(format!("unknown argument {other}\n\n{USAGE}")),
    };
    let mut first = run_all(programs::build(&selected)?)?;
    let documentation = cargo_test(&selected, &["--no-fail-fast", "--doc"])?;
    first.add(documentation.report);
    if first.failed_endings == 0 {
        return Ok(true);
    }
    let mut failed = Vec::new();
    let repeatable = first.repeatable();
    if let Some(names) = &repeatable {
        println!("\nrun a second time: {}", names.join(", "));
        for name in names {
            // Programs without libtest's harness take one name.
            let second = cargo_test(&selected, &["--tests", "--", "--test-threads=1", "--exact", name])?;
            // A name that no program knows would be a run of no tests.
            if !second.succeeded || second.report.passed == 0 {
                failed.push(*name);
            }
        }
    }
    first.names.iter().for_each(|name| print!("{}", first.failure(name)));
    let Some(names) = repeatable else {
        let Report { names, failed, failed_programs, failed_endings, .. } = &first;
        println!("\nno second run: {failed} failed tests, of which {} have a name that was read", names.len());
        println!("{failed_endings} programs failed, of which {failed_programs} have printed a result");
        return Ok(false);
    };
    let unsteady: Vec<&str> = names.into_iter().filter(|name| !failed.contains(name)).collect();
    println!("\npassed in the second run only: {}", unsteady.join(", "));
    println!("failed in both runs: {}", failed.join(", "));
    Ok(failed.is_empty())
}

/// Runs `cargo test` for the selected packages with these arguments, and passes its output on.
fn cargo_test(selected: &[&str], arguments: &[&str]) -> Result<Run, String> {
    let mut command = Command::new(cargo());
    as_by_hand(&mut command);
    command.args(["test", "--locked"]).args(selected).args(arguments).current_dir(workspace()?);
    watch(command, std::io::stdout())
}
