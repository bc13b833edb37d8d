//! Differential test: random operations here and on the host's own filesystem have the same results, errors and trees.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use super::*;

/// A small random number generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// Returns a path made of few names, so that operations affect each other.
    fn path(&mut self) -> String {
        let names = ["a", "b", "c", "a", "b", ".", ".."];
        let count = 1 + self.below(3);
        let mut path: Vec<_> = (0..count).map(|_| names[self.below(names.len() as u64) as usize]).collect();
        if self.below(12) == 0 {
            path.push("");
        }
        path.join("/")
    }
}

#[derive(Debug)]
enum Operation {
    Mkdir(String),
    Rmdir(String),
    Unlink(String),
    Rename(String, String),
    Symlink(String, String),
    Write(String, u64, usize),
    Append(String),
    Truncate(String, u64),
    ReadLink(String),
    Stat(String),
    Chdir(String),
}

fn operation(random: &mut Random) -> Operation {
    let path = random.path();
    match random.below(14) {
        0 | 1 => Operation::Mkdir(path),
        2 => Operation::Rmdir(path),
        3 => Operation::Unlink(path),
        4..=6 => Operation::Rename(path, random.path()),
        7 => Operation::Symlink(random.path(), path),
        8 => Operation::Write(path, random.below(20), random.below(9) as usize),
        9 => Operation::Append(path),
        10 => Operation::Truncate(path, random.below(20)),
        11 => Operation::ReadLink(path),
        12 => Operation::Stat(path),
        _ => Operation::Chdir(path),
    }
}

/// The host's side: a temporary directory, and the working directory in it.
struct Linux {
    root: PathBuf,
    working_directory: File,
}

impl Linux {
    fn new(root: &Path) -> Self {
        Self { root: root.into(), working_directory: File::open(root).unwrap() }
    }

    /// Returns the path by which the kernel resolves `path` from the working directory.
    fn at(&self, path: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{path}", self.working_directory.as_raw_fd()).into()
    }

    /// Returns whether `..` could lead above the root, which is impossible in the guest.
    fn would_escape(&self, operation: &Operation) -> bool {
        let here = fs::read_link(format!("/proc/self/fd/{}", self.working_directory.as_raw_fd())).unwrap();
        let depth = here.strip_prefix(&self.root).map_or(0, |path| path.components().count());
        let ups = |path: &String| path.split('/').filter(|name| *name == "..").count();
        let most = match operation {
            Operation::Rename(one, other) => ups(one).max(ups(other)),
            // The directory from which a link will be followed is not known.
            Operation::Symlink(target, _) if ups(target) > 0 => usize::MAX,
            Operation::Symlink(_, path)
            | Operation::Mkdir(path)
            | Operation::Rmdir(path)
            | Operation::Unlink(path)
            | Operation::Write(path, ..)
            | Operation::Append(path)
            | Operation::Truncate(path, _)
            | Operation::ReadLink(path)
            | Operation::Stat(path)
            | Operation::Chdir(path) => ups(path),
        };
        most > depth
    }

    fn run(&mut self, operation: &Operation) -> io::Result<String> {
        match operation {
            Operation::Mkdir(path) => fs::create_dir(self.at(path))?,
            Operation::Rmdir(path) => fs::remove_dir(self.at(path))?,
            Operation::Unlink(path) => fs::remove_file(self.at(path))?,
            Operation::Rename(old, new) => fs::rename(self.at(old), self.at(new))?,
            Operation::Symlink(target, path) => symlink(target, self.at(path))?,
            Operation::Write(path, offset, length) => {
                let file = File::options().write(true).create(true).truncate(false).open(self.at(path))?;
                file.write_at(&vec![b'w'; *length], *offset)?;
            }
            Operation::Append(path) => {
                File::options().append(true).open(self.at(path))?.write_all(b"app")?;
            }
            Operation::Truncate(path, length) => File::options().write(true).open(self.at(path))?.set_len(*length)?,
            Operation::ReadLink(path) => return Ok(fs::read_link(self.at(path))?.display().to_string()),
            Operation::Stat(path) => {
                let metadata = fs::metadata(self.at(path))?;
                return Ok(describe(metadata.is_dir(), metadata.len()));
            }
            Operation::Chdir(path) => {
                let mut options = File::options();
                options.read(true).custom_flags(libc::O_DIRECTORY);
                self.working_directory = options.open(self.at(path))?;
            }
        }
        Ok(String::new())
    }
}

