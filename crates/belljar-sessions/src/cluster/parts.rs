//! The files of a session as the parts of its state in the store.

use std::collections::BTreeMap;
use std::time::Duration;

use belljar_store::{Changes, Facts, Ownership};
use sha2::{Digest as _, Sha256};

use crate::id::SessionId;
use crate::session::milliseconds;
use crate::store::private_directory::{self, DirectoryError};
use crate::store::{CELLS, RESUMED, SENT, START, STATE, Store, StoreError, WAITING};

/// A file of a session, and whether it only grows.
const PARTS: [(&str, bool); 6] =
    [(STATE, false), (WAITING, false), (RESUMED, false), (START, false), (CELLS, true), (SENT, true)];

/// The identity and the size of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    /// The time of the last change, in nanoseconds.
    changed: i128,
}

/// The files that the store has, by name.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct FileStamps(BTreeMap<&'static str, Stamp>);

/// Returns what has changed in a session's directory since the files were as in `stored`, and how they are now. Returns
/// `None` if nothing has.
pub(super) fn changes_of(
    store: &Store,
    id: &SessionId,
    stored: &FileStamps,
) -> Result<Option<(Changes, FileStamps)>, StoreError> {
    let mut changes = Changes::new();
    let mut now = FileStamps::default();
    let directory = match store.directory(id) {
        // A session that has been stored does not lose its files.
        Err(StoreError::Missing) if stored.0.is_empty() => return Ok(None),
        other => other?,
    };
    for (name, grows) in PARTS {
        let before = stored.0.get(name);
        let mut file = match directory.open(name) {
            Err(error) if error.is_missing() => {
                if before.is_some() {
                    changes = changes.remove(name);
                }
                continue;
            }
            other => other.map_err(StoreError::io::<DirectoryError>("read"))?,
        };
        let failed = StoreError::io("read");
        let metadata = file.metadata().map_err(failed)?;
        let (inode, changed) = private_directory::identity(&metadata);
        let stamp = Stamp { inode, length: metadata.len(), changed };
        now.0.insert(name, stamp);
        if before == Some(&stamp) {
            continue;
        }
        match before {
            Some(before) if grows && before.inode == stamp.inode && before.length <= stamp.length => {
                changes = changes.append(name, read_from(&mut file, before.length, stamp.length).map_err(failed)?);
            }
            _ => changes = changes.put(name, read_from(&mut file, 0, stamp.length).map_err(failed)?),
        }
    }
    if now == *stored {
        return Ok(None);
    }
    Ok(Some((changes, now)))
}

/// Returns what the store lists of a session that was last used at a time, since 1970, and expires `lifetime` later.
pub(super) fn facts(owner: Option<&str>, last_used: Duration, lifetime: Duration) -> Facts {
    let owner = owner.map(|owner| hex(&Sha256::digest(owner.as_bytes())));
    let expires = Some(milliseconds(last_used.saturating_add(lifetime)));
    Facts { owner, last_used: milliseconds(last_used), expires, ..Facts::default() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read_from(file: &mut std::fs::File, from: u64, to: u64) -> std::io::Result<Vec<u8>> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::with_capacity(usize::try_from(to - from).unwrap_or(0));
    file.take(to - from).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes the parts of a session into its directory, and returns how the files are.
pub(super) async fn write_parts(
    store: &Store,
    id: &SessionId,
    ownership: &Ownership,
) -> Result<FileStamps, StoreError> {
    let parts = ownership.read_all().await?;
    for (name, _) in PARTS {
        if let Some(bytes) = parts.get(name) {
            store.write_part(id, name, bytes)?;
        }
    }
    let written = changes_of(store, id, &FileStamps::default())?;
    Ok(written.map(|(_, stamps)| stamps).unwrap_or_default())
}
