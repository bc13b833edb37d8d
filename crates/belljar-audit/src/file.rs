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
/// The number of digits at the end of the names of rotated files, and the maximum number of these files.
const ROTATED_DIGITS: usize = 6;
const MAX_FILES: u32 = 999_999;
/// The beginning of each record.
const BEGINNING: &[u8] = b"{\"seq\":";

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
    /// True if the file had no record when it was opened.
    is_new: bool,
    recovery: Option<Record>,
}

impl FileSink {
    /// Opens a file, which is created for the user alone if it does not exist. A file of more than `max_size` bytes is
    /// renamed, and a new one begins. A file without records goes on from the renamed files.
    ///
    /// # Errors
    /// Fails if the file cannot be opened, another process writes it, or it is not a log.
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
            is_new: true,
            recovery: None,
        };
        if !metadata.is_file() {
            return Ok(sink);
        }
        if size > 0 {
            let tail = read_tail(&mut file, size).map_err(failed)?;
            if !sink.read_end(&tail, size <= MAX_TAIL) {
                return Err(FileError::NotALog(path.to_owned()));
            }
        }
        sink.is_new = sink.head.is_none();
        if sink.is_new {
            // As after a crash between the end of the file before and the first record of this one.
            sink.head = rotated_head(path)?;
        }
        Ok(sink)
    }

    /// Finds the last record, and what follows it. Returns false if the end is that of another kind of file.
    fn read_end(&mut self, tail: &[u8], is_whole: bool) -> bool {
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
        self.head = head_of(last_line(lines));
        // A file that ends in its first line has no record yet.
        let is_begun = rest.starts_with(BEGINNING) || BEGINNING.starts_with(rest);
        self.head.is_some() || (is_whole && lines.is_empty() && is_begun)
    }

    /// Returns the number and the hash of the last record, of this file or of those before it.
    pub(crate) fn head(&self) -> Option<Head> {
        self.head
    }

    /// Returns whether the file has no record yet.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns the record about the part of a line at the end of the file.
    pub(crate) fn take_recovery(&mut self) -> Option<Record> {
        self.recovery.take()
    }

    fn rotated_path(&self) -> io::Result<PathBuf> {
        let digits = ROTATED_DIGITS;
        let name = |number: u32| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{number:0digits$}"));
            PathBuf::from(name)
        };
        let free = (1..=MAX_FILES).map(name).find(|path| !path.exists());
        free.ok_or_else(|| io::Error::other("there are too many files"))
    }
}

/// Returns the number and the hash of the record in a line.
fn head_of(line: &[u8]) -> Option<Head> {
    let line = std::str::from_utf8(line).ok()?;
    let parsed_line = ChainedLine::parse(line)?;
    Some(Head { number: number_of(line)?, hash: parsed_line.hash })
}

/// Returns the last of these lines.
fn last_line(lines: &[u8]) -> &[u8] {
    let lines = lines.strip_suffix(b"\n").unwrap_or(lines);
    lines.rsplit(|byte| *byte == b'\n').next().unwrap_or(lines)
}

/// Returns the end of a file of this size.
fn read_tail(file: &mut File, size: u64) -> io::Result<Vec<u8>> {
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(size.saturating_sub(MAX_TAIL)))?;
    file.read_to_end(&mut tail)?;
    Ok(tail)
}

/// Returns the last record of the files that were renamed, if there are any. Their order is that of their records:
/// names of files that were archived are used again.
fn rotated_head(path: &Path) -> Result<Option<Head>, FileError> {
    let rotated = rotated_files(path).map_err(|source| FileError::Io { path: path.to_owned(), source })?;
    let mut newest: Option<Head> = None;
    for rotated in rotated {
        let read = || {
            let mut file = File::open(&rotated)?;
            let size = file.metadata()?.len();
            read_tail(&mut file, size)
        };
        let tail = read().map_err(|source| FileError::Io { path: rotated.clone(), source })?;
        if let Some(head) = head_of(last_line(&tail))
            && newest.is_none_or(|newest| newest.number < head.number)
        {
            newest = Some(head);
        }
    }
    Ok(newest)
}

/// Returns the files that [`FileSink::rotate`] has renamed.
fn rotated_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(name) = path.file_name() else { return Ok(Vec::new()) };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let entry_name = entry.file_name();
        let rest = entry_name.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let digits = rest.and_then(|rest| rest.strip_prefix(b"."));
        if digits.is_some_and(|digits| digits.len() == ROTATED_DIGITS && digits.iter().all(u8::is_ascii_digit)) {
            found.push(entry.path());
        }
    }
    Ok(found)
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
