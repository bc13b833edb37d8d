//! Tests of the whole filesystem, by subject.

#[cfg(target_os = "linux")]
mod against_linux;
mod descriptors;
mod embedding;
mod layers;
mod mounts;
mod names;
mod paths;
mod quotas;
mod saving;

use super::*;

/// Creates an empty filesystem whose working directory is `/home`.
fn files() -> Filesystem {
    Filesystem::new(Quota::default())
}

impl Filesystem {
    /// Opens a file as the guest does, relative to its working directory.
    fn open(&mut self, path: &str, flags: OpenFlags) -> Result<i32, Errno> {
        self.open_at(AT_FDCWD, path, flags, 0o666)
    }

    fn mkdir(&mut self, path: &str) -> Result<(), Errno> {
        self.make_directory_at(AT_FDCWD, path, 0o777)
    }

    fn rmdir(&mut self, path: &str) -> Result<(), Errno> {
        self.remove_directory_at(AT_FDCWD, path)
    }

    fn unlink(&mut self, path: &str) -> Result<(), Errno> {
        self.unlink_at(AT_FDCWD, path)
    }

    fn rename(&mut self, old: &str, new: &str) -> Result<(), Errno> {
        self.rename_at(AT_FDCWD, old, AT_FDCWD, new)
    }

    fn symlink(&mut self, target: &str, path: &str) -> Result<(), Errno> {
        self.make_link_at(target, AT_FDCWD, path)
    }

    fn chmod(&mut self, path: &str, mode: u32) -> Result<(), Errno> {
        self.chmod_at(AT_FDCWD, path, mode, true)
    }

    fn stat(&mut self, path: &str) -> Result<Stat, Errno> {
        self.stat_at(AT_FDCWD, path, true)
    }

    fn lstat(&mut self, path: &str) -> Result<Stat, Errno> {
        self.stat_at(AT_FDCWD, path, false)
    }

    fn cwd(&self) -> Result<String, Errno> {
        self.working_directory(PATH_MAX)
    }

    /// Writes a file as the host does; panics if that fails.
    fn put(&mut self, path: &str, contents: &str) {
        self.write_file(path, contents.as_bytes()).unwrap();
    }

    /// Reads a whole file.
    fn get(&mut self, path: &str) -> Result<String, Errno> {
        let bytes = self.read_file(path, 1 << 20).map_err(|error| error.errno)?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    /// Returns the names in a directory, without `.` and `..`, as the guest lists them.
    fn names(&mut self, path: &str) -> Result<Vec<String>, Errno> {
        let fd = self.open(path, OpenFlags::DIRECTORY)?;
        let mut names = Vec::new();
        loop {
            let entries = self.read_directory(fd, 3)?;
            if entries.is_empty() {
                break;
            }
            names.extend(entries.iter().map(|entry| entry.name.to_string()));
        }
        self.close(fd)?;
        assert_eq!(names.drain(..2).collect::<Vec<_>>(), [".", ".."]);
        Ok(names)
    }
}

/// Opens for reading and writing, and creates the file if it is missing.
const NEW: OpenFlags = OpenFlags::READ_WRITE.with(OpenFlags::CREATE);
