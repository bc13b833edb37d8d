//! Access of the host to a session's directory. The code inside can replace any file at any time, so names are resolved
//! below the directory's descriptor, without following links or leaving the file system, and the type of an opened file
//! is checked before the file is used.

use std::io::{ErrorKind, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use belljar_core::files::{FileError, FileInfo, MAX_READ, Range, check_path};
use belljar_network::Scrubber;
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::linux::effective_user::EffectiveUserGuard;

/// The number of files that are listed at most.
const MAX_FILES: usize = 20_000;
/// The number of directory entries that are read at most.
const MAX_ENTRIES: usize = 100_000;
/// The depth of nested directories up to which files are listed.
const MAX_DEPTH: usize = 32;

/// The directory of a session's files.
pub(crate) struct SessionDir {
    directory: OwnedFd,
    /// The user whom the files belong to; `None` is the user of this process.
    owner: Option<u32>,
    /// The limit of the size of all files together, in bytes.
    quota_bytes: u64,
}

impl SessionDir {
    pub(crate) fn new(directory: OwnedFd, owner: Option<u32>, quota_bytes: u64) -> Self {
        Self { directory, owner, quota_bytes }
    }

    /// Lists the regular files, without hidden ones and those whose names [`check_path`] refuses.
    pub(crate) fn list(&self) -> Vec<FileInfo> {
        let mut files = Vec::new();
        let mut entries_read = 0;
        let mut directories = vec![(String::new(), 0)];
        while let Some((path, depth)) = directories.pop() {
            let relative = if path.is_empty() { "." } else { &path };
            let Ok(opened) = open(self.directory.as_fd(), relative, OFlags::RDONLY | OFlags::DIRECTORY) else {
                continue;
            };
            let Ok(entries) = Dir::read_from(&opened) else { continue };
            for entry in entries.flatten() {
                entries_read += 1;
                if entries_read > MAX_ENTRIES || files.len() >= MAX_FILES {
                    return files;
                }
                let Ok(name) = entry.file_name().to_str() else { continue };
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
                if check_path(&path).is_err() {
                    continue;
                }
                let Ok(stat) = statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                match FileType::from_raw_mode(stat.st_mode) {
                    FileType::RegularFile => files.push(FileInfo {
                        path,
                        size: u64::try_from(stat.st_size).unwrap_or(0),
                        modified: i128::from(stat.st_mtime) * 1_000_000_000 + i128::from(stat.st_mtime_nsec),
                    }),
                    FileType::Directory if depth < MAX_DEPTH => directories.push((path, depth + 1)),
                    _ => {}
                }
            }
        }
        files
    }

    /// Reads a range of a file, without secrets.
    ///
    /// # Errors
    /// Returns an error if the path is not a regular file, or the range is longer than [`MAX_READ`].
    pub(crate) fn read(&self, path: &str, range: Range, scrubber: &Scrubber) -> Result<Vec<u8>, FileError> {
        // `O_NONBLOCK`, since opening a FIFO would block.
        let file = open(self.directory.as_fd(), path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY);
        let file = file.map_err(|errno| open_error(path, errno))?;
        let failed = |error: std::io::Error| FileError::Other { path: path.into(), reason: error.to_string() };
        let stat = fstat(&file).map_err(|errno| failed(errno.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(FileError::Name(path.into()));
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let left = size.saturating_sub(range.offset);
        let length = range.length.unwrap_or(left).min(left);
        if length > MAX_READ {
            return Err(FileError::TooLong { path: path.into(), size });
        }
        let file = std::fs::File::from(file);
        scrubber
            .read_part(range.offset, length, |from, count| {
                read_bytes(&file, from, count.min(size.saturating_sub(from)))
            })
            .map_err(failed)
    }

    /// Writes a file, or replaces an existing one.
    ///
    /// # Errors
    /// Returns an error if the file exceeds the quota, or the path is something else than a regular file.
    pub(crate) fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        check_path(path)?;
        // A sandbox's tmpfs maps its own user alone, and refuses files of other users.
        let _user = match self.owner {
            Some(owner) => Some(
                EffectiveUserGuard::for_user(owner)
                    .map_err(|error| FileError::Other { path: path.into(), reason: error.to_string() })?,
            ),
            None => None,
        };
        let failed = |errno: Errno| match errno {
            Errno::NOSPC | Errno::DQUOT => FileError::Full(path.into()),
            errno => open_error(path, errno),
        };
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        let parent = self.create_directories(parent).map_err(failed)?;
        let replaced_bytes = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return Err(FileError::Name(path.into()));
            }
            Ok(stat) => u64::try_from(stat.st_size).unwrap_or(0),
            Err(_) => 0,
        };
        let used: u64 = self.list().iter().map(|file| file.size).sum();
        if used.saturating_sub(replaced_bytes).saturating_add(bytes.len() as u64) > self.quota_bytes {
            return Err(FileError::Full(path.into()));
        }
        // Written under a temporary name and renamed: the rename replaces the file of that name, and does not follow a
        // link.
        let temporary = format!(".{}", uuid::Uuid::new_v4().simple());
        let created = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, &*temporary, created, Mode::from_raw_mode(0o644)).map_err(failed)?;
        let written = std::fs::File::from(file)
            .write_all(bytes)
            .and_then(|()| Ok(renameat(&parent, &*temporary, &parent, name)?));
        written.map_err(|error| {
            let _ = unlinkat(&parent, &*temporary, AtFlags::empty());
            match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FileError::Full(path.into()),
                _ => FileError::Other { path: path.into(), reason: error.to_string() },
            }
        })
    }

    /// Deletes all files. No process of the session may run.
    ///
    /// # Errors
    /// Returns an error if a file cannot be deleted.
    pub(crate) fn clear(&self) -> std::io::Result<()> {
        clear(self.directory.as_fd(), 0)
    }

    fn create_directories(&self, path: &str) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = open(self.directory.as_fd(), ".", flags)?;
        for name in path.split('/').filter(|name| *name != ".") {
            let next = match open(at.as_fd(), name, flags) {
                Err(Errno::NOENT) => {
                    mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
                    open(at.as_fd(), name, flags)?
                }
                other => other?,
            };
            at = next;
        }
        Ok(at)
    }
}

