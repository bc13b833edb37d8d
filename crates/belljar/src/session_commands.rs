//! `belljar sessions`: lists, exports, imports and deletes the sessions in a directory, or in the store of a cluster.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use belljar_sessions::{SessionId, Store, notebook};
use clap::Subcommand;

use crate::command_error::CommandError;
use crate::console::{print, print_line};
use crate::outcome::fail;
use crate::session_place::{SessionPlace, SessionPlaceArgs};

/// The names of the parts of an exported session.
const STATE: &str = "state";
const CELLS: &str = "cells.jsonl";
/// The maximum size of a part of an exported session, in bytes. It exceeds the limits of sessions.
const MAX_PART: u64 = 8 << 30;

/// A subcommand of `belljar sessions`.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List the sessions.
    List(SessionPlaceArgs),
    /// Write a session, or its cells as a notebook, to a file.
    #[command(after_help = "\
Examples:
  belljar sessions export --data-dir DIR SESSION -o session.belljar
  belljar sessions export --data-dir DIR SESSION --notebook > session.ipynb")]
    Export {
        /// Session to export.
        session: String,
        /// File to write [default: standard output].
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write the cells with their outputs as a notebook (.ipynb).
        #[arg(long)]
        notebook: bool,
        #[command(flatten)]
        place: SessionPlaceArgs,
    },
    /// Read a session from a file and print its new ID.
    Import {
        /// File to read.
        file: PathBuf,
        #[command(flatten)]
        place: SessionPlaceArgs,
    },
    /// Delete sessions.
    Rm {
        /// Sessions to delete.
        #[arg(required = true)]
        sessions: Vec<String>,
        #[command(flatten)]
        place: SessionPlaceArgs,
    },
}

/// Moves session IDs that begin with `-` behind a `--`, so that they are not taken for options. Earlier versions of
/// Belljar created such IDs.
pub(crate) fn escape_ids(mut args: Vec<OsString>) -> Vec<OsString> {
    let is_word = |at: usize, words: &[&str]| args.get(at).is_some_and(|arg| words.iter().any(|word| arg == word));
    if !is_word(1, &["sessions"]) || !is_word(2, &["export", "rm"]) {
        return args;
    }
    // `-oFILE` is the option with its value.
    let is_id = |arg: &OsString| {
        let id = arg.to_str().filter(|arg| arg.starts_with('-') && !arg.starts_with("-o"));
        id.is_some_and(|id| SessionId::parse(id).is_some())
    };
    if !args.iter().any(is_id) {
        return args;
    }
    let end = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let operands = args.split_off(end).into_iter().skip(1);
    let (ids, mut options): (Vec<_>, Vec<_>) = args.into_iter().partition(is_id);
    options.push("--".into());
    options.extend(ids);
    options.extend(operands);
    options
}

/// Runs a subcommand of `belljar sessions`.
pub(crate) fn sessions(command: &SessionsCommand) -> ExitCode {
    let result = match command {
        SessionsCommand::List(place) => place.open(true).and_then(|place| list(&place)),
        SessionsCommand::Export { session, output, notebook, place } => {
            place.open(true).and_then(|place| export(&place, session, output.as_deref(), *notebook))
        }
        SessionsCommand::Import { file, place } => place.open(false).and_then(|place| import(&place, file)),
        SessionsCommand::Rm { sessions, place } => {
            place.open(true).and_then(|place| sessions.iter().try_for_each(|session| place.remove(session)))
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error),
    }
}

