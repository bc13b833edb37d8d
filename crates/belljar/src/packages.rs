//! Packages: the options that select them and their sources, and `belljar packages`.

mod cache;
mod commands;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use belljar_cache::Cache;
use belljar_core::{MissingDependency, Progress, TOOLS_MODULE};
use belljar_packages::{
    Dependencies, InferredDependency, InstallError, Installer, Policy, Requirement, Setting, Settings,
};
use belljar_python::install::{
    FailedRun, ImageForRepetition, InstalledPackages, InstallerSource, PrepareError, PrepareOptions, RuntimeInstaller,
};
use belljar_python::{Image, Interpreter, Python, PythonRuntime};
use clap::Args;

use crate::command_error::CommandError;
use crate::os::NativeInstalls;
use crate::run_context::Running;
use crate::siblings::Siblings;
use crate::value_parsers::seconds;

pub(crate) use commands::{PackagesCommand, packages};

/// The options that select packages and their sources.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Packages")]
pub(crate) struct PackageOptions {
    /// Packages to install in addition to those that the code imports.
    ///
    /// A list of requirements, such as `rich,httpx[http2]>=0.27,<1`.
    #[arg(long, value_name = "REQUIREMENTS")]
    deps: Vec<String>,
    /// Modules to import into the image from which code starts: `numpy,pandas.plotting`. Their packages are installed.
    #[arg(long, value_name = "MODULES", value_delimiter = ',', hide_short_help = true)]
    preload: Vec<String>,
    /// Requirements file of packages to install.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    requirements: Vec<PathBuf>,
    /// Constraints file: restricts the versions of packages.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    constraints: Vec<PathBuf>,
    /// Package index to use instead of the default one.
    #[arg(long, value_name = "URL", hide_short_help = true)]
    index_url: Option<String>,
    /// Additional package index, searched first.
    #[arg(long, value_name = "URL", hide_short_help = true)]
    extra_index_url: Vec<String>,
    /// Directory of wheels, or page with links to wheels.
    #[arg(long, value_name = "DIR|URL", hide_short_help = true)]
    find_links: Vec<String>,
    /// Ignore files uploaded after this date.
    #[arg(long, value_name = "DATE", hide_short_help = true)]
    exclude_newer: Option<String>,
    /// Ask the index again instead of using its answers of the last ten minutes.
    #[arg(long, hide_short_help = true)]
    refresh: bool,
    /// Install only these packages: names or patterns, such as `pydantic*,rich`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', hide_short_help = true)]
    allow_packages: Vec<String>,
    /// Never install these packages.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', hide_short_help = true)]
    deny_packages: Vec<String>,
    /// Do not install packages.
    #[arg(long)]
    no_install: bool,
    /// Time limit of an installation, which does not count towards the time limit of the code.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "180", hide_short_help = true)]
    install_timeout: Duration,
}

impl PackageOptions {
    /// Checks that the files and requirements can be parsed.
    pub(crate) fn check(&self) -> Result<(), CommandError> {
        self.given().map(drop)
    }

    /// Returns the packages and modules that these options add to the code's own.
    fn given(&self) -> Result<PrepareOptions, CommandError> {
        let mut requirements = Vec::new();
        for text in self.deps.iter().flat_map(|list| split_requirements(list)) {
            requirements.push(Requirement::parse(text).map_err(|error| CommandError::from(error).context("--deps"))?);
        }
        for file in &self.requirements {
            requirements.extend(read(file, "--requirements")?);
        }
        let mut constraints = Vec::new();
        for file in &self.constraints {
            constraints.extend(read(file, "--constraints")?);
        }
        let imports: Vec<String> = self.preload.iter().map(|name| name.trim().to_owned()).collect();
        if let Some(name) = imports.iter().find(|name| !is_module(name)) {
            return Err(CommandError::new(format!("--preload: `{name}` is not the name of a module"))
                .with_hint("write names such as numpy,pandas.plotting"));
        }
        Ok(PrepareOptions { requirements, constraints, imports, ..PrepareOptions::default() })
    }

    /// Returns whether code can install packages; `is_forbidden` is set if the sandbox cannot install any.
    pub(crate) fn can_install(&self, is_forbidden: bool) -> bool {
        !self.no_install && !is_forbidden
    }

    /// Returns the names or patterns of the only packages that can be installed. Without them all can be.
    pub(crate) fn allowed(&self) -> Vec<String> {
        self.allow_packages.iter().map(|name| name.trim().to_owned()).collect()
    }

    /// Returns the packages of `--deps`, which are there without an import.
    pub(crate) fn given_names(&self) -> Vec<String> {
        self.deps.iter().flat_map(|list| split_requirements(list)).map(str::to_owned).collect()
    }

