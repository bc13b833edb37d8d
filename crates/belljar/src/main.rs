//! The command line: reads it, starts what it names, reports how that ended.

mod access;
mod call;
mod cli;
mod config;
mod console;
mod held;
mod interrupt;
mod kernel;
mod limits;
mod mount;
mod native;
mod outcome;
mod packages;
mod progress;
mod prompt;
mod run;
mod run_notebook;
mod sandbox_options;
mod serve;
mod session_commands;
mod session_options;
mod warmup;

use std::process::ExitCode;

use belljar_server::HttpTransport;
use clap::CommandFactory;

use cli::{Cli, Command};

fn main() -> ExitCode {
    // A sandbox is made by this program, started anew.
    #[cfg(target_os = "linux")]
    belljar_jupyter::sandbox::launch_if_asked();
    let cli = Cli::read();
    start_logging(&cli);
    match cli.command {
        Command::Run(ref arguments) => interrupt::guard(|interrupts| run::run(&cli.global, arguments, interrupts)),
        Command::Stdio(ref arguments) => serve::stdio(&cli.global, arguments),
        Command::StreamableHttp(ref arguments) => serve::http(&cli.global, arguments, HttpTransport::Streamable),
        Command::StreamableHttpStateless(ref arguments) => {
            serve::http(&cli.global, arguments, HttpTransport::StreamableStateless)
        }
        Command::Sse(ref arguments) => serve::http(&cli.global, arguments, HttpTransport::Sse),
        Command::Config { client } => config::config(client),
        Command::Example(ref arguments) => serve::example(&cli.global, arguments),
        Command::Warmup(ref options) => interrupt::guard(|_| warmup::warmup(&cli.global, options)),
        Command::Packages(ref command) => interrupt::guard(|_| packages::packages(&cli.global, command)),
        Command::Sessions(ref command) => session_commands::sessions(command),
        Command::Kernel(ref command) => kernel::kernel(&cli.global, command),
        Command::Native(ref command) => native::native(&cli.global, command),
        Command::Call(ref arguments) => call::call(&cli.global, arguments),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "belljar", &mut script);
            console::print(&script);
            ExitCode::SUCCESS
        }
    }
}

/// Logs go to standard error: standard output belongs to the program being run.
fn start_logging(cli: &Cli) {
    use tracing_subscriber::EnvFilter;
    let asked = std::env::var("BELLJAR_LOG").ok();
    if asked.is_none() && cli.global.verbose == 0 {
        // Building a filter costs a tenth of a millisecond; a program should start before that.
        return;
    }
    let level = match cli.global.verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = EnvFilter::new(asked.unwrap_or_else(|| {
        format!("warn,belljar={level},belljar_client={level},belljar_jupyter={level},belljar_python={level},belljar_server={level},belljar_sessions={level},belljar_emscripten={level}")
    }));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}
