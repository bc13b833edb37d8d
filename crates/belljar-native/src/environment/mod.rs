//! The Python environment that native kernels run in, which uv, or `python -m venv` and pip, or the user creates.
//!
//! ```text
//! ~/.local/share/belljar/native/
//! ├── environment.json      the current environment
//! ├── lock                  locked while an environment is created
//! └── 3f9c…/                an environment, named by the hash of its specification
//!     ├── bin/python
//!     └── belljar.json      written last: marks a complete environment
//! ```
//!
//! The directory is for data, not a cache: a cleaned cache must not take the interpreter from running kernels. It
//! cannot be moved, since the environment's programs contain its path. Unused environments are kept because kernels may
//! still run in them.

mod tool;

use std::env::consts::EXE_SUFFIX;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use belljar_core::Progress;
use belljar_core::progress::ProgressStep;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use tool::{EnvTool, last_lines};

/// The default packages: the kernel, packages for data analysis, and `nbformat`, without which plotly does not show its
/// figures. pandas reads and writes spreadsheets with `openpyxl`, HTML with `lxml`, and Markdown with `tabulate`.
pub const PACKAGES: [&str; 15] = [
    "ipykernel",
    "numpy",
    "pandas",
    "matplotlib",
    "seaborn",
    "plotly",
    "kaleido",
    "sympy",
    "nbformat",
    "scipy",
    "scikit-learn",
    "requests",
    "openpyxl",
    "lxml",
    "tabulate",
];

const CURRENT: &str = "environment.json";
const MARKER: &str = "belljar.json";
const LOCK: &str = "lock";
/// A script that prints an [`InterpreterInfo`], and fails without ipykernel.
const PROBE: &str = "import json, platform, sys; import ipykernel; \
                     print(json.dumps({'python': platform.python_version(), 'ipykernel': ipykernel.__version__}))";

/// The reason why an environment cannot be used or created.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// A file or program could not be used.
    #[error("failed to use {}: {error}", path.display())]
    File {
        /// The path of the file or program.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// An environment was not created yet, or was deleted.
    #[error("there is no Python environment for native kernels")]
    Missing,
    /// The requested Python does not exist.
    #[error("there is no {python}")]
    NoPython {
        /// The requested Python: a name, a path or a version.
        python: String,
        /// The tool's failure, if the tool was found.
        source: Option<Box<EnvironmentError>>,
    },
    /// Python was packaged without its module `venv`.
    #[error("{python} does not have the module venv")]
    NoVenv {
        /// The name or path of Python.
        python: String,
        /// The failure of `python -m venv`.
        source: Box<EnvironmentError>,
    },
    /// The packages could not be installed.
    #[error("failed to install the packages with {tool}:\n{output}")]
    Install {
        /// The command, such as `uv pip install`.
        tool: String,
        /// The end of its output.
        output: String,
    },
    /// A text is not the name of a package.
    #[error("`{0}` is not a package: write a name, perhaps with a version, such as pandas or 'numpy>=2'")]
    Package(String),
    /// A tool failed.
    #[error("{tool} failed:\n{output}")]
    Tool {
        /// The command, such as `uv venv`.
        tool: String,
        /// The end of its output.
        output: String,
    },
    /// An existing environment cannot run kernels.
    #[error("{} cannot run kernels: {reason}", python.display())]
    Unfit {
        /// The path of its Python.
        python: PathBuf,
        /// The last line of Python's error output, or the error of starting it.
        reason: String,
    },
}

/// The parameters of an environment.
#[derive(Debug, Clone, Serialize)]
pub struct EnvironmentSpec {
    /// The Python to create the environment from: a path, a name, or, with uv, a version. `None` is `python3`, or the
    /// one that uv chooses.
    pub python: Option<String>,
    /// The requirements to install, in pip's notation.
    pub packages: Vec<String>,
}

impl Default for EnvironmentSpec {
    fn default() -> Self {
        Self { python: None, packages: PACKAGES.map(String::from).to_vec() }
    }
}

impl EnvironmentSpec {
    /// Checks that the packages are packages.
    fn check(&self) -> Result<(), EnvironmentError> {
        // The installer would treat a text that begins with a hyphen as an option.
        let is_package = |text: &String| {
            text.starts_with(|first: char| first.is_ascii_alphanumeric()) && !text.contains(|c: char| c.is_control())
        };
        match self.packages.iter().find(|package| !is_package(package)) {
            Some(package) => Err(EnvironmentError::Package(package.clone())),
            None => Ok(()),
        }
    }

