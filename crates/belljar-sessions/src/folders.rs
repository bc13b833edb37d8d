//! Directories of the host that hold the files of sessions: `DIR/SESSION`, or `DIR/OWNER/SESSION` with authentication.
//!
//! The files belong to the user of the server. They are not deleted with the session; only a folder without files is.
//! `DIR` may contain anything else. Names below it are opened without following links.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_core::SessionFolder;
use sha2::{Digest, Sha256};

use crate::id::SessionId;
use crate::os::host_directory::{self, HostDirectory};

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
    fn io(operation: &'static str) -> impl Fn(io::Error) -> Self + Copy {
        move |error| Self::Io { operation, error }
    }
}

/// The directory of the host that contains the folders of sessions.
pub struct SessionFolders {
    root: HostDirectory,
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
        // The working directory may change, and the sandbox does not follow links.
        let path = path.canonicalize()?;
        Ok(Self { root: HostDirectory::open(&path)?, path })
    }

    /// Opens the folder of a session. Creates it if it does not exist.
    pub(crate) fn open_or_create(&self, id: &SessionId, owner: Option<&str>) -> Result<OpenedFolder, FolderError> {
        let parent = self.parent(owner, true).map_err(FolderError::io("open"))?;
        let is_new = parent.create(id.as_str()).map_err(FolderError::io("create"))?;
        let directory = parent.open_handle(id.as_str()).map_err(FolderError::io("open"))?;
        let folder = SessionFolder { path: self.path_of(id, owner), directory: Arc::new(directory) };
        Ok(OpenedFolder { folder, is_new })
    }

    /// Creates the folder of the session `new` as a copy of that of `id`. Links are copied as links, where the system
    /// allows it, and files of other types are left out.
    pub(crate) fn copy(
        &self,
        id: &SessionId,
        new: &SessionId,
        owner: Option<&str>,
        max_bytes: u64,
    ) -> Result<SessionFolder, FolderError> {
        let (from, to) = (self.open_or_create(id, owner)?.folder, self.open_or_create(new, owner)?.folder);
        let mut budget = CopyBudget { bytes: max_bytes, files: MAX_COPIED };
        host_directory::copy(&from, &to, &mut budget).map_err(|error| match error.kind() {
            io::ErrorKind::QuotaExceeded => FolderError::TooLarge { max_bytes },
            _ => FolderError::Io { operation: "copy", error },
        })?;
        Ok(to)
    }

    /// Deletes the folder of a session with its files. Only for copies that no session uses.
    pub(crate) fn remove(&self, id: &SessionId, owner: Option<&str>) {
        let removed = self.parent(owner, false).and_then(|_| std::fs::remove_dir_all(self.path_of(id, owner)));
        if let Err(error) = removed {
            tracing::debug!(%error, "failed to delete the copy of a session's folder");
        }
    }

    /// Deletes the folder of a session if it is empty.
    pub(crate) fn remove_if_empty(&self, id: &SessionId, owner: Option<&str>) {
        // Fails if the folder contains files, or does not exist.
        let _ = self.parent(owner, false).and_then(|parent| parent.remove_empty(id.as_str()));
    }

    /// Opens the directory that contains the folders of an owner.
    fn parent(&self, owner: Option<&str>, create: bool) -> io::Result<HostDirectory> {
        let Some(name) = owner.map(owner_name) else { return self.root.try_clone() };
        if create {
            self.root.create(&name)?;
        }
        self.root.subdirectory(&name)
    }

    fn path_of(&self, id: &SessionId, owner: Option<&str>) -> PathBuf {
        let mut path = self.path.clone();
        path.extend(owner.map(owner_name));
        path.push(id.as_str());
        path
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

/// The files and bytes that a copy may still have. Each function returns [`io::ErrorKind::QuotaExceeded`] if the copy
/// would have more.
pub(crate) struct CopyBudget {
    bytes: u64,
    files: usize,
}

impl CopyBudget {
    /// Checks the depth of a directory below the folder.
    pub(crate) fn enter(&self, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH { Err(io::ErrorKind::QuotaExceeded.into()) } else { Ok(()) }
    }

    /// Counts a file or directory.
    pub(crate) fn count(&mut self) -> io::Result<()> {
        self.files = self.files.checked_sub(1).ok_or(io::ErrorKind::QuotaExceeded)?;
        Ok(())
    }

    /// Copies the content of a file into a new one.
    pub(crate) fn copy(&mut self, source: File, mut target: File) -> io::Result<()> {
        let mut source = source.take(self.bytes);
        self.bytes -= io::copy(&mut source, &mut target)?;
        // Beyond the limit, or growing: in both cases the copy would be incomplete.
        if self.bytes == 0 && source.into_inner().read(&mut [0])? > 0 {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        Ok(())
    }
}

// The tests make links and a FIFO.
#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use super::*;

    fn folders() -> (tempfile::TempDir, SessionFolders, SessionId) {
        let directory = tempfile::tempdir().unwrap();
        let folders = SessionFolders::open(directory.path()).unwrap();
        (directory, folders, SessionId::random().unwrap())
    }

    #[test]
    fn owners_have_directories_of_their_own() {
        let long = format!("oauth:{}", "x".repeat(300));
        let owners = [
            "token:aa",
            "token:ab",
            "oauth:aa",
            "oauth:../..",
            "oauth:",
            "oauth:.",
            "oauth:i a",
            "oauth:j a",
            "a/b",
            "a_b",
            &long,
        ];
        let names: std::collections::BTreeSet<_> = owners.iter().map(|owner| owner_name(owner)).collect();
        assert_eq!(names.len(), owners.len());
        for name in &names {
            assert!(name.len() <= 255 && !name.contains('/') && name != "." && name != "..", "{name}");
            assert_eq!(SessionId::parse(name), None, "{name}");
        }
        assert!(owner_name("oauth:https://example.org alice@example.org").starts_with("alice@example_org."));
        assert!(!owner_name("token:0123456789").contains("0123"));
        let (directory, folders, id) = folders();
        let one = folders.open_or_create(&id, Some("oauth:one")).unwrap();
        let two = folders.open_or_create(&id, Some("oauth:two")).unwrap();
        let none = folders.open_or_create(&id, None).unwrap();
        assert!(one.is_new && two.is_new && none.is_new);
        assert_ne!(one.folder.path, two.folder.path);
        assert_eq!(none.folder.path, directory.path().canonicalize().unwrap().join(id.as_str()));
        assert!(!folders.open_or_create(&id, Some("oauth:one")).unwrap().is_new);
    }

    #[test]
    fn link_in_place_of_a_folder_is_refused() {
        let (directory, folders, id) = folders();
        let outside = tempfile::tempdir().unwrap();
        symlink(outside.path(), directory.path().join(id.as_str())).unwrap();
        assert!(matches!(folders.open_or_create(&id, None), Err(FolderError::Io { operation: "open", .. })));
        symlink(outside.path(), directory.path().join(owner_name("one"))).unwrap();
        assert!(folders.open_or_create(&id, Some("one")).is_err());
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_empty_folders_are_removed() {
        let (directory, folders, id) = folders();
        let path = folders.open_or_create(&id, None).unwrap().folder.path;
        std::fs::write(path.join("file"), "kept").unwrap();
        folders.remove_if_empty(&id, None);
        assert!(path.join("file").exists());
        std::fs::remove_file(path.join("file")).unwrap();
        folders.remove_if_empty(&id, None);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn copy_contains_files_and_links_and_is_bounded() {
        let (directory, folders, id) = folders();
        let path = folders.open_or_create(&id, None).unwrap().folder.path;
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        std::fs::write(path.join("a/b/file"), "0123456789").unwrap();
        std::fs::write(directory.path().join("outside"), "secret").unwrap();
        symlink("../../outside", path.join("a/link")).unwrap();
        assert!(Command::new("mkfifo").arg(path.join("fifo")).status().unwrap().success());
        for (max_bytes, fits) in [(9, false), (10, true), (11, true)] {
            let new = SessionId::random().unwrap();
            let copied = folders.copy(&id, &new, None, max_bytes);
            assert_eq!(copied.is_ok(), fits, "{max_bytes}");
            let Ok(copy) = copied else {
                assert!(matches!(copied, Err(FolderError::TooLarge { .. })));
                folders.remove(&new, None);
                assert!(!directory.path().join(new.as_str()).exists());
                continue;
            };
            assert_eq!(std::fs::read_to_string(copy.path.join("a/b/file")).unwrap(), "0123456789");
            assert_eq!(std::fs::read_link(copy.path.join("a/link")).unwrap(), Path::new("../../outside"));
            assert!(!copy.path.join("fifo").exists());
            std::fs::write(copy.path.join("a/b/file"), "changed").unwrap();
        }
        assert_eq!(std::fs::read_to_string(path.join("a/b/file")).unwrap(), "0123456789");
    }
}
