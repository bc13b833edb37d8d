//! The directories of the host for code in another process, on the side of its caller, which has them open.

use std::collections::HashMap;
use std::sync::Arc;

use belljar_emscripten::Errno;
use belljar_emscripten::fs::{MountedEntry, MountedFile, Quota};

use super::mounts::GuestMount;
use crate::isolation::{
    DirectoryRequest, FileId, MAX_NAMES, MountPoint, MountReply, MountRequest, MountResult, MountedFileRequest,
};

/// The mounted directories of an interpreter in another process, and its open files in them.
#[derive(Default)]
pub(in crate::backend) struct IsolatedMounts {
    mounts: Vec<GuestMount>,
    files: HashMap<FileId, OpenFile>,
    last: FileId,
}

struct OpenFile {
    file: Arc<dyn MountedFile>,
    /// True if the code may modify the directory.
    is_writable: bool,
}

impl IsolatedMounts {
    pub(in crate::backend) fn new(mounts: Vec<GuestMount>) -> Self {
        Self { mounts, ..Self::default() }
    }

    /// Returns the directories, in their order.
    pub(in crate::backend) fn mounts(&self) -> &[GuestMount] {
        &self.mounts
    }

    /// Returns the list of the directories for the other process.
    pub(in crate::backend) fn points(&self) -> Vec<MountPoint> {
        let point = |GuestMount { guest, directory }: &GuestMount| MountPoint {
            guest: guest.clone(),
            is_writable: directory.is_writable(),
        };
        self.mounts.iter().map(point).collect()
    }

    /// Closes all files: the process that knows their numbers has ended.
    pub(in crate::backend) fn close_all(&mut self) {
        self.files.clear();
    }

    /// Handles a request of the other process. Returns `None` if the process cannot have made this request by itself:
    /// code of an attacker's choice runs in it.
    pub(in crate::backend) fn handle(&mut self, request: MountRequest) -> Option<MountResult> {
        match request {
            MountRequest::Directory(directory, request) => {
                let mount = self.mounts.get(usize::try_from(directory).ok()?)?;
                let directory = mount.directory.clone();
                Some(match request {
                    DirectoryRequest::Stat(path) => directory.stat(&path).map(MountReply::Stat),
                    DirectoryRequest::ReadLink(path) => {
                        directory.read_link(&path).map(|target| MountReply::Link(String::from(&*target)))
                    }
                    DirectoryRequest::Open { .. } if self.files.len() >= max_files() => Err(Errno::EMFILE),
                    DirectoryRequest::Open { path, flags, mode } => {
                        let is_writable = directory.is_writable();
                        let file = directory.open_file(&path, flags, mode);
                        file.map(|file| MountReply::Opened(self.add(OpenFile { file, is_writable })))
                    }
                    DirectoryRequest::MakeDirectory(path, mode) => done(directory.make_directory(&path, mode)),
                    DirectoryRequest::RemoveFile(path) => done(directory.remove_file(&path)),
                    DirectoryRequest::RemoveDirectory(path) => done(directory.remove_directory(&path)),
                    DirectoryRequest::Rename(from, to) => done(directory.rename(&from, &to)),
                    DirectoryRequest::SetMode(path, mode) => done(directory.set_mode(&path, mode)),
                    DirectoryRequest::SetTimes(path, accessed, modified) => {
                        done(directory.set_times(&path, accessed, modified))
                    }
                    DirectoryRequest::Entries(path, limit) => {
                        let found = directory.entries(&path, usize::try_from(limit).unwrap_or(usize::MAX));
                        found.and_then(|(entries, is_complete)| entries_that_fit(entries, is_complete))
                    }
                })
            }
            MountRequest::File(id, MountedFileRequest::Close) => {
                self.files.remove(&id)?;
                Some(Ok(MountReply::Done))
            }
            MountRequest::File(id, request) => {
                let OpenFile { file, is_writable } = self.files.get(&id)?;
                if !request.has_valid_size() {
                    return None;
                }
                if request.modifies() && !is_writable {
                    return Some(Err(Errno::EROFS));
                }
                Some(match request {
                    MountedFileRequest::Stat | MountedFileRequest::Close => file.stat().map(MountReply::Stat),
                    MountedFileRequest::Read(offset, max) => {
                        let mut bytes = vec![0; max as usize];
                        file.read_at(offset, &mut bytes).map(|count| {
                            bytes.truncate(count);
                            MountReply::Bytes(bytes)
                        })
                    }
                    MountedFileRequest::Write(offset, bytes) => {
                        let written = file.write_at(offset, &bytes);
                        written.and_then(|count| u32::try_from(count).map_err(|_| Errno::EIO)).map(MountReply::Written)
                    }
                    MountedFileRequest::Truncate(size) => done(file.truncate(size)),
                    MountedFileRequest::Synchronise => done(file.synchronise()),
                    MountedFileRequest::SetMode(mode) => done(file.set_mode(mode)),
                    MountedFileRequest::SetTimes(accessed, modified) => done(file.set_times(accessed, modified)),
                })
            }
        }
    }

    fn add(&mut self, file: OpenFile) -> FileId {
        self.last += 1;
        self.files.insert(self.last, file);
        self.last
    }
}

/// Returns the most files that one interpreter has open: the same as an interpreter of this process.
fn max_files() -> usize {
    usize::try_from(Quota::default().open_files).unwrap_or(usize::MAX)
}

fn done(result: Result<(), Errno>) -> MountResult {
    result.map(|()| MountReply::Done)
}

/// Returns entries whose names fit into a message.
fn entries_that_fit(entries: Vec<MountedEntry>, is_complete: bool) -> MountResult {
    match entries.iter().map(|entry| entry.name.len()).sum::<usize>() {
        0..=MAX_NAMES => Ok(MountReply::Entries(entries, is_complete)),
        _ => Err(Errno::ENOMEM),
    }
}