    /// Returns the name of the environment's directory.
    fn digest(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        format!("{:x}", Sha256::digest(text))[..16].to_owned()
    }
}

/// An environment that can run kernels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The directory of the environment.
    pub directory: PathBuf,
    /// The version of Python, such as `3.14.2`.
    pub python: String,
    /// The version of ipykernel.
    pub ipykernel: String,
}

/// The versions that an interpreter reports.
#[derive(Deserialize)]
struct InterpreterInfo {
    python: String,
    ipykernel: String,
}

impl Environment {
    /// Returns the path of the interpreter.
    pub fn interpreter(&self) -> PathBuf {
        interpreter(&self.directory)
    }

    /// Returns those of the packages `names`, given by their normalized names, that are installed in the environment.
    pub fn installed(&self, names: &[&str]) -> Vec<String> {
        let libraries = std::fs::read_dir(self.directory.join("lib")).into_iter().flatten().flatten();
        let site_packages = libraries.map(|library| library.path().join("site-packages"));
        let entries = site_packages.flat_map(|directory| std::fs::read_dir(directory).into_iter().flatten().flatten());
        let found: std::collections::BTreeSet<String> = entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let (name, _) = name.strip_suffix(".dist-info")?.split_once('-')?;
                Some(name.to_ascii_lowercase().replace(['_', '.'], "-"))
            })
            .collect();
        names.iter().filter(|name| found.contains(**name)).map(|name| (*name).to_owned()).collect()
    }

    /// Inspects an existing environment.
    ///
    /// # Errors
    /// Returns [`EnvironmentError::Unfit`] if the environment cannot run kernels.
    pub fn from_directory(directory: &Path) -> Result<Self, EnvironmentError> {
        let failed = |error| EnvironmentError::File { path: directory.to_owned(), error };
        let directory = std::path::absolute(directory).map_err(failed)?;
        let python = interpreter(&directory);
        let unfit = |reason: String| EnvironmentError::Unfit { python: python.clone(), reason };
        // `-I`: modules of the working directory are not imported.
        let output =
            Command::new(&python).args(["-I", "-c", PROBE]).output().map_err(|error| unfit(error.to_string()))?;
        if !output.status.success() {
            return Err(unfit(last_lines(&output.stderr, 1)));
        }
        let info: InterpreterInfo = serde_json::from_slice(&output.stdout).map_err(|error| unfit(error.to_string()))?;
        Ok(Self { directory, python: info.python, ipykernel: info.ipykernel })
    }
}

/// Returns the path of an environment's Python. Only on Windows do programs have an extension.
fn interpreter(directory: &Path) -> PathBuf {
    directory.join(if EXE_SUFFIX.is_empty() { "bin/python" } else { "Scripts/python.exe" })
}

/// The directory of all environments.
#[derive(Debug, Clone)]
pub struct Environments {
    root: PathBuf,
}

impl Environments {
    /// Uses `directory`, or else the platform's directory for data. Returns `None` when the user does not have a home
    /// directory.
    pub fn new(directory: Option<PathBuf>) -> Option<Self> {
        let platform =
            || directories::ProjectDirs::from("", "", "belljar").map(|project| project.data_local_dir().join("native"));
        Some(Self { root: directory.or_else(platform)? })
    }

    /// Returns the directory of all environments.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the environment that kernels use. It is not inspected, since that takes a start of Python.
    ///
    /// # Errors
    /// Returns [`EnvironmentError::Missing`].
    pub fn current(&self) -> Result<Environment, EnvironmentError> {
        let text = std::fs::read(self.root.join(CURRENT)).map_err(|_| EnvironmentError::Missing)?;
        let environment: Environment = serde_json::from_slice(&text).map_err(|_| EnvironmentError::Missing)?;
        if environment.interpreter().exists() { Ok(environment) } else { Err(EnvironmentError::Missing) }
    }

