//! Directories of the host that hold the files of sessions on Windows, with the interface of `folders.rs`. Never run.
//!
//! Folders are found by path: links that are put in the place of one are refused when it is opened, and not later.

use std::fs::{self, File};
use std::io;
use std::os::windows::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_core::SessionFolder;
use belljar_core::os::DirectoryHandle;
use sha2::{Digest, Sha256};

use crate::id::SessionId;

/// `FILE_FLAG_BACKUP_SEMANTICS` of `CreateFile`, without which directories are not opened, and
/// `FILE_FLAG_OPEN_REPARSE_POINT`, which opens a link and not its target.
const OPEN_DIRECTORY: u32 = 0x0200_0000 | 0x0020_0000;
/// The depth of nested directories up to which a folder is copied.
const MAX_DEPTH: usize = 128;
/// The maximum number of files and directories of a folder that is copied.
const MAX_COPIED: usize = 100_000;
/// The number of characters of an owner in the name of a directory.
const MAX_OWNER: usize = 64;

/// The error of an operation on the folder of a session.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A file operation failed.
    #[error("failed to {operation} the session's folder: {error}")]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The cause.
        error: io::Error,
    },
    /// The folder's files exceed the limit of copies.
    #[error("the session's folder has more than {max_bytes} bytes or {MAX_COPIED} files, and is not copied")]
    TooLarge {
        /// The limit of the size of all files.
        max_bytes: u64,
    },
}

impl FolderError {
    fn io<E: Into<io::Error>>(operation: &'static str) -> impl Fn(E) -> Self + Copy {
        move |error| Self::Io { operation, error: error.into() }
    }
}

/// The directory of the host that contains the folders of sessions.
pub struct SessionFolders {
    path: PathBuf,
}

/// A folder that was opened, and whether it was created for that.
pub(crate) struct OpenedFolder {
    pub(crate) folder: SessionFolder,
    pub(crate) is_new: bool,
}

impl SessionFolders {
    /// Opens an existing directory.
    ///
    /// # Errors
    /// Fails if the path does not exist, or is not a directory that can be opened.
    pub fn open(path: &Path) -> io::Result<Self> {
        // The working directory may change.
        let path = path.canonicalize()?;
        open_directory(&path)?;
        Ok(Self { path })
    }

    /// Opens the folder of a session. Creates it if it does not exist.
    pub(crate) fn open_or_create(&self, id: &SessionId, owner: Option<&str>) -> Result<OpenedFolder, FolderError> {
        let parent = self.parent(owner, true).map_err(FolderError::io("open"))?;
        let path = parent.join(id.as_str());
        let is_new = create_directory(&path).map_err(FolderError::io("create"))?;
        let directory = open_directory(&path).map_err(FolderError::io("open"))?;
        Ok(OpenedFolder { folder: SessionFolder { path, directory: Arc::new(directory) }, is_new })
    }

    /// Creates the folder of the session `new` as a copy of that of `id`. Only regular files and directories are
    /// copied.
    pub(crate) fn copy(
        &self,
        id: &SessionId,
        new: &SessionId,
        owner: Option<&str>,
        max_bytes: u64,
    ) -> Result<SessionFolder, FolderError> {
        let (from, to) = (self.open_or_create(id, owner)?.folder, self.open_or_create(new, owner)?.folder);
        let mut copy = FolderCopy { bytes: max_bytes, files: MAX_COPIED };
        copy.directory(&from.path, &to.path, 0).map_err(|error| match error.kind() {
            io::ErrorKind::QuotaExceeded => FolderError::TooLarge { max_bytes },
            _ => FolderError::Io { operation: "copy", error },
        })?;
        Ok(to)
    }

    /// Deletes the folder of a session with its files. Only for copies that no session uses.
    pub(crate) fn remove(&self, id: &SessionId, owner: Option<&str>) {
        let removed = self.parent(owner, false).and_then(|parent| fs::remove_dir_all(parent.join(id.as_str())));
        if let Err(error) = removed {
            tracing::debug!(%error, "failed to delete the copy of a session's folder");
        }
    }

    /// Deletes the folder of a session if it is empty.
    pub(crate) fn remove_if_empty(&self, id: &SessionId, owner: Option<&str>) {
        // Fails if the folder contains files, or does not exist.
        let _ = self.parent(owner, false).and_then(|parent| fs::remove_dir(parent.join(id.as_str())));
    }

    /// Returns the path of the directory that contains the folders of an owner, which is not a link.
    fn parent(&self, owner: Option<&str>, create: bool) -> io::Result<PathBuf> {
        let Some(name) = owner.map(owner_name) else { return Ok(self.path.clone()) };
        let path = self.path.join(name);
        if create {
            create_directory(&path)?;
        }
        open_directory(&path)?;
        Ok(path)
    }
}

/// Opens a directory. Fails for a link.
fn open_directory(path: &Path) -> io::Result<DirectoryHandle> {
    let file = File::options().read(true).custom_flags(OPEN_DIRECTORY).open(path)?;
    if file.metadata()?.is_dir() { Ok(file.into()) } else { Err(io::ErrorKind::NotADirectory.into()) }
}

/// Creates a directory. Returns `false` if a file of that name exists.
fn create_directory(path: &Path) -> io::Result<bool> {
    match fs::create_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the name of the directory for an owner: readable, and different from that of each other owner and session.
fn owner_name(owner: &str) -> String {
    let (kind, name) = owner.split_once(':').unwrap_or(("", owner));
    // The digest of a token, and the issuer in front of an OAuth subject, say nothing to a reader.
    let name = if kind == "token" { kind } else { name.rsplit(' ').next().unwrap_or(name) };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '@');
    let plain: String = name.chars().take(MAX_OWNER).map(|c| if is_plain(c) { c } else { '_' }).collect();
    let digest = Sha256::digest(format!("belljar owner {owner}"));
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{plain}.{digest}")
}

/// A copy in progress, with what it may still take.
struct FolderCopy {
    bytes: u64,
    files: usize,
}

impl FolderCopy {
    /// Copies the contents of a directory.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::QuotaExceeded`] if the contents take more than is left, and other errors if a file
    /// cannot be copied.
    fn directory(&mut self, from: &Path, to: &Path, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            self.files = self.files.checked_sub(1).ok_or(io::ErrorKind::QuotaExceeded)?;
            // A file that was removed meanwhile is left out.
            let Ok(kind) = entry.file_type() else { continue };
            let target = to.join(entry.file_name());
            if kind.is_dir() {
                fs::create_dir(&target)?;
                self.directory(&entry.path(), &target, depth + 1)?;
            } else if kind.is_file() {
                self.file(&entry.path(), &target)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (mut source, mut target) = (io::Read::take(File::open(from)?, self.bytes), File::create_new(to)?);
        self.bytes -= io::copy(&mut source, &mut target)?;
        // Beyond the limit, or growing: in both cases the copy would be incomplete.
        if self.bytes == 0 && io::Read::read(&mut source.into_inner(), &mut [0])? > 0 {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        Ok(())
    }
}
