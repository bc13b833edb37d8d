//! `belljar kernel`: Belljar as a kernel of JupyterLab, VS Code, nbclient and other frontends.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use belljar_core::progress::Progress;
use belljar_jupyter::frontend::kernelspec::{self, Kernelspec};
use belljar_jupyter::frontend::{About, Connection, Control, Frontend};
use belljar_python::Python;
use belljar_python::runtime::Release;
use belljar_sessions::{Backend, Wasm, Workplace};
use clap::{Args, Parser, Subcommand, ValueEnum};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::{Cli, Global};
use crate::limits::LimitOptions;
use crate::outcome::{fail, fail_with, words};
use crate::packages::{PackageOptions, Packages};
use crate::progress;
use crate::sandbox_options::{Sandbox, SandboxOptions};

/// How often a kernel looks whether the program that started it is still there.
const PARENT: Duration = Duration::from_secs(1);

/// What can be done about kernels.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum KernelCommand {
    /// Let Jupyter's frontends find Belljar as a kernel.
    #[command(after_help = "\
Examples:
  belljar kernel install                             for this user
  belljar kernel install --sys-prefix                for the Python environment that is active
  belljar kernel install --prefix ./venv             for the one in ./venv
  belljar kernel install --name science --display-name 'Python (science)' -- --deps numpy,pandas --memory 4GB

What stands behind `--` are options of `belljar kernel run`.")]
    Install(InstallArguments),
    /// Remove a kernel that `belljar kernel install` has written.
    Uninstall {
        /// The kernel's name.
        #[arg(long, value_name = "NAME", default_value = NAME)]
        name: String,
        #[command(flatten)]
        place: Place,
    },
    /// List the kernels that `belljar kernel install` has written for this user and the active environment.
    List,
    /// Run a kernel: what frontends call.
    #[command(after_help = "\
Example:
  jupyter console --kernel belljar      starts `belljar kernel run` with a connection file")]
    Run(Box<RunArguments>),
}

/// The kernel's name unless another is given.
const NAME: &str = "belljar";

/// Options of `belljar kernel install`.
#[derive(Debug, Clone, Args)]
pub(crate) struct InstallArguments {
    #[command(flatten)]
    place: Place,
    /// The kernel's name on command lines.
    #[arg(long, value_name = "NAME", default_value = NAME)]
    name: String,
    /// The kernel's name in menus [default: Python (Belljar)].
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
    /// Which sandbox cells run in.
    #[arg(long, value_enum, default_value_t)]
    sandbox: Sandbox,
    /// Options of `belljar kernel run`.
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Where kernels are looked for.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub(crate) struct Place {
    /// In this user's Jupyter folder: the default.
    #[arg(long)]
    user: bool,
    /// In a Python environment.
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// In the Python environment that is active, else in that of the `python3` on PATH.
    #[arg(long)]
    sys_prefix: bool,
}

/// Options of `belljar kernel run`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArguments {
    /// The file that says where to listen. The frontend writes it.
    #[arg(short = 'f', long, value_name = "FILE")]
    connection_file: PathBuf,
    #[command(flatten)]
    sandbox: SandboxOptions,
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    packages: PackageOptions,
}

/// Does what `command` says.
pub(crate) fn kernel(global: &Global, command: &KernelCommand) -> ExitCode {
    let done = match command {
        KernelCommand::Run(arguments) => return run(global, arguments),
        KernelCommand::Install(arguments) => install(arguments).map(|folder| {
            eprintln!("installed the kernel {} in {}", arguments.name, folder.display());
        }),
        KernelCommand::Uninstall { name, place } => place.data().and_then(|data| {
            let folder = kernelspec::uninstall(&data, name).map_err(|error| error.to_string())?;
            eprintln!("removed {}", folder.display());
            Ok(())
        }),
        KernelCommand::List => {
            list();
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => fail(&message),
    }
}

impl Place {
    /// Jupyter's data folder there.
    fn data(&self) -> Result<PathBuf, String> {
        match (&self.prefix, self.sys_prefix) {
            (Some(prefix), _) => Ok(kernelspec::prefix_data(prefix)),
            (None, true) => Ok(kernelspec::prefix_data(&active_environment()?)),
            (None, false) => kernelspec::user_data()
                .ok_or_else(|| "this user has no home directory\nhint: --prefix DIR names another place".into()),
        }
    }
}

/// The prefix of the Python environment that is active.
fn active_environment() -> Result<PathBuf, String> {
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(prefix) = std::env::var_os(name).filter(|prefix| !prefix.is_empty()) {
            return Ok(prefix.into());
        }
    }
    let none = "there is no active Python environment, and no python3 that could tell its own\n\
                hint: --prefix DIR names one";
    let asked = Command::new("python3").args(["-c", "import sys; print(sys.prefix, end='')"]).output();
    let output = asked.ok().filter(|output| output.status.success()).ok_or(none)?;
    let prefix = String::from_utf8(output.stdout).ok().filter(|prefix| !prefix.is_empty());
    prefix.map(PathBuf::from).ok_or_else(|| none.into())
}

