//! The options of every command.

use std::path::PathBuf;

use belljar_core::parse_size;
use belljar_python::runtime::Release;
use belljar_python::{CacheLimits, Options};
use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args};

use crate::command_error::CommandError;
use crate::observability::LogFormat;

/// The options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalOptions {
    /// Directory with Pyodide's files (pyodide.asm.wasm, python_stdlib.zip, pyodide-lock.json).
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "BELLJAR_RUNTIME",
        hide_env_values = true,
        hide_short_help = true
    )]
    runtime: Option<PathBuf>,
    /// Directory for downloads, compiled code and images [default: the platform's cache directory].
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "BELLJAR_CACHE",
        hide_env_values = true,
        hide_short_help = true
    )]
    cache: Option<PathBuf>,
    /// Space for packages and their images in the cache; the least recently used are deleted beyond it [default: 8GB].
    #[arg(
        long,
        global = true,
        value_name = "SIZE",
        value_parser = parse_size,
        env = "BELLJAR_CACHE_SIZE",
        hide_env_values = true,
        hide_short_help = true
    )]
    cache_size: Option<u64>,
    /// Pyodide release to run, such as 314.0.7 (CPython 3.14).
    #[arg(
        long,
        global = true,
        value_name = "VERSION",
        env = "BELLJAR_PYODIDE",
        hide_env_values = true,
        hide_short_help = true
    )]
    pyodide: Option<String>,
    /// Do not access the network.
    #[arg(
        long,
        global = true,
        env = "BELLJAR_OFFLINE",
        hide_env_values = true,
        action = ArgAction::SetTrue,
        value_parser = FalseyValueParser::new(),
        hide_short_help = true
    )]
    offline: bool,
    /// Do not leave a process that compiles packages with full optimization after the command has ended.
    #[arg(
        long,
        global = true,
        env = "BELLJAR_NO_BACKGROUND",
        hide_env_values = true,
        action = ArgAction::SetTrue,
        value_parser = FalseyValueParser::new(),
        hide_short_help = true
    )]
    pub(crate) no_background: bool,
    /// Do not show progress.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Log to standard error; repeat for more detail.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Format of the log on standard error; without -v, it has warnings.
    #[arg(long, global = true, value_enum, value_name = "FORMAT", hide_short_help = true)]
    pub(crate) log_format: Option<LogFormat>,
    /// Let the log contain code, session IDs and whole messages of clients.
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) log_code: bool,
    /// The directory of prebuilt files that was installed with the program.
    #[arg(skip)]
    pub(crate) bundle: Option<PathBuf>,
}

impl GlobalOptions {
    /// Returns the options for opening Python.
    ///
    /// # Errors
    /// Returns an error if the directory of Pyodide's files does not exist. Entries of the cache may still satisfy a
    /// run in that case, so that without this check the mistake would remain unnoticed until the cache is deleted.
    pub(crate) fn options(&self) -> Result<Options, CommandError> {
        if let Some(runtime) = self.runtime.as_ref().filter(|runtime| !runtime.is_dir()) {
            return Err(CommandError::new(format!("--runtime: {} is not a directory", runtime.display())).with_hint(
                "name a directory with pyodide.asm.wasm, python_stdlib.zip and pyodide-lock.json, or leave out --runtime \
                 and BELLJAR_RUNTIME to fetch these files",
            ));
        }
        Ok(Options {
            runtime: self.runtime.clone(),
            cache: self.cache(),
            bundle: self.bundle.clone(),
            release: self.pyodide.clone(),
            offline: self.offline,
            cache_limits: self.cache_limits(),
        })
    }

    /// Returns the limits of the caches for packages.
    pub(crate) fn cache_limits(&self) -> CacheLimits {
        let limits = CacheLimits::default();
        CacheLimits { cache_bytes: self.cache_size.unwrap_or(limits.cache_bytes), ..limits }
    }

    /// Returns the version of CPython that code in WebAssembly runs in: `3.14`.
    ///
    /// # Errors
    /// Returns an error if the selected release is not known.
    pub(crate) fn python_version(&self) -> Result<String, CommandError> {
        let release = match &self.pyodide {
            Some(version) => Release::find(version).map_err(|error| CommandError::from_error(&error))?,
            None => Release::default_release(),
        };
        let (major, minor) = release.python;
        Ok(format!("{major}.{minor}"))
    }

    /// Returns the directory for downloads, compiled code and images, if it was set.
    pub(crate) fn cache(&self) -> Option<PathBuf> {
        self.cache.clone()
    }

    /// Returns the options that determine how Python is opened as arguments, with absolute paths.
    ///
    /// # Errors
    /// Returns an error if the current directory is unknown, or if a path is not UTF-8.
    pub(crate) fn as_arguments(&self) -> Result<Vec<String>, CommandError> {
        let mut arguments = Vec::new();
        for (name, path) in [("--runtime", &self.runtime), ("--cache", &self.cache)] {
            let Some(path) = path else { continue };
            let path = std::path::absolute(path).map_err(|error| CommandError::new(format!("{name}: {error}")))?;
            let path = path.into_os_string().into_string();
            let path = path.map_err(|path| format!("{name}: {} is not UTF-8", path.display()))?;
            arguments.extend([name.to_owned(), path]);
        }
        if let Some(size) = self.cache_size {
            arguments.extend(["--cache-size".to_owned(), size.to_string()]);
        }
        if let Some(release) = &self.pyodide {
            arguments.extend(["--pyodide".to_owned(), release.clone()]);
        }
        if self.offline {
            arguments.push("--offline".to_owned());
        }
        if self.no_background {
            arguments.push("--no-background".to_owned());
        }
        Ok(arguments)
    }

    /// Returns whether access to the network is forbidden.
    pub(crate) fn offline(&self) -> bool {
        self.offline
    }
}
