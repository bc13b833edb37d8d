//! Directories of the host in the sandboxes of sessions: those that all sessions can use, and the folder of one
//! session.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_core::SessionFolder;
use belljar_sandbox::{self as sandbox, FolderSource, Policy};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, chownat, fchown, fstat, openat, statat};
use rustix::process::{Gid, Uid};

use crate::linux::sandbox_paths::{SESSION, SOCKETS};
use crate::linux::session_sandbox::python_prefixes;
use crate::linux::start_error::StartError;

/// The depth of nested directories up to which files change their owner.
const MAX_DEPTH: usize = 128;

/// A directory of the host that all sessions can use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeMount {
    /// The path on the host, absolute and without links.
    pub source: PathBuf,
    /// The path inside. Without mount namespaces it must be `source`.
    pub inside: PathBuf,
    /// Set if the code may write to the directory. The host's permissions apply, too: if this process is root, sessions
    /// run as users of their own.
    pub writable: bool,
}

impl NativeMount {
    /// Returns the folder of a sandbox with a root of its own.
    pub(crate) fn folder(&self) -> sandbox::Folder {
        let source = self.source.clone();
        let source = if self.writable { FolderSource::Host(source) } else { FolderSource::HostReadOnly(source) };
        sandbox::Folder { inside: self.inside.clone(), source }
    }
}

/// Checks that mounts are possible under `policy`, and do not cover what the kernels of `python` need.
///
/// # Errors
/// Returns [`StartError::MountElsewhere`] or [`StartError::MountOverlap`].
pub(crate) fn check_mounts(
    mounts: &[NativeMount],
    policy: Policy,
    python: &Path,
    backend_root: &Path,
) -> Result<(), StartError> {
    if mounts.is_empty() {
        return Ok(());
    }
    if policy != Policy::Full {
        let elsewhere = mounts.iter().find(|mount| mount.inside != mount.source);
        return elsewhere.map_or(Ok(()), |mount| {
            Err(StartError::MountElsewhere { inside: mount.inside.clone(), source_path: mount.source.clone() })
        });
    }
    let mut needed = python_prefixes(python)?;
    needed.extend([python.to_owned(), backend_root.to_owned(), SESSION.into(), SOCKETS.into()]);
    for mount in mounts {
        // A mount above another path would be written to when the mount points below it are created.
        if let Some(path) = needed.iter().find(|path| path.starts_with(&mount.inside) || mount.inside.starts_with(path))
        {
            return Err(StartError::MountOverlap { inside: mount.inside.clone(), needed: path.clone() });
        }
    }
    Ok(())
}

/// The ownership of a session's folder. While it exists, the folder belongs to the user as whom the kernel runs; then
/// all files in it are given back.
pub(crate) struct FolderOwnership {
    path: PathBuf,
    directory: Arc<OwnedFd>,
    /// The owner to whom the files are given back, if it is another user than the session's.
    owner: Option<(Uid, Gid)>,
}

impl FolderOwnership {
    /// Gives a folder with its files to `user`, if one is given.
    ///
    /// # Errors
    /// Returns an error if the owner cannot be changed.
    pub(crate) fn new(folder: &SessionFolder, user: Option<u32>) -> std::io::Result<Self> {
        let SessionFolder { path, directory } = folder;
        let mut owner = None;
        if let Some(user) = user {
            let stat = fstat(directory.as_fd())?;
            owner = Some((Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)));
            change_owner(directory.as_fd(), (Uid::from_raw(user), Gid::from_raw(user)))?;
        }
        Ok(Self { path: path.clone(), directory: directory.clone(), owner })
    }

    /// Returns the path on the host.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns another descriptor of the folder.
    ///
    /// # Errors
    /// Returns an error if this process has too many descriptors.
    pub(crate) fn descriptor(&self) -> std::io::Result<OwnedFd> {
        self.directory.try_clone()
    }
}

