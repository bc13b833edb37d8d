//! Directories of the host that can be mounted.
//!
//! Every access goes through a [`cap_std::fs::Dir`], from which `..` and symbolic links cannot escape, even if the host
//! changes the tree meanwhile. Reads and writes access the host's files directly. Only regular files and directories
//! are opened: a pipe, a device or a socket could block or have side effects.

use std::io;
use std::path::Path;
use std::sync::Arc;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, Metadata, OpenOptions};

use super::mount::{MountedDirectory, MountedEntry, MountedFile};
use super::node::FileType;
use super::time::Times;
use super::{OpenFlags, SetTime, Stat, Timestamp};
use crate::Errno;
use crate::os::{self, files};

/// A directory of the host that can be mounted.
#[derive(Debug)]
pub struct HostDirectory {
    root: Dir,
    writable: bool,
}

/// A file of the host that the guest has open.
struct HostFile(std::fs::File);

impl HostDirectory {
    /// Opens a directory of the host. If `writable`, the guest may modify its contents.
    pub fn open(path: &Path, writable: bool) -> io::Result<Self> {
        Ok(Self { root: Dir::open_ambient_dir(path, ambient_authority())?, writable })
    }

    /// Takes an open directory of the host. If `writable`, the guest may modify its contents.
    pub fn from_descriptor(directory: files::DirectoryHandle, writable: bool) -> Self {
        Self { root: Dir::from_std_file(directory.into()), writable }
    }

    fn check_writable(&self) -> Result<(), Errno> {
        if self.writable { Ok(()) } else { Err(Errno::EROFS) }
    }

    fn metadata(&self, path: &str) -> Result<Metadata, Errno> {
        let metadata = if path.is_empty() { self.root.dir_metadata() } else { self.root.symlink_metadata(path) };
        metadata.map_err(errno)
    }

    fn open_host_file(&self, path: &str, flags: OpenFlags, mode: u32) -> Result<HostFile, Errno> {
        if flags.writes() || flags.creates() || flags.truncates() {
            self.check_writable()?;
        }
        match self.metadata(path) {
            Ok(metadata) if !metadata.is_file() => return Err(Errno::EACCES),
            Ok(_) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
        let mut options = OpenOptions::new();
        options.read(flags.reads()).write(flags.writes() || flags.truncates());
        if flags.creates() {
            options.create(!flags.excludes()).create_new(flags.excludes());
            files::set_new_mode(&mut options, mode);
        }
        // Neither blocks nor follows a link if the file was replaced by a pipe or a link after the check above.
        files::neither_block_nor_follow(&mut options);
        let file = self.root.open_with(path, &options).map_err(errno)?.into_std();
        if !file.metadata().map_err(errno)?.is_file() {
            return Err(Errno::EACCES);
        }
        if flags.truncates() {
            file.set_len(0).map_err(errno)?;
        }
        Ok(HostFile(file))
    }
}

impl MountedDirectory for HostDirectory {
    fn is_writable(&self) -> bool {
        self.writable
    }

    fn stat(&self, path: &str) -> Result<Stat, Errno> {
        Ok(stat(&self.metadata(path)?))
    }

    fn read_link(&self, path: &str) -> Result<Arc<str>, Errno> {
        let target = self.root.read_link_contents(path).map_err(errno)?;
        Ok(target.to_str().ok_or(Errno::EILSEQ)?.into())
    }

    fn open_file(&self, path: &str, flags: OpenFlags, mode: u32) -> Result<Arc<dyn MountedFile>, Errno> {
        Ok(Arc::new(self.open_host_file(path, flags, mode)?))
    }

    fn make_directory(&self, path: &str, mode: u32) -> Result<(), Errno> {
        self.check_writable()?;
        self.root.create_dir_with(path, &files::directory_builder(mode)).map_err(errno)
    }

    fn remove_file(&self, path: &str) -> Result<(), Errno> {
        self.check_writable()?;
        self.root.remove_file(path).map_err(errno)
    }

    fn remove_directory(&self, path: &str) -> Result<(), Errno> {
        self.check_writable()?;
        self.root.remove_dir(path).map_err(errno)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        self.check_writable()?;
        self.root.rename(from, &self.root, to).map_err(errno)
    }

