//! What can be said on the command line.

use std::path::PathBuf;
use std::time::Duration;

use belljar_python::Options;
use clap::builder::FalseyValueParser;
use clap::error::ErrorKind;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};

use crate::config::Client;
use crate::kernel::KernelCommand;
use crate::limits::LimitOptions;
use crate::mount::Mount;
use crate::native::NativeCommand;
use crate::packages::{PackageOptions, PackagesCommand};
use crate::serve::{HttpArguments, ServeArguments};
use crate::session_commands::SessionsCommand;

/// Runs the Python that language models write, sealed in WebAssembly.
#[derive(Debug, Parser)]
#[command(
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "\
Examples:
  belljar run hello.py            run a file
  belljar run -c 'print(6 * 7)'   run a line
  belljar run -i                  a prompt
  belljar warmup                  get and compile everything ahead of time
  belljar call 'npx -y some-mcp-server'   list the tools of an MCP server
  belljar config claude-desktop   what to write into a client's configuration

Set BELLJAR_LOG=debug for a log on standard error."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// Reads the command line; ends the process where it asks for help, or cannot be read.
    pub(crate) fn read() -> Self {
        Self::try_parse().unwrap_or_else(|error| {
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp
                    | ErrorKind::DisplayVersion
                    | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            ) {
                error.exit();
            }
            // Usage lines name all that has a value as if it had to be given, even where a variable gives it.
            match without_variables(Self::command()).try_get_matches() {
                Err(plain) if plain.kind() == error.kind() => plain.exit(),
                _ => error.exit(),
            }
        })
    }
}