    /// Returns the directories of environments that kernels do not use.
    pub fn unused(&self) -> Vec<PathBuf> {
        let current = self.current().map(|environment| environment.directory).ok();
        let entries = std::fs::read_dir(&self.root).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| path.is_dir() && Some(path) != current.as_ref()).collect()
    }

    /// Creates an environment unless it exists, and makes it the current one. An incomplete environment is created
    /// again.
    ///
    /// # Errors
    /// Returns an error if the Python does not exist, or a tool fails, for example without a network.
    pub fn set_up(&self, spec: &EnvironmentSpec, progress: &dyn Progress) -> Result<Environment, EnvironmentError> {
        spec.check()?;
        let _lock = self.lock()?;
        let directory = self.root.join(spec.digest());
        let environment = self.create(spec, &directory, progress)?;
        self.set_current(&environment)?;
        Ok(environment)
    }

    /// Makes an environment of the user the current one, and creates it if the directory does not exist.
    ///
    /// # Errors
    /// Those of [`Environments::set_up`], and [`EnvironmentError::Unfit`] when the environment cannot run kernels.
    pub fn use_existing(
        &self,
        directory: &Path,
        spec: &EnvironmentSpec,
        progress: &dyn Progress,
    ) -> Result<Environment, EnvironmentError> {
        spec.check()?;
        let _lock = self.lock()?;
        let failed = |error| EnvironmentError::File { path: directory.to_owned(), error };
        let directory = std::path::absolute(directory).map_err(failed)?;
        let incomplete = directory.join(MARKER).with_extension("begun");
        let environment = if directory.exists() && !incomplete.exists() {
            Environment::from_directory(&directory)?
        } else {
            self.create(spec, &directory, progress)?
        };
        self.set_current(&environment)?;
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

    fn set_current(&self, environment: &Environment) -> Result<(), EnvironmentError> {
        write_atomically(&self.root.join(CURRENT), environment)
    }

    /// Creates an environment in its final directory, since its programs contain the path.
    fn create(
        &self,
        spec: &EnvironmentSpec,
        directory: &Path,
        progress: &dyn Progress,
    ) -> Result<Environment, EnvironmentError> {
        let marker = directory.join(MARKER);
        let existing = std::fs::read(&marker).ok().and_then(|text| serde_json::from_slice::<Environment>(&text).ok());
        if let Some(environment) = existing.filter(|it| it.directory == directory && it.interpreter().exists()) {
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
        let tool = EnvTool::find();
        let step =
            progress.start(ProgressStep::indeterminate(format!("creating a virtual environment ({})", tool.name())));
        tool.create(spec, directory)?;
        // Marks the directory as incomplete, in case this process is killed from here on.
        let incomplete = marker.with_extension("begun");
        std::fs::write(&incomplete, "").map_err(failed(&incomplete))?;
        step.finish();
        let step = progress.start(ProgressStep::indeterminate(format!("installing {}", spec.packages.join(", "))));
        tool.install(spec, directory)?;
        step.finish();
        let environment = Environment::from_directory(directory)?;
        write_atomically(&marker, &environment)?;
        std::fs::remove_file(&incomplete).map_err(failed(&incomplete))?;
        Ok(environment)
    }
}

/// Writes a file completely or not at all.
fn write_atomically(path: &Path, value: &impl Serialize) -> Result<(), EnvironmentError> {
    use std::io::Write;
    let directory = path.parent().unwrap_or(Path::new("."));
    let text = serde_json::to_vec_pretty(value).unwrap_or_default();
    let written = tempfile::NamedTempFile::new_in(directory).and_then(|mut file| {
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
    fn directory_is_named_by_the_specification() {
        let digest = |python: Option<&str>, packages: &[&str]| {
            EnvironmentSpec {
                python: python.map(String::from),
                packages: packages.iter().map(|name| name.to_string()).collect(),
            }
            .digest()
        };
        assert_eq!(digest(None, &["a"]), digest(None, &["a"]));
        assert_ne!(digest(None, &["a"]), digest(None, &["a", "b"]));
        assert_ne!(digest(None, &["a"]), digest(Some("python3.12"), &["a"]));
    }

    #[test]
    fn options_are_not_packages() {
        let root = tempfile::tempdir().unwrap();
        let environments = Environments::new(Some(root.path().join("native"))).unwrap();
        for package in ["--index-url=http://example.org", "-e .", "", "a\nb", "./here"] {
            let spec = EnvironmentSpec { python: None, packages: vec![package.into()] };
            let result = environments.set_up(&spec, &belljar_core::NoProgress);
            assert!(matches!(result, Err(EnvironmentError::Package(_))), "{package}");
        }
        assert!(!environments.root().exists());
    }

    #[test]
    fn missing_environment_is_not_used() {
        let root = tempfile::tempdir().unwrap();
        let environments = Environments::new(Some(root.path().into())).unwrap();
        assert!(matches!(environments.current(), Err(EnvironmentError::Missing)));
        let deleted = Environment { directory: "/nowhere".into(), python: "3.14.0".into(), ipykernel: "7".into() };
        environments.set_current(&deleted).unwrap();
        assert!(matches!(environments.current(), Err(EnvironmentError::Missing)));
        let unfit = Environment::from_directory(root.path());
        assert!(matches!(unfit, Err(EnvironmentError::Unfit { .. })), "{unfit:?}");
    }
}
