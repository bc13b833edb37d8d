//! The files of a session: what the host lists, reads and writes of them, in this process or as messages to another.

use belljar_core::files::{FileError, FileInfo, MAX_READ, Range, truncate_for_message};
use belljar_emscripten::Errno;
use belljar_emscripten::fs::{AT_FDCWD, FileEntry, FileType, Filesystem};
use belljar_network::Scrubber;
use serde::{Deserialize, Serialize};

use crate::interpreter::Interpreter;
use crate::isolation::at_most;
use crate::session::SESSION_DIRECTORY;

/// The maximum number of files of a session that are listed.
pub const MAX_FILES: usize = 20_000;
/// The maximum length of all listed paths together for another process, in bytes.
pub const MAX_LISTED_PATHS: usize = 24 << 20;
/// The longest path of a listed file, in bytes.
const MAX_PATH: usize = 4096;
/// The longest reason of another process, in characters.
const MAX_REASON: usize = 200;

/// A request about the files of a session in another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRequest {
    /// Lists files and directories.
    List,
    /// Reads a part of a file.
    Read {
        /// The path from the session's directory.
        path: String,
        /// The offset of the first byte.
        offset: u64,
        /// The most bytes; `None` reads to the end.
        length: Option<u64>,
    },
    /// Writes a whole file.
    Write {
        /// The path from the session's directory.
        path: String,
        /// The content.
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
}

/// The reply to a [`FileRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReply {
    /// The files and directories.
    List(#[serde(deserialize_with = "at_most::<_, _, MAX_FILES>")] Vec<ListedFile>),
    /// The bytes that were read.
    Read(Result<Vec<u8>, FileFailure>),
    /// The file was written.
    Written(Result<(), FileFailure>),
}

/// A file or directory of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedFile {
    /// The path from the session's directory.
    pub path: String,
    /// True for regular files.
    pub is_regular: bool,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last write, in nanoseconds.
    pub modified: i128,
}

impl ListedFile {
    /// Returns whether a file system can have the file: its path stays below the directory, and its size and time are
    /// in the range of theirs. Hidden files can be listed.
    fn is_possible(&self) -> bool {
        const SECOND: i128 = 1_000_000_000;
        let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
        let times = i128::from(i64::MIN) * SECOND..(i128::from(i64::MAX) + 1) * SECOND;
        self.path.len() <= MAX_PATH
            && self.path.split('/').all(is_name)
            && i64::try_from(self.size).is_ok()
            && times.contains(&self.modified)
    }
}

/// A [`FileError`] without the path, for another process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileFailure {
    /// [`FileError::Name`].
    Name,
    /// [`FileError::Missing`].
    Missing,
    /// [`FileError::TooLong`], with the size.
    TooLong(u64),
    /// [`FileError::Full`].
    Full,
    /// [`FileError::Other`], with the reason.
    Other(String),
}

impl From<FileError> for FileFailure {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Name(_) => Self::Name,
            FileError::Missing(_) => Self::Missing,
            FileError::TooLong { size, .. } => Self::TooLong(size),
            FileError::Full(_) => Self::Full,
            FileError::Other { reason, .. } => Self::Other(truncate_for_message(&reason)),
        }
    }
}

impl FileFailure {
    fn into_error(self, path: &str) -> FileError {
        let path = path.to_owned();
        match self {
            Self::Name => FileError::Name(path),
            Self::Missing => FileError::Missing(path),
            Self::TooLong(size) => FileError::TooLong { path, size },
            Self::Full => FileError::Full(path),
            Self::Other(reason) => FileError::Other { path, reason: truncate_for_message(&reason) },
        }
    }
}

impl FileRequest {
    /// Handles the request. For the process of the interpreter.
    pub fn handle(self, interpreter: &mut Interpreter) -> FileReply {
        match self {
            Self::List => {
                let mut length = 0;
                let fits = |file: &ListedFile| {
                    length += file.path.len();
                    length <= MAX_LISTED_PATHS
                };
                // The other process refuses lists with longer paths.
                let files = interpreter.list_session_files().into_iter().filter(ListedFile::is_possible);
                FileReply::List(files.take_while(fits).collect())
            }
            Self::Read { path, offset, length } => {
                let read = interpreter.read_session_file(&path, Range { offset, length });
                FileReply::Read(read.map_err(FileFailure::from))
            }
            Self::Write { path, bytes } => {
                let written = interpreter.write_session_file(&path, &bytes);
                FileReply::Written(written.map_err(FileFailure::from))
            }
        }
    }