    /// Returns the sources of packages. Options override the environment variables of uv and pip.
    fn settings(&self, cache: Cache, offline: bool) -> Result<Settings, InstallError> {
        let mut settings = Settings::from_environment(cache)?;
        settings.offline |= offline;
        if self.index_url.is_some() {
            settings.index_url.clone_from(&self.index_url);
        }
        if !self.extra_index_url.is_empty() {
            settings.extra_index_urls.clone_from(&self.extra_index_url);
        }
        if !self.find_links.is_empty() {
            settings.find_links.clone_from(&self.find_links);
        }
        if self.exclude_newer.is_some() {
            settings.exclude_newer.clone_from(&self.exclude_newer);
        }
        settings.refreshed_since = self.refresh.then(SystemTime::now);
        settings.policy = Policy::new(&self.allow_packages, &self.deny_packages).map_err(|error| {
            InstallError::Setting { setting: Setting::Policy, value: error.pattern, reason: error.reason }
        })?;
        settings.no_install = self.no_install;
        settings.timeout = self.install_timeout;
        Ok(settings)
    }

    /// Returns the settings for installing packages in native kernels, which use the indexes configured for pip or uv.
    /// Returns `None` with `--no-install` or offline, which forbid installing.
    ///
    /// # Errors
    /// Returns an error if the policy is not valid or an option applies to the WebAssembly sandbox only.
    pub(crate) fn native_installs(&self, offline: bool) -> Result<Option<NativeInstalls>, CommandError> {
        let beforehand = "`belljar native setup --packages NAMES` adds packages to the environment";
        let index = "configure the indexes of uv, or of the environment's pip";
        for (option, given, hint) in [
            ("--deps", !self.deps.is_empty(), beforehand),
            ("--requirements", !self.requirements.is_empty(), beforehand),
            ("--constraints", !self.constraints.is_empty(), beforehand),
            ("--preload", !self.preload.is_empty(), beforehand),
            ("--index-url", self.index_url.is_some(), index),
            ("--extra-index-url", !self.extra_index_url.is_empty(), index),
            ("--find-links", !self.find_links.is_empty(), index),
            ("--exclude-newer", self.exclude_newer.is_some(), index),
            ("--refresh", self.refresh, "uv and pip decide how long they use the answers of indexes"),
        ] {
            if given {
                return Err(CommandError::new(format!("{option} applies to --sandbox wasm only")).with_hint(hint));
            }
        }
        if self.no_install || offline {
            return Ok(None);
        }
        let policy = Policy::new(&self.allow_packages, &self.deny_packages)
            .map_err(|error| CommandError::from(error).context("--allow-packages, --deny-packages"))?;
        let policy =
            Arc::new(move |name: &str| policy.violation(name).map_or(Ok(()), |violation| Err(violation.into())));
        Ok(Some(NativeInstalls { policy, timeout: self.install_timeout }))
    }
}

/// Returns whether the text is the dotted name of a module. The name becomes part of a line of Python.
fn is_module(name: &str) -> bool {
    let identifier = |part: &str| {
        let mut characters = part.chars();
        characters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
            && characters.all(|character| character.is_alphanumeric() || character == '_')
    };
    name.split('.').all(identifier)
}

fn read(file: &Path, option: &str) -> Result<Vec<Requirement>, CommandError> {
    Requirement::parse_file(file)
        .map_err(|error| CommandError::from(error).context(format!("{option} {}", file.display())))
}

