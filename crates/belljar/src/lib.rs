//! The `belljar` command: parses the command line and runs the command that it names.
//!
//! It is a library so that the Python package, whose extension module contains all other crates as well, can offer the
//! command without a second copy of them.

mod access;
mod background;
mod bundle;
mod cache;
mod call;
mod cli;
mod command_error;
mod config;
mod console;
mod exit_code;
mod global_options;
mod health_check;
mod hint;
mod interrupt;
mod kernel;
mod limits;
mod lost_files;
mod man;
mod monty;
mod mount;
mod native;
mod network;
mod outcome;
mod packages;
mod program_run;
mod progress;
mod prompt;
mod run;
mod run_arguments;
mod run_commands;
mod run_context;
mod run_notebook;
mod sandbox_options;
mod serve;
mod session_commands;
mod session_options;
mod shutdown;
mod siblings;
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

/// The installation of the command as a part of another program.
#[derive(Debug, Clone)]
pub struct Installation {
    /// The path of the script that runs the command.
    pub program: PathBuf,
    /// The program that runs the command in another process, and its arguments before those of the command.
    pub command: Vec<OsString>,
    /// The directory of prebuilt files that was installed with the command.
    pub bundle: Option<PathBuf>,
}

/// The path of the command, if it is not that of this process's program.
pub(crate) static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// The command that runs this command in another process, if that is not this process's program.
pub(crate) static OWN_COMMAND: OnceLock<Vec<OsString>> = OnceLock::new();

/// Runs the command that `arguments` name, of which the first is the name of the program. Ends the process if they are
/// not valid or ask for help.
///
/// `installation` is given if another program, such as a Python interpreter, runs the command.
pub fn run(arguments: Vec<OsString>, installation: Option<Installation>) -> ExitCode {
    let mut cli = Cli::read(arguments);
    if let Some(Installation { program, command, bundle }) = installation {
        PROGRAM.get_or_init(|| program);
        OWN_COMMAND.get_or_init(|| command);
        cli.global.bundle = bundle;
    }
    start_logging(&cli);
    match cli.command {
        Command::Run(ref arguments) => {
            interrupt::run_interruptible(|interrupts| run::run(&cli.global, arguments, interrupts))
        }
        Command::Stdio(ref arguments) => serve::stdio(&cli.global, arguments),
        Command::StreamableHttp(ref arguments) => serve::http(&cli.global, arguments, HttpTransport::Streamable),
        Command::StreamableHttpStateless(ref arguments) => {
            serve::http(&cli.global, arguments, HttpTransport::StreamableStateless)
        }
        Command::Sse(ref arguments) => serve::http(&cli.global, arguments, HttpTransport::Sse),
        Command::Config(ref arguments) => config::config(&cli.global, arguments),
        Command::Example(ref arguments) => serve::example(&cli.global, arguments),
        Command::Warmup(ref options) => interrupt::run_interruptible(|_| warmup::warmup(&cli.global, options)),
        Command::Packages(ref command) => interrupt::run_interruptible(|_| packages::packages(&cli.global, command)),
        Command::Sessions(ref command) => session_commands::sessions(command),
        Command::Runs(ref command) => run_commands::runs(command),
        Command::Kernel(ref command) => kernel::kernel(&cli.global, command),
        Command::Monty(ref arguments) => monty::monty(&cli.global, arguments),
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

/// The crates to which `-v` applies.
const LOGGED_CRATES: [&str; 12] = [
    "belljar",
    "belljar_mcp_client",
    "belljar_emscripten",
    "belljar_jupyter",
    "belljar_monty",
    "belljar_native",
    "belljar_packages",
    "belljar_python",
    "belljar_sandbox",
    "belljar_server",
    "belljar_sessions",
    "belljar_tools",
];

/// Starts logging to standard error; standard output is reserved for the code that is run.
fn start_logging(cli: &Cli) {
    use std::io::IsTerminal as _;

    use tracing_subscriber::filter::{EnvFilter, FilterExt as _, filter_fn};
    use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
    use tracing_subscriber::util::SubscriberInitExt as _;

    let directives = std::env::var("BELLJAR_LOG").ok();
    if directives.is_none() && cli.global.verbose == 0 {
        // Building a filter takes a tenth of a millisecond, which would delay every start.
        return;
    }
    let level = match cli.global.verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::new(directives.unwrap_or_else(|| {
        let crates = LOGGED_CRATES.map(|name| format!(",{name}={level}")).concat();
        format!("warn{crates}")
    }));
    let log_code = cli.global.log_code;
    let without_messages = filter_fn(move |metadata| log_code || !is_of_protocol(metadata.target()));
    let lines =
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
    tracing_subscriber::registry().with(lines.with_filter(filter.and(without_messages))).init();
}

/// Returns whether a target belongs to the implementation of the protocol, which logs whole messages: with code and
/// with session IDs, at several levels.
fn is_of_protocol(target: &str) -> bool {
    target.strip_prefix("rmcp").is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}
