//! The Python environment that native kernels run in: made by uv, or by `python -m venv` and pip, or brought along.
//!
//! ```text
//! ~/.local/share/belljar/native/
//! ├── environment.json      which one is used
//! ├── lock                  held while one is made
//! └── 3f9c…/                one, named by what was asked for
//!     ├── bin/python
//!     └── belljar.json      written last: without it the rest is no whole environment
//! ```
//!
//! It is data, not cache: whoever clears caches away must not take the interpreter from a kernel that runs, and the folder
//! cannot be moved, since its programs name it. Environments that are not used any more are left for the same reason.

mod tool;

use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_core::progress::{Progress, Step};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use tool::{Tool, last_lines};

/// What is installed unless something else is asked for: the kernel, what plots and tables are made of, and `nbformat`,
/// without which plotly does not show its figures.
pub const PACKAGES: [&str; 9] =
    ["ipykernel", "numpy", "pandas", "matplotlib", "seaborn", "plotly", "kaleido", "sympy", "nbformat"];

const CURRENT: &str = "environment.json";
const MARKER: &str = "belljar.json";
const LOCK: &str = "lock";
/// Tells what an interpreter is, if it can run kernels.
const PROBE: &str = "import json, platform, sys; import ipykernel; \
                     print(json.dumps({'python': platform.python_version(), 'ipykernel': ipykernel.__version__}))";