fn clear(directory: BorrowedFd<'_>, depth: usize) -> std::io::Result<()> {
    let opened = open(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    for entry in Dir::read_from(&opened)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match unlinkat(&opened, name, AtFlags::empty()) {
            Ok(()) => {}
            // For deeper directories, clearing fails, and the session does not get a new kernel.
            Err(Errno::ISDIR | Errno::PERM) if depth < 4 * MAX_DEPTH => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let inner = rustix::fs::openat(&opened, name, flags, Mode::empty())?;
                clear(inner.as_fd(), depth + 1)?;
                unlinkat(&opened, name, AtFlags::REMOVEDIR)?;
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Reads `length` bytes of a file from `offset` on, or fewer if the file ends before.
fn read_bytes(file: &std::fs::File, offset: u64, length: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], offset + read as u64) {
            // The file was truncated meanwhile.
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

fn open(directory: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    openat2(directory, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// Maps the error of opening `path` to a [`FileError`].
fn open_error(path: &str, errno: Errno) -> FileError {
    match errno {
        Errno::NOENT => FileError::Missing(path.into()),
        // A link, another file system, a socket, or a file in place of a directory.
        Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::NOTDIR | Errno::ISDIR => FileError::Name(path.into()),
        errno => FileError::Other { path: path.into(), reason: std::io::Error::from(errno).to_string() },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn session_dir(quota_bytes: u64) -> (tempfile::TempDir, SessionDir) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("session")).unwrap();
        std::fs::write(root.path().join("outside.txt"), "secret").unwrap();
        let opened = crate::linux::zmtp::path::open_directory(&root.path().join("session")).unwrap();
        (root, SessionDir::new(opened, None, quota_bytes))
    }

    #[test]
    fn files_are_written_listed_and_read() {
        let (_root, directory) = session_dir(1 << 20);
        directory.write("a.txt", b"one").unwrap();
        directory.write("b/c/d.txt", b"two").unwrap();
        directory.write("a.txt", b"three").unwrap();
        let mut listed: Vec<_> = directory.list().into_iter().map(|file| (file.path, file.size)).collect();
        listed.sort();
        assert_eq!(listed, [("a.txt".to_owned(), 5), ("b/c/d.txt".to_owned(), 3)]);
        assert_eq!(directory.read("a.txt", Range::default(), &Scrubber::default()).unwrap(), b"three");
        let part = Range { offset: 1, length: Some(2) };
        assert_eq!(directory.read("a.txt", part, &Scrubber::default()).unwrap(), b"hr");
        assert_eq!(directory.read("a.txt", Range { offset: 100, length: None }, &Scrubber::default()).unwrap(), b"");
        assert_eq!(
            directory.read("none", Range::default(), &Scrubber::default()),
            Err(FileError::Missing("none".into()))
        );
    }

    #[test]
    fn links_are_not_followed() {
        let (root, directory) = session_dir(1 << 20);
        let at = |name: &str| root.path().join("session").join(name);
        symlink("../outside.txt", at("link.txt")).unwrap();
        symlink("..", at("up")).unwrap();
        symlink("/etc", at("etc")).unwrap();
        for path in ["link.txt", "up/outside.txt", "etc/passwd", "../outside.txt"] {
            assert!(directory.read(path, Range::default(), &Scrubber::default()).is_err(), "{path}");
            assert!(directory.write(path, b"x").is_err(), "{path}");
        }
        assert_eq!(directory.list(), []);
        assert_eq!(std::fs::read_to_string(root.path().join("outside.txt")).unwrap(), "secret");
    }

    #[test]
    fn other_file_types_are_refused_without_blocking() {
        let (root, directory) = session_dir(1 << 20);
        let at = |name: &str| root.path().join("session").join(name);
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        for path in ["fifo", "socket", "directory"] {
            assert_eq!(directory.read(path, Range::default(), &Scrubber::default()), Err(FileError::Name(path.into())));
            assert_eq!(directory.write(path, b"x"), Err(FileError::Name(path.into())));
        }
        std::fs::write(at(".hidden"), "x").unwrap();
        assert_eq!(directory.list(), []);
    }

    #[test]
    fn clearing_does_not_follow_links() {
        let (root, directory) = session_dir(1 << 20);
        symlink("../outside.txt", root.path().join("session/link")).unwrap();
        symlink("..", root.path().join("session/up")).unwrap();
        directory.write("a/b/c.txt", b"x").unwrap();
        directory.clear().unwrap();
        assert_eq!(std::fs::read_dir(root.path().join("session")).unwrap().count(), 0);
        assert!(root.path().join("outside.txt").exists());
    }

    #[test]
    fn writes_reads_and_listings_are_bounded() {
        let (root, directory) = session_dir(1000);
        assert_eq!(directory.write("a", &[0; 1001]), Err(FileError::Full("a".into())));
        directory.write("a", &[0; 900]).unwrap();
        directory.write("a", &[0; 1000]).unwrap();
        assert_eq!(directory.write("b", b"x"), Err(FileError::Full("b".into())));
        let huge = std::fs::File::create(root.path().join("session/huge")).unwrap();
        huge.set_len(MAX_READ + 1).unwrap();
        assert!(matches!(
            directory.read("huge", Range::default(), &Scrubber::default()),
            Err(FileError::TooLong { .. })
        ));
        let mut deep = root.path().join("session");
        for _ in 0..100 {
            deep.push("d");
            std::fs::create_dir(&deep).unwrap();
        }
        std::fs::write(deep.join("file"), "x").unwrap();
        assert_eq!(directory.list().len(), 2);
    }
}
