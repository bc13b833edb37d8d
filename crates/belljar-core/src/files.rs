//! A session's files, as every backend speaks of them.

/// Longest path, in bytes.
const MAX_PATH: usize = 1024;
/// Most bytes that are read at once; longer files are read in parts.
pub const MAX_READ: u64 = 8 << 20;

/// What is known of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInfo {
    /// Path from the session's directory.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// When it was last written, in nanoseconds; only to tell changes.
    pub modified: i128,
}

/// Part of a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    /// Where it begins.
    pub offset: u64,
    /// How much at most; `None` is to the end, as long as that is not more than [`MAX_READ`].
    pub length: Option<u64>,
}

/// Why a file cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The name leads nowhere.
    #[error("`{0}` is no name of a file: write a path inside of the session, such as `table.csv` or `plots/one.png`")]
    Name(String),
    /// There is no such file.
    #[error("the session has no file `{0}`; list_session_files says which there are")]
    Missing(String),
    /// It is longer than what is read at once.
    #[error("`{path}` has {size} bytes, and at most {MAX_READ} are read at once: add `?offset=0&length={MAX_READ}`")]
    TooLong {
        /// The file.
        path: String,
        /// Its length.
        size: u64,
    },
    /// There is no room for it.
    #[error("`{0}` does not fit into the session's space (--session-disk)")]
    Full(String),
    /// Something else.
    #[error("`{path}`: {reason}")]
    Other {
        /// The file.
        path: String,
        /// What happened.
        reason: String,
    },
}

/// Whether a path stays inside of the session's directory: names with slashes between them, none of them `.`, `..` or
/// hidden.
///
/// # Errors
/// [`FileError::Name`] when it may lead elsewhere.
pub fn check_path(path: &str) -> Result<(), FileError> {
    let plain = |name: &str| {
        !name.is_empty()
            && !name.starts_with('.')
            && name.len() <= 255
            && !name.contains(|c: char| c.is_control() || c == '\\')
    };
    if path.len() <= MAX_PATH && path.split('/').all(plain) { Ok(()) } else { Err(FileError::Name(shortened(path))) }
}

/// A name as it may stand in a message.
pub fn shortened(text: &str) -> String {
    text.chars().take(200).filter(|c| !c.is_control()).collect()
}
