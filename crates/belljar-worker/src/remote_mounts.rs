//! The directories of the host for the code in a worker: its files ask the broker, which has them open.

use std::fmt;
use std::sync::Arc;

use belljar_emscripten::Errno;
use belljar_emscripten::fs::{MountedDirectory, MountedEntry, MountedFile, OpenFlags, SetTime, Stat};
use belljar_python::isolation::{
    DirectoryRequest, FileId, MAX_TRANSFER, MountPoint, MountReply, MountRequest, MountResult, MountedFileRequest,
};

use crate::channel::{Channel, end};
use crate::messages::{Command, Event};

/// A directory that the broker has open.
pub(crate) struct RemoteDirectory {
    channel: Arc<Channel>,
    /// Its place in the list of directories.
    place: u32,
    is_writable: bool,
}

impl RemoteDirectory {
    /// Returns the directories of a list, with their paths inside.
    pub(crate) fn list(channel: &Arc<Channel>, points: Vec<MountPoint>) -> Vec<(String, Arc<dyn MountedDirectory>)> {
        let directory = |(place, MountPoint { guest, is_writable })| {
            let directory: Arc<dyn MountedDirectory> =
                Arc::new(RemoteDirectory { channel: channel.clone(), place, is_writable });
            (guest, directory)
        };
        (0..).zip(points).map(directory).collect()
    }

    fn ask(&self, request: DirectoryRequest) -> MountResult {
        ask(&self.channel, MountRequest::Directory(self.place, request))
    }

    fn act(&self, request: DirectoryRequest) -> Result<(), Errno> {
        self.ask(request).map(drop)
    }
}

/// Sends a request, and returns its result. The broker reads requests during calls only.
fn ask(channel: &Channel, request: MountRequest) -> MountResult {
    if !channel.is_called() {
        return Err(Errno::EIO);
    }
    match channel.ask(&Event::Mount(request)) {
        Command::Mount(result) => result,
        _ => end(),
    }
}

/// The error of a reply to another request.
const OTHER_REPLY: Errno = Errno::EIO;

impl fmt::Debug for RemoteDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteDirectory").field("place", &self.place).finish_non_exhaustive()
    }
}

impl MountedDirectory for RemoteDirectory {
    fn is_writable(&self) -> bool {
        self.is_writable
    }

    fn stat(&self, path: &str) -> Result<Stat, Errno> {
        match self.ask(DirectoryRequest::Stat(path.into()))? {
            MountReply::Stat(stat) => Ok(stat),
            _ => Err(OTHER_REPLY),
        }
    }

    fn read_link(&self, path: &str) -> Result<Arc<str>, Errno> {
        match self.ask(DirectoryRequest::ReadLink(path.into()))? {
            MountReply::Link(target) => Ok(target.into()),
            _ => Err(OTHER_REPLY),
        }
    }

    fn open_file(&self, path: &str, flags: OpenFlags, mode: u32) -> Result<Arc<dyn MountedFile>, Errno> {
        match self.ask(DirectoryRequest::Open { path: path.into(), flags, mode })? {
            MountReply::Opened(id) => Ok(Arc::new(RemoteFile { channel: self.channel.clone(), id })),
            _ => Err(OTHER_REPLY),
        }
    }

    fn make_directory(&self, path: &str, mode: u32) -> Result<(), Errno> {
        self.act(DirectoryRequest::MakeDirectory(path.into(), mode))
    }

    fn remove_file(&self, path: &str) -> Result<(), Errno> {
        self.act(DirectoryRequest::RemoveFile(path.into()))
    }

    fn remove_directory(&self, path: &str) -> Result<(), Errno> {
        self.act(DirectoryRequest::RemoveDirectory(path.into()))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Errno> {
        self.act(DirectoryRequest::Rename(from.into(), to.into()))
    }

    fn set_mode(&self, path: &str, mode: u32) -> Result<(), Errno> {
        self.act(DirectoryRequest::SetMode(path.into(), mode))
    }

    fn set_times(&self, path: &str, accessed: SetTime, modified: SetTime) -> Result<(), Errno> {
        self.act(DirectoryRequest::SetTimes(path.into(), accessed, modified))
    }

    fn entries(&self, path: &str, limit: usize) -> Result<(Vec<MountedEntry>, bool), Errno> {
        match self.ask(DirectoryRequest::Entries(path.into(), u32::try_from(limit).unwrap_or(u32::MAX)))? {
            MountReply::Entries(entries, is_complete) => Ok((entries, is_complete)),
            _ => Err(OTHER_REPLY),
        }
    }
}

/// A file that the broker has open.
struct RemoteFile {
    channel: Arc<Channel>,
    id: FileId,
}

impl RemoteFile {
    fn ask(&self, request: MountedFileRequest) -> MountResult {
        ask(&self.channel, MountRequest::File(self.id, request))
    }

    fn act(&self, request: MountedFileRequest) -> Result<(), Errno> {
        self.ask(request).map(drop)
    }
}

impl MountedFile for RemoteFile {
    fn stat(&self) -> Result<Stat, Errno> {
        match self.ask(MountedFileRequest::Stat)? {
            MountReply::Stat(stat) => Ok(stat),
            _ => Err(OTHER_REPLY),
        }
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut count = 0;
        while let Some(rest) = buffer.get_mut(count..).filter(|rest| !rest.is_empty()) {
            let max = rest.len().min(MAX_TRANSFER);
            let request = MountedFileRequest::Read(offset.saturating_add(count as u64), max as u32);
            let bytes = match self.ask(request) {
                Ok(MountReply::Bytes(bytes)) => bytes,
                Ok(_) => return Err(OTHER_REPLY),
                Err(_) if count > 0 => break,
                Err(errno) => return Err(errno),
            };
            rest.get_mut(..bytes.len()).ok_or(OTHER_REPLY)?.copy_from_slice(&bytes);
            count += bytes.len();
            if bytes.len() < max {
                break;
            }
        }
        Ok(count)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let mut count = 0;
        for part in data.chunks(MAX_TRANSFER) {
            let request = MountedFileRequest::Write(offset.saturating_add(count as u64), part.to_vec());
            let written = match self.ask(request) {
                Ok(MountReply::Written(written)) => written as usize,
                Ok(_) => return Err(OTHER_REPLY),
                Err(_) if count > 0 => break,
                Err(errno) => return Err(errno),
            };
            count += written;
            if written < part.len() {
                break;
            }
        }
        Ok(count)
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        self.act(MountedFileRequest::Truncate(size))
    }

    fn synchronise(&self) -> Result<(), Errno> {
        self.act(MountedFileRequest::Synchronise)
    }

    fn set_mode(&self, mode: u32) -> Result<(), Errno> {
        self.act(MountedFileRequest::SetMode(mode))
    }

    fn set_times(&self, accessed: SetTime, modified: SetTime) -> Result<(), Errno> {
        self.act(MountedFileRequest::SetTimes(accessed, modified))
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        // The broker closes all files of an interpreter that it drops. Between calls, none is told: it stays open.
        let _ = self.ask(MountedFileRequest::Close);
    }
}
