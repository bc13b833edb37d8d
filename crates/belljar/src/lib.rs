//! The `belljar` command: parses the command line and runs the command that it names.
//!
//! It is a library so that the Python package, whose extension module contains all other crates as well, can offer the
//! command without a second copy of them.
//!
//! | file | subject |
//! | --- | --- |
//! | `cli`, `global_options`, `value_parsers` | the commands, the options of each, and how values are read |
//! | `run`, `run_arguments`, `run_context`, `program_run` | `belljar run`: a program, and its repetition with a package that it lacked |
//! | `run_notebook`, `prompt` | `belljar run` of a notebook, and `-i` |
//! | `siblings`, `mount`, `lost_files` | files of a program: its own modules, directories of the host, and what is lost with the sandbox |
//! | `serve`, `access`, `quotas`, `reload`, `shutdown` | servers: transports, access, shares, SIGHUP, and their end |
//! | `session_options`, `cluster_options`, `store_credentials` | options of sessions and of the stores that keep them |
//! | `sandbox_options`, `isolation`, `limits`, `network`, `packages` | options of sandboxes, of limits, of the network and of packages |
//! | `tools`, `call`, `config` | MCP servers: for code, `belljar call`, and the configuration of clients |
//! | `admin`, `health_check` | `belljar admin` and `belljar healthcheck`, for running servers |
//! | `session_commands`, `session_place`, `run_commands` | `belljar sessions` and `belljar runs`, for a directory or a store |
//! | `audit_command`, `audit_options`, `observability`, `notices` | `belljar audit`; the audit log, logs, messages and OpenTelemetry of a process |
//! | `kernel`, `monty`, `native` | `belljar kernel`, `belljar monty`, `belljar native` |
//! | `cache`, `bundle`, `warmup`, `background` | prebuilt files: the cache, the bundle, and work ahead of time or in the background |
//! | `man` | `belljar man` |
//! | `os` | what depends on the operating system |
//! | `outcome`, `exit_code`, `command_error`, `hint` | how code ended, exit statuses, errors and hints |
//! | `console`, `terminal_filter`, `untrusted_text`, `progress`, `interrupt` | the terminal: output, its filter, progress, Ctrl-C |

mod access;
mod admin;
mod audit_command;
mod audit_options;
mod background;
mod bundle;
mod cache;
mod call;
mod cli;
mod cluster_options;
mod command_error;
mod config;
mod console;
mod exit_code;
mod global_options;
mod health_check;
mod hint;
mod interrupt;
mod isolation;
mod kernel;
mod limits;
mod lost_files;
mod man;
mod monty;
mod mount;
mod native;
mod network;
mod notices;
mod observability;
mod os;
mod outcome;
mod packages;
mod program_run;
mod progress;
mod prompt;
mod quotas;
mod reload;
mod run;
mod run_arguments;
mod run_commands;
mod run_context;
mod run_notebook;
mod sandbox_options;
mod serve;
mod session_commands;
mod session_options;
mod session_place;
mod shutdown;
mod siblings;
mod store_credentials;
mod terminal_filter;
mod tools;
mod untrusted_text;
mod value_parsers;
mod warmup;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;

use belljar_server::HttpTransport;
use clap::CommandFactory;

use cli::{Cli, Command};
use interrupt::Interrupts;
use network::NetworkReader;
use observability::Observability;

/// The example of the README, which is compiled as a documentation test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The installation of the command as a part of another program.
#[derive(Debug, Clone)]
pub struct Installation {
    /// The path of the script that runs the command.
    pub program: PathBuf,
    /// The program that runs the command in another process, and its arguments before those of the command.
    pub command: Vec<OsString>,
    /// The program that becomes the template of worker processes, and its arguments.
    pub template: Vec<OsString>,
    /// The directory of prebuilt files that was installed with the command.
    pub bundle: Option<PathBuf>,
}

/// The path of the command, if it is not that of this process's program.
pub(crate) static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// The command that runs this command in another process, if that is not this process's program.
pub(crate) static OWN_COMMAND: OnceLock<Vec<OsString>> = OnceLock::new();

/// The command that becomes the template of worker processes, if that is not this process's program.
pub(crate) static TEMPLATE: OnceLock<Vec<OsString>> = OnceLock::new();

/// Becomes a process that the program starts by executing itself, and never returns, if this process was started as
/// one: the fork server of sandboxes, or the template of worker processes. Called first in the program's `main`: before
/// any file is opened or thread started.
pub fn run_if_child() {
    os::run_if_child();
}

/// Runs the command that `arguments` name, of which the first is the name of the program. Ends the process if they are
/// not valid or ask for help.
///
/// `installation` is given if another program, such as a Python interpreter, runs the command.
pub fn run(arguments: Vec<OsString>, installation: Option<Installation>) -> ExitCode {
    let mut cli = Cli::read(arguments);
    if let Some(Installation { program, command, template, bundle }) = installation {
        PROGRAM.get_or_init(|| program);
        TEMPLATE.get_or_init(|| template);
        OWN_COMMAND.get_or_init(|| command);
        cli.global.bundle = bundle;
    }
    let observability = match Observability::start(&cli) {
        Ok(observability) => observability,
        Err(error) => return outcome::fail(error),
    };
    match cli.command {
        Command::Run(ref arguments) => {
            let network = NetworkReader::new(&arguments.network);
            let work = |interrupts: &Interrupts| run::run(&cli.global, arguments, &network, interrupts);
            interrupt::run_interruptible_during(work, || network.read())
        }
        Command::Stdio(ref arguments) => serve::stdio(&cli.global, arguments, observability),
        Command::StreamableHttp(ref arguments) => {
            serve::http(&cli.global, arguments, HttpTransport::Streamable, observability)
        }
        Command::StreamableHttpStateless(ref arguments) => {
            serve::http(&cli.global, arguments, HttpTransport::StreamableStateless, observability)
        }
        Command::Sse(ref arguments) => serve::http(&cli.global, arguments, HttpTransport::Sse, observability),
        Command::Config(ref arguments) => config::config(&cli.global, arguments),
        Command::Example(ref arguments) => serve::example(&cli.global, arguments, observability),
        Command::Warmup(ref options) => interrupt::run_interruptible(|_| warmup::warmup(&cli.global, options)),
        Command::Packages(ref command) => interrupt::run_interruptible(|_| packages::packages(&cli.global, command)),
        Command::Sessions(ref command) => session_commands::sessions(command),
        Command::Audit(ref command) => audit_command::audit(command),
        Command::Runs(ref command) => run_commands::runs(command),
        Command::Admin(ref arguments) => admin::admin(arguments),
        Command::Kernel(ref command) => kernel::kernel(&cli.global, command),
        Command::Monty(ref arguments) => monty::monty(&cli.global, arguments, observability),
        Command::Native(ref command) => native::native(&cli.global, command),
        Command::Tools(ref command) => tools::tools(command),
        Command::Call(ref arguments) => call::call(&cli.global, arguments),
        Command::Healthcheck(ref arguments) => health_check::health_check(arguments),
        Command::Cache(ref arguments) => cache::cache(&cli.global, arguments),
        Command::Man(ref arguments) => man::man(arguments),
        Command::Bundle(ref arguments) => interrupt::run_interruptible(|_| bundle::bundle(&cli.global, arguments)),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "belljar", &mut script);
            console::print(&script);
            ExitCode::SUCCESS
        }
    }
}
