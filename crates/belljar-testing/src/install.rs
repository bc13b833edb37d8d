//! Programs that others wrote, installed by npm and pip into the build folder.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Installs npm packages below `root`, unless they are there, and returns the folder `node_modules`.
#[must_use]
pub fn npm(root: &Path, name: &str, packages: &[&str]) -> PathBuf {
    let install = |directory: &Path| {
        let options = ["install", "--no-fund", "--no-audit", "--loglevel=error", "--prefix"];
        run(Command::new("npm").args(options).arg(directory).args(packages));
    };
    once(root, &format!("npm-{name}"), packages, install).join("node_modules")
}

/// Makes a virtual environment with these packages below `root`, unless it is there, and returns its folder `bin`.
#[must_use]
pub fn pip(root: &Path, name: &str, packages: &[&str]) -> PathBuf {
    pip_with("python3", root, name, packages)
}

/// Does the same with this Python.
#[must_use]
pub fn pip_with(python: &str, root: &Path, name: &str, packages: &[&str]) -> PathBuf {
    // The users of weak kernels must be able to read the environment, whatever the umask of the tests is.
    let readable = |program: &OsStr| {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 022 && exec \"$@\"", "sh"]).arg(program);
        command
    };
    let install = |directory: &Path| {
        run(Command::new("chmod").arg("755").arg(directory));
        run(readable(python.as_ref()).args(["-m", "venv"]).arg(directory));
        let pip = directory.join("bin/python");
        run(readable(pip.as_ref()).args(["-m", "pip", "install", "--quiet"]).args(packages));
    };
    once(root, &format!("python-{name}"), packages, install).join("bin")
}

/// Fills the folder `name` with packages, unless it has exactly these. A second process waits for the first.
fn once(root: &Path, name: &str, packages: &[&str], install: impl Fn(&Path)) -> PathBuf {
    std::fs::create_dir_all(root).unwrap();
    let directory = root.join(name);
    let done = directory.join("installed");
    let lock = File::create(root.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    if std::fs::read_to_string(&done).is_ok_and(|installed| installed == packages.join("\n")) {
        return directory;
    }
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir_all(&directory).unwrap();
    install(&directory);
    std::fs::write(done, packages.join("\n")).unwrap();
    directory
}

/// Runs a program to its end and returns its output and errors.
///
/// # Panics
///
/// Panics if the program fails.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("failed to start {command:?}: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn packages_are_installed_once_and_again_when_they_change() {
        let root = tempfile::tempdir().unwrap();
        let runs = Cell::new(0);
        let mut folders = Vec::new();
        for packages in [["a==1"], ["a==1"], ["a==2"]] {
            folders.push(once(root.path(), "a", &packages, |_| runs.set(runs.get() + 1)));
        }
        assert_eq!(runs.get(), 2);
        assert!(folders.iter().all(|folder| *folder == root.path().join("a")), "{folders:?}");
    }
}