    /// Returns the reply of an untrusted process; `None` if it is not one to this request.
    pub fn check(&self, reply: FileReply) -> Option<FileReply> {
        let is_valid = match (self, &reply) {
            (Self::List, FileReply::List(files)) => {
                let lengths: usize = files.iter().map(|file| file.path.len()).sum();
                files.len() <= MAX_FILES && lengths <= MAX_LISTED_PATHS && files.iter().all(ListedFile::is_possible)
            }
            (Self::Read { length, .. }, FileReply::Read(Ok(bytes))) => {
                bytes.len() as u64 <= length.unwrap_or(MAX_READ).min(MAX_READ)
            }
            (Self::Read { .. }, FileReply::Read(Err(failure)))
            | (Self::Write { .. }, FileReply::Written(Err(failure))) => {
                !matches!(failure, FileFailure::Other(reason) if reason.chars().count() > MAX_REASON)
            }
            (Self::Write { .. }, FileReply::Written(Ok(()))) => true,
            _ => false,
        };
        is_valid.then_some(reply)
    }
}

/// Returns the bytes of a reply to a request that reads `path`.
pub(crate) fn read_bytes(reply: FileReply, path: &str) -> Result<Vec<u8>, FileError> {
    match reply {
        FileReply::Read(read) => read.map_err(|failure| failure.into_error(path)),
        _ => Err(FileError::Other { path: path.into(), reason: "it was not read".into() }),
    }
}

/// Returns the result of a reply to a request that writes `path`.
pub(crate) fn write_result(reply: FileReply, path: &str) -> Result<(), FileError> {
    match reply {
        FileReply::Written(written) => written.map_err(|failure| failure.into_error(path)),
        _ => Err(FileError::Other { path: path.into(), reason: "it was not written".into() }),
    }
}

/// Returns the regular files without hidden ones.
pub(crate) fn visible(files: Vec<ListedFile>) -> Vec<FileInfo> {
    let is_visible = |file: &ListedFile| file.is_regular && !file.path.split('/').any(|name| name.starts_with('.'));
    let info = |ListedFile { path, size, modified, .. }: ListedFile| FileInfo { path, size, modified };
    files.into_iter().filter(is_visible).map(info).collect()
}

/// Returns the names of modules in the working directory, and names that are not modules.
pub(crate) fn local_modules(files: Vec<ListedFile>) -> Vec<String> {
    let files = files.into_iter().filter(|file| !file.path.contains('/'));
    files.map(|file| file.path.trim_end_matches(".py").to_owned()).collect()
}

impl Interpreter {
    /// Returns the files and directories of the session, at most [`MAX_FILES`].
    pub(crate) fn list_session_files(&mut self) -> Vec<ListedFile> {
        list(self.files())
    }

    /// Reads a part of a file of the session, without secrets.
    ///
    /// # Errors
    /// Fails if the file does not exist, or is not a regular file that the session has made.
    pub(crate) fn read_session_file(&mut self, path: &str, range: Range) -> Result<Vec<u8>, FileError> {
        let scrubber = self.scrubber().clone();
        read(self.files(), &scrubber, path, range)
    }

    /// Writes a whole file of the session.
    ///
    /// # Errors
    /// Fails if the file does not fit into the session's space.
    pub(crate) fn write_session_file(&mut self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        write(self.files(), path, bytes)
    }
}

/// Does the same as [`Interpreter::list_session_files`] with these files.
pub(crate) fn list(files: &mut Filesystem) -> Vec<ListedFile> {
    let listing = files.list(SESSION_DIRECTORY, MAX_FILES);
    let listed = |FileEntry { path, file_type, size, modified }: FileEntry| ListedFile {
        path,
        is_regular: file_type == FileType::Regular,
        size,
        modified: i128::from(modified.seconds) * 1_000_000_000 + i128::from(modified.nanoseconds),
    };
    listing.map(|listing| listing.files).unwrap_or_default().into_iter().map(listed).collect()
}