    fn set_mode(&self, path: &str, mode: u32) -> Result<(), Errno> {
        self.check_writable()?;
        // Excludes the set-user-ID and set-group-ID bits: a guest's program must not become one that runs with the
        // rights of the user who mounted the directory.
        let path = if path.is_empty() { "." } else { path };
        files::set_mode_at(&self.root, path, mode & 0o777).map_err(errno)
    }

    fn set_times(&self, path: &str, accessed: SetTime, modified: SetTime) -> Result<(), Errno> {
        self.check_writable()?;
        if !self.metadata(path)?.is_dir() {
            return self.open_host_file(path, OpenFlags::READ_ONLY, 0)?.set_times(accessed, modified);
        }
        let path = if path.is_empty() { "." } else { path };
        let mut options = OpenOptions::new();
        files::set_for_directory_times(&mut options);
        let directory = self.root.open_with(path, &options).map_err(errno)?.into_std();
        HostFile(directory).set_times(accessed, modified)
    }

    fn entries(&self, path: &str, limit: usize) -> Result<(Vec<MountedEntry>, bool), Errno> {
        let path = if path.is_empty() { "." } else { path };
        let mut entries = Vec::new();
        let mut is_complete = true;
        for entry in self.root.read_dir(path).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            if entries.len() >= limit {
                is_complete = false;
                break;
            }
            // Files that were removed meanwhile are not listed.
            let (Ok(name), Ok(metadata)) = (entry.file_name().into_string(), entry.metadata()) else { continue };
            let Stat { ino, file_type, size, times, .. } = stat(&metadata);
            let size = if file_type == FileType::Directory { 0 } else { size };
            entries.push(MountedEntry { name: name.into(), ino, file_type, size, modified: times.modified });
        }
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((entries, is_complete))
    }
}

impl MountedFile for HostFile {
    fn stat(&self) -> Result<Stat, Errno> {
        Ok(stat(&Metadata::from_file(&self.0).map_err(errno)?))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        os::read_at(&self.0, buffer, offset).map_err(errno)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        os::write_at(&self.0, data, offset).map_err(errno)
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        self.0.set_len(size).map_err(errno)
    }

    fn synchronise(&self) -> Result<(), Errno> {
        self.0.sync_all().map_err(errno)
    }

    fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        files::set_mode(&self.0, mode & 0o777).map_err(errno)
    }

    fn set_times(&self, accessed: SetTime, modified: SetTime) -> Result<(), Errno> {
        let mut times = std::fs::FileTimes::new();
        let host = |time: SetTime| match time {
            SetTime::Keep => Ok(None),
            _ => time.apply(Timestamp::default(), Timestamp::now()).to_system().ok_or(Errno::EINVAL).map(Some),
        };
        if let Some(time) = host(accessed)? {
            times = times.set_accessed(time);
        }
        if let Some(time) = host(modified)? {
            times = times.set_modified(time);
        }
        self.0.set_times(times).map_err(errno)
    }
}

fn stat(metadata: &Metadata) -> Stat {
    let time = |(seconds, nanoseconds)| Timestamp { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) };
    let attributes = files::attributes(metadata);
    Stat {
        device: 0,
        ino: attributes.ino,
        file_type: file_type(attributes.mode),
        mode: attributes.mode & 0o7777,
        links: u32::try_from(attributes.links).unwrap_or(u32::MAX),
        special: 0,
        size: metadata.len(),
        blocks: attributes.blocks,
        times: Times {
            accessed: time(attributes.accessed),
            modified: time(attributes.modified),
            changed: time(attributes.changed),
        },
    }
}

fn file_type(mode: u32) -> FileType {
    match mode & 0o170_000 {
        0o100_000 => FileType::Regular,
        0o040_000 => FileType::Directory,
        0o120_000 => FileType::Link,
        0o020_000 => FileType::CharacterDevice,
        0o010_000 => FileType::Pipe,
        _ => FileType::Other,
    }
}

/// Converts an error of the host to the guest's error number.
fn errno(error: io::Error) -> Errno {
    error.raw_os_error().and_then(files::errno).unwrap_or_else(|| match error.kind() {
        io::ErrorKind::NotFound => Errno::ENOENT,
        // The error of cap-std for a path that leads out of the directory.
        io::ErrorKind::PermissionDenied => Errno::EACCES,
        io::ErrorKind::AlreadyExists => Errno::EEXIST,
        io::ErrorKind::InvalidInput => Errno::EINVAL,
        _ => Errno::EIO,
    })
}
