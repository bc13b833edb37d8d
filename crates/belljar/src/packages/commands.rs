//! `belljar packages`: lock, download, list, clean.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use belljar_core::{Progress, parse_size};
use belljar_packages::{Installer, Resolution};
use belljar_python::Python;
use belljar_python::install::{InstallerSource, PrepareOptions};
use clap::{Args, Subcommand};

use super::cache::list;
use super::{PackageOptions, Packages};
use crate::command_error::CommandError;
use crate::global_options::GlobalOptions;
use crate::outcome::fail;
use crate::siblings::Siblings;
use crate::{console, progress};

/// A subcommand of `belljar packages`.
#[derive(Debug, Subcommand)]
pub(crate) enum PackagesCommand {
    /// Resolve a program's packages and print the versions and files as a pylock.toml.
    #[command(after_help = "Example: belljar packages lock script.py > pylock.toml")]
    Lock(Program),
    /// Download a program's packages into a directory, for use without a network.
    #[command(after_help = "\
Example:
  belljar packages download wheels script.py
  belljar run --offline --find-links wheels script.py")]
    Download {
        /// Directory, which is created if it does not exist.
        directory: PathBuf,
        #[command(flatten)]
        program: Program,
    },
    /// List the packages in the cache.
    List,
    /// Delete packages from the cache.
    Clean {
        /// Keep the most recently used entries, up to this size.
        #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
        keep: u64,
    },
}

/// The program whose packages are resolved.
#[derive(Debug, Args)]
pub(crate) struct Program {
    /// Source files; optional with --deps or --requirements.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: PackageOptions,
}

/// Runs a subcommand of `belljar packages`.
pub(crate) fn packages(global: &GlobalOptions, command: &PackagesCommand) -> ExitCode {
    let result = match command {
        PackagesCommand::Lock(program) => lock(global, program),
        PackagesCommand::Download { directory, program } => download(global, directory, program),
        PackagesCommand::List => list(global),
        PackagesCommand::Clean { keep } => crate::cache::clean(global, *keep, false),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn lock(global: &GlobalOptions, program: &Program) -> Result<(), CommandError> {
    let Resolved { installer, resolution, .. } = resolve(global, program)?;
    let lock = resolution.to_pylock(installer.platform())?;
    console::print(lock.as_bytes());
    Ok(())
}

fn download(global: &GlobalOptions, directory: &Path, program: &Program) -> Result<(), CommandError> {
    let Resolved { installer, resolution, progress } = resolve(global, program)?;
    let written = installer.download(&resolution, directory, &*progress)?;
    if !global.quiet {
        let files = if written.len() == 1 { "1 file is".to_owned() } else { format!("{} files are", written.len()) };
        eprintln!("{files} in {}", directory.display());
    }
    Ok(())
}

struct Resolved {
    installer: Arc<Installer>,
    resolution: Resolution,
    progress: Arc<dyn Progress>,
}

/// Resolves the program's packages.
fn resolve(global: &GlobalOptions, program: &Program) -> Result<Resolved, CommandError> {
    let progress: Arc<dyn Progress> = Arc::from(progress::reporter(global.quiet));
    let options = global.options()?;
    let python = Python::open(&options, &*progress)?;
    let packages = Packages::new(&python, &program.options, global.offline(), progress.clone())?;
    let mut programs = Vec::new();
    for file in &program.files {
        let code =
            std::fs::read_to_string(file).map_err(|error| format!("failed to read {}: {error}", file.display()))?;
        let siblings = Siblings::for_script(file, &code)?;
        let (sources, modules) = (siblings.sources().collect(), siblings.modules().collect());
        programs.push((code, PrepareOptions { sources, modules, ..packages.given.clone() }));
    }
    let request = packages.python.request(&programs, &packages.given, &*packages.source)?;
    let installer = packages.source.installer()?;
    let resolution = installer.resolve(&request, &*progress)?;
    Ok(Resolved { installer, resolution, progress })
}