/// Why there is no environment.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// The system does not let us.
    #[error("cannot use {}: {error}", path.display())]
    File {
        /// What.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// None was made yet, or it is gone.
    #[error("there is no Python environment for native kernels\nhint: `belljar native setup` makes one")]
    Missing,
    /// There is no such Python.
    #[error("there is no {0}\nhint: install Python 3.10 or newer, or uv, or name one: --python /path/to/python3")]
    NoPython(String),
    /// Python was packaged without its module `venv`.
    #[error("{0} has no module venv\nhint: on Debian and Ubuntu install python3-venv, or install uv")]
    NoVenv(String),
    /// No package index could be reached.
    #[error("packages cannot be fetched: is there a network, and are their names right?\n{0}")]
    NoNetwork(String),
    /// What is to be installed cannot be read as packages.
    #[error("`{0}` is no package: write a name, perhaps with a version, such as pandas or 'numpy>=2'")]
    Package(String),
    /// A tool failed.
    #[error("{what} failed:\n{output}")]
    Tool {
        /// Which.
        what: String,
        /// The end of what it wrote.
        output: String,
    },
    /// An environment that was brought along cannot run kernels.
    #[error("{} cannot run kernels: {reason}\nhint: `{} -m pip install ipykernel nbformat` adds what is missing", python.display(), python.display())]
    Unfit {
        /// Its Python.
        python: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// What is asked for.
#[derive(Debug, Clone, Serialize)]
pub struct Plan {
    /// The Python to make it from: a path, a name, or, with uv, a version. `None` is `python3`, or what uv finds.
    pub python: Option<String>,
    /// What to install, as pip takes it.
    pub packages: Vec<String>,
}

impl Default for Plan {
    fn default() -> Self {
        Self { python: None, packages: PACKAGES.map(String::from).to_vec() }
    }
}

impl Plan {
    fn check(&self) -> Result<(), EnvironmentError> {
        // An option in place of a package would change what the installer does.
        let is_package = |text: &String| {
            text.starts_with(|first: char| first.is_ascii_alphanumeric()) && !text.contains(|it: char| it.is_control())
        };
        match self.packages.iter().find(|package| !is_package(package)) {
            Some(wrong) => Err(EnvironmentError::Package(wrong.clone())),
            None => Ok(()),
        }
    }

    /// Names what is asked for.
    fn digest(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        format!("{:x}", Sha256::digest(text))[..16].to_owned()
    }
}

/// An environment that can run kernels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Its folder.
    pub directory: PathBuf,
    /// Python's version: `3.14.2`.
    pub python: String,
    /// The version of its kernel.
    pub ipykernel: String,
}

/// What an interpreter says of itself.
#[derive(Deserialize)]
struct Probed {
    python: String,
    ipykernel: String,
}

impl Environment {
    /// Its interpreter.
    pub fn interpreter(&self) -> PathBuf {
        interpreter(&self.directory)
    }

    /// One that somebody else has made.
    ///
    /// # Errors
    /// When it cannot run kernels.
    pub fn of_directory(directory: &Path) -> Result<Self, EnvironmentError> {
        let failed = |error| EnvironmentError::File { path: directory.to_owned(), error };
        let directory = std::path::absolute(directory).map_err(failed)?;
        let python = interpreter(&directory);
        let unfit = |reason: String| EnvironmentError::Unfit { python: python.clone(), reason };
        // Isolated: what lies in the current directory is none of its modules.
        let output =
            Command::new(&python).args(["-I", "-c", PROBE]).output().map_err(|error| unfit(error.to_string()))?;
        if !output.status.success() {
            return Err(unfit(last_lines(&output.stderr, 1)));
        }
        let probed: Probed = serde_json::from_slice(&output.stdout).map_err(|error| unfit(error.to_string()))?;
        Ok(Self { directory, python: probed.python, ipykernel: probed.ipykernel })
    }
}

fn interpreter(directory: &Path) -> PathBuf {
    directory.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" })
}

/// The folder of all environments.
#[derive(Debug, Clone)]
pub struct Environments {
    root: PathBuf,
}

impl Environments {
    /// In `directory`, else in the platform's folder for data. `None` when the user has no home.
    pub fn new(directory: Option<PathBuf>) -> Option<Self> {
        let platform =
            || directories::ProjectDirs::from("", "", "belljar").map(|project| project.data_local_dir().join("native"));
        Some(Self { root: directory.or_else(platform)? })
    }

    /// Where they are.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The one that kernels use. It is not looked into: that costs a start of Python.
    ///
    /// # Errors
    /// When none was made, or it is gone.
    pub fn current(&self) -> Result<Environment, EnvironmentError> {
        let text = std::fs::read(self.root.join(CURRENT)).map_err(|_| EnvironmentError::Missing)?;
        let environment: Environment = serde_json::from_slice(&text).map_err(|_| EnvironmentError::Missing)?;
        if environment.interpreter().exists() { Ok(environment) } else { Err(EnvironmentError::Missing) }
    }

    /// Environments that were made here and are not used.
    pub fn unused(&self) -> Vec<PathBuf> {
        let current = self.current().map(|environment| environment.directory).ok();
        let entries = std::fs::read_dir(&self.root).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| path.is_dir() && Some(path) != current.as_ref()).collect()
    }

    /// Makes what is asked for, unless it is there, and has kernels use it. One that was begun and not ended is made anew.
    ///
    /// # Errors
    /// When there is no Python, no network, or a tool fails.
    pub fn set_up(&self, plan: &Plan, progress: &dyn Progress) -> Result<Environment, EnvironmentError> {
        plan.check()?;
        let _lock = self.lock()?;
        let directory = self.root.join(plan.digest());
        let environment = self.make(plan, &directory, progress)?;
        self.use_from_now_on(&environment)?;
        Ok(environment)
    }

    /// Has kernels use an environment of the user's own; one that is not there is made.
    ///
    /// # Errors
    /// As [`Environments::set_up`]; and when the environment cannot run kernels.
    pub fn adopt(
        &self,
        directory: &Path,
        plan: &Plan,
        progress: &dyn Progress,
    ) -> Result<Environment, EnvironmentError> {
        plan.check()?;
        let _lock = self.lock()?;
        let failed = |error| EnvironmentError::File { path: directory.to_owned(), error };
        let directory = std::path::absolute(directory).map_err(failed)?;
        let begun = directory.join(MARKER).with_extension("begun");
        let environment = if directory.exists() && !begun.exists() {
            Environment::of_directory(&directory)?
        } else {
            self.make(plan, &directory, progress)?
        };
        self.use_from_now_on(&environment)?;
        Ok(environment)
    }

    fn lock(&self) -> Result<File, EnvironmentError> {
        let path = self.root.join(LOCK);
        let locked = std::fs::create_dir_all(&self.root).and_then(|()| File::create(&path)).and_then(|file| {
            file.lock()?;
            Ok(file)
        });
        locked.map_err(|error| EnvironmentError::File { path, error })
    }

    fn use_from_now_on(&self, environment: &Environment) -> Result<(), EnvironmentError> {
        write_whole(&self.root.join(CURRENT), environment)
    }

    /// Makes an environment in a folder. Its programs name the folder, so it is made in its place.
    fn make(&self, plan: &Plan, directory: &Path, progress: &dyn Progress) -> Result<Environment, EnvironmentError> {
        let marker = directory.join(MARKER);
        let made = std::fs::read(&marker).ok().and_then(|text| serde_json::from_slice::<Environment>(&text).ok());
        if let Some(environment) = made.filter(|made| made.directory == directory && made.interpreter().exists()) {
            return Ok(environment);
        }
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |error| EnvironmentError::File { path, error }
        };
        match std::fs::remove_dir_all(directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(directory)(error)),
            _ => {}
        }
        let tool = Tool::find();
        let step = progress.start(Step::unmeasured(format!("making a virtual environment ({})", tool.name())));
        tool.make(plan, directory)?;
        // Whoever stops us from here on leaves a folder that is known to be ours and not whole.
        let begun = marker.with_extension("begun");
        std::fs::write(&begun, "").map_err(failed(&begun))?;
        step.finish();
        let step = progress.start(Step::unmeasured(format!("installing {}", plan.packages.join(", "))));
        tool.install(plan, directory)?;
        step.finish();
        let environment = Environment::of_directory(directory)?;
        write_whole(&marker, &environment)?;
        std::fs::remove_file(&begun).map_err(failed(&begun))?;
        Ok(environment)
    }
}

