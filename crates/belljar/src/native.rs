//! `belljar native`: sets up and inspects the Python environment and the sandbox of native kernels.

use std::path::PathBuf;
use std::process::ExitCode;

use belljar_native::environment::{EnvironmentSpec, Environments};
use clap::{Args, Subcommand};

use crate::command_error::CommandError;
use crate::console::print_line;
use crate::global_options::GlobalOptions;
use crate::os::{check_native_kernels, describe_sandbox};
use crate::outcome::fail;
use crate::progress;

/// A subcommand of `belljar native`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NativeCommand {
    /// Create the environment, or use an existing one. Running it again changes nothing.
    #[command(after_help = "\
Examples:
  belljar native setup                                    ipykernel, numpy, pandas and more
  belljar native setup --python python3.12                with a specific Python
  belljar native setup --packages ipykernel,torch         with these packages instead
  belljar native setup --venv ~/venvs/science             your own environment

The environment is created with uv if that is on PATH, otherwise with `python3 -m venv` and pip.")]
    Setup(SetupArguments),
    /// Show the environment and the state of the sandbox.
    Status {
        #[command(flatten)]
        directory: EnvironmentDirArgs,
    },
}

/// The directory of environments.
#[derive(Debug, Clone, Args)]
pub(crate) struct EnvironmentDirArgs {
    /// Directory of environments [default: the platform's data directory].
    #[arg(long, value_name = "DIR", env = "BELLJAR_NATIVE", hide_env_values = true)]
    native_dir: Option<PathBuf>,
}

impl EnvironmentDirArgs {
    fn environments(&self) -> Result<Environments, CommandError> {
        Environments::new(self.native_dir.clone()).ok_or_else(|| {
            CommandError::new("the home directory of this user is unknown")
                .with_hint("name a directory with --native-dir")
        })
    }
}

/// The options of `belljar native setup`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SetupArguments {
    /// Python to use: a name or a path, or with uv a version.
    #[arg(long, value_name = "PYTHON")]
    python: Option<String>,
    /// Packages to install instead of the default ones.
    #[arg(long, value_name = "PACKAGES", value_delimiter = ',')]
    packages: Vec<String>,
    /// Use this virtual environment, which needs ipykernel. It is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    venv: Option<PathBuf>,
    #[command(flatten)]
    directory: EnvironmentDirArgs,
}

/// Runs a subcommand of `belljar native`.
pub(crate) fn native(global: &GlobalOptions, command: &NativeCommand) -> ExitCode {
    let result = match command {
        NativeCommand::Setup(arguments) => setup(global, arguments),
        NativeCommand::Status { directory } => status(directory),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn setup(global: &GlobalOptions, arguments: &SetupArguments) -> Result<(), CommandError> {
    check_native_kernels()?;
    let environments = arguments.directory.environments()?;
    let mut spec = EnvironmentSpec { python: arguments.python.clone(), ..EnvironmentSpec::default() };
    if !arguments.packages.is_empty() {
        spec.packages = arguments.packages.iter().map(|package| package.trim().to_owned()).collect();
    }
    let progress = progress::reporter(global.quiet);
    let environment = match &arguments.venv {
        Some(directory) => environments.use_existing(directory, &spec, &*progress)?,
        None => environments.set_up(&spec, &*progress)?,
    };
    if !global.quiet {
        eprintln!(
            "ready: Python {} with ipykernel {} in {}",
            environment.python,
            environment.ipykernel,
            environment.directory.display()
        );
    }
    Ok(())
}

fn status(directory: &EnvironmentDirArgs) -> Result<(), CommandError> {
    let environments = directory.environments()?;
    print_line(format_args!("sandbox      {}", describe_sandbox()));
    let environment = environments.current()?;
    print_line(format_args!("environment  {}", environment.directory.display()));
    print_line(format_args!("python       {}", environment.python));
    print_line(format_args!("ipykernel    {}", environment.ipykernel));
    for unused in environments.unused() {
        print_line(format_args!("unused       {} (may be deleted)", unused.display()));
    }
    Ok(())
}
