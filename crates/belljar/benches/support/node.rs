//! node and Pyodide, for comparison.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Finding;

const NODE: &str = "node@22";
const PYODIDE: &str = "pyodide@314.0.7";

/// node and Pyodide, as npm installed them into a directory.
pub(crate) struct Node {
    directory: PathBuf,
}

impl Node {
    /// Installs both with npm, unless an earlier run has done so.
    pub(crate) fn fetch(directory: &Path) -> Finding<Self> {
        fs::create_dir_all(directory)?;
        let this = Self { directory: directory.into() };
        if !this.node().exists() {
            let mut npm = Command::new("npm");
            quietly(npm.args(["install", "--no-audit", "--no-fund", "--prefix"]).arg(directory).args([NODE, PYODIDE]))?;
        }
        Ok(this)
    }

    /// Returns the command that runs a Python file in Pyodide, with a package if one is given: the path of a wheel, or
    /// a name that Pyodide fetches.
    pub(crate) fn command(&self, file: &Path, package: Option<&Path>) -> Command {
        let mut command = Command::new(self.node());
        // V8's default stack is smaller than that of a native process.
        command.arg("--stack-size=2000").arg(benches().join("pyodide.mjs"));
        command.arg(self.directory.join("node_modules/pyodide")).arg(file).args(package);
        command.stdin(Stdio::null());
        command
    }

    fn node(&self) -> PathBuf {
        self.directory.join("node_modules/node/bin/node")
    }
}

/// Returns the directory of the Python and JavaScript files of the benchmarks.
pub(crate) fn benches() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches")
}

/// Runs a command and shows its output only if it fails.
pub(crate) fn quietly(command: &mut Command) -> Finding<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {output:?}").into()) }
}