fn install(arguments: &InstallArguments) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| format!("cannot tell where this binary is: {error}"))?;
    let program = program.to_str().ok_or("this binary's path is not UTF-8 text, which no kernelspec can hold")?;
    let sandbox = arguments.sandbox.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut argv: Vec<String> =
        [program, "kernel", "run", "-f", "{connection_file}", "--sandbox", &sandbox].map(String::from).to_vec();
    argv.extend(arguments.options.iter().cloned());
    // A kernel that does not start says so where nobody looks.
    if let Err(error) = Cli::try_parse_from(&argv) {
        return Err(format!("a kernel cannot be run with these options: {error}"));
    }
    let spec = Kernelspec {
        name: arguments.name.clone(),
        display_name: arguments.display_name.clone().unwrap_or_else(|| match arguments.sandbox {
            Sandbox::Wasm => "Python (Belljar)".into(),
            Sandbox::Native | Sandbox::NativeWeak => "Python (Belljar, native)".into(),
        }),
        argv,
    };
    spec.install(&arguments.place.data()?).map_err(|error| error.to_string())
}

#[expect(clippy::print_stdout, reason = "the list is the command's answer")]
fn list() {
    let places =
        kernelspec::user_data().into_iter().chain(active_environment().map(|prefix| kernelspec::prefix_data(&prefix)));
    for (folder, spec) in places.flat_map(|data| kernelspec::installed(&data)) {
        println!("{:<20} {:<30} {}", spec.name, spec.display_name, folder.display());
    }
}

fn run(global: &Global, arguments: &RunArguments) -> ExitCode {
    let connection = match Connection::read(&arguments.connection_file) {
        Ok(connection) => connection,
        Err(error) => return fail_with(&error),
    };
    let (about, backend) = match backend(global, arguments) {
        Ok(made) => made,
        Err(message) => return fail(&message),
    };
    let (frontend, worker) = match Frontend::listen(&connection, about) {
        Ok(listening) => listening,
        Err(error) => return fail_with(&error),
    };
    obey_signals(frontend.control());
    follow_parent(frontend.control());
    let control = frontend.control();
    let progress = progress::reporter(global.quiet);
    std::thread::spawn(move || {
        if let Err(error) = belljar_python::on_guest_thread(|| worker.run(&*backend, &*progress)) {
            fail(&format!("cannot start a thread: {error}"));
        }
        control.shut_down();
    });
    frontend.wait();
    ExitCode::SUCCESS
}

/// What runs the cells, and what it is.
fn backend(global: &Global, arguments: &RunArguments) -> Result<(About, Arc<dyn Backend>), String> {
    arguments.packages.check()?;
    let version = env!("CARGO_PKG_VERSION");
    if let Some(native) = arguments.sandbox.native(arguments.limits.of_run(), true, &arguments.packages)? {
        let python = native.python.clone();
        let banner = format!("Belljar {version}: Python {python} in a Linux sandbox");
        let about = About { python, version: version.into(), banner };
        return Ok((about, native.warm_up_aside()));
    }
    let options = global.options();
    let release = match &options.release {
        Some(version) => Release::find(version).map_err(|error| words(&error))?,
        None => Release::default_release(),
    };
    let (major, minor) = release.python;
    let about = About {
        python: format!("{major}.{minor}.{}{}", release.micro, release.pre_release),
        version: version.into(),
        banner: format!("Belljar {version}: Python {major}.{minor} sealed in WebAssembly"),
    };
    let (packages, offline, quiet) = (arguments.packages.clone(), global.offline(), global.quiet);
    let backend = Wasm::new(arguments.limits.of_run(), true, move |progress| {
        let python = Python::open(&options, progress).map_err(|error| words(&error))?;
        let progress: Arc<dyn Progress> = Arc::from(progress::reporter(quiet));
        let (given, source) = Packages::new(&python, &packages, offline, progress)?.into_parts();
        Ok(Workplace { python, given, source })
    });
    Ok((about, Arc::new(backend)))
}

/// Ctrl-C interrupts the cell, as frontends without a control channel do it; a polite end is one.
fn obey_signals(control: Control) {
    std::thread::spawn(move || match Signals::new([SIGINT, SIGTERM]) {
        Ok(mut signals) => signals.forever().for_each(|signal| match signal {
            SIGINT => control.interrupt(),
            _ => control.shut_down(),
        }),
        Err(error) => tracing::warn!(%error, "signals end the kernel at once"),
    });
}

/// Ends the kernel when the program that started it is gone. Frontends that leave kernels behind on purpose do not set the
/// variable.
#[cfg(unix)]
fn follow_parent(control: Control) {
    if std::env::var_os("JPY_PARENT_PID").is_none_or(|parent| parent == "0") {
        return;
    }
    let parent = std::os::unix::process::parent_id();
    std::thread::spawn(move || {
        while std::os::unix::process::parent_id() == parent {
            std::thread::sleep(PARENT);
        }
        control.shut_down();
    });
}

#[cfg(not(unix))]
fn follow_parent(_: Control) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernelspec_that_could_not_start_is_not_written() {
        let folder = std::env::temp_dir().join("belljar-kernel-that-is-never-made");
        let arguments = InstallArguments {
            place: Place { user: false, prefix: Some(folder.clone()), sys_prefix: false },
            name: NAME.into(),
            display_name: None,
            sandbox: Sandbox::Wasm,
            options: vec!["--memory".into(), "much".into()],
        };
        assert!(install(&arguments).is_err_and(|message| message.contains("--memory")));
        assert!(!folder.exists());
    }
}