/// Does the same as [`Interpreter::read_session_file`] with these files.
///
/// # Errors
/// The same.
pub(crate) fn read(
    files: &mut Filesystem,
    scrubber: &Scrubber,
    path: &str,
    range: Range,
) -> Result<Vec<u8>, FileError> {
    let (guest_path, size) = resolve_regular_file(files, path)?;
    let available = size.saturating_sub(range.offset);
    let length = range.length.unwrap_or(available).min(available);
    if length > MAX_READ {
        return Err(FileError::TooLong { path: path.into(), size });
    }
    let bytes = scrubber.read_part(range.offset, length, |from, count| files.read_part(&guest_path, from, count));
    bytes.map_err(|error| FileError::Other { path: path.into(), reason: error.errno.to_string() })
}

/// Does the same as [`Interpreter::write_session_file`] with these files.
///
/// # Errors
/// The same.
pub(crate) fn write(files: &mut Filesystem, path: &str, bytes: &[u8]) -> Result<(), FileError> {
    match resolve_regular_file(files, path) {
        Ok(_) | Err(FileError::Missing(_)) => {}
        Err(error) => return Err(error),
    }
    files.write_file(&format!("{SESSION_DIRECTORY}/{path}"), bytes).map_err(|error| match error.errno {
        Errno::ENOSPC => FileError::Full(path.into()),
        errno => FileError::Other { path: path.into(), reason: errno.to_string() },
    })
}

/// Returns the guest's path of a regular file and its size. Follows no link on the way.
fn resolve_regular_file(files: &mut Filesystem, path: &str) -> Result<(String, u64), FileError> {
    let mut guest_path = SESSION_DIRECTORY.to_owned();
    let mut names = path.split('/').peekable();
    while let Some(name) = names.next() {
        guest_path = format!("{guest_path}/{name}");
        let stat = files.stat_at(AT_FDCWD, &guest_path, false).map_err(|_| FileError::Missing(path.into()))?;
        match (names.peek().is_some(), stat.file_type) {
            (true, FileType::Directory) => {}
            (false, FileType::Regular) => return Ok((guest_path, stat.size)),
            _ => return Err(FileError::Name(path.into())),
        }
    }
    Err(FileError::Name(path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_replies_to_the_request_are_accepted() {
        let read = FileRequest::Read { path: "a".into(), offset: 0, length: Some(2) };
        let write = FileRequest::Write { path: "a".into(), bytes: Vec::new() };
        let listed = |path: &str| {
            FileReply::List(vec![ListedFile { path: path.into(), is_regular: true, size: 1, modified: 2 }])
        };
        assert!(FileRequest::List.check(listed("a/b")).is_some());
        assert!(read.check(FileReply::Read(Ok(vec![1, 2]))).is_some());
        assert!(read.check(FileReply::Read(Err(FileFailure::Missing))).is_some());
        assert!(write.check(FileReply::Written(Ok(()))).is_some());
        assert!(FileRequest::List.check(listed(".hidden/f")).is_some());
        let with = |size: u64, modified: i128| {
            FileReply::List(vec![ListedFile { path: "a".into(), is_regular: true, size, modified }])
        };
        assert!(FileRequest::List.check(with(1 << 40, i128::from(i64::MAX) * 1_000_000_000)).is_some());
        let refused = [
            (&FileRequest::List, listed("")),
            (&FileRequest::List, listed("/a")),
            (&FileRequest::List, listed("a/../../b")),
            (&FileRequest::List, listed("a/./b")),
            (&FileRequest::List, listed("a\0b")),
            (&FileRequest::List, with(u64::MAX, 0)),
            (&FileRequest::List, with(0, i128::MAX)),
            (&FileRequest::List, listed(&"x".repeat(5000))),
            (&FileRequest::List, FileReply::Written(Ok(()))),
            (&read, listed("a")),
            (&read, FileReply::Read(Ok(vec![1, 2, 3]))),
            (&read, FileReply::Read(Err(FileFailure::Other("x".repeat(1000))))),
            (&write, FileReply::Read(Ok(Vec::new()))),
        ];
        for (request, reply) in refused {
            assert_eq!(request.check(reply), None, "{request:?}");
        }
    }
}
