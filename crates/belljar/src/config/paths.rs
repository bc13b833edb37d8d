//! Paths in the options of `belljar stdio`, made absolute: a client starts the server in any directory.

use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory as _};

use crate::cli::Cli;
use crate::command_error::CommandError;
use crate::mount::Mount;

/// The kind of an option's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    /// The option takes no value.
    None,
    Path,
    /// A path, or an address.
    PathOrUrl,
    /// `HOST:GUEST[:ro|:rw]`.
    Mount,
    Other,
}

/// Returns options of `belljar stdio` with absolute paths. Unknown options are returned as they are.
///
/// # Errors
/// Returns an error if the working directory is unknown.
pub(super) fn absolute(options: &[String]) -> Result<Vec<String>, CommandError> {
    let command = Cli::command();
    let mut absolute = Vec::new();
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let (name, inline) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
        let kind = kind_of(&command, name);
        match inline {
            Some(value) => absolute.push(format!("{name}={}", make_absolute(kind, value)?)),
            None => {
                absolute.push(word.clone());
                // A missing value is reported by the parser.
                if kind != ValueKind::None
                    && let Some(value) = words.next()
                {
                    absolute.push(make_absolute(kind, value)?);
                }
            }
        }
    }
    Ok(absolute)
}

/// Returns the kind of the value of the option `--name`.
fn kind_of(command: &Command, name: &str) -> ValueKind {
    let Some(name) = name.strip_prefix("--") else { return ValueKind::None };
    let server = command.find_subcommand("stdio").into_iter().flat_map(Command::get_arguments);
    let is_named = |option: &&Arg| {
        let aliases = option.get_all_aliases().unwrap_or_default();
        option.get_long() == Some(name) || aliases.contains(&name)
    };
    let Some(option) = server.chain(command.get_arguments()).find(is_named) else { return ValueKind::None };
    if !option.get_action().takes_values() {
        return ValueKind::None;
    }
    let value = option.get_value_parser().type_id();
    match name {
        "find-links" => ValueKind::PathOrUrl,
        _ if value == std::any::TypeId::of::<PathBuf>() => ValueKind::Path,
        _ if value == std::any::TypeId::of::<Mount>() => ValueKind::Mount,
        _ => ValueKind::Other,
    }
}

fn make_absolute(kind: ValueKind, value: &str) -> Result<String, CommandError> {
    let absolute_path = |path: &str| {
        let absolute = std::path::absolute(Path::new(path))
            .map_err(|error| CommandError::new(format!("failed to determine the absolute path of {path}: {error}")))?;
        // The path and the working directory are UTF-8, or the path was absolute before.
        Ok::<_, CommandError>(absolute.into_os_string().into_string().unwrap_or_else(|_| path.to_owned()))
    };
    match kind {
        // The parser reports an empty path.
        _ if value.is_empty() => Ok(value.to_owned()),
        ValueKind::Path => absolute_path(value),
        ValueKind::PathOrUrl if !value.contains("://") => absolute_path(value),
        ValueKind::Mount => match value.parse::<Mount>() {
            Ok(mount) => {
                let rest = value.strip_prefix(&*mount.host.to_string_lossy()).unwrap_or_default();
                Ok(absolute_path(&mount.host.to_string_lossy())? + rest)
            }
            // The parser reports it.
            Err(_) => Ok(value.to_owned()),
        },
        ValueKind::None | ValueKind::PathOrUrl | ValueKind::Other => Ok(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_absolute_and_all_else_stays() {
        let here = std::env::current_dir().unwrap().into_os_string().into_string().unwrap();
        let absolute = |words: &[&str]| {
            absolute(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).unwrap().join(" ")
        };
        for (words, wanted) in [
            (&["--files", "f"][..], format!("--files {here}/f")),
            (&["--files=./f"], format!("--files={here}/f")),
            (&["--files", "/f"], "--files /f".into()),
            (&["--data-dir", "d", "--html"], format!("--data-dir {here}/d --html")),
            (&["--html", "--data-dir", "d"], format!("--html --data-dir {here}/d")),
            (&["--mount", "./m:/data:rw"], format!("--mount {here}/m:/data:rw")),
            (&["--mount=m:/data", "--mount", "/m:/m:ro"], format!("--mount={here}/m:/data --mount /m:/m:ro")),
            (&["--cache", "c", "--venv", "v"], format!("--cache {here}/c --venv {here}/v")),
            (&["--find-links", "wheels"], format!("--find-links {here}/wheels")),
            (&["--find-links", "https://example.org/x"], "--find-links https://example.org/x".into()),
            (&["--deps", "./rich", "--timeout=60"], "--deps ./rich --timeout=60".into()),
            // Errors of the parser.
            (&["--unknown", "x", "--files"], "--unknown x --files".into()),
            (&["--mount", "broken"], "--mount broken".into()),
        ] {
            assert_eq!(absolute(words), wanted, "{words:?}");
        }
    }
}
