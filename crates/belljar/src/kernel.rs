//! `belljar kernel`: Belljar as a kernel of JupyterLab, VS Code, nbclient and other frontends.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use belljar_core::Progress;
use belljar_core::kernel::Backend;
use belljar_jupyter::kernelspec::{self, Kernelspec};
use belljar_jupyter::{Connection, Control, KernelInfo, KernelServer};
use belljar_python::Python;
use belljar_python::runtime::Release;
use belljar_python::{BackendOptions, RuntimeLoader, WasmBackend};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::command_error::CommandError;
use crate::config::executable_path;
use crate::console::print_line;
use crate::global_options::GlobalOptions;
use crate::limits::LimitOptions;
use crate::network::NetworkArguments;
use crate::os::{self, Signal};
use crate::outcome::fail;
use crate::packages::{PackageOptions, Packages};
use crate::progress;
use crate::sandbox_options::{NativeSettings, Sandbox, SandboxOptions};
use crate::shutdown::BackendTracker;
use crate::tools::{self, ToolOptions};

/// The reason why a call cannot be approved, for the code.
const REFUSAL: &str = "this frontend cannot be asked. The option --approve of `belljar kernel run` selects the calls \
     that need approval";

/// A subcommand of `belljar kernel`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum KernelCommand {
    /// Install a kernelspec, so that Jupyter frontends can start the kernel.
    #[command(after_help = "\
Examples:
  belljar kernel install                             for this user
  belljar kernel install --sys-prefix                for the active Python environment
  belljar kernel install --prefix ./venv             for the environment in ./venv
  belljar kernel install --name science --display-name 'Python (science)' -- --deps numpy

Options after `--` are passed to `belljar kernel run`.")]
    Install(InstallArguments),
    /// Delete a kernelspec that `belljar kernel install` has written.
    Uninstall {
        /// Name of the kernel.
        #[arg(long, value_name = "NAME", default_value = NAME)]
        name: String,
        #[command(flatten)]
        directory: KernelDirArgs,
    },
    /// List the kernelspecs that `belljar kernel install` has written for this user and the active environment.
    List,
    /// Run a kernel. Frontends call this command.
    #[command(after_help = "\
Example:
  jupyter console --kernel belljar      starts `belljar kernel run` with a connection file")]
    Run(Box<RunArguments>),
}

/// The default name of the kernel.
const NAME: &str = "belljar";

/// The options of `belljar kernel install`.
#[derive(Debug, Clone, Args)]
pub(crate) struct InstallArguments {
    #[command(flatten)]
    directory: KernelDirArgs,
    /// Name of the kernel on command lines.
    #[arg(long, value_name = "NAME", default_value = NAME)]
    name: String,
    /// Name of the kernel in menus [default: Python (Belljar)].
    #[arg(long, value_name = "TEXT")]
    display_name: Option<String>,
    /// Sandbox to run cells in.
    #[arg(long, value_enum, default_value_t)]
    sandbox: Sandbox,
    /// Options of `belljar kernel run`.
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

/// The directory of kernelspecs.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub(crate) struct KernelDirArgs {
    /// Use the Jupyter directory of this user (the default).
    #[arg(long)]
    user: bool,
    /// Use a Python environment.
    #[arg(long, value_name = "DIR")]
    prefix: Option<PathBuf>,
    /// Use the active Python environment, or else that of the `python3` on PATH.
    #[arg(long)]
    sys_prefix: bool,
}

/// The options of `belljar kernel run`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunArguments {
    /// Connection file with the addresses to listen on, written by the frontend.
    #[arg(short = 'f', long, value_name = "FILE")]
    connection_file: PathBuf,
    #[command(flatten)]
    sandbox: SandboxOptions,
    #[command(flatten)]
    limits: LimitOptions,
    #[command(flatten)]
    packages: PackageOptions,
    #[command(flatten)]
    tools: ToolOptions,
    #[command(flatten)]
    network: NetworkArguments,
}

