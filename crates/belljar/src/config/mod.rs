//! `belljar config`: prints the configuration of a client, or writes it into the client's file.

mod client;
mod edit;
mod paths;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser as _};

use crate::cli::Cli;
use crate::command_error::CommandError;
use crate::console::print_line;
use crate::global_options::GlobalOptions;
use crate::outcome::fail;
use client::{Client, Configuration, ServerCommand};

/// The options of `belljar config`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  belljar config claude-desktop                        print the configuration
  belljar config cursor --write                        add it to Cursor's file
  belljar config zed --session-memory 1GB --timeout 60 print it with options of `belljar stdio`

The server offers sessions (--toolset all) unless the options name another toolset.")]
pub(crate) struct ConfigArguments {
    /// The client.
    #[arg(value_enum)]
    client: Client,
    /// Write the server into the client's configuration file. A copy of the file as it was is kept.
    #[arg(long)]
    write: bool,
    /// Configuration file to write [default: the client's usual file].
    #[arg(long, value_name = "FILE", requires = "write")]
    file: Option<PathBuf>,
    /// Options of `belljar stdio` for the server.
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<String>,
}

/// Prints the configuration to standard output and its place to standard error, or writes it.
pub(crate) fn config(global: &GlobalOptions, arguments: &ConfigArguments) -> ExitCode {
    match run(global, arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn run(global: &GlobalOptions, arguments: &ConfigArguments) -> Result<(), CommandError> {
    let server =
        ServerCommand { program: executable_path()?, arguments: server_arguments(global, &arguments.options)? };
    let configuration = Configuration::new(arguments.client, &server);
    if arguments.write {
        let edited = edit::write(configuration.format(), configuration.file(arguments.file.as_deref())?)?;
        eprintln!("{}: {}", edited.file.display(), if edited.is_changed { "updated" } else { "up to date" });
        if let Some(copy) = edited.copy {
            eprintln!("the file as it was: {}", copy.display());
        }
        return Ok(());
    }
    eprintln!("{}:", configuration.place());
    print_line(configuration.format().merge("")?.trim_end());
    Ok(())
}

/// Returns the server's command line: `stdio` with the options that were given, which the parser of `belljar stdio` has
/// accepted. A client starts the server with few variables and in any directory: options of this command, and values of
/// its variables, become options of the server, and all paths absolute.
fn server_arguments(global: &GlobalOptions, options: &[String]) -> Result<Vec<String>, CommandError> {
    let mut arguments = vec!["stdio".to_owned()];
    if !options.iter().any(|option| option == "--toolset" || option.starts_with("--toolset=")) {
        arguments.extend(["--toolset".to_owned(), "all".to_owned()]);
    }
    arguments.extend(global.as_arguments()?);
    arguments.extend(paths::absolute(options)?);
    if let Err(error) = Cli::try_parse_from(std::iter::once("belljar").chain(arguments.iter().map(String::as_str))) {
        error.exit();
    }
    Ok(arguments)
}

/// Returns the path of this binary, for configuration files.
///
/// # Errors
/// Returns an error if the path is unknown or not UTF-8.
pub(crate) fn executable_path() -> Result<String, CommandError> {
    let path = crate::PROGRAM
        .get()
        .cloned()
        .map_or_else(std::env::current_exe, Ok)
        .map_err(|error| CommandError::new(format!("failed to determine the path of this binary: {error}")))?;
    path.into_os_string().into_string().map_err(|path| {
        CommandError::new(format!("the path of this binary is not UTF-8: {}", path.display()))
            .with_hint("move the binary: configuration files contain UTF-8 text")
    })
}
