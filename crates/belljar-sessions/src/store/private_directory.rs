//! Directories and files of the store, opened so that nothing that was put in their place has an effect: links are not
//! followed, only regular files are read and written, and new files are accessible to the user of this process alone.
//! [`crate::os`] opens them.

use std::io::{self, Read as _};

pub(crate) use crate::os::private_directory::{PrivateDirectory, identity};

/// The error of an operation on a file of the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file exists, but is not of the type that the store writes.
    #[error("{name} is {found}")]
    WrongType {
        name: &'static str,
        /// The type, with an article.
        found: &'static str,
    },
    #[error("{0} is too long")]
    TooLong(&'static str),
}

impl From<DirectoryError> for io::Error {
    fn from(error: DirectoryError) -> Self {
        match error {
            DirectoryError::Io(error) => error,
            error => Self::other(error),
        }
    }
}

impl DirectoryError {
    /// Returns whether the file does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl PrivateDirectory {
    /// Reads a file of at most `max_bytes`.
    pub(crate) fn read(&self, name: &'static str, max_bytes: u64) -> Result<Vec<u8>, DirectoryError> {
        let file = self.open(name)?;
        let length = file.metadata()?.len();
        if length > max_bytes {
            return Err(DirectoryError::TooLong(name));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        // The file may grow meanwhile.
        file.take(max_bytes).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}
