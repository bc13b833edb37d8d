//! The installation of the wheel in new environments, and its tests there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{remove, run};
use crate::workspace::in_environment;

/// A package with an extension module for the sandbox, which the tests install from a directory.
const SANDBOX_PACKAGE: &str = "jiter==0.19.0";
/// The options of pip for wheels of the sandbox.
const SANDBOX_PLATFORM: [&str; 7] = [
    "--no-deps",
    "--only-binary=:all:",
    "--implementation=cp",
    "--python-version=3.14",
    "--platform=pyemscripten_2026_0_wasm32",
    "--quiet",
    "--dest",
];
/// An MCP server whose tools the tests call from the sandbox.
const NPM_SERVER: &str = "@modelcontextprotocol/server-everything@2026.8.31";
/// The directory of what pytest notes between runs, in the build folder.
const PYTEST_CACHE: &str = "wheel-pytest-cache";
/// The maximum number of tests that run a second time.
const MAX_REPEATED: usize = 8;
/// A program of Python that enables the loopback interface of its network namespace and then becomes another program.
const LOOPBACK: &str = "\
import fcntl, os, socket, struct, sys
UP, SIOCSIFFLAGS = 0x49, 0x8914
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack('16sh22x', b'lo', UP))
os.execv(sys.argv[1], sys.argv[1:])";

/// A wheel that is installed in new environments and tested there.
pub(super) struct Trial {
    pub(super) uv: PathBuf,
    pub(super) sources: PathBuf,
    pub(super) wheel: PathBuf,
    pub(super) target: PathBuf,
}

impl Trial {
    /// Creates an environment with the packages of these files and the wheel, which is installed without an index.
    pub(super) fn install(&self, name: &str, python: &Path, requirements: &[&str]) -> Result<PathBuf, String> {
        let directory = self.target.join(name);
        let mut create = Command::new(&self.uv);
        create.args(["venv", "--quiet", "--seed", "--clear", "--no-project", "--python"]).arg(python).arg(&directory);
        run(&mut create)?;
        let python = in_environment(&directory, "python");
        if !requirements.is_empty() {
            let mut install = Command::new(&self.uv);
            install.args(["pip", "install", "--quiet", "--python"]).arg(&python);
            for file in requirements {
                install.arg("--requirements").arg(self.sources.join(file));
            }
            run(&mut install)?;
        }
        let options = ["-m", "pip", "install", "--quiet", "--no-index", "--no-deps"];
        run(Command::new(&python).args(options).arg(&self.wheel))?;
        Ok(python)
    }

    /// Downloads the package that the tests install into the sandbox.
    pub(super) fn download_sandbox_package(&self, python: &Path) -> Result<(), String> {
        let mut download = Command::new(python);
        download.args(["-m", "pip", "download"]).args(SANDBOX_PLATFORM).arg(self.sandbox_packages());
        run(download.arg(SANDBOX_PACKAGE)).map(drop)
    }

    /// Installs the MCP server of npm. Without npm, its test is skipped, or fails if `BELLJAR_REQUIRE` names npm.
    pub(super) fn install_npm_server(&self) -> Result<(), String> {
        if Command::new("npm").arg("--version").output().is_err() {
            return Ok(());
        }
        let mut install = Command::new("npm");
        install.args(["install", "--no-fund", "--no-audit", "--loglevel=error", "--prefix"]).arg(self.npm());
        run(install.arg(NPM_SERVER)).map(drop)
    }

    fn npm(&self) -> PathBuf {
        self.target.join("wheel-test-npm")
    }

    fn sandbox_packages(&self) -> PathBuf {
        self.target.join("wheel-test-packages")
    }

    /// Runs the tests. If at most [`MAX_REPEATED`] fail, each of them runs a second time while no other test runs, as
    /// in `cargo xtask test`: limits of time are for a machine that is not busy. Returns what pytest printed, unless a
    /// test fails in both runs.
    pub(super) fn test(&self, python: &Path, options: &[String]) -> Result<String, String> {
        let cache = self.target.join(PYTEST_CACHE);
        remove(&cache)?;
        remove(&self.belljar_cache())?;
        let first = match run(&mut self.pytest(python, options)) {
            Ok(printed) => return Ok(printed),
            Err(printed) => printed,
        };
        let failed = failed_tests(&cache);
        if !(1..=MAX_REPEATED).contains(&failed.len()) {
            return Err(first);
        }
        let mut again = self.pytest(python, options);
        let second = run(again.args(["--last-failed", "--last-failed-no-failures=none"]))
            .map_err(|second| format!("{first}\nin a second run:\n{second}"))?;
        Ok(format!("{first}\n{second}\npassed in the second run only: {}", failed.join(", ")))
    }

