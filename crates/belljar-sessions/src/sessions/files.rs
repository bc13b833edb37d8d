//! Files of sessions: listed, read, uploaded, written, and edited in one operation.

use belljar_core::files::{FileError, FileInfo, Range};

use super::Sessions;
use super::queueing::result;
use crate::error::SessionError;
use crate::files::FileAddress;
use crate::id::SessionId;
use crate::state::files::ReadRecord;

impl Sessions {
    /// Returns the session's files.
    ///
    /// # Errors
    /// Fails if the session does not exist, or its kernel cannot be started or restored.
    pub fn list(&self, id: &SessionId) -> impl Future<Output = Result<Vec<FileInfo>, SessionError>> + Send + use<> {
        result(self.on(id, 0, |state, services, _| state.list(services)))
    }

    /// Reads a file of a session, or a part of the file.
    ///
    /// # Errors
    /// Fails if the session or the file does not exist.
    pub fn read(&self, address: FileAddress) -> impl Future<Output = Result<Vec<u8>, SessionError>> + Send + use<> {
        self.read_recorded(address, None)
    }

    /// Reads the first part of a file of `size` bytes, whose other parts are read by [`Sessions::continue_download`].
    /// All of them have one record.
    ///
    /// # Errors
    /// Fails if the session or the file does not exist.
    pub fn begin_download(
        &self,
        first: FileAddress,
        size: u64,
    ) -> impl Future<Output = Result<Vec<u8>, SessionError>> + Send + use<> {
        self.read_recorded(first, Some(size))
    }

    /// Reads a further part of a file.
    ///
    /// # Errors
    /// Fails if the session or the file does not exist any more.
    pub fn continue_download(
        &self,
        next: FileAddress,
    ) -> impl Future<Output = Result<Vec<u8>, SessionError>> + Send + use<> {
        let id = next.session.clone();
        result(self.on(&id, 0, move |state, services, _| state.read_part(services, &next.path, next.range)))
    }

    fn read_recorded(
        &self,
        address: FileAddress,
        size: Option<u64>,
    ) -> impl Future<Output = Result<Vec<u8>, SessionError>> + Send + use<> {
        let (id, by) = (address.session.clone(), self.actor());
        result(self.on(&id, 0, move |state, services, _| {
            let FileAddress { path, range, .. } = &address;
            let read = state.read_part(services, path, *range);
            state.record_read(services, path, &read, ReadRecord { size, by });
            read
        }))
    }

    /// Writes a file into a session.
    ///
    /// # Errors
    /// Fails if the name is not a plain file name, or the file is too large.
    pub fn upload(
        &self,
        id: &SessionId,
        name: String,
        bytes: Vec<u8>,
    ) -> impl Future<Output = Result<FileInfo, SessionError>> + Send + use<> {
        let queued = self.tenant.check_storage().map_err(SessionError::from).and_then(|()| {
            self.on(id, bytes.len(), move |state, services, now| state.upload(services, &name, &bytes, now))
        });
        result(queued)
    }

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