/// Runs a subcommand of `belljar kernel`.
pub(crate) fn kernel(global: &GlobalOptions, command: &KernelCommand) -> ExitCode {
    let result = match command {
        KernelCommand::Run(arguments) => run(global, arguments),
        KernelCommand::Install(arguments) => install(arguments).map(|directory| {
            eprintln!("installed the kernel {} in {}", arguments.name, directory.display());
        }),
        KernelCommand::Uninstall { name, directory } => uninstall(name, directory),
        KernelCommand::List => {
            list();
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

impl KernelDirArgs {
    /// Returns Jupyter's data directory for these options.
    fn data_directory(&self) -> Result<PathBuf, CommandError> {
        match (&self.prefix, self.sys_prefix) {
            (Some(prefix), _) => Ok(kernelspec::prefix_data(prefix)),
            (None, true) => Ok(kernelspec::prefix_data(&active_environment()?)),
            (None, false) => kernelspec::user_data().ok_or_else(|| {
                CommandError::new("the home directory of this user is unknown")
                    .with_hint("name a Python environment with --prefix DIR")
            }),
        }
    }
}

/// Returns the prefix of the active Python environment, or else that of `python3`.
fn active_environment() -> Result<PathBuf, CommandError> {
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(prefix) = std::env::var_os(name).filter(|prefix| !prefix.is_empty()) {
            return Ok(prefix.into());
        }
    }
    let output = Command::new("python3").args(["-c", "import sys; print(sys.prefix, end='')"]).output();
    let output = output.ok().filter(|output| output.status.success());
    let prefix = output.and_then(|output| String::from_utf8(output.stdout).ok()).filter(|prefix| !prefix.is_empty());
    prefix.map(PathBuf::from).ok_or_else(|| {
        CommandError::new("no Python environment is active, and `python3` did not report its prefix")
            .with_hint("name an environment with --prefix DIR")
    })
}

fn uninstall(name: &str, directory: &KernelDirArgs) -> Result<(), CommandError> {
    let removed = kernelspec::uninstall(&directory.data_directory()?, name)?;
    eprintln!("removed {}", removed.display());
    Ok(())
}

/// A parser for the options that a kernelspec passes to `belljar kernel run`.
#[derive(Parser)]
#[command(name = "belljar kernel run")]
struct KernelRunCommand {
    #[command(flatten)]
    _global: GlobalOptions,
    #[command(flatten)]
    _arguments: RunArguments,
}

fn install(arguments: &InstallArguments) -> Result<PathBuf, CommandError> {
    let program = executable_path()?;
    let sandbox = arguments.sandbox.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
    let mut argv: Vec<String> =
        [&program, "kernel", "run", "-f", "{connection_file}", "--sandbox", &sandbox].map(String::from).to_vec();
    argv.extend(arguments.options.iter().cloned());
    // Frontends hide the error of a kernel that fails to start, so that options are checked here.
    if let Err(error) = KernelRunCommand::try_parse_from(&argv[2..]) {
        return Err(CommandError::new(format!("the options after `--` are not valid: {error}")));
    }
    let spec = Kernelspec {
        name: arguments.name.clone(),
        display_name: arguments.display_name.clone().unwrap_or_else(|| match arguments.sandbox {
            Sandbox::Wasm => "Python (Belljar)".into(),
            Sandbox::Native | Sandbox::NativeWeak => "Python (Belljar, native)".into(),
        }),
        argv,
    };
    Ok(spec.install(&arguments.directory.data_directory()?)?)
}

fn list() {
    let environment = active_environment().ok().map(|prefix| kernelspec::prefix_data(&prefix));
    let directories = kernelspec::user_data().into_iter().chain(environment);
    for (directory, spec) in directories.flat_map(|data| kernelspec::installed(&data)) {
        print_line(format_args!("{:<20} {:<30} {}", spec.name, spec.display_name, directory.display()));
    }
}

fn run(global: &GlobalOptions, arguments: &RunArguments) -> Result<(), CommandError> {
    let connection = Connection::read(&arguments.connection_file)?;
    let tracker = BackendTracker::default();
    let tool_host = arguments.tools.host()?.map(Arc::new);
    let (info, backend) = backend(global, arguments, &tracker)?;
    let (server, worker) = KernelServer::listen(&connection, info)?;
    let worker = match tool_host.clone() {
        Some(host) => worker.with_tools(move |cell| host.observer(cell, REFUSAL)),
        None => worker,
    };
    handle_signals(server.control());
    exit_with_parent(server.control());
    let control = server.control();
    let progress = progress::reporter(global.quiet);
    std::thread::spawn(move || {
        if let Err(error) = belljar_python::on_guest_thread(|| worker.run(&*backend, &*progress)) {
            fail(format!("failed to start a thread: {error}"));
        }
        control.shut_down();
    });
    server.wait();
    tracker.wait();
    // A worker that has not ended holds the host, too: the servers end with this process then.
    tools::close(tool_host.and_then(Arc::into_inner), None);
    tracker.optimize_libraries(global);
    Ok(())
}

/// Creates the backend that runs the cells, and its description.
fn backend(
    global: &GlobalOptions,
    arguments: &RunArguments,
    tracker: &BackendTracker,
) -> Result<(KernelInfo, Arc<dyn Backend>), CommandError> {
    arguments.packages.check()?;
    let version = env!("CARGO_PKG_VERSION");
    let offline = global.offline();
    let (limits, packages) = (arguments.limits.for_run(), &arguments.packages);
    let tools = !arguments.tools.servers.is_empty();
    let network = &arguments.network;
    let settings =
        NativeSettings { limits, color: true, packages, offline, mounts: &[], prestart: true, tools, network };
    if let Some(native) = arguments.sandbox.native(settings)? {
        let python = native.python().to_owned();
        let banner = format!("Belljar {version}: Python {python} in a Linux sandbox");
        let info = KernelInfo { python, version: version.into(), banner };
        let backend = native.warm_up_in_background();
        tracker.add(&backend);
        return Ok((info, backend));
    }
    let options = global.options()?;
    let release = match &options.release {
        Some(version) => Release::find(version)?,
        None => Release::default_release(),
    };
    let (major, minor) = release.python;
    let info = KernelInfo {
        python: format!("{major}.{minor}.{}{}", release.micro, release.pre_release),
        version: version.into(),
        banner: format!("Belljar {version}: Python {major}.{minor} sealed in WebAssembly"),
    };
    let (packages, quiet) = (arguments.packages.clone(), global.quiet);
    let loaded = tracker.python();
    let runtime = RuntimeLoader::new(move |progress| {
        let python = Python::open(&options, progress).map_err(CommandError::from)?;
        let _ = loaded.set(python.clone());
        let progress: Arc<dyn Progress> = Arc::from(progress::reporter(quiet));
        Ok(Packages::new(&python, &packages, offline, progress)?.into_runtime(python))
    });
    let network = arguments.network.network()?;
    let options =
        BackendOptions { limits: arguments.limits.for_run(), color: true, network, ..BackendOptions::default() };
    Ok((info, Arc::new(WasmBackend::with_options(Arc::new(runtime), options))))
}

/// Handles signals: SIGINT interrupts the cell, for frontends without a control channel, and SIGTERM shuts the kernel
/// down.
fn handle_signals(control: Control) {
    std::thread::spawn(move || {
        let handle = |signal| match signal {
            Signal::Interrupt => control.interrupt(),
            Signal::Terminate => control.shut_down(),
        };
        if let Err(error) = os::for_each_signal(&[Signal::Interrupt, Signal::Terminate], handle) {
            tracing::warn!(%error, "failed to handle signals: they will end the kernel immediately");
        }
    });
}

/// Shuts the kernel down when its parent process has ended. Frontends whose kernels outlive them do not set the
/// variable JPY_PARENT_PID.
fn exit_with_parent(control: Control) {
    if std::env::var_os("JPY_PARENT_PID").is_some_and(|parent| parent != "0") {
        os::on_parent_exit(move || control.shut_down());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernelspec_with_invalid_options_is_not_written() {
        let folder = std::env::temp_dir().join("belljar-kernel-that-is-never-created");
        let arguments = InstallArguments {
            directory: KernelDirArgs { user: false, prefix: Some(folder.clone()), sys_prefix: false },
            name: NAME.into(),
            display_name: None,
            sandbox: Sandbox::Wasm,
            options: vec!["--memory".into(), "much".into()],
        };
        assert!(install(&arguments).is_err_and(|error| error.to_string().contains("--memory")));
        assert!(!folder.exists());
    }
}
