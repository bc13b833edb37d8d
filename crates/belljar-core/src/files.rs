//! A session's files, as every backend reports them.

/// The longest path, in bytes.
const MAX_PATH: usize = 1024;
/// The most bytes of one read; longer files are read in parts.
pub const MAX_READ: u64 = 8 << 20;

/// A file's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// The path from the session's directory.
    pub path: String,
    /// The size in bytes.
    pub size: u64,
    /// The time of the last write, in nanoseconds; only to detect changes.
    pub modified: i128,
}

/// A part of a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    /// The offset of its first byte.
    pub offset: u64,
    /// The most bytes; `None` reads to the end, if that is not more than [`MAX_READ`].
    pub length: Option<u64>,
}

/// The reason why a file cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The name is not a path below the session's directory.
    #[error("`{0}` is not a file name: write a path inside of the session, such as `table.csv` or `plots/one.png`")]
    Name(String),
    /// The file does not exist.
    #[error("the session has no file `{0}`")]
    Missing(String),
    /// The file is longer than one read may be.
    #[error("`{path}` has {size} bytes, and at most {MAX_READ} are read at once: add `?offset=0&length={MAX_READ}`")]
    TooLong {
        /// The file.
        path: String,
        /// The file's size in bytes.
        size: u64,
    },
    /// The file does not fit into the session's space.
    #[error("`{0}` does not fit into the session's space")]
    Full(String),
    /// Another failure.
    #[error("`{path}`: {reason}")]
    Other {
        /// The file.
        path: String,
        /// The failure.
        reason: String,
    },
}

/// Checks that a path stays inside of the session's directory: names separated by slashes, none of them `.`, `..` or
/// hidden.
///
/// # Errors
/// Returns [`FileError::Name`] if the path may lead elsewhere.
pub fn check_path(path: &str) -> Result<(), FileError> {
    let plain = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name.len() <= 255
            && !name.contains(|c: char| c.is_control() || c == '\\')
    };
    if path.len() <= MAX_PATH && path.split('/').all(plain) {
        Ok(())
    } else {
        Err(FileError::Name(truncate_for_message(path)))
    }
}

/// Returns a name as error messages may show it: at most 200 characters, without control characters.
pub fn truncate_for_message(text: &str) -> String {
    text.chars().take(200).filter(|c| !c.is_control()).collect()
}
