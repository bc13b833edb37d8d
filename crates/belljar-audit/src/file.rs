//! Log files: their lock, their continuation after a crash, and rotation.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use crate::chain::ChainedLine;
use crate::digest::sha256;
use crate::event::Event;
use crate::record::{Details, Record};
use crate::verify::number_of;
use crate::writer::{ChainedRecord, Head, Pending, Sink};

/// The number of bytes at the end of a file that are read to find its last record. Records are shorter.
const MAX_TAIL: u64 = 4 << 20;
/// The maximum number of rotated files.
const MAX_FILES: u32 = 999_999;

/// The error of opening a log file.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file cannot be used.
    #[error("failed to open {path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Another process writes the file.
    #[error("{0} is the audit log of another process that runs")]
    InUse(PathBuf),
    /// The file is not a log.
    #[error("{0} has lines that are not an audit log")]
    NotALog(PathBuf),
}

/// A log file. It is locked until the process ends.
pub struct FileSink {
    path: PathBuf,
    file: File,
    size: u64,
    max_size: Option<u64>,
    pending: Pending,
    head: Option<Head>,
    recovery: Option<Record>,
}

impl FileSink {
    /// Opens a file, which is created for the user alone if it does not exist. A file of more than `max_size` bytes is
    /// renamed, and a new one begins.
    ///
    /// # Errors
    /// When the file cannot be opened, another process writes it, or it is not a log.
    pub fn open(path: &Path, max_size: Option<u64>) -> Result<Self, FileError> {
        let failed = |source| FileError::Io { path: path.to_owned(), source };
        let mut file = open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(FileError::InUse(path.to_owned())),
            // Not all file systems have locks.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let metadata = file.metadata().map_err(failed)?;
        let size = metadata.len();
        let mut sink = Self {
            path: path.to_owned(),
            file: file.try_clone().map_err(failed)?,
            size,
            max_size: max_size.filter(|_| metadata.is_file()),
            pending: Pending::default(),
            head: None,
            recovery: None,
        };
        if size > 0 && metadata.is_file() {
            let start = size.saturating_sub(MAX_TAIL);
            let mut tail = Vec::new();
            file.seek(SeekFrom::Start(start)).and_then(|_| file.read_to_end(&mut tail)).map_err(failed)?;
            if !sink.read_end(&tail, start == 0) {
                return Err(FileError::NotALog(path.to_owned()));
            }
        }
        Ok(sink)
    }

    /// Finds the last record, and what follows it. Returns false if the end is that of another kind of file.
    fn read_end(&mut self, tail: &[u8], is_whole: bool) -> bool {
        let head_of = |line: &[u8]| {
            let line = std::str::from_utf8(line).ok()?;
            let parsed_line = ChainedLine::parse(line)?;
            Some(Head { number: number_of(line)?, hash: parsed_line.hash })
        };
        let complete = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (lines, rest) = tail.split_at_checked(complete).unwrap_or((tail, &[]));
        if !rest.is_empty() {
            self.pending.push_bytes(b"\n");
            // A line without its end is complete if it has its hash.
            if let Some(head) = head_of(rest) {
                self.head = Some(head);
                return true;
            }
            let details = Details { bytes: Some(rest.len() as u64), target: Some(sha256(rest)), ..Details::default() };
            self.recovery = Some(Record::new(Event::AuditRecover, details));
        }
        let last = lines.strip_suffix(b"\n").unwrap_or(lines);
        let last = last.iter().rposition(|byte| *byte == b'\n').map_or(last, |at| last.get(at + 1..).unwrap_or(last));
        self.head = head_of(last);
        // A file that ends in its first line has no record yet.
        self.head.is_some() || (is_whole && lines.is_empty() && rest.starts_with(b"{\"seq\":1,"))
    }

    /// Returns the last record's number and hash, if the file has records.
    pub(crate) fn head(&self) -> Option<Head> {
        self.head
    }

    /// Returns the record about the part of a line at the end of the file.
    pub(crate) fn take_recovery(&mut self) -> Option<Record> {
        self.recovery.take()
    }

    fn rotated_path(&self) -> io::Result<PathBuf> {
        let name = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number:06}"));
            PathBuf::from(name)
        };
        let free = (1..=MAX_FILES).map(name).find(|path| !path.exists());
        free.ok_or_else(|| io::Error::other("there are too many files"))
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    match options.open(path) {
        // Devices and pipes may be writable only.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => options.read(false).open(path),
        opened => opened,
    }
}

impl Sink for FileSink {
    fn push(&mut self, batch: &[ChainedRecord]) {
        self.pending.push(batch);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.size += self.pending.write(&mut self.file)?;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.file.sync_data() {
            // Devices and pipes have nothing to sync.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    }

    fn is_full(&self) -> bool {
        self.max_size.is_some_and(|max| self.size >= max)
    }

    fn rotate(&mut self) -> io::Result<()> {
        let rotated = self.rotated_path()?;
        std::fs::rename(&self.path, &rotated)?;
        let file = open(&self.path).inspect_err(|_| {
            // Ignore errors: the records go on in the renamed file.
            let _ = std::fs::rename(&rotated, &self.path);
        })?;
        // Locked, unless the file system has no locks.
        let _ = file.try_lock();
        self.file = file;
        self.size = 0;
        Ok(())
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}
