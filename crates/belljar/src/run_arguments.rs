//! The options of `belljar run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, CommandFactory, Parser};

use crate::cli::{Cli, Command};
use crate::command_error::CommandError;
use crate::limits::LimitOptions;
use crate::mount::Mount;
use crate::network::NetworkArguments;
use crate::packages::PackageOptions;
use crate::run_notebook;
use crate::tools::ToolOptions;
use crate::value_parsers::variable;

/// The options of `belljar run`.
#[derive(Debug, Args)]
#[command(
    after_help = "\
Examples:
  belljar run script.py one two                  sys.argv is ['script.py', 'one', 'two']
  belljar run -c 'import rich; rich.print(1)'    packages that code imports are installed
  belljar run analysis.ipynb -o done.ipynb       execute a notebook and save its outputs",
    after_long_help = "\
Examples:
  belljar run script.py one two                  sys.argv is ['script.py', 'one', 'two']
  belljar run -c 'import sys; sys.exit(3)'       exit status 3
  belljar run -m calendar 2027                   a module, with its arguments
  echo 'print(1)' | belljar run -                code from standard input
  belljar run --timeout 2.5 --memory 256MB x.py  with limits
  belljar run --mount ./data:/data x.py          ./data as /data, read-only
  belljar run --json -c '[1, 2.5]'               the outcome as JSON
  belljar run analysis.ipynb -o done.ipynb       execute a notebook and save its outputs
  belljar run -c 'import rich; rich.print(1)'    packages that code imports are installed

Exit status:
  0    the code succeeded
  1    the code raised an exception
  N    the code called sys.exit(N)
  124  a time limit was reached
  125  another limit was reached
  126  packages could not be installed
  130  the code was interrupted
  134  the interpreter crashed
  2    belljar could not start the code, or write its output"
)]
pub(crate) struct RunArguments {
    /// Code to run.
    #[arg(short = 'c', value_name = "CODE")]
    pub(crate) code: Option<String>,
    /// Module to run as a program, as `python -m` does. All later arguments are those of the module.
    #[arg(short = 'm', value_name = "MODULE", conflicts_with = "code", value_parser = module, hide_short_help = true)]
    pub(crate) module: Option<String>,
    /// File to run (`-` for standard input) and its arguments, sys.argv. With -c and -m, all are arguments.
    #[arg(value_name = "FILE [ARGS]", trailing_var_arg = true, allow_hyphen_values = true)]
    file_and_args: Vec<String>,
    /// Write the executed notebook to FILE [default: standard output].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Start a prompt after running the code.
    #[arg(short, long)]
    pub(crate) interactive: bool,
    /// Print the value of the last line if it is an expression and not None.
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) print: bool,
    /// Print the outcome as one JSON object instead of streaming the output.
    #[arg(long, conflicts_with = "interactive")]
    pub(crate) json: bool,
    /// Let the code send all control sequences to a terminal.
    ///
    /// They can change its title and the clipboard, and make it type.
    #[arg(long)]
    pub(crate) raw: bool,
    /// Set an environment variable.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    /// Mount a directory of this machine: read-only, or writable with `:rw`.
    #[arg(long, value_name = "HOST:GUEST[:ro|:rw]")]
    pub(crate) mount: Vec<Mount>,
    /// Print times and memory use to standard error.
    #[arg(long, hide_short_help = true)]
    pub(crate) stats: bool,
    #[command(flatten)]
    pub(crate) limits: LimitOptions,
    #[command(flatten)]
    pub(crate) packages: PackageOptions,
    #[command(flatten)]
    pub(crate) tools: ToolOptions,
    #[command(flatten)]
    pub(crate) network: NetworkArguments,
}

impl RunArguments {
    /// Returns the file to run, if any, and the program's arguments.
    ///
    /// # Errors
    /// Returns an error if an unknown option is in the position of the file.
    pub(crate) fn file_and_args(&self) -> Result<(Option<&str>, &[String]), CommandError> {
        if self.code.is_some() || self.module.is_some() {
            return Ok((None, &self.file_and_args));
        }
        match self.file_and_args.split_first() {
            Some((option, _)) if option.len() > 1 && option.starts_with('-') => {
                let hint = match similar_option(option) {
                    Some(similar) => format!("did you mean {similar}?"),
                    None => format!("`belljar help run` lists the options; write a file name as ./{option}"),
                };
                Err(CommandError::new(format!("unknown option: {option}")).with_hint(hint))
            }
            Some((file, args)) => Ok((Some(file), args)),
            None => Ok((None, &[])),
        }
    }
}

