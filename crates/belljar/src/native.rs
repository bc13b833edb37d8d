//! `belljar native`: the Python environment of native kernels, and the sandbox that holds them.

use std::path::PathBuf;
use std::process::ExitCode;

use belljar_jupyter::environment::{Environments, Plan};
use clap::{Args, Subcommand};

use crate::cli::Global;
use crate::outcome::fail;
use crate::progress;

/// What can be done about native kernels.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NativeCommand {
    /// Make the environment, or use one of your own. Done once; again, it changes nothing.
    #[command(after_help = "\
Examples:
  belljar native setup                                    ipykernel, numpy, pandas, matplotlib and more
  belljar native setup --python python3.12                from a certain Python
  belljar native setup --packages ipykernel,torch         with these packages instead
  belljar native setup --venv ~/venvs/science             an environment of your own

It is made with uv if that is on PATH, else with `python3 -m venv` and pip.")]
    Setup(SetupArguments),
    /// Say which environment there is, and whether the sandbox stands on this machine.
    Status {
        #[command(flatten)]
        place: Place,
    },
}

/// Where environments are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// Directory of environments [default: the platform's directory for data].
    #[arg(long, value_name = "DIR", env = "BELLJAR_NATIVE", hide_env_values = true)]
    native_dir: Option<PathBuf>,
}

impl Place {
    fn environments(&self) -> Result<Environments, String> {
        Environments::new(self.native_dir.clone())
            .ok_or_else(|| "this user has no home directory\nhint: --native-dir DIR names another place".into())
    }
}

/// Options of `belljar native setup`.
#[derive(Debug, Clone, Args)]
pub(crate) struct SetupArguments {
    /// The Python to make it from: a name or a path, or with uv a version.
    #[arg(long, value_name = "PYTHON")]
    python: Option<String>,
    /// Packages to install, in place of the usual ones.
    #[arg(long, value_name = "PACKAGES", value_delimiter = ',')]
    packages: Vec<String>,
    /// Use this virtual environment, which needs ipykernel. It is made if it is not there.
    #[arg(long, value_name = "DIR")]
    venv: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

/// Does what `command` says.
pub(crate) fn native(global: &Global, command: &NativeCommand) -> ExitCode {
    let done = match command {
        NativeCommand::Setup(arguments) => setup(global, arguments),
        NativeCommand::Status { place } => status(place),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => fail(&message),
    }
}

fn setup(global: &Global, arguments: &SetupArguments) -> Result<(), String> {
    let environments = arguments.place.environments()?;
    let mut plan = Plan { python: arguments.python.clone(), ..Plan::default() };
    if !arguments.packages.is_empty() {
        plan.packages = arguments.packages.iter().map(|package| package.trim().to_owned()).collect();
    }
    let progress = progress::reporter(global.quiet);
    let made = match &arguments.venv {
        Some(directory) => environments.adopt(directory, &plan, &*progress),
        None => environments.set_up(&plan, &*progress),
    };
    let environment = made.map_err(|error| error.to_string())?;
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

#[expect(clippy::print_stdout, reason = "the status is the command's answer")]
fn status(place: &Place) -> Result<(), String> {
    let environments = place.environments()?;
    println!("sandbox      {}", sandbox());
    let environment = environments.current().map_err(|error| error.to_string())?;
    println!("environment  {}", environment.directory.display());
    println!("python       {}", environment.python);
    println!("ipykernel    {}", environment.ipykernel);
    for unused in environments.unused() {
        println!("unused       {} (may be deleted)", unused.display());
    }
    Ok(())
}

/// Whether the sandbox stands here, in words.
#[cfg(target_os = "linux")]
fn sandbox() -> String {
    use belljar_jupyter::Native;
    use belljar_jupyter::sandbox::{Failure, Strength, delegated_control_groups};

    let lacks = |missing: &Option<Failure>| {
        missing.as_ref().map_or_else(String::new, |missing| format!("{missing}\nhint: {}", missing.remedy()))
    };
    match Native::findings() {
        Ok(findings) => match findings.strength {
            Some(Strength::Full) => {
                let groups = match delegated_control_groups() {
                    Some(folder) => format!("control groups below {}", folder.display()),
                    None => "no control groups are delegated: processes are limited one by one".into(),
                };
                format!("stands (--sandbox native); {groups}")
            }
            Some(Strength::Weak) => format!("the weak one alone (--sandbox native-weak): {}", lacks(&findings.missing)),
            None => format!("none: {}", lacks(&findings.missing_for_weak)),
        },
        Err(error) => format!("cannot be tried: {error}"),
    }
}

#[cfg(not(target_os = "linux"))]
fn sandbox() -> String {
    "none: native kernels need Linux".into()
}
