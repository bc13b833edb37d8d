//! Where the workspace and its build folder are, and the program built from it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the workspace.
pub(crate) fn workspace() -> Result<PathBuf, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(Path::to_owned).ok_or_else(|| "xtask stands outside of a workspace".into())
}

/// Cargo's target directory, which holds `debug/xtask`, this program.
pub(crate) fn target_directory() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program's file: {error}"))?;
    program.ancestors().nth(2).map(Path::to_owned).ok_or_else(|| "this program stands outside of a build folder".into())
}

/// Takes from a command what Cargo tells this program of itself. Build scripts that look at it would run again, there and in
/// the next build by hand.
pub(crate) fn as_by_hand(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "CARGO" {
            command.env_remove(name);
        }
    }
}

/// Builds belljar as `cargo test` does, and answers where it is.
pub(crate) fn build_belljar() -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    as_by_hand(&mut command);
    let status = command
        .args(["build", "--workspace", "--bins"])
        .current_dir(workspace()?)
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    if !status.success() {
        return Err("belljar does not build".into());
    }
    Ok(target_directory()?.join("debug").join(format!("belljar{}", std::env::consts::EXE_SUFFIX)))
}
