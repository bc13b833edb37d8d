//! `cargo xtask wheel`: builds the Python wheel of the binary with maturin, installs it into a new environment and
//! runs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::workspace::{as_by_hand, target_directory, workspace};

const USAGE: &str = "\
Usage: cargo xtask wheel [--release]

Builds the wheel in the build folder's `wheels`, installs it and runs it.";

const MATURIN: &str = "maturin==1.16.0";

/// Runs the chore. Returns whether the installed program works.
pub(crate) fn main(arguments: impl Iterator<Item = String>) -> Result<bool, String> {
    let mut release = false;
    for argument in arguments {
        match argument.as_str() {
            "--release" => release = true,
            "--help" | "-h" => {
                println!("{USAGE}");
                return Ok(true);
            }
            other => return Err(format!("unknown option {other}\n\n{USAGE}")),
        }
    }
    let target = target_directory()?;
    let (wheels, tools, trial) = (target.join("wheels"), target.join("wheel-tools"), target.join("wheel-trial"));
    if wheels.exists() {
        std::fs::remove_dir_all(&wheels).map_err(|error| format!("failed to empty {}: {error}", wheels.display()))?;
    }
    environment(&tools, &[MATURIN])?;
    let mut build = Command::new(tools.join("bin/maturin"));
    build.arg("build").args(["--profile", if release { "release" } else { "dev" }]).arg("--out").arg(&wheels);
    build.arg("--target-dir").arg(&target).current_dir(workspace()?.join("packaging/python"));
    as_by_hand(&mut build);
    run(&mut build)?;
    let wheel = only_wheel(&wheels)?;
    println!("{}", wheel.display());
    environment(&trial, &[&wheel.display().to_string()])?;
    let belljar = trial.join("bin/belljar");
    let version = run(Command::new(&belljar).arg("--version"))?;
    let answer = run(Command::new(&belljar).args(["example", "--no-install"]))?;
    println!("{version}{answer}");
    Ok(version.starts_with("belljar ") && answer.starts_with("<status>success</status>") && answer.contains("16"))
}

fn only_wheel(directory: &Path) -> Result<PathBuf, String> {
    let listed = directory.read_dir().map_err(|error| format!("failed to read {}: {error}", directory.display()))?;
    let mut wheels = listed.filter_map(|entry| Some(entry.ok()?.path()));
    let wheel = wheels.find(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheel.ok_or_else(|| format!("maturin left no wheel in {}", directory.display()))
}

/// Creates a virtual environment with these packages.
fn environment(directory: &Path, packages: &[&str]) -> Result<(), String> {
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(directory))?;
    run(Command::new(directory.join("bin/python")).args(["-m", "pip", "install", "--quiet"]).args(packages)).map(drop)
}

/// Runs a program, which must succeed, and returns its standard output.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("failed to start {:?}: {error}", command.get_program()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{command:?} failed ({}):\n{text}", output.status)) }
}