/// The same command where variables do not stand for options that may be left out.
fn without_variables(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| if arg.is_required_set() { arg } else { arg.env(None::<&'static str>) });
    command.mut_subcommands(without_variables)
}

/// Options of every command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Directory that holds Pyodide's files (pyodide.asm.wasm, python_stdlib.zip, pyodide-lock.json).
    #[arg(long, global = true, value_name = "DIR", env = "BELLJAR_RUNTIME", hide_env_values = true)]
    runtime: Option<PathBuf>,
    /// Directory for downloads, compiled code and images [default: the platform's cache directory].
    #[arg(long, global = true, value_name = "DIR", env = "BELLJAR_CACHE", hide_env_values = true)]
    cache: Option<PathBuf>,
    /// Pyodide release to run, such as 314.0.7 (CPython 3.14).
    #[arg(long, global = true, value_name = "VERSION", env = "BELLJAR_PYODIDE", hide_env_values = true)]
    pyodide: Option<String>,
    /// Use only what is on this machine.
    #[arg(
        long,
        global = true,
        env = "BELLJAR_OFFLINE",
        hide_env_values = true,
        action = ArgAction::SetTrue,
        value_parser = FalseyValueParser::new()
    )]
    offline: bool,
    /// Show no progress.
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Log more to standard error; twice for details.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Global {
    /// Where the interpreter's files come from.
    ///
    /// # Errors
    /// When the directory of Pyodide's files is not there. What the cache has was made of those files, so that without this
    /// nobody would notice until the cache is gone.
    pub(crate) fn options(&self) -> Result<Options, String> {
        if let Some(runtime) = self.runtime.as_ref().filter(|runtime| !runtime.is_dir()) {
            return Err(format!(
                "--runtime: {} is no directory\nhint: it has pyodide.asm.wasm, python_stdlib.zip and pyodide-lock.json in it; \
                 without --runtime and BELLJAR_RUNTIME they are fetched",
                runtime.display()
            ));
        }
        Ok(Options {
            runtime: self.runtime.clone(),
            cache: self.cache(),
            release: self.pyodide.clone(),
            offline: self.offline,
            ..Options::default()
        })
    }

    /// The directory for downloads, compiled code and images, if one is named.
    pub(crate) fn cache(&self) -> Option<PathBuf> {
        self.cache.clone()
    }

    /// Whether nothing may be fetched.
    pub(crate) fn offline(&self) -> bool {
        self.offline
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run Python code in a sandbox of its own.
    Run(RunArguments),
    /// Serve MCP over standard input and output: for clients that start their servers.
    Stdio(ServeArguments),
    /// Serve MCP over streamable HTTP, on /mcp.
    #[command(alias = "streamable_http")]
    StreamableHttp(HttpArguments),
    /// Serve MCP over streamable HTTP without sessions, on /mcp: every request stands for itself.
    #[command(alias = "streamable_http_stateless")]
    StreamableHttpStateless(HttpArguments),
    /// Serve MCP over HTTP with server-sent events, on /sse: for clients that know nothing newer.
    Sse(HttpArguments),
    /// Print the configuration by which a client finds this server.
    Config {
        /// The client.
        #[arg(value_enum)]
        client: Client,
    },
    /// Run a small program as a client's call would be, and print the answer.
    Example(ServeArguments),
    /// Get, check and compile all that running Python needs, and build the base image.
    ///
    /// Every other command does what is missing of this by itself; afterwards they start in milliseconds.
    Warmup(PackageOptions),
    /// Lock and fetch packages ahead of time; show and clean what is kept of them.
    #[command(subcommand)]
    Packages(PackagesCommand),
    /// List, export, import and remove the sessions that a server keeps (--data-dir).
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Run the cells of JupyterLab, VS Code and nbclient: Belljar as a Jupyter kernel.
    #[command(subcommand)]
    Kernel(KernelCommand),
    /// The Python environment of native kernels.
    #[command(subcommand)]
    Native(NativeCommand),
    /// List the tools of any MCP server, or call one.
    Call(crate::call::Arguments),
    /// Print a completion script for a shell.
    #[command(after_help = "Example: belljar completions bash > ~/.local/share/bash-completion/completions/belljar")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// Options of `belljar run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  belljar run script.py one two                  sys.argv is ['script.py', 'one', 'two']
  belljar run -c 'import sys; sys.exit(3)'       exits with 3
  echo 'print(1)' | belljar run -                code from standard input
  belljar run --timeout 2.5 --memory 256MB x.py  with limits
  belljar run --mount ./data:/data x.py          /data shows ./data, read-only
  belljar run --json -c '[1, 2.5]'               the outcome as JSON
  belljar run analysis.ipynb -o done.ipynb       a notebook's cells, their outputs written back
  belljar run -c 'import rich; rich.print(1)'    packages that code imports are installed

Exit status:
  0    the code ran to its end
  1    it raised an exception
  N    it called sys.exit(N)
  124  its time ran out
  125  it reached another limit
  126  its packages could not be installed
  130  it was interrupted
  134  it crashed its interpreter
  2    belljar could not start it")]
pub(crate) struct RunArguments {
    /// Code to run.
    #[arg(short = 'c', value_name = "CODE")]
    pub(crate) code: Option<String>,
    /// File to run (`-` is standard input), and what it gets as sys.argv. With -c, all of it is for sys.argv.
    #[arg(value_name = "FILE [ARGS]", trailing_var_arg = true, allow_hyphen_values = true)]
    file_and_args: Vec<String>,
    /// Where to write a notebook's outputs: the notebook with them, on standard output unless said.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Prompt for code, after running what is given.
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Print the value of the last line, if it is an expression whose value is not None.
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) print: bool,
    /// Print the outcome as one JSON object instead of streaming output.
    #[arg(long, conflicts_with = "interactive")]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    /// Set an environment variable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Show a directory of this machine inside: HOST:GUEST, read-only, or HOST:GUEST:rw.
    #[arg(long, value_name = "HOST:GUEST[:ro|:rw]")]
    pub(crate) mount: Vec<Mount>,
    /// Report times and memory on standard error.
    #[arg(long)]
    pub(crate) stats: bool,
    #[command(flatten)]
    pub(crate) packages: PackageOptions,
}

impl RunArguments {
    /// The file to run, if one is named, and the program's arguments.
    ///
    /// # Errors
    /// When an option that is not one of ours stands where the file should.
    pub(crate) fn file_and_args(&self) -> Result<(Option<&str>, &[String]), String> {
        if self.code.is_some() {
            return Ok((None, &self.file_and_args));
        }
        match self.file_and_args.split_first() {
            Some((option, _)) if option.len() > 1 && option.starts_with('-') => Err(format!(
                "no such option: {option}\nhint: `belljar help run` lists them; a file may be named ./{option}"
            )),
            Some((file, args)) => Ok((Some(file), args)),
            None => Ok((None, &[])),
        }
    }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds, such as 2.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "write a number of seconds that is not negative".into())
}

pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() && !text.contains('\0') => Ok((name.into(), value.into())),
        _ => Err("write NAME=VALUE".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn what_follows_the_file_belongs_to_the_program() {
        let cli = Cli::parse_from(["belljar", "run", "--timeout", "2.5", "x.py", "--json", "-c", "y"]);
        let Command::Run(run) = cli.command else { panic!("not run") };
        let (file, args) = run.file_and_args().unwrap();
        assert_eq!((file, run.json, &run.code), (Some("x.py"), false, &None));
        assert_eq!(args, ["--json", "-c", "y"]);
        assert_eq!(run.limits.timeout, Some(Duration::from_millis(2500)));
    }

    #[test]
    fn a_misspelt_option_is_not_taken_for_a_file() {
        let cli = Cli::parse_from(["belljar", "run", "--tmeout", "2.5", "x.py"]);
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert!(run.file_and_args().is_err_and(|message| message.contains("--tmeout")));
    }
}
