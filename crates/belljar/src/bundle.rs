//! `belljar bundle`: writes the prebuilt files that are installed together with the program.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use belljar_core::Progress;
use belljar_emscripten::Target;
use belljar_python::Python;
use clap::Args;

use crate::command_error::CommandError;
use crate::global_options::GlobalOptions;
use crate::outcome::fail;
use crate::packages::{PackageOptions, source};
use crate::progress;

/// The options of `belljar bundle`.
#[derive(Debug, Args)]
pub(crate) struct BundleArguments {
    /// Directory to create.
    directory: PathBuf,
    /// Platform that the files are for, by rustc's name. Others than this program's need a build with the feature
    /// `cross-compile`.
    #[arg(long, value_name = "TRIPLE", value_parser = parse_target)]
    target: Option<Target>,
    #[command(flatten)]
    packages: PackageOptions,
}

fn parse_target(text: &str) -> Result<Target, String> {
    Target::from_triple(text).ok_or_else(|| "this build does not compile for this platform".into())
}

/// Compiles CPython for all processors of the platform, builds the image of sessions, and copies these files into a new
/// directory.
pub(crate) fn bundle(global: &GlobalOptions, arguments: &BundleArguments) -> ExitCode {
    match write(global, arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn write(global: &GlobalOptions, arguments: &BundleArguments) -> Result<(), CommandError> {
    let BundleArguments { directory, target, packages } = arguments;
    if directory.exists() {
        return Err(CommandError::new(format!("{} exists already", directory.display())));
    }
    let progress: Arc<dyn Progress> = Arc::from(progress::reporter(global.quiet));
    let source = |python: &Python| source(python, packages, global.offline(), progress.clone());
    Python::write_bundle(&global.options()?, target.unwrap_or(Target::HOST), source, directory, &*progress)?;
    Ok(())
}
