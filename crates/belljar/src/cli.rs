//! The command line: its commands, and how it is read.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::admin::AdminArguments;
use crate::audit_command::AuditCommand;
use crate::bundle::BundleArguments;
use crate::cache::CacheArguments;
use crate::call::CallArguments;
use crate::config::ConfigArguments;
use crate::health_check::HealthCheckArguments;
use crate::kernel::KernelCommand;
use crate::man::ManArguments;
use crate::monty::MontyArguments;
use crate::native::NativeCommand;
use crate::packages::{PackageOptions, PackagesCommand};
use crate::run_arguments::{RunArguments, end_options_after_module, move_notebook_to_end};
use crate::run_commands::RunsCommand;
use crate::serve::{HttpArguments, ServeArguments};
use crate::session_commands::{SessionsCommand, escape_ids};
use crate::tools::ToolsCommand;

use crate::global_options::GlobalOptions;

/// Runs the Python that language models write, sealed in WebAssembly.
#[derive(Debug, Parser)]
#[command(
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "\
Examples:
  belljar run hello.py            run a file
  belljar run -i                  start a prompt
  belljar config claude-desktop   print a client's configuration",
    after_long_help = "\
Examples:
  belljar run hello.py            run a file
  belljar run -c 'print(6 * 7)'   run a line
  belljar run -i                  start a prompt
  belljar warmup                  fetch and compile everything ahead of time
  belljar call 'npx -y some-mcp-server'   list the tools of an MCP server
  belljar config claude-desktop   print a client's configuration

Set BELLJAR_LOG=debug to log to standard error."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Parses the command line. Ends the process if that fails or if the command line asks for help.
    pub(crate) fn read(arguments: Vec<OsString>) -> Self {
        let args = escape_ids(arguments);
        let args = end_options_after_module(&args).unwrap_or(args);
        let cli = Self::parse_or_exit(&args);
        let Command::Run(run) = &cli.command else { return cli };
        let Some(moved) = move_notebook_to_end(run, &args) else { return cli };
        let moved = Self::parse_or_exit(&moved);
        match &moved.command {
            // If more than the notebook is left, an option is unknown: the first parse reports it.
            Command::Run(run) if run.file_and_args().is_ok_and(|(_, rest)| rest.is_empty()) => moved,
            _ => cli,
        }
    }

    fn parse_or_exit(args: &[OsString]) -> Self {
        Self::try_parse_from(args).unwrap_or_else(|error| {
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp
                    | ErrorKind::DisplayVersion
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            ) {
                error.exit();
            }
            // Usage lines treat an option with a value as required, even if an environment variable provides the value.
            match without_variables(Self::command()).try_get_matches_from(args) {
                Err(plain) if plain.kind() == error.kind() => plain.exit(),
                _ => error.exit(),
            }
        })
    }
}

/// Returns the same command without environment variables for optional arguments.
fn without_variables(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| if arg.is_required_set() { arg } else { arg.env(None::<&'static str>) });
    command.mut_subcommands(without_variables)
}

/// A command of the command line.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run Python code in a sandbox.
    Run(RunArguments),
    /// Serve MCP over standard input and output.
    ///
    /// Clients start the server by this command.
    #[command(after_help = "\
Examples:
  belljar stdio --toolset all                                sessions, and run_python_code
  belljar stdio --toolset interpreter --data-dir ~/sessions  sessions survive the server
  belljar stdio --servers ~/.cursor/mcp.json                 code can call their tools")]
    Stdio(ServeArguments),
    /// Serve MCP over streamable HTTP, on /mcp.
    #[command(
        alias = "streamable_http",
        after_long_help = "\
Examples:
  belljar streamable-http --toolset all
  belljar streamable-http --toolset interpreter --console
  belljar streamable-http --host 0.0.0.0 --auth-token-file tokens --tls-cert cert.pem --tls-key key.pem"
    )]
    StreamableHttp(HttpArguments),
    /// Serve MCP over streamable HTTP without MCP sessions, on /mcp.
    #[command(alias = "streamable_http_stateless")]
    StreamableHttpStateless(HttpArguments),
    /// Serve MCP over HTTP with server-sent events, on /sse, for older clients.
    Sse(HttpArguments),
    /// Print a client's configuration for this server, or write it to its file.
    Config(ConfigArguments),
    /// Run a sample `run_python_code` call and print the result.
    Example(ServeArguments),
    /// Fetch and compile everything that running Python needs.
    ///
    /// Verifies the files, and builds the base image. Every other command performs the missing steps by itself;
    /// afterwards commands start in milliseconds.
    Warmup(PackageOptions),
    /// Lock and download packages; list and delete cached packages.
    #[command(subcommand)]
    Packages(PackagesCommand),
    /// List, export, import and delete saved sessions (--data-dir).
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Verify and show audit logs (--audit).
    #[command(subcommand)]
    Audit(AuditCommand),
    /// List, approve, deny and cancel runs that wait (--data-dir).
    #[command(subcommand)]
    Runs(RunsCommand),
    /// See and operate the sessions of a running server (--console).
    Admin(AdminArguments),
    /// Install and run Belljar as a Jupyter kernel.
    ///
    /// JupyterLab, VS Code and nbclient can use the kernel.
    #[command(subcommand)]
    Kernel(KernelCommand),
    /// Serve Monty's worker protocol, for pydantic-monty and CodeMode.
    ///
    /// Programs start the worker: set MONTY_BIN to the path of this program, or pass it as `Monty(binary_path=…)`.
    #[command(alias = "subprocess")]
    Monty(MontyArguments),
    /// Set up and inspect the Python environment of native kernels.
    #[command(subcommand)]
    Native(NativeCommand),
    /// Print the tools of MCP servers as code sees them.
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// List the tools of any MCP server, or call one.
    Call(CallArguments),
    /// Check that a server over HTTP on this machine answers, for containers and service managers.
    #[command(hide = true)]
    Healthcheck(HealthCheckArguments),
    /// Show the size of the cache, or delete from it.
    ///
    /// The cache contains downloads, compiled code and images.
    Cache(CacheArguments),
    /// Print a completion script for a shell.
    #[command(after_help = "Example: belljar completions bash > ~/.local/share/bash-completion/completions/belljar")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the files that a Python wheel of Belljar contains.
    #[command(hide = true)]
    Bundle(BundleArguments),
    /// Print a manual page, or write those of all commands into a directory.
    Man(ManArguments),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_definition_is_valid() {
        Cli::command().debug_assert();
    }
}