fn list(place: &SessionPlace) -> Result<(), CommandError> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    if let Some(cluster) = place.cluster() {
        for header in cluster.list()? {
            let minutes = |time: u64| now.saturating_sub(Duration::from_millis(time)).as_secs() / 60;
            let idle = minutes(header.facts.last_used);
            let place = header.owner.map_or_else(|| "asleep".to_owned(), |owner| format!("in {}", owner.address));
            print_line(format!("{}  idle for {idle} min  {place}", header.key));
        }
        return Ok(());
    }
    let store = place.store();
    for id in store.list().map_err(|error| format!("failed to read {}: {error}", place.name()))? {
        let line = match store.header(&id) {
            Ok(header) => {
                let idle = now.saturating_sub(header.last_used()).as_secs() / 60;
                let python = header.metadata["python"].as_str().unwrap_or("an unknown Python");
                let cells = header.metadata["count"].as_u64().unwrap_or(0);
                let unit = if cells == 1 { "cell " } else { "cells" };
                format!("{}  {cells:>5} {unit}  idle for {idle} min  {python}", id.as_str())
            }
            Err(error) => format!("{}  {error}", id.as_str()),
        };
        print_line(line);
    }
    Ok(())
}

fn export(place: &SessionPlace, session: &str, output: Option<&Path>, as_notebook: bool) -> Result<(), CommandError> {
    let bytes = if as_notebook {
        let cells = place.with_session(session, |store, id| store.header(id).and_then(|_| store.cells(id)))?;
        let text = serde_json::to_string_pretty(&notebook::from_cells(cells)).map_err(|error| error.to_string())?;
        format!("{text}\n").into_bytes()
    } else {
        let (state, cells) = place.with_session(session, Store::export)?;
        pack(&[(STATE, &state), (CELLS, &cells)]).map_err(|error| error.to_string())?
    };
    match output {
        Some(path) => {
            std::fs::write(path, bytes).map_err(|error| format!("failed to write {}: {error}", path.display()))?;
        }
        None => print(&bytes),
    }
    Ok(())
}
/// Packs the parts of an exported session into a tar archive.
fn pack(parts: &[(&str, &[u8])]) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        archive.append_data(&mut header, name, *bytes)?;
    }
    archive.into_inner()
}

fn import(place: &SessionPlace, file: &Path) -> Result<(), CommandError> {
    let archive = File::open(file).map_err(|error| format!("failed to open {}: {error}", file.display()))?;
    let (mut state, mut cells) = (None, Vec::new());
    let wrong = |error| format!("{} is not an exported session: {error}", file.display());
    for entry in tar::Archive::new(archive).entries().map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let name = entry.path().map_err(wrong)?.to_string_lossy().into_owned();
        if ![STATE, CELLS].contains(&name.as_str()) {
            continue;
        }
        let mut bytes = Vec::new();
        entry.take(MAX_PART).read_to_end(&mut bytes).map_err(wrong)?;
        if name == STATE {
            state = Some(bytes);
        } else {
            cells = bytes;
        }
    }
    let state = state.ok_or_else(|| format!("{} is not an exported session: `{STATE}` is missing", file.display()))?;
    let id = SessionId::random().map_err(|error| error.to_string())?;
    place.import(&id, &state, &cells)?;
    print_line(id.as_str());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(args: &[&str]) -> String {
        let args = escape_ids(args.iter().map(OsString::from).collect());
        args.iter().map(|arg| arg.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ids_that_look_like_options_become_operands() {
        let id = "-lB3dEfGhIjKlMnO";
        assert_eq!(
            escaped(&["belljar", "sessions", "export", id, "-o", "x", "--notebook"]),
            format!("belljar sessions export -o x --notebook -- {id}")
        );
        assert_eq!(
            escaped(&["belljar", "sessions", "rm", "A", "--B3dEfGhIjKlMnO", "--data-dir", "d", "--", id]),
            format!("belljar sessions rm A --data-dir d -- --B3dEfGhIjKlMnO {id}")
        );
        for other in [
            &["belljar", "run", "x.py", id][..],
            &["belljar", "sessions", "import", id],
            &["belljar", "sessions", "export", "A", "-omy_session_2026"],
        ] {
            assert_eq!(escaped(other), other.join(" "));
        }
    }
}