/// Parses the value of `-m`: a module's name.
fn module(text: &str) -> Result<String, String> {
    let is_identifier = |part: &str| {
        let starts_well = part.starts_with(|first: char| first.is_alphabetic() || first == '_');
        starts_well && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    let is_module = text.split('.').all(is_identifier);
    if is_module { Ok(text.into()) } else { Err("write a module's name, such as json.tool".into()) }
}

/// The similarity from which on an option is suggested for another, between 0 and 1.
const MIN_SIMILARITY: f64 = 0.8;

/// Returns the option of `belljar run` whose name is similar to that of an unknown option.
pub(crate) fn similar_option(option: &str) -> Option<String> {
    let unknown = option.strip_prefix("--")?.split('=').next()?;
    let command = Cli::command();
    let run = command.find_subcommand("run")?;
    let names = run.get_arguments().chain(command.get_arguments()).filter_map(|argument| argument.get_long());
    let similar = names.map(|name| (strsim::jaro(unknown, name), name)).max_by(|one, other| one.0.total_cmp(&other.0));
    similar.filter(|(similarity, _)| *similarity >= MIN_SIMILARITY).map(|(_, name)| format!("--{name}"))
}

/// Moves a notebook behind the options that follow it, which are options of `belljar run`: a notebook takes no
/// arguments. `run` is the result of parsing `args`. Returns `None` if there is nothing to move.
pub(crate) fn move_notebook_to_end(run: &RunArguments, args: &[OsString]) -> Option<Vec<OsString>> {
    let has_file = run.code.is_none() && run.module.is_none();
    let (file, rest) = run.file_and_args.split_first().filter(|(_, rest)| has_file && !rest.is_empty())?;
    let at = args.len().checked_sub(1 + rest.len())?;
    if !run_notebook::is_notebook(file) || args.get(at).is_none_or(|arg| arg != file.as_str()) {
        return None;
    }
    let mut moved = args.to_vec();
    let file = moved.remove(at);
    moved.push(file);
    Some(moved)
}

/// Puts `--` behind the module of `-m`, whose arguments may look like options of `belljar run`. Returns `None` if there
/// is nothing to separate.
pub(crate) fn end_options_after_module(args: &[OsString]) -> Option<Vec<OsString>> {
    let is_module_option = |at: &usize| {
        // The rest is not parsed: it is that of the module. A `-m` that follows a file is an argument of the file.
        args.get(..at + 2).and_then(|args| Cli::try_parse_from(args).ok()).is_some_and(|cli| match cli.command {
            Command::Run(run) => run.module.is_some() && run.file_and_args.is_empty(),
            _ => false,
        })
    };
    let mut positions = args.iter().enumerate().filter(|(_, arg)| *arg == "-m").map(|(at, _)| at);
    let after = positions.find(is_module_option)? + 2;
    if args.get(after).is_none_or(|next| next == "--") {
        return None;
    }
    let mut separated = args.to_vec();
    separated.insert(after, "--".into());
    Some(separated)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[derive(Parser)]
    struct RunCommand {
        #[command(flatten)]
        arguments: RunArguments,
    }

    fn parse(arguments: &[&str]) -> RunArguments {
        RunCommand::parse_from([&["run"], arguments].concat()).arguments
    }

    #[test]
    fn options_after_the_file_belong_to_the_program() {
        let run = parse(&["--timeout", "2.5", "x.py", "--json", "-c", "y"]);
        let (file, args) = run.file_and_args().unwrap();
        assert_eq!((file, run.json, &run.code), (Some("x.py"), false, &None));
        assert_eq!(args, ["--json", "-c", "y"]);
        assert_eq!(run.limits.timeout, Some(Duration::from_millis(2500)));
    }

    #[test]
    fn misspelt_option_is_not_a_file() {
        let run = parse(&["--tmeout", "2.5", "x.py"]);
        let error = run.file_and_args().unwrap_err().to_string();
        assert_eq!(error, "unknown option: --tmeout\nhint: did you mean --timeout?");
        let run = parse(&["--entirely-different", "x.py"]);
        assert!(run.file_and_args().is_err_and(|error| error.to_string().contains("./--entirely-different")));
    }
}
