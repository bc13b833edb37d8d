//! The tool `text_editor_code_execution`: views and edits of text files.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use belljar_core::files::{FileError, truncate_for_message};
use belljar_sessions::{SessionError, SessionId, Sessions};
use parking_lot::Mutex;
use serde::Deserialize;

use super::error::ApiError;
use super::files::{is_in, resolve, resolve_file};
use super::result_block::CallResult;

/// The maximum number of edits of one session that can be undone.
const MAX_UNDO: usize = 16;
/// The maximum number of bytes of earlier contents that one session has.
const MAX_UNDO_BYTES: usize = 1 << 20;
/// The maximum number of bytes of earlier contents that all sessions have. Beyond it, edits cannot be undone.
const MAX_ALL_UNDO_BYTES: usize = 64 << 20;
/// The maximum number of bytes of a view.
const MAX_VIEW: usize = 1 << 20;

/// The input of the tool.
#[derive(Debug, Deserialize)]
pub(super) struct EditorInput {
    command: String,
    path: String,
    file_text: Option<String>,
    old_str: Option<String>,
    new_str: Option<String>,
    insert_line: Option<i64>,
    view_range: Option<[i64; 2]>,
}

/// A command of the tool, and the path that it is for.
#[derive(Debug)]
pub(super) struct EditorCommand {
    path: String,
    edit: Edit,
}

#[derive(Debug)]
enum Edit {
    View(Option<[i64; 2]>),
    Create(String),
    Replace { old: String, new: String },
    Insert { line: usize, text: String },
    Undo,
}

impl EditorCommand {
    /// Checks that a command has its fields.
    pub(super) fn parse(input: EditorInput) -> Result<Self, ApiError> {
        let EditorInput { command, path, file_text, old_str, new_str, insert_line, view_range } = input;
        let missing = |field: &str| ApiError::malformed(format!("input.{field}: the command {command} needs it"));
        let edit = match command.as_str() {
            "view" => Edit::View(view_range),
            "create" => Edit::Create(file_text.ok_or_else(|| missing("file_text"))?),
            "str_replace" => Edit::Replace {
                old: old_str.filter(|old| !old.is_empty()).ok_or_else(|| missing("old_str"))?,
                new: new_str.ok_or_else(|| missing("new_str"))?,
            },
            "insert" => {
                let line = insert_line.ok_or_else(|| missing("insert_line"))?;
                let line =
                    usize::try_from(line).map_err(|_| ApiError::malformed("input.insert_line: it is negative"))?;
                Edit::Insert { line, text: new_str.ok_or_else(|| missing("new_str"))? }
            }
            "undo_edit" => Edit::Undo,
            _ => {
                let commands = "view, create, str_replace, insert and undo_edit";
                return Err(ApiError::malformed(format!("input.command: the commands are {commands}")));
            }
        };
        if path.is_empty() {
            return Err(ApiError::malformed("input.path: it is empty"));
        }
        Ok(Self { path, edit })
    }

    /// Carries the command out. A command that fails has a result that says why.
    pub(super) async fn run(
        self,
        sessions: &Sessions,
        id: &SessionId,
        histories: &Arc<UndoHistories>,
    ) -> Result<CallResult, SessionError> {
        let is_view = matches!(self.edit, Edit::View(_));
        let resolved = if is_view { resolve(&self.path) } else { resolve_file(&self.path) };
        let path = match resolved {
            Ok(path) => path,
            Err(error) => return Ok(CallResult::failed(&error.detail)),
        };
        if is_view && let Some(listing) = directory(sessions, id, &path).await? {
            return Ok(CallResult::new(listing, "", 0));
        }
        let bytes = self.edit.bytes();
        let (edit, histories, session, name) = (self.edit, histories.clone(), id.clone(), path.clone());
        let is_live = {
            let sessions = sessions.clone();
            move |id: &SessionId| sessions.idle_time(id).is_some()
        };
        let edited = sessions.edit(id, path, bytes, move |content| {
            let before = content.as_ref().ok().cloned();
            let previous = matches!(edit, Edit::Undo).then(|| histories.last(&session, &name)).flatten();
            match edit.apply(content, previous, &name) {
                Ok(Applied::Viewed(text)) => (Ok(text), None),
                Ok(Applied::Changed { message, content }) => {
                    match (edit, before) {
                        (Edit::Undo, _) => histories.pop(&session, &name),
                        (_, Some(before)) => histories.push(&session, &name, before, is_live),
                        _ => {}
                    }
                    (Ok(message), Some(content.into_bytes()))
                }
                Err(reason) => (Err(reason), None),
            }
        });
        Ok(match edited.await {
            Ok(Ok(text)) => CallResult::new(text, "", 0),
            Ok(Err(reason)) => CallResult::failed(&reason),
            Err(SessionError::File(error)) => CallResult::failed(&error.to_string()),
            Err(error) => return Err(error),
        })
    }
}

/// Returns the names of the files in a directory and of those below it, unless the path is that of a file.
async fn directory(sessions: &Sessions, id: &SessionId, path: &str) -> Result<Option<String>, SessionError> {
    let files = sessions.list(id).await?;
    let names = files.iter().filter(|file| is_in(&file.path, path));
    let names: String = names.map(|file| format!("{}\n", file.path)).collect();
    Ok((path.is_empty() || !names.is_empty()).then_some(names))
}

/// The effect of a command.
#[derive(Debug, PartialEq, Eq)]
enum Applied {
    Viewed(String),
    Changed { message: String, content: String },
}