/// Writes a file so that it is there whole or not at all.
fn write_whole(path: &Path, value: &impl Serialize) -> Result<(), EnvironmentError> {
    use std::io::Write;
    let folder = path.parent().unwrap_or(Path::new("."));
    let text = serde_json::to_vec_pretty(value).unwrap_or_default();
    let written = tempfile::NamedTempFile::new_in(folder).and_then(|mut file| {
        file.write_all(&text)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)
    });
    written.map(drop).map_err(|error| EnvironmentError::File { path: path.to_owned(), error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_named_by_what_was_asked_for() {
        let plan = |python: Option<&str>, packages: &[&str]| {
            Plan { python: python.map(String::from), packages: packages.iter().map(|name| name.to_string()).collect() }
                .digest()
        };
        assert_eq!(plan(None, &["a"]), plan(None, &["a"]));
        assert_ne!(plan(None, &["a"]), plan(None, &["a", "b"]));
        assert_ne!(plan(None, &["a"]), plan(Some("python3.12"), &["a"]));
    }

    #[test]
    fn an_option_is_no_package() {
        let folder = tempfile::tempdir().unwrap();
        let environments = Environments::new(Some(folder.path().join("native"))).unwrap();
        for package in ["--index-url=http://example.org", "-e .", "", "a\nb", "./here"] {
            let plan = Plan { python: None, packages: vec![package.into()] };
            let result = environments.set_up(&plan, &belljar_core::NoProgress);
            assert!(matches!(result, Err(EnvironmentError::Package(_))), "{package}");
        }
        assert!(!environments.root().exists());
    }

    #[test]
    fn what_is_not_there_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let environments = Environments::new(Some(folder.path().into())).unwrap();
        assert!(matches!(environments.current(), Err(EnvironmentError::Missing)));
        let gone = Environment { directory: "/nowhere".into(), python: "3.14.0".into(), ipykernel: "7".into() };
        environments.use_from_now_on(&gone).unwrap();
        assert!(matches!(environments.current(), Err(EnvironmentError::Missing)));
        let unfit = Environment::of_directory(folder.path());
        assert!(matches!(unfit, Err(EnvironmentError::Unfit { .. })), "{unfit:?}");
    }
}