fn describe(directory: bool, size: u64) -> String {
    if directory { "directory".into() } else { format!("file of {size}") }
}

fn run(files: &mut Filesystem, operation: &Operation) -> Result<String, Errno> {
    let write = OpenFlags::WRITE_ONLY;
    match operation {
        Operation::Mkdir(path) => files.mkdir(path)?,
        Operation::Rmdir(path) => files.rmdir(path)?,
        Operation::Unlink(path) => files.unlink(path)?,
        Operation::Rename(old, new) => files.rename(old, new)?,
        Operation::Symlink(target, path) => files.symlink(target, path)?,
        Operation::Write(path, offset, length) => {
            let fd = files.open(path, write.with(OpenFlags::CREATE))?;
            files.write_at(fd, *offset, &vec![b'w'; *length])?;
            files.close(fd)?;
        }
        Operation::Append(path) => {
            let fd = files.open(path, write.with(OpenFlags::APPEND))?;
            files.write(fd, b"app")?;
            files.close(fd)?;
        }
        Operation::Truncate(path, length) => {
            let fd = files.open(path, write)?;
            files.truncate_fd(fd, *length)?;
            files.close(fd)?;
        }
        Operation::ReadLink(path) => return Ok(files.read_link_at(AT_FDCWD, path)?.to_string()),
        Operation::Stat(path) => {
            let stat = files.stat(path)?;
            return Ok(describe(stat.file_type == FileType::Directory, stat.size));
        }
        Operation::Chdir(path) => files.change_directory(path)?,
    }
    Ok(String::new())
}

/// Returns the name of one of the host's error numbers.
fn name(error: io::Error) -> &'static str {
    match error.raw_os_error().unwrap() {
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::EINVAL => "EINVAL",
        libc::EISDIR => "EISDIR",
        libc::ELOOP => "ELOOP",
        libc::ENOENT => "ENOENT",
        libc::ENOTDIR => "ENOTDIR",
        libc::ENOTEMPTY => "ENOTEMPTY",
        _ => panic!("unexpected: {error}"),
    }
}

/// Returns every path under `directory`, with a description of the file.
fn tree(directory: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_path_buf()];
    while let Some(path) = pending.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            let relative = String::from_utf8_lossy(path.strip_prefix(directory).unwrap().as_os_str().as_bytes()).into();
            let metadata = path.symlink_metadata().unwrap();
            let what = if metadata.is_symlink() {
                format!("to {}", fs::read_link(&path).unwrap().display())
            } else if metadata.is_dir() {
                pending.push(path);
                "directory".into()
            } else {
                format!("{:?}", fs::read(&path).unwrap())
            };
            found.push((relative, what));
        }
    }
    found.sort();
    found
}

fn guest_tree(files: &mut Filesystem) -> Vec<(String, String)> {
    let listing = files.list("/home", 100_000).unwrap();
    let mut found = Vec::new();
    for file in listing.files {
        let path = format!("/home/{}", file.path);
        let what = match file.file_type {
            FileType::Link => format!("to {}", files.read_link_at(AT_FDCWD, &path).unwrap()),
            FileType::Directory => "directory".into(),
            _ => format!("{:?}", files.read_file(&path, 1000).unwrap()),
        };
        found.push((file.path, what));
    }
    found.sort();
    found
}

#[test]
fn random_operations_behave_as_on_linux() {
    for seed in 0..150 {
        let host = tempfile::tempdir().unwrap();
        let root = host.path().canonicalize().unwrap().join("root");
        fs::create_dir(&root).unwrap();
        let mut linux = Linux::new(&root);
        let mut files = files();
        let mut random = Random(seed);
        let mut log = Vec::new();
        for _ in 0..200 {
            let operation = operation(&mut random);
            if linux.would_escape(&operation) {
                continue;
            }
            let theirs = linux.run(&operation).map_err(name);
            let ours = run(&mut files, &operation).map_err(Errno::name);
            log.push(format!("{operation:?}"));
            assert_eq!(ours, theirs, "seed {seed}: {}", log.join(", "));
            // In a removed directory, `..` still works on Linux.
            if files.cwd() == Err(Errno::ENOENT) {
                files.change_directory("/home").unwrap();
                linux = Linux::new(&root);
            }
        }
        assert_eq!(guest_tree(&mut files), tree(&root), "seed {seed}: {}", log.join(", "));
        assert_eq!(files.usage().inodes as usize, tree(&root).len());
    }
}
