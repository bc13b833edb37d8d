//! The snapshot from which the interpreter of a recorded cell began: its waiting cell is stored as the difference.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use serde::{Deserialize, Serialize};

use super::private_directory::DirectoryError;
use super::signer::KEY_LENGTH;
use super::state_file::{self, SnapshotHeader};
use super::waiting::{START, WAITING, parse_run};
use super::{STATE, Store, StoreError};
use crate::id::SessionId;
use crate::runs::RunId;

/// A file of a session with the beginning of the data of a waiting cell's snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StartFile {
    kind: StartKind,
    /// The end of the file: its digest or signature.
    end: [u8; KEY_LENGTH],
    /// The length of the beginning.
    pub(crate) length: usize,
}

/// The file from which the interpreter of a run began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StartKind {
    /// The state of the session from before the cell.
    State,
    /// The file of the cell from which it was restored.
    Restored,
}

impl StartKind {
    fn name(self) -> &'static str {
        match self {
            Self::State => STATE,
            Self::Restored => START,
        }
    }
}

impl Store {
    /// Notes that the cell of a session has been restored from its file, which has all of its snapshot.
    pub(crate) fn set_start(&self, id: &SessionId) -> Result<(), StoreError> {
        let directory = self.directory(id)?;
        let set = || {
            directory.remove(START)?;
            // Without hard links, it is copied.
            directory.link(WAITING, START).or_else(|_| {
                let bytes = directory.read(WAITING, state_file::MAX_FILE)?;
                Ok(directory.create(START)?.write_all(&bytes)?)
            })
        };
        set().map_err(StoreError::io::<DirectoryError>("write"))
    }

    /// Returns the header of the snapshot from which the interpreter of a run began, and its file: that from which it
    /// was restored, or else the state of its session. Returns `None` if there is neither.
    pub(crate) fn start_of(
        &self,
        id: &SessionId,
        run: &RunId,
    ) -> Result<Option<(SnapshotHeader, StartFile)>, StoreError> {
        let directory = match self.directory(id) {
            Err(StoreError::Missing) => return Ok(None),
            other => other?,
        };
        let found = |kind: StartKind| {
            let mut file = match directory.open(kind.name()) {
                Err(error) if error.is_missing() => return Ok(None),
                other => other.map_err(StoreError::io("read"))?,
            };
            let header = state_file::read_header(&file, id)?;
            let mut end = [0; KEY_LENGTH];
            let read = file.seek(SeekFrom::End(-(KEY_LENGTH as i64))).and_then(|_| file.read_exact(&mut end));
            read.map_err(|error| StoreError::io("read")(error))?;
            Ok(Some((header, StartFile { kind, end, length: 0 })))
        };
        if let Some((mut header, file)) = found(StartKind::Restored)?
            && parse_run(header.run.take())?.info.id == *run
        {
            return Ok(Some((header, file)));
        }
        found(StartKind::State)
    }

    /// Returns the beginning of the data of a snapshot.
    pub(super) fn read_start(&self, id: &SessionId, start: &StartFile) -> Result<Vec<u8>, StoreError> {
        let changed = || StoreError::Damaged("the state from before its cell is another one");
        let bytes = self.directory(id)?.read(start.kind.name(), state_file::MAX_FILE);
        let bytes = bytes.map_err(StoreError::missing_or_io("read"))?;
        if !bytes.ends_with(&start.end) {
            return Err(changed());
        }
        let stored = match start.kind {
            StartKind::State => state_file::decode(&bytes, id)?,
            StartKind::Restored => state_file::decode_run(&bytes, id, &self.signer()?)?.0,
        };
        let mut data = stored.snapshot.data;
        if data.len() < start.length {
            return Err(changed());
        }
        data.truncate(start.length);
        Ok(data)
    }
}