impl Drop for FolderOwnership {
    fn drop(&mut self) {
        if let Some(owner) = self.owner
            && let Err(error) = change_owner(self.directory.as_fd(), owner)
        {
            tracing::warn!(%error, "failed to give the files in a session's folder back to its owner");
        }
    }
}

/// Makes all files in a directory, and itself, belong to a user and group. Does not follow links, and leaves files out
/// that have other names elsewhere.
fn change_owner(directory: BorrowedFd<'_>, owner: (Uid, Gid)) -> std::io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Directories in progress, with their entries.
    let mut way = vec![Dir::read_from(directory)?];
    loop {
        let depth = way.len();
        let Some(entries) = way.last_mut() else { break };
        let Some(entry) = entries.next().transpose()? else {
            way.pop();
            continue;
        };
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let parent = entries.fd()?;
        // Files that are removed meanwhile are skipped.
        let Ok(stat) = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        if is_directory && depth < MAX_DEPTH {
            if let Ok(inner) = openat(parent, name, flags, Mode::empty()) {
                fchown(&inner, Some(owner.0), Some(owner.1))?;
                way.push(Dir::read_from(&inner)?);
            }
        } else if is_directory || stat.st_nlink == 1 {
            let changed = chownat(parent, name, Some(owner.0), Some(owner.1), AtFlags::SYMLINK_NOFOLLOW);
            if let Err(error) = changed {
                tracing::debug!(%error, "a file keeps its owner");
            }
        }
    }
    Ok(fchown(directory, Some(owner.0), Some(owner.1))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(source: &str, inside: &str) -> Vec<NativeMount> {
        vec![NativeMount { source: source.into(), inside: inside.into(), writable: false }]
    }

    #[test]
    fn mounts_do_not_cover_what_kernels_need() {
        let python = Path::new("/usr/bin/python3");
        let check = |inside: &str| check_mounts(&mount("/srv", inside), Policy::Full, python, Path::new("/var/tmp/b"));
        assert!(check("/data").is_ok());
        for inside in ["/session", "/session/x", "/kernel", "/var", "/var/tmp/b/c", "/usr"] {
            assert!(matches!(check(inside), Err(StartError::MountOverlap { .. })), "{inside}");
        }
        for policy in [Policy::Weak, Policy::Unsandboxed] {
            let elsewhere = check_mounts(&mount("/srv", "/data"), policy, python, Path::new("/b"));
            assert!(matches!(elsewhere, Err(StartError::MountElsewhere { .. })));
            assert!(check_mounts(&mount("/srv", "/srv"), policy, python, Path::new("/b")).is_ok());
        }
    }

    #[test]
    fn change_of_owner_does_not_follow_links() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        std::fs::write(at("outside"), "").unwrap();
        std::fs::create_dir_all(at("folder/a/b")).unwrap();
        std::fs::write(at("folder/a/b/file"), "").unwrap();
        std::os::unix::fs::symlink("../outside", at("folder/link")).unwrap();
        std::os::unix::fs::symlink("..", at("folder/up")).unwrap();
        std::fs::hard_link(at("outside"), at("folder/second_name")).unwrap();
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let owner = |name: &str| std::os::unix::fs::MetadataExt::uid(&std::fs::symlink_metadata(at(name)).unwrap());
        let directory = Arc::new(OwnedFd::from(std::fs::File::open(at("folder")).unwrap()));
        let folder = SessionFolder { path: at("folder"), directory };
        let ownership = FolderOwnership::new(&folder, Some(4711)).unwrap();
        let inside = ["folder", "folder/a", "folder/a/b", "folder/a/b/file", "folder/link"];
        assert_eq!(inside.map(owner), [4711; 5]);
        assert_eq!(["outside", "folder/second_name", "."].map(owner), [0; 3]);
        drop(ownership);
        assert_eq!(inside.map(owner), [0; 5]);
    }
}
