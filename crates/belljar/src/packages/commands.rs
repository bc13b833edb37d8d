//! `belljar packages`: lock, download, list, clean.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use belljar_core::parse_size;
use belljar_core::progress::Progress;
use belljar_packages::{Installer, Resolution};
use belljar_python::Python;
use belljar_python::install::InstallerSource;
use clap::{Args, Subcommand};

use super::cache::{clean, list};
use super::{PackageOptions, Packages};
use crate::cli::Global;
use crate::outcome::{fail, fail_with};
use crate::{console, progress};

/// What can be done about packages without running code.
#[derive(Debug, Subcommand)]
pub(crate) enum PackagesCommand {
    /// Print which files of which versions a program's packages come to, as a pylock.toml.
    #[command(after_help = "Example: belljar packages lock script.py > pylock.toml")]
    Lock(Program),
    /// Fetch a program's packages into a directory, for machines without a network.
    #[command(after_help = "\
Example:
  belljar packages download wheels script.py
  belljar run --offline --find-links wheels script.py")]
    Download {
        /// The directory; it is made if it is missing.
        directory: PathBuf,
        #[command(flatten)]
        program: Program,
    },
    /// Show what the cache holds of packages.
    List,
    /// Delete what the cache holds of packages.
    Clean {
        /// Keep what was used last, up to this size.
        #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "0")]
        keep: u64,
    },
}

/// Whose packages.
#[derive(Debug, Args)]
pub(crate) struct Program {
    /// Files of code; not needed with --deps or --requirements.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: PackageOptions,
}

/// Does what `command` says.
pub(crate) fn packages(global: &Global, command: &PackagesCommand) -> ExitCode {
    let done = match command {
        PackagesCommand::Lock(program) => lock(global, program),
        PackagesCommand::Download { directory, program } => download(global, directory, program),
        PackagesCommand::List => list(global),
        PackagesCommand::Clean { keep } => clean(global, *keep),
    };
    done.unwrap_or_else(|code| code)
}

fn lock(global: &Global, program: &Program) -> Result<ExitCode, ExitCode> {
    let Resolved { installer, resolution, .. } = resolve(global, program)?;
    let lock = resolution.to_pylock(installer.platform()).map_err(|error| fail_with(&error))?;
    console::print(lock.as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn download(global: &Global, directory: &Path, program: &Program) -> Result<ExitCode, ExitCode> {
    let Resolved { installer, resolution, progress } = resolve(global, program)?;
    let written = installer.download(&resolution, directory, &*progress).map_err(|error| fail_with(&error))?;
    if !global.quiet {
        eprintln!("{} files are in {}", written.len(), directory.display());
    }
    Ok(ExitCode::SUCCESS)
}

struct Resolved {
    installer: Arc<Installer>,
    resolution: Resolution,
    progress: Arc<dyn Progress>,
}

/// What the program's packages come to.
fn resolve(global: &Global, program: &Program) -> Result<Resolved, ExitCode> {
    let progress: Arc<dyn Progress> = Arc::from(progress::reporter(global.quiet));
    let options = global.options().map_err(|message| fail(&message))?;
    let python = Python::open(&options, &*progress).map_err(|error| fail_with(&error))?;
    let packages = Packages::new(&python, &program.options, global.offline(), progress.clone())
        .map_err(|message| fail(&message))?;
    let mut code = Vec::new();
    for file in &program.files {
        let text = std::fs::read_to_string(file);
        code.push(text.map_err(|error| fail(&format!("cannot read {}: {error}", file.display())))?);
    }
    let request =
        packages.python.request(&code, &packages.given, &*packages.source).map_err(|error| fail_with(&error))?;
    let installer = packages.source.installer().map_err(|error| fail_with(&error))?;
    let resolution = installer.resolve(&request, &*progress).map_err(|error| fail_with(&error))?;
    Ok(Resolved { installer, resolution, progress })
}
