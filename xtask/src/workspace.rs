//! The paths of the workspace and its build folder, and the program built from it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::os::ENVIRONMENT_PROGRAMS;
use crate::reproducible::without_paths;

/// Returns the root of the workspace.
pub(crate) fn workspace() -> Result<PathBuf, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(Path::to_owned).ok_or_else(|| "xtask is not in a workspace".into())
}

/// Returns Cargo's target directory, which contains `debug/xtask`, this program.
pub(crate) fn target_directory() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("failed to find this program's file: {error}"))?;
    program.ancestors().nth(2).map(Path::to_owned).ok_or_else(|| "this program is not in a build folder".into())
}

/// Returns the Cargo that has started this program, or the one on the path.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Removes the variables that Cargo sets for this program from a command. Build scripts that read them would run again,
/// in this build and in the next one from the shell.
pub(crate) fn as_by_hand(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "CARGO" {
            command.env_remove(name);
        }
    }
}

/// Returns the platform of this machine's compiler.
pub(crate) fn host() -> Result<String, String> {
    compiler_field("host")
}

/// Returns a field of the compiler's description of itself, such as `host` or `commit-hash`.
pub(crate) fn compiler_field(name: &str) -> Result<String, String> {
    let output =
        Command::new("rustc").arg("-vV").output().map_err(|error| format!("failed to start rustc: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    value.map(str::to_owned).ok_or_else(|| format!("rustc does not print its {name}: {text}"))
}

/// Returns the path of a program in a virtual environment of Python.
pub(crate) fn in_environment(environment: &Path, program: &str) -> PathBuf {
    environment.join(ENVIRONMENT_PROGRAMS).join(format!("{program}{}", std::env::consts::EXE_SUFFIX))
}

/// The profile of a build of belljar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// That of `cargo test`.
    Dev,
    Release,
}

/// Builds belljar, in the developer profile as `cargo test` does, and returns its path.
pub(crate) fn build_belljar(profile: Profile) -> Result<PathBuf, String> {
    build_belljar_with(profile, &[])
}

/// Does the same as [`build_belljar`], with further features.
pub(crate) fn build_belljar_with(profile: Profile, features: &[&str]) -> Result<PathBuf, String> {
    let mut command = Command::new(cargo());
    as_by_hand(&mut command);
    if profile == Profile::Release {
        without_paths(&mut command)?;
    }
    let (options, directory): (&[&str], _) = match profile {
        // Cargo considers development dependencies only for examples and tests. Without an example, it would compile
        // the packages that have other features for these a second time.
        Profile::Dev => (&["--example", "capabilities"], "debug"),
        Profile::Release => (&["--release"], "release"),
    };
    let status = command
        .args(["build", "--workspace", "--bins"])
        .args(options)
        .args(features.iter().flat_map(|feature| ["--features", feature]))
        .current_dir(workspace()?)
        .status()
        .map_err(|error| format!("failed to start cargo: {error}"))?;
    if !status.success() {
        return Err("belljar does not build".into());
    }
    Ok(target_directory()?.join(directory).join(format!("belljar{}", std::env::consts::EXE_SUFFIX)))
}
