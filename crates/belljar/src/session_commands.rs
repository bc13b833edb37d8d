//! `belljar sessions`: list, export, import and remove the sessions of a directory.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use belljar_sessions::{SessionId, Store, StoreError, notebook};
use clap::{Args, Subcommand};

use crate::console::{print, print_line};
use crate::outcome::fail;

/// Names of what an exported session holds.
const STATE: &str = "state";
const CELLS: &str = "cells.jsonl";
/// Bytes of a part of an exported session: what a session itself may have, with room.
const MAX_PART: u64 = 8 << 30;

/// What can be done about sessions that a server keeps in a directory.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum SessionsCommand {
    /// List the sessions.
    List(Place),
    /// Write a session to a file, or what was run in it as a notebook.
    #[command(after_help = "\
Examples:
  belljar sessions export --data-dir DIR SESSION -o session.belljar
  belljar sessions export --data-dir DIR SESSION --notebook > session.ipynb")]
    Export {
        /// The session.
        session: String,
        /// The file; standard output unless said.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write what was run, with its outputs, as a notebook (.ipynb).
        #[arg(long)]
        notebook: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Read a session from a file; prints its new name.
    Import {
        /// The file.
        file: PathBuf,
        #[command(flatten)]
        place: Place,
    },
    /// Delete sessions.
    Rm {
        /// The sessions.
        #[arg(required = true)]
        sessions: Vec<String>,
        #[command(flatten)]
        place: Place,
    },
}

/// Where the sessions are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// The directory in which a server keeps its sessions.
    #[arg(long, value_name = "DIR", env = "BELLJAR_DATA_DIR", hide_env_values = true)]
    data_dir: PathBuf,
}

impl Place {
    fn store(&self) -> Result<Store, String> {
        if !self.data_dir.is_dir() {
            return Err(format!("--data-dir: {} is no directory", self.data_dir.display()));
        }
        Store::open(&self.data_dir).map_err(|error| format!("cannot use {}: {error}", self.data_dir.display()))
    }
}

/// Does what `command` says.
pub(crate) fn sessions(command: &SessionsCommand) -> ExitCode {
    let done = match command {
        SessionsCommand::List(place) => list(place),
        SessionsCommand::Export { session, output, notebook, place } => {
            export(place, session, output.as_deref(), *notebook)
        }
        SessionsCommand::Import { file, place } => import(place, file),
        SessionsCommand::Rm { sessions, place } => sessions.iter().try_for_each(|session| remove(place, session)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => fail(&message),
    }
}

fn named(name: &str, place: &Place) -> Result<SessionId, String> {
    SessionId::parse(name).ok_or_else(|| missing(name, place))
}

fn missing(name: &str, place: &Place) -> String {
    format!(
        "there is no session {name} in {}\nhint: `belljar sessions list` names those that there are",
        place.data_dir.display()
    )
}

fn in_words(error: StoreError, id: &SessionId, place: &Place) -> String {
    match error {
        StoreError::Missing => missing(id.as_str(), place),
        other => other.to_string(),
    }
}

fn list(place: &Place) -> Result<(), String> {
    let store = place.store()?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    for id in store.list().map_err(|error| format!("cannot read {}: {error}", place.data_dir.display()))? {
        let line = match store.head(&id) {
            Ok(head) => {
                let idle = now.saturating_sub(Duration::from_millis(head.used)).as_secs() / 60;
                let python = head.about["python"].as_str().unwrap_or("an unknown Python");
                let cells = head.about["count"].as_u64().unwrap_or(0);
                format!("{}  {cells:>5} cells  idle for {idle} min  {python}", id.as_str())
            }
            Err(error) => format!("{}  {error}", id.as_str()),
        };
        print_line(line);
    }
    Ok(())
}

fn export(place: &Place, session: &str, output: Option<&Path>, as_notebook: bool) -> Result<(), String> {
    let id = named(session, place)?;
    let store = place.store()?;
    let bytes = if as_notebook {
        store.head(&id).map_err(|error| in_words(error, &id, place))?;
        let cells = store.records(&id).map_err(|error| error.to_string())?;
        let text = serde_json::to_string_pretty(&notebook::of_cells(cells)).map_err(|error| error.to_string())?;
        format!("{text}\n").into_bytes()
    } else {
        let (state, cells) = store.export(&id).map_err(|error| in_words(error, &id, place))?;
        packed(&[(STATE, &state), (CELLS, &cells)]).map_err(|error| error.to_string())?
    };
    match output {
        Some(path) => std::fs::write(path, bytes).map_err(|error| format!("cannot write {}: {error}", path.display())),
        None => {
            print(&bytes);
            Ok(())
        }
    }
}

fn packed(parts: &[(&str, &[u8])]) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        archive.append_data(&mut header, name, *bytes)?;
    }
    archive.into_inner()
}

fn import(place: &Place, file: &Path) -> Result<(), String> {
    let store =
        Store::open(&place.data_dir).map_err(|error| format!("cannot use {}: {error}", place.data_dir.display()))?;
    let archive = File::open(file).map_err(|error| format!("cannot open {}: {error}", file.display()))?;
    let (mut state, mut cells) = (None, Vec::new());
    let wrong = |_| format!("{} is no exported session", file.display());
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
    let state = state.ok_or_else(|| format!("{} is no exported session", file.display()))?;
    let id = SessionId::random().map_err(|error| error.to_string())?;
    store.import(&id, &state, &cells).map_err(|error| error.to_string())?;
    print_line(id.as_str());
    Ok(())
}

fn remove(place: &Place, session: &str) -> Result<(), String> {
    let id = named(session, place)?;
    let store = place.store()?;
    let removed = store.head(&id).and_then(|_| store.lease(&id, false)).and_then(|_lease| store.remove(&id));
    removed.map_err(|error| in_words(error, &id, place))
}
