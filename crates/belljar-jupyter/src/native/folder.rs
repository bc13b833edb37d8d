//! A session's folder, seen from the host. Code inside can put anything there at any time, so that names are resolved below
//! the folder's descriptor, without links and other file systems, and what was opened is looked at before it is used.

use std::io::{ErrorKind, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use belljar_core::files::{FileError, FileInfo, MAX_READ, Range, check_path};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat2, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use crate::native::acting::Acting;

/// Files that are listed.
const MOST_FILES: usize = 20_000;
/// Names that are looked at.
const MOST_NAMES: usize = 100_000;
/// Folders within folders.
const DEEPEST: usize = 32;

/// The folder of a session.
pub(crate) struct Folder {
    folder: OwnedFd,
    /// Whom its files belong to; `None` is whoever we are.
    owner: Option<u32>,
    /// Bytes that all its files may have.
    room: u64,
}

impl Folder {
    pub(crate) fn new(folder: OwnedFd, owner: Option<u32>, room: u64) -> Self {
        Self { folder, owner, room }
    }

    /// Its regular files, without hidden ones and those whose names cannot be asked for.
    pub(crate) fn list(&self) -> Vec<FileInfo> {
        let mut files = Vec::new();
        let mut names = 0;
        let mut folders = vec![(String::new(), 0)];
        while let Some((path, depth)) = folders.pop() {
            let here = if path.is_empty() { "." } else { &path };
            let Ok(opened) = open(self.folder.as_fd(), here, OFlags::RDONLY | OFlags::DIRECTORY) else { continue };
            let Ok(entries) = Dir::read_from(&opened) else { continue };
            for entry in entries.flatten() {
                names += 1;
                if names > MOST_NAMES || files.len() >= MOST_FILES {
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
                    FileType::Directory if depth < DEEPEST => folders.push((path, depth + 1)),
                    _ => {}
                }
            }
        }
        files
    }

    /// Part of a file.
    ///
    /// # Errors
    /// When there is no such regular file, or the part is too long.
    pub(crate) fn read(&self, path: &str, range: Range) -> Result<Vec<u8>, FileError> {
        // A FIFO would keep us waiting.
        let file = open(self.folder.as_fd(), path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY);
        let file = file.map_err(|errno| unopened(path, errno))?;
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
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        let file = std::fs::File::from(file);
        let mut read = 0;
        while read < bytes.len() {
            match file.read_at(&mut bytes[read..], range.offset + read as u64) {
                // It has become shorter meanwhile.
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Writes a whole file, in place of what was there.
    ///
    /// # Errors
    /// When it does not fit, or something that is no regular file has that name.
    pub(crate) fn write(&self, path: &str, bytes: &[u8]) -> Result<(), FileError> {
        check_path(path)?;
        // A sandbox's folder in memory knows no other user than its own, and takes no file of anybody else's.
        let _acting = match self.owner {
            Some(owner) => Some(
                Acting::as_user(owner)
                    .map_err(|error| FileError::Other { path: path.into(), reason: error.to_string() })?,
            ),
            None => None,
        };
        let failed = |errno: Errno| match errno {
            Errno::NOSPC | Errno::DQUOT => FileError::Full(path.into()),
            errno => unopened(path, errno),
        };
        let (above, name) = path.rsplit_once('/').unwrap_or((".", path));
        let parent = self.make_folders(above).map_err(failed)?;
        let before = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile => {
                return Err(FileError::Name(path.into()));
            }
            Ok(stat) => u64::try_from(stat.st_size).unwrap_or(0),
            Err(_) => 0,
        };
        let used: u64 = self.list().iter().map(|file| file.size).sum();
        if used.saturating_sub(before).saturating_add(bytes.len() as u64) > self.room {
            return Err(FileError::Full(path.into()));
        }
        // Written under another name and renamed: whatever has the name by then is replaced and not followed.
        let other = format!(".{}", uuid::Uuid::new_v4().simple());
        let created = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, &*other, created, Mode::from_raw_mode(0o644)).map_err(failed)?;
        let written =
            std::fs::File::from(file).write_all(bytes).and_then(|()| Ok(renameat(&parent, &*other, &parent, name)?));
        written.map_err(|error| {
            let _ = unlinkat(&parent, &*other, AtFlags::empty());
            match error.kind() {
                ErrorKind::StorageFull | ErrorKind::QuotaExceeded => FileError::Full(path.into()),
                _ => FileError::Other { path: path.into(), reason: error.to_string() },
            }
        })
    }

    /// Deletes everything. Nobody may be at work in it.
    ///
    /// # Errors
    /// When something cannot be deleted.
    pub(crate) fn clear(&self) -> std::io::Result<()> {
        clear(self.folder.as_fd(), 0)
    }

    fn make_folders(&self, path: &str) -> Result<OwnedFd, Errno> {
        let folder = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut at = open(self.folder.as_fd(), ".", folder)?;
        for name in path.split('/').filter(|name| *name != ".") {
            let next = match open(at.as_fd(), name, folder) {
                Err(Errno::NOENT) => {
                    mkdirat(&at, name, Mode::from_raw_mode(0o755))?;
                    open(at.as_fd(), name, folder)?
                }
                other => other?,
            };
            at = next;
        }
        Ok(at)
    }
}

fn clear(folder: BorrowedFd<'_>, depth: usize) -> std::io::Result<()> {
    let opened = open(folder, ".", OFlags::RDONLY | OFlags::DIRECTORY)?;
    for entry in Dir::read_from(&opened)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match unlinkat(&opened, name, AtFlags::empty()) {
            Ok(()) => {}
            // Deeper ones than these are the guest's loss: it gets no new kernel.
            Err(Errno::ISDIR | Errno::PERM) if depth < 4 * DEEPEST => {
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

fn open(folder: BorrowedFd<'_>, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    openat2(folder, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn unopened(path: &str, errno: Errno) -> FileError {
    match errno {
        Errno::NOENT => FileError::Missing(path.into()),
        // A link, another file system, a socket, or a file in place of a folder.
        Errno::LOOP | Errno::XDEV | Errno::NXIO | Errno::NOTDIR | Errno::ISDIR => FileError::Name(path.into()),
        errno => FileError::Other { path: path.into(), reason: std::io::Error::from(errno).to_string() },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(room: u64) -> (tempfile::TempDir, Folder) {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("session")).unwrap();
        std::fs::write(place.path().join("outside.txt"), "secret").unwrap();
        let opened = crate::native::wire::path::open_folder(&place.path().join("session")).unwrap();
        (place, Folder::new(opened, None, room))
    }

    #[test]
    fn files_are_written_listed_and_read() {
        let (_place, folder) = folder(1 << 20);
        folder.write("a.txt", b"one").unwrap();
        folder.write("b/c/d.txt", b"two").unwrap();
        folder.write("a.txt", b"three").unwrap();
        let mut listed: Vec<_> = folder.list().into_iter().map(|file| (file.path, file.size)).collect();
        listed.sort();
        assert_eq!(listed, [("a.txt".to_owned(), 5), ("b/c/d.txt".to_owned(), 3)]);
        assert_eq!(folder.read("a.txt", Range::default()).unwrap(), b"three");
        let part = Range { offset: 1, length: Some(2) };
        assert_eq!(folder.read("a.txt", part).unwrap(), b"hr");
        assert_eq!(folder.read("a.txt", Range { offset: 100, length: None }).unwrap(), b"");
        assert_eq!(folder.read("none", Range::default()), Err(FileError::Missing("none".into())));
    }

    #[test]
    fn no_link_that_the_guest_made_is_followed() {
        let (place, folder) = folder(1 << 20);
        let at = |name: &str| place.path().join("session").join(name);
        symlink("../outside.txt", at("link.txt")).unwrap();
        symlink("..", at("up")).unwrap();
        symlink("/etc", at("etc")).unwrap();
        for path in ["link.txt", "up/outside.txt", "etc/passwd", "../outside.txt"] {
            assert!(folder.read(path, Range::default()).is_err(), "{path}");
            assert!(folder.write(path, b"x").is_err(), "{path}");
        }
        assert_eq!(folder.list(), []);
        assert_eq!(std::fs::read_to_string(place.path().join("outside.txt")).unwrap(), "secret");
    }

    #[test]
    fn what_is_no_regular_file_is_refused_without_waiting() {
        let (place, folder) = folder(1 << 20);
        let at = |name: &str| place.path().join("session").join(name);
        rustix::fs::mknodat(rustix::fs::CWD, at("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        for path in ["fifo", "socket", "folder"] {
            assert_eq!(folder.read(path, Range::default()), Err(FileError::Name(path.into())));
            assert_eq!(folder.write(path, b"x"), Err(FileError::Name(path.into())));
        }
        std::fs::write(at(".hidden"), "x").unwrap();
        assert_eq!(folder.list(), []);
    }

    #[test]
    fn clearing_deletes_links_and_not_what_they_lead_to() {
        let (place, folder) = folder(1 << 20);
        symlink("../outside.txt", place.path().join("session/link")).unwrap();
        symlink("..", place.path().join("session/up")).unwrap();
        folder.write("a/b/c.txt", b"x").unwrap();
        folder.clear().unwrap();
        assert_eq!(std::fs::read_dir(place.path().join("session")).unwrap().count(), 0);
        assert!(place.path().join("outside.txt").exists());
    }

    #[test]
    fn there_is_an_end_to_what_is_written_read_and_listed() {
        let (place, folder) = folder(1000);
        assert_eq!(folder.write("a", &[0; 1001]), Err(FileError::Full("a".into())));
        folder.write("a", &[0; 900]).unwrap();
        folder.write("a", &[0; 1000]).unwrap();
        assert_eq!(folder.write("b", b"x"), Err(FileError::Full("b".into())));
        let huge = std::fs::File::create(place.path().join("session/huge")).unwrap();
        huge.set_len(MAX_READ + 1).unwrap();
        assert!(matches!(folder.read("huge", Range::default()), Err(FileError::TooLong { .. })));
        let mut deep = place.path().join("session");
        for _ in 0..100 {
            deep.push("d");
            std::fs::create_dir(&deep).unwrap();
        }
        std::fs::write(deep.join("file"), "x").unwrap();
        assert_eq!(folder.list().len(), 2);
    }
}