/// Splits a list of requirements at its commas. A comma in brackets or before a comparison is part of a requirement.
fn split_requirements(list: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0u32);
    for (at, character) in list.char_indices() {
        match character {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 && !list[at + 1..].trim_start().starts_with(['<', '>', '=', '!', '~']) => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// The packages for the code of one run: those that it needs at the start, and those that it installs while it runs.
pub(crate) struct Packages {
    python: Python,
    given: PrepareOptions,
    source: Arc<Source>,
    progress: Arc<dyn Progress>,
}

/// A source that creates the installer when it is first needed.
struct Source {
    python: Python,
    options: PackageOptions,
    offline: bool,
    progress: Arc<dyn Progress>,
    installer: OnceLock<Arc<Installer>>,
}

impl InstallerSource for Source {
    fn installer(&self) -> Result<Arc<Installer>, InstallError> {
        if let Some(installer) = self.installer.get() {
            return Ok(installer.clone());
        }
        let mut settings = self.options.settings(self.python.cache().clone(), self.offline)?;
        settings.pyodide = match self.python.pyodide_source(&*self.progress) {
            Ok(source) => Some(source),
            Err(error) => {
                tracing::warn!(%error, "failed to open Pyodide's lock file: its wheels are not available");
                None
            }
        };
        let installer = Arc::new(Installer::new(self.python.platform(), settings));
        Ok(self.installer.get_or_init(|| installer).clone())
    }
}

/// Returns the source of packages that `options` describe.
pub(crate) fn source(
    python: &Python,
    options: &PackageOptions,
    offline: bool,
    progress: Arc<dyn Progress>,
) -> Arc<dyn InstallerSource> {
    let (python, options) = (python.clone(), options.clone());
    Arc::new(Source { python, options, offline, progress, installer: OnceLock::new() })
}

impl Packages {
    /// Creates the packages that `options` describe.
    pub(crate) fn new(
        python: &Python,
        options: &PackageOptions,
        offline: bool,
        progress: Arc<dyn Progress>,
    ) -> Result<Self, CommandError> {
        let source = Source {
            python: python.clone(),
            options: options.clone(),
            offline,
            progress: progress.clone(),
            installer: OnceLock::new(),
        };
        Ok(Self { python: python.clone(), given: options.given()?, source: Arc::new(source), progress })
    }

    /// Returns the reporter of progress.
    pub(crate) fn progress(&self) -> &dyn Progress {
        &*self.progress
    }

    /// Adds the modules of the program's own folder: they need no packages, but what they import may.
    pub(crate) fn with_siblings(mut self, siblings: &Siblings) -> Self {
        self.given.sources.extend(siblings.sources());
        self.given.modules.extend(siblings.modules());
        self
    }

    /// Adds the module that the guest provides to code that can call tools.
    pub(crate) fn with_tools(mut self) -> Self {
        self.given.modules.push(TOOLS_MODULE.into());
        self
    }

    /// Returns an image with the packages of `code`, and the list of these packages. Code with environment variables of
    /// its own gets an image without imported modules, because modules may read variables when they are imported.
    pub(crate) fn image(&self, code: &str, has_environment: bool) -> Result<(Image, InstalledPackages), PrepareError> {
        let given = self.options(has_environment);
        let needs = self.python.needs(code, &given, &*self.source)?;
        let image = self.python.image_for(&needs, &given, &*self.source, &*self.progress)?;
        let installed = InstalledPackages::new(image.packages(), &needs);
        Ok((image, installed))
    }

    /// Returns the options for preparing an image for code, which may have environment variables of its own.
    pub(crate) fn options(&self, has_environment: bool) -> PrepareOptions {
        PrepareOptions { preload: !has_environment, ..self.given.clone() }
    }

    /// Returns an image with the package without which a run failed, if the program can be run again with it: see
    /// [`Python::image_for_repetition`].
    ///
    /// # Errors
    /// Returns the package if the program cannot be run again.
    pub(crate) fn image_for_repetition(
        &self,
        failed: &FailedRun<'_>,
        options: &mut PrepareOptions,
    ) -> Result<Option<ImageForRepetition>, MissingDependency> {
        self.python.image_for_repetition(failed, options, &*self.source, &*self.progress)
    }

    /// Returns the packages that input of the prompt imports and that are not installed.
    ///
    /// # Errors
    /// Returns an error if the requirements of the input cannot be read or met.
    pub(crate) fn needs_of_input(&self, code: &str, running: &mut Running) -> Result<Dependencies, PrepareError> {
        let Running { interpreter, installer, .. } = running;
        let mut modules = interpreter.local_modules();
        modules.extend_from_slice(&self.given.modules);
        self.python.needs_of_cell(code, &installer.packages(), &modules, &*self.source)
    }

    /// Returns the package of a module without which input of the prompt failed, if any.
    pub(crate) fn package_of_missing_module(&self, module: &str, running: &mut Running) -> Option<InferredDependency> {
        let Running { interpreter, installer, .. } = running;
        let modules = interpreter.local_modules();
        self.python.package_of_missing_module(module, &installer.packages(), &modules, &*self.source)
    }

    /// Builds the image from which code without requirements of its own starts, if modules are to be imported into it.
    ///
    /// # Errors
    /// Returns an error that names the first module that could not be imported.
    pub(crate) fn preload(&self) -> Result<(), CommandError> {
        if self.given.imports.is_empty() {
            return Ok(());
        }
        let (image, _) = self.image("", false)?;
        match image.preload_failures().iter().find(|left| self.given.imports.contains(&left.module)) {
            Some(left) => {
                Err(CommandError::new(format!("--preload: failed to import `{}`: {}", left.module, left.reason)))
            }
            None => Ok(()),
        }
    }

    /// Returns a runtime of `python` with the added packages, for backends, which prepare images themselves.
    pub(crate) fn into_runtime(self, python: Python) -> PythonRuntime {
        PythonRuntime { python, options: self.given, installer: self.source }
    }

    /// Enables the code in an interpreter restored from `image` to install packages. Returns the installer.
    pub(crate) fn serve(&self, interpreter: &mut Interpreter, image: &Image) -> Arc<RuntimeInstaller> {
        let live = RuntimeInstaller::new(&self.python, image, self.source.clone(), self.progress.clone());
        let live = Arc::new(live);
        interpreter.register_host_call("install", live.clone());
        live
    }
}

#[cfg(test)]
mod tests {
    use super::{is_module, split_requirements};

    #[test]
    fn preloaded_modules_must_have_valid_names() {
        assert!(["numpy", "pandas.plotting", "_x", "größe2"].into_iter().all(is_module));
        assert!(["", "a.", ".a", "a b", "1a", "a\nimport os", "a;b", "a-b"].into_iter().all(|name| !is_module(name)));
    }

    #[test]
    fn commas_in_versions_and_extras_do_not_separate_requirements() {
        assert_eq!(split_requirements("a,b"), ["a", "b"]);
        assert_eq!(
            split_requirements("rich >=12, <14 , httpx[http2,cli]~=0.27,x"),
            ["rich >=12, <14", "httpx[http2,cli]~=0.27", "x"]
        );
        assert_eq!(split_requirements(" , "), [""; 0]);
    }
}
