//! Packages on the command line: the options that say which, and from where, and `belljar packages`.

mod cache;
mod commands;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use belljar_cache::Cache;
use belljar_core::progress::Progress;
use belljar_packages::{InstallError, Installer, Policy, Requirement, Settings};
use belljar_python::install::{Given, InstallerSource, LiveInstaller, PrepareError};
use belljar_python::{Image, Interpreter, Python};
use clap::Args;

use crate::sandbox_options::NativeInstalls;

pub(crate) use commands::{PackagesCommand, packages};

/// Which packages, and from where.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Packages")]
pub(crate) struct PackageOptions {
    /// Packages to install beside those that the code imports: `rich,httpx[http2]>=0.27,<1`.
    #[arg(long, value_name = "REQUIREMENTS")]
    deps: Vec<String>,
    /// Modules to import ahead of time, into the image that code starts from: `numpy,pandas.plotting`. Packages that
    /// have them are installed.
    #[arg(long, value_name = "MODULES", value_delimiter = ',')]
    preload: Vec<String>,
    /// File of packages to install.
    #[arg(long, value_name = "FILE")]
    requirements: Vec<PathBuf>,
    /// File of versions to keep to, for packages that are needed.
    #[arg(long, value_name = "FILE")]
    constraints: Vec<PathBuf>,
    /// Package index to use instead of the usual one.
    #[arg(long, value_name = "URL")]
    index_url: Option<String>,
    /// Package index to ask first.
    #[arg(long, value_name = "URL")]
    extra_index_url: Vec<String>,
    /// Directory of wheels, or page that links to some.
    #[arg(long, value_name = "DIR|URL")]
    find_links: Vec<String>,
    /// Ignore files that were uploaded after this date.
    #[arg(long, value_name = "DATE")]
    exclude_newer: Option<String>,
    /// Install these packages only: names or patterns, such as `pydantic*,rich`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    allow_packages: Vec<String>,
    /// Never install these packages.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    deny_packages: Vec<String>,
    /// Install nothing.
    #[arg(long)]
    no_install: bool,
    /// Give up installing after so many seconds. They do not count as the code's.
    #[arg(long, value_name = "SECONDS", value_parser = crate::cli::seconds, default_value = "180")]
    install_timeout: Duration,
}

impl PackageOptions {
    /// Whether what they name can be read.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.given().map(drop)
    }

    /// What is to be installed beside what the code needs.
    fn given(&self) -> Result<Given, String> {
        let mut requirements = Vec::new();
        for text in self.deps.iter().flat_map(|list| split_requirements(list)) {
            requirements.push(Requirement::parse(text).map_err(|error| format!("--deps: {error}"))?);
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
            return Err(format!("--preload: `{name}` is no module's name; write names such as numpy,pandas.plotting"));
        }
        Ok(Given { requirements, constraints, imports, ..Given::default() })
    }

    /// Where packages come from: these options, and for what they do not say the environment variables of uv and pip.
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
        settings.policy = Policy::new(&self.allow_packages, &self.deny_packages).map_err(|error| {
            InstallError::Setting { setting: "--allow-packages, --deny-packages".into(), reason: error.to_string() }
        })?;
        settings.no_install = self.no_install;
        settings.timeout = self.install_timeout;
        Ok(settings)
    }

    /// What sessions of native kernels may install, from where their own pip or uv is set up to look; nothing with
    /// `--no-install`.
    ///
    /// # Errors
    /// When the policy cannot be read, or an option is given that only the WebAssembly sandbox has.
    pub(crate) fn native_installs(&self) -> Result<Option<NativeInstalls>, String> {
        let beforehand = "`belljar native setup --packages NAMES` puts packages into the environment";
        let index = "the environment's pip, and uv, are told by their own settings where packages come from";
        for (option, given, hint) in [
            ("--deps", !self.deps.is_empty(), beforehand),
            ("--requirements", !self.requirements.is_empty(), beforehand),
            ("--constraints", !self.constraints.is_empty(), beforehand),
            ("--preload", !self.preload.is_empty(), beforehand),
            ("--index-url", self.index_url.is_some(), index),
            ("--extra-index-url", !self.extra_index_url.is_empty(), index),
            ("--find-links", !self.find_links.is_empty(), index),
            ("--exclude-newer", self.exclude_newer.is_some(), index),
        ] {
            if given {
                return Err(format!("{option} is for --sandbox wasm\nhint: {hint}"));
            }
        }
        if self.no_install {
            return Ok(None);
        }
        let policy = Policy::new(&self.allow_packages, &self.deny_packages)
            .map_err(|error| format!("--allow-packages, --deny-packages: {error}"))?;
        let policy = Arc::new(move |name: &str| policy.objection(name).map_or(Ok(()), Err));
        Ok(Some(NativeInstalls { policy, timeout: self.install_timeout }))
    }
}

