//! Files of sessions that are written, and edited in one operation, by their paths.

use belljar_core::files::{FileError, FileInfo, Range};

use super::Sessions;
use super::queueing::result;
use crate::error::SessionError;
use crate::id::SessionId;
use crate::state::files::ReadRecord;

impl Sessions {
    /// Writes a file of a session, and creates the directories on its path.
    ///
    /// # Errors
    /// Fails if the path is not one inside of the session, the file is too large, or the session does not exist.
    pub fn write(
        &self,
        id: &SessionId,
        path: String,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Result<FileInfo, SessionError>> + Send + use<> {
        result(self.on(id, bytes.len(), move |state, services, now| state.write_file(services, &path, &bytes, now)))
    }

    /// Reads a file of a session and passes it to `edit`, which returns the call's result and the file's new content,
    /// if that changes. No other call to the session comes between. `bytes` is the size of what `edit` holds.
    ///
    /// # Errors
    /// Fails if the session does not exist, or the new content cannot be written. The error of a file that cannot be
    /// read, or does not exist, is passed to `edit`.
    pub fn edit<T, E>(
        &self,
        id: &SessionId,
        path: String,
        bytes: usize,
        edit: E,
    ) -> impl Future<Output = Result<T, SessionError>> + Send + use<T, E>
    where
        T: Send + 'static,
        E: FnOnce(Result<Vec<u8>, FileError>) -> (T, Option<Vec<u8>>) + Send + 'static,
    {
        result(self.on(id, bytes, move |state, services, now| {
            let read = state.read_part(services, &path, Range::default());
            state.record_read(services, &path, &read, ReadRecord::default());
            let content = match read {
                Ok(content) => Ok(content),
                Err(SessionError::File(error)) => Err(error),
                Err(error) => return Err(error),
            };
            let (value, changed) = edit(content);
            if let Some(changed) = changed {
                state.write_file(services, &path, &changed, now)?;
            }
            Ok(value)
        }))
    }
}
