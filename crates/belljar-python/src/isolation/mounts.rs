//! The directories of the host for code in another process: what its files ask of this process, which has them open.
//!
//! The requests are those of [`MountedDirectory`](belljar_emscripten::fs::MountedDirectory) and
//! [`MountedFile`](belljar_emscripten::fs::MountedFile), whose functions say what they mean.

use belljar_emscripten::Errno;
use belljar_emscripten::fs::{MountedEntry, OpenFlags, SetTime, Stat};
use serde::{Deserialize, Serialize};

use super::MAX_TRANSFER;

/// The most bytes of the names in a reply to [`DirectoryRequest::Entries`].
pub const MAX_NAMES: usize = 32 << 20;

/// The number of an open file. None is used twice for one interpreter.
pub type FileId = u64;

/// A directory of the host, as another process knows it: by its place in the list of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountPoint {
    /// The path inside, such as `/data`.
    pub guest: String,
    /// True if the code may modify the contents.
    pub is_writable: bool,
}

/// A request about mounted directories.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountRequest {
    /// About the directory in this place of the list.
    Directory(u32, DirectoryRequest),
    /// About an open file.
    File(FileId, MountedFileRequest),
}

/// A request about a mounted directory, with paths in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum DirectoryRequest {
    /// Asks for the attributes of a file.
    Stat(String),
    /// Asks for the target of a link.
    ReadLink(String),
    /// Opens a regular file.
    Open {
        /// The path.
        path: String,
        /// The flags.
        flags: OpenFlags,
        /// The permission bits of a new file.
        mode: u32,
    },
    /// Creates a directory with permission bits.
    MakeDirectory(String, u32),
    /// Removes a file.
    RemoveFile(String),
    /// Removes an empty directory.
    RemoveDirectory(String),
    /// Renames the first file to the second.
    Rename(String, String),
    /// Sets permission bits.
    SetMode(String, u32),
    /// Sets the times of the last access and of the last modification.
    SetTimes(String, SetTime, SetTime),
    /// Asks for at most this number of entries of a directory.
    Entries(String, u32),
}

/// A request about an open file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountedFileRequest {
    /// Asks for the attributes.
    Stat,
    /// Reads from the offset on at most this number of bytes, which is at most [`MAX_TRANSFER`].
    Read(u64, u32),
    /// Writes at the offset at most [`MAX_TRANSFER`] bytes.
    Write(u64, #[serde(with = "serde_bytes")] Vec<u8>),
    /// Sets the size.
    Truncate(u64),
    /// Writes what is buffered to the storage.
    Synchronise,
    /// Sets permission bits.
    SetMode(u32),
    /// Sets the times of the last access and of the last modification.
    SetTimes(SetTime, SetTime),
    /// Closes the file.
    Close,
}

/// The reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountReply {
    /// The attributes.
    Stat(Stat),
    /// The target of a link.
    Link(String),
    /// The number of the open file.
    Opened(FileId),
    /// The entries, and whether these are all.
    Entries(Vec<MountedEntry>, bool),
    /// The bytes.
    Bytes(#[serde(with = "serde_bytes")] Vec<u8>),
    /// The number of bytes that were written.
    Written(u32),
    /// The request was carried out.
    Done,
}

/// The result of a request.
pub type MountResult = Result<MountReply, Errno>;

impl MountedFileRequest {
    /// Returns whether the file must be in a directory that the code may modify.
    pub(crate) fn modifies(&self) -> bool {
        match self {
            Self::Stat | Self::Read(..) | Self::Synchronise | Self::Close => false,
            Self::Write(..) | Self::Truncate(_) | Self::SetMode(_) | Self::SetTimes(..) => true,
        }
    }

    /// Returns whether no more bytes are read or written than one request may.
    pub(crate) fn has_valid_size(&self) -> bool {
        match self {
            Self::Read(_, max) => *max as usize <= MAX_TRANSFER,
            Self::Write(_, bytes) => bytes.len() <= MAX_TRANSFER,
            _ => true,
        }
    }
}
