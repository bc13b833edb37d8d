//! Adds the server to a configuration file, and keeps all else in the file, comments included.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstInputValue, CstRootNode};
use toml_edit::{Array, DocumentMut, Item, Table, value};

use crate::command_error::CommandError;

/// The name of the server in the configuration of each client.
pub(super) const SERVER_NAME: &str = "belljar";

/// The format of a configuration, and the server's entry in it.
pub(super) enum Format {
    /// A JSON file, in which comments are allowed, with the entry at a path of keys.
    Json { keys: &'static [&'static str], entry: CstInputValue },
    /// A TOML file with the entry in a table of tables.
    Toml { table: &'static str, program: String, arguments: Vec<String> },
    /// Text that people, or a shell, insert.
    Text(String),
}

impl Format {
    /// Returns the text of a file with the server added.
    ///
    /// # Errors
    /// Returns an error if the text is not in this format, or has something else at the place of the servers.
    pub(super) fn merge(&self, text: &str) -> Result<String, CommandError> {
        let invalid = |error: &dyn std::fmt::Display| {
            CommandError::new(format!("failed to parse the file: {error}"))
                .with_hint("mend the file, or leave out --write and insert what is printed")
        };
        let no_place = |key: &str| {
            CommandError::new(format!("`{key}` is not a table of servers"))
                .with_hint("mend the file, or leave out --write and insert what is printed")
        };
        match self {
            Format::Json { keys, entry } => {
                let root = CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| invalid(&error))?;
                let mut object = root.object_value_or_create().ok_or_else(|| no_place("the file"))?;
                for key in *keys {
                    object = object.object_value_or_create(key).ok_or_else(|| no_place(key))?;
                }
                match object.get(SERVER_NAME) {
                    Some(property) => property.set_value(entry.clone()),
                    None => drop(object.append(SERVER_NAME, entry.clone())),
                }
                let text = root.to_string();
                Ok(if text.ends_with('\n') { text } else { text + "\n" })
            }
            Format::Toml { table, program, arguments } => {
                let mut document: DocumentMut = text.parse().map_err(|error| invalid(&error))?;
                let servers = document.entry(table).or_insert_with(|| {
                    let mut table = Table::new();
                    // Only the tables of servers have headers.
                    table.set_implicit(true);
                    Item::Table(table)
                });
                let servers = servers.as_table_like_mut().ok_or_else(|| no_place(table))?;
                let server = servers.entry(SERVER_NAME).or_insert_with(|| Item::Table(Table::new()));
                let server = server.as_table_like_mut().ok_or_else(|| no_place(SERVER_NAME))?;
                server.insert("command", value(program.as_str()));
                server.insert("args", value(arguments.iter().map(String::as_str).collect::<Array>()));
                Ok(document.to_string())
            }
            Format::Text(text) => Ok(text.clone()),
        }
    }
}

/// The result of writing a configuration.
pub(super) struct Edited {
    pub(super) file: PathBuf,
    /// The copy of the file as it was, if the file existed and is changed.
    pub(super) copy: Option<PathBuf>,
    pub(super) is_changed: bool,
}

/// Adds the server to a file. Replaces an existing entry of the same name.
///
/// # Errors
/// Returns an error if the file cannot be read, is not in the client's format, or cannot be written. The file is
/// unchanged then.
pub(super) fn write(format: &Format, file: PathBuf) -> Result<Edited, CommandError> {
    let failed = |action: &str, path: &Path, error: &dyn std::fmt::Display| {
        CommandError::new(format!("failed to {action} {}: {error}", path.display()))
    };
    let old = match std::fs::read_to_string(&file) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed("read", &file, &error)),
    };
    let new = format.merge(old.as_deref().unwrap_or_default()).map_err(|error| error.context(file.display()))?;
    if old.as_deref() == Some(&new) {
        return Ok(Edited { file, copy: None, is_changed: false });
    }
    // A symbolic link stays: files of settings are often links into a directory under version control.
    let target = std::fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
    let directory = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    std::fs::create_dir_all(&directory).map_err(|error| failed("create", &directory, &error))?;
    let copy = match old {
        Some(_) => {
            let copy = free_name(&target);
            std::fs::copy(&target, &copy).map_err(|error| failed("copy", &target, &error))?;
            Some(copy)
        }
        None => None,
    };
    let replace = || -> std::io::Result<()> {
        let mut temporary = tempfile::NamedTempFile::new_in(&directory)?;
        temporary.write_all(new.as_bytes())?;
        if copy.is_some() {
            temporary.as_file().set_permissions(std::fs::metadata(&target)?.permissions())?;
        }
        temporary.persist(&target)?;
        Ok(())
    };
    replace().map_err(|error| failed("write", &target, &error))?;
    Ok(Edited { file, copy, is_changed: true })
}

/// Returns a name for a copy of `file` that no file has.
fn free_name(file: &Path) -> PathBuf {
    let with = |suffix: &str| {
        let mut name = file.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let numbered = (1_u32..).map(|number| with(&format!(".{number}.bak")));
    std::iter::once(with(".bak")).chain(numbered).find(|path| !path.exists()).unwrap_or_else(|| with(".bak"))
}