/// Whether this is a module's dotted name. It becomes a line of Python.
fn is_module(name: &str) -> bool {
    let identifier = |part: &str| {
        let mut characters = part.chars();
        characters.next().is_some_and(|first| first.is_alphabetic() || first == '_')
            && characters.all(|character| character.is_alphanumeric() || character == '_')
    };
    name.split('.').all(identifier)
}

fn read(file: &Path, option: &str) -> Result<Vec<Requirement>, String> {
    Requirement::parse_file(file).map_err(|error| format!("{option} {}: {error}", file.display()))
}

/// The requirements in a list with commas between them. A comma in brackets, or before a comparison, is part of one.
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

/// Packages for the code of one run: what it needs beforehand, and what it installs by itself.
pub(crate) struct Packages {
    python: Python,
    given: Given,
    source: Arc<Source>,
    progress: Arc<dyn Progress>,
}

/// Makes the installer when it is needed.
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
                tracing::warn!(%error, "Pyodide's own wheels are not looked for");
                None
            }
        };
        let installer = Arc::new(Installer::new(self.python.platform(), settings));
        Ok(self.installer.get_or_init(|| installer).clone())
    }
}

impl Packages {
    /// As `options` say.
    pub(crate) fn new(
        python: &Python,
        options: &PackageOptions,
        offline: bool,
        progress: Arc<dyn Progress>,
    ) -> Result<Self, String> {
        let source = Source {
            python: python.clone(),
            options: options.clone(),
            offline,
            progress: progress.clone(),
            installer: OnceLock::new(),
        };
        Ok(Self { python: python.clone(), given: options.given()?, source: Arc::new(source), progress })
    }

    /// An image with what `code` needs. With environment variables of its own it finds nothing imported: modules may
    /// look at those when they are imported.
    pub(crate) fn image(&self, code: &str, has_environment: bool) -> Result<Image, PrepareError> {
        let given = Given { preload: !has_environment, ..self.given.clone() };
        self.python.prepare(code, &given, &*self.source, &*self.progress)
    }

    /// Builds the image that code without needs of its own starts from, when modules are to be imported into it; says
    /// which one cannot be.
    pub(crate) fn preload(&self) -> Result<(), String> {
        if self.given.imports.is_empty() {
            return Ok(());
        }
        let image = self.image("", false).map_err(|error| crate::outcome::words(&error))?;
        match image.left_out().iter().find(|left| self.given.imports.contains(&left.module)) {
            Some(left) => Err(format!("--preload: `{}` cannot be imported beforehand: {}", left.module, left.reason)),
            None => Ok(()),
        }
    }

    /// What is given, and where packages come from: for a server, which prepares each call's image itself.
    pub(crate) fn into_parts(self) -> (Given, Arc<dyn InstallerSource>) {
        (self.given, self.source)
    }

    /// Lets the code in an interpreter that is a copy of `image` install more.
    pub(crate) fn serve(&self, interpreter: &mut Interpreter, image: &Image) {
        let live = LiveInstaller::new(&self.python, image, self.source.clone(), self.progress.clone());
        interpreter.answer("install", Arc::new(live));
    }
}

#[cfg(test)]
mod tests {
    use super::{is_module, split_requirements};

    #[test]
    fn what_is_preloaded_are_names_of_modules() {
        assert!(["numpy", "pandas.plotting", "_x", "größe2"].into_iter().all(is_module));
        assert!(["", "a.", ".a", "a b", "1a", "a\nimport os", "a;b", "a-b"].into_iter().all(|name| !is_module(name)));
    }

    #[test]
    fn commas_part_requirements_but_not_their_versions_and_extras() {
        assert_eq!(split_requirements("a,b"), ["a", "b"]);
        assert_eq!(
            split_requirements("rich >=12, <14 , httpx[http2,cli]~=0.27,x"),
            ["rich >=12, <14", "httpx[http2,cli]~=0.27", "x"]
        );
        assert_eq!(split_requirements(" , "), [""; 0]);
    }
}