impl Edit {
    /// Returns the number of bytes that the command brings.
    fn bytes(&self) -> usize {
        match self {
            Self::Create(text) | Self::Insert { text, .. } => text.len(),
            Self::Replace { old, new } => old.len() + new.len(),
            Self::View(_) | Self::Undo => 0,
        }
    }

    /// Applies the command to a file's content, and returns the reason if it cannot. `previous` is what the last edit
    /// has replaced.
    fn apply(
        &self,
        content: Result<Vec<u8>, FileError>,
        previous: Option<Vec<u8>>,
        path: &str,
    ) -> Result<Applied, String> {
        if let Self::Create(text) = self {
            return match content {
                Err(FileError::Missing(_)) => {
                    Ok(Applied::Changed { message: format!("Created {path}\n"), content: text.clone() })
                }
                Ok(_) => Err(format!("`{path}` exists already")),
                Err(error) => Err(error.to_string()),
            };
        }
        let not_text = |_| format!("`{path}` is not UTF-8 text");
        let text = String::from_utf8(content.map_err(|error| error.to_string())?).map_err(not_text)?;
        let changed = |what: &str, content: String| Applied::Changed { message: format!("{what} {path}\n"), content };
        match self {
            Self::View(range) => view(&text, *range).map(Applied::Viewed),
            Self::Replace { old, new } => {
                let shown = truncate_for_message(old);
                match text.matches(old.as_str()).count() {
                    1 => Ok(changed("Edited", text.replacen(old.as_str(), new, 1))),
                    0 => Err(format!("`{path}` does not contain old_str: `{shown}`")),
                    count => Err(format!("`{path}` contains old_str {count} times; it must be there once: `{shown}`")),
                }
            }
            Self::Insert { line, text: inserted } => {
                let lines: Vec<&str> = text.split_inclusive('\n').collect();
                if *line > lines.len() {
                    return Err(format!("`{path}` has {} lines: insert_line {line} is after its end", lines.len()));
                }
                let (before, after) = lines.split_at(*line);
                let separator = if before.last().is_some_and(|last| !last.ends_with('\n')) { "\n" } else { "" };
                let end = if inserted.ends_with('\n') { "" } else { "\n" };
                let content = [&before.concat(), separator, inserted, end, &after.concat()].concat();
                Ok(changed("Edited", content))
            }
            Self::Undo => {
                let previous = previous.ok_or_else(|| format!("`{path}` has no edit that can be undone"))?;
                Ok(changed("Reverted", String::from_utf8(previous).map_err(|error| error.to_string())?))
            }
            Self::Create(_) => Err(format!("`{path}` exists already")),
        }
    }
}

/// Returns the lines of a range, which begins at 1 and includes its end. An end of -1 is that of the text.
fn view(text: &str, range: Option<[i64; 2]>) -> Result<String, String> {
    let shown = match range {
        None => text.to_owned(),
        Some([first, last]) => {
            let count = text.lines().count();
            let last = if last == -1 { count } else { usize::try_from(last).unwrap_or(0).min(count) };
            let first = usize::try_from(first).unwrap_or(0);
            if first == 0 || first > last {
                return Err(format!("view_range: the file has {count} lines, and the range does not begin among them"));
            }
            text.split_inclusive('\n').skip(first - 1).take(last + 1 - first).collect()
        }
    };
    if shown.len() > MAX_VIEW {
        return Err(format!("{} bytes are more than a view shows: pass a smaller view_range", shown.len()));
    }
    Ok(shown)
}

/// The earlier contents of files, by session.
#[derive(Debug, Default)]
pub(super) struct UndoHistories(Mutex<HashMap<SessionId, VecDeque<Replaced>>>);

/// A content that an edit has replaced.
#[derive(Debug)]
struct Replaced {
    path: String,
    content: Vec<u8>,
}

fn bytes_of(history: &VecDeque<Replaced>) -> usize {
    history.iter().map(|replaced| replaced.content.len()).sum()
}

impl UndoHistories {
    /// Returns the content that the last edit of a file has replaced.
    fn last(&self, id: &SessionId, path: &str) -> Option<Vec<u8>> {
        let histories = self.0.lock();
        histories.get(id)?.iter().rfind(|replaced| replaced.path == path).map(|replaced| replaced.content.clone())
    }

    fn pop(&self, id: &SessionId, path: &str) {
        let mut histories = self.0.lock();
        let Some(history) = histories.get_mut(id) else { return };
        if let Some(position) = history.iter().rposition(|replaced| replaced.path == path) {
            history.remove(position);
        }
    }

    /// Adds a content that an edit replaces, and forgets the oldest ones. `is_live` returns whether a session exists.
    fn push(&self, id: &SessionId, path: &str, content: Vec<u8>, is_live: impl Fn(&SessionId) -> bool) {
        let mut histories = self.0.lock();
        if !histories.contains_key(id) {
            histories.retain(|session, _| is_live(session));
        }
        let all: usize = histories.values().map(bytes_of).sum();
        let history = histories.entry(id.clone()).or_default();
        // Edits before one that is not recorded cannot be undone either.
        if content.len() > MAX_UNDO_BYTES || all + content.len() > MAX_ALL_UNDO_BYTES {
            history.retain(|replaced| replaced.path != path);
            return;
        }
        history.push_back(Replaced { path: path.to_owned(), content });
        while history.len() > MAX_UNDO || bytes_of(history) > MAX_UNDO_BYTES {
            history.pop_front();
        }
    }

    /// Forgets the contents of a session.
    pub(super) fn forget(&self, id: &SessionId) {
        self.0.lock().remove(id);
    }
}