    /// Returns a command that runs the tests without Belljar's cache, and without a network if the machine can create a
    /// namespace for that.
    fn pytest(&self, python: &Path, options: &[String]) -> Command {
        let mut pytest = without_network(python);
        // Not in the directory of the sources: the tests are those of the installed package.
        pytest.args(["-m", "pytest", "-q", "."]).args(options).current_dir(self.sources.join("tests"));
        // By hand, the tests leave no cache in the directory of the sources.
        pytest.args(["--override-ini", "addopts=", "--override-ini"]);
        pytest.arg(format!("cache_dir={}", self.target.join(PYTEST_CACHE).display()));
        // The packages that the tests need are installed, so that none may be skipped for lack of one.
        let required = std::env::var("BELLJAR_REQUIRE").unwrap_or_default();
        pytest.env("BELLJAR_CACHE", self.belljar_cache()).env("BELLJAR_REQUIRE", format!("{required},python-packages"));
        pytest.env("BELLJAR_TEST_PACKAGES", self.sandbox_packages());
        pytest.env("BELLJAR_TEST_NPM", self.npm().join("node_modules"));
        pytest.env("PYTHONDONTWRITEBYTECODE", "1").env_remove("PYTHONPATH");
        pytest
    }

    fn belljar_cache(&self) -> PathBuf {
        self.target.join("wheel-cache-of-tests")
    }
}

/// Returns the tests that pytest noted as failed in its cache.
fn failed_tests(cache: &Path) -> Vec<String> {
    let noted = std::fs::read(cache.join("v/cache/lastfailed")).unwrap_or_default();
    serde_json::from_slice::<BTreeMap<String, bool>>(&noted).unwrap_or_default().into_keys().collect()
}

/// Returns a command that starts `python` with no network but the loopback interface, if that is possible here.
fn without_network(python: &Path) -> Command {
    // Root keeps its users: native kernels have one of their own. Others need a namespace of users.
    for options in ["-n", "-rn"] {
        let tried = Command::new("unshare").args([options, "true"]).output();
        if tried.is_ok_and(|tried| tried.status.success()) {
            let mut command = Command::new("unshare");
            command.arg(options).arg(python).args(["-c", LOOPBACK]).arg(python);
            return command;
        }
    }
    Command::new(python)
}

/// Returns an interpreter of this version of CPython, on the path or among those of pyenv.
pub(super) fn interpreter(version: &str) -> Option<PathBuf> {
    let name = format!("python{version}");
    let home = |name| std::env::var_os(name).map(PathBuf::from);
    let pyenv = home("PYENV_ROOT").or_else(|| Some(home("HOME")?.join(".pyenv")));
    let installed = pyenv.and_then(|pyenv| pyenv.join("versions").read_dir().ok()).into_iter().flatten();
    let installed = installed.filter_map(|entry| Some(entry.ok()?.path().join("bin").join(&name)));
    // The programs that pyenv has on the path fail for versions that are not selected.
    let starts =
        |program: &PathBuf| Command::new(program).arg("--version").output().is_ok_and(|tried| tried.status.success());
    std::iter::once(PathBuf::from(&name)).chain(installed).find(starts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_tests_are_those_that_pytest_noted() {
        let cache = tempfile::tempdir().unwrap();
        assert!(failed_tests(cache.path()).is_empty());
        let noted = cache.path().join("v/cache");
        std::fs::create_dir_all(&noted).unwrap();
        std::fs::write(noted.join("lastfailed"), r#"{"test_runs.py::test_a[1]": true, "test_runs.py": true}"#).unwrap();
        assert_eq!(failed_tests(cache.path()), ["test_runs.py", "test_runs.py::test_a[1]"]);
    }
}
