//! `belljar man`: manual pages, made from the definition of the command line.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Command, CommandFactory};
use clap_mangen::Man;

use crate::cli::Cli;
use crate::command_error::CommandError;
use crate::console;
use crate::outcome::fail;

/// The options of `belljar man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  belljar man | man -l -                  read the page of belljar
  belljar man packages lock | man -l -    read the page of `belljar packages lock`
  belljar man --out /usr/local/share/man/man1")]
pub(crate) struct ManArguments {
    /// Command whose page is printed [default: belljar itself].
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Vec<String>,
    /// Directory to write the pages of all commands to. It is created if it does not exist.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Runs `belljar man`.
pub(crate) fn man(arguments: &ManArguments) -> ExitCode {
    let result = match &arguments.out {
        Some(directory) => std::fs::create_dir_all(directory)
            .and_then(|()| clap_mangen::generate_to(with_long_help(Cli::command()), directory))
            .map_err(|error| CommandError::new(format!("failed to write to {}: {error}", directory.display()))),
        None => page(&arguments.command).map(|page| console::print(&page)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

/// Returns the same command, in which the descriptions of all arguments are long ones: the short ones may be hidden
/// from short help, and so from manual pages.
fn with_long_help(command: Command) -> Command {
    let command = command.mut_args(|arg| match (arg.get_long_help(), arg.get_help()) {
        (None, Some(help)) => {
            let help = help.clone();
            arg.long_help(help)
        }
        _ => arg,
    });
    command.mut_subcommands(with_long_help)
}

/// Returns the page of a command, as roff.
fn page(names: &[String]) -> Result<Vec<u8>, CommandError> {
    let mut root = with_long_help(Cli::command()).disable_help_subcommand(true);
    root.build();
    let mut command = &root;
    for name in names {
        command = command.find_subcommand(name).ok_or_else(|| {
            CommandError::new(format!("`{}` is not a command of belljar", names.join(" ")))
                .with_hint("`belljar --help` lists the commands")
        })?;
    }
    let mut page = Vec::new();
    let rendered = Man::new(command.clone()).render(&mut page);
    rendered.map_err(|error| CommandError::new(format!("failed to write the manual page: {error}")))?;
    Ok(page)
}
