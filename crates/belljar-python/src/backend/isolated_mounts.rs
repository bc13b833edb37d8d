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

#[cfg(test)]
mod tests {
    use std::fs;

    use belljar_emscripten::fs::{HostDirectory, OpenFlags, SetTime};

    use super::*;
    use crate::isolation::MAX_TRANSFER;

    const READ: OpenFlags = OpenFlags::READ_ONLY;

    /// Returns directories: one that may be read, and one that may be written to.
    fn mounts(outer: &std::path::Path) -> IsolatedMounts {
        fs::write(outer.join("secret"), "secret").unwrap();
        let mount = |name: &str, is_writable: bool| {
            fs::create_dir(outer.join(name)).unwrap();
            fs::write(outer.join(name).join("f"), "content").unwrap();
            let directory = Arc::new(HostDirectory::open(&outer.join(name), is_writable).unwrap());
            GuestMount { guest: format!("/{name}"), directory }
        };
        IsolatedMounts::new(vec![mount("read", false), mount("write", true)])
    }

    fn open(directory: u32, path: &str, flags: OpenFlags) -> MountRequest {
        MountRequest::Directory(directory, DirectoryRequest::Open { path: path.into(), flags, mode: 0o644 })
    }

    fn opened(mounts: &mut IsolatedMounts, request: MountRequest) -> FileId {
        let Some(Ok(MountReply::Opened(id))) = mounts.handle(request) else { panic!("it is not opened") };
        id
    }

    #[cfg(unix)]
    #[test]
    fn no_path_of_a_worker_leads_out_of_a_directory() {
        use std::os::unix::fs::symlink;
        let outer = tempfile::tempdir().unwrap();
        let mut mounts = mounts(outer.path());
        symlink("../secret", outer.path().join("write/link")).unwrap();
        symlink("..", outer.path().join("write/up")).unwrap();
        let absolute = outer.path().join("secret");
        for path in ["../secret", "x/../../secret", "link", "up/secret", absolute.to_str().unwrap(), "", ".", "f\0"] {
            let flags = OpenFlags::READ_WRITE.with(OpenFlags::CREATE).with(OpenFlags::TRUNCATE);
            for request in [open(1, path, READ), open(1, path, flags), open(0, path, READ)] {
                assert!(matches!(mounts.handle(request), Some(Err(_))), "{path}");
            }
            let text = || path.to_owned();
            for request in [
                DirectoryRequest::Rename("f".into(), format!("../{path}")),
                DirectoryRequest::Rename(format!("../{path}"), "f".into()),
                DirectoryRequest::MakeDirectory(format!("../{path}x"), 0o777),
                DirectoryRequest::RemoveFile(format!("../{path}")),
                DirectoryRequest::SetMode(format!("../{path}"), 0),
                DirectoryRequest::Entries(format!("../{}", text()), 10),
            ] {
                assert!(matches!(mounts.handle(MountRequest::Directory(1, request)), Some(Err(_))), "{path}");
            }
        }
        assert_eq!(fs::read_to_string(outer.path().join("secret")).unwrap(), "secret");
        assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 3);
    }

    #[test]
    fn nothing_changes_in_a_directory_that_may_only_be_read() {
        let outer = tempfile::tempdir().unwrap();
        let mut mounts = mounts(outer.path());
        let id = opened(&mut mounts, open(0, "f", READ));
        for request in [
            MountedFileRequest::Write(0, b"x".to_vec()),
            MountedFileRequest::Truncate(0),
            MountedFileRequest::SetMode(0o777),
            MountedFileRequest::SetTimes(SetTime::Now, SetTime::Now),
        ] {
            assert_eq!(mounts.handle(MountRequest::File(id, request)), Some(Err(Errno::EROFS)));
        }
        for request in [
            DirectoryRequest::RemoveFile("f".into()),
            DirectoryRequest::Rename("f".into(), "g".into()),
            DirectoryRequest::MakeDirectory("d".into(), 0o777),
            DirectoryRequest::SetMode("f".into(), 0),
            DirectoryRequest::SetTimes("f".into(), SetTime::Now, SetTime::Now),
        ] {
            assert_eq!(mounts.handle(MountRequest::Directory(0, request)), Some(Err(Errno::EROFS)));
        }
        assert_eq!(fs::read_to_string(outer.path().join("read/f")).unwrap(), "content");
    }

    #[test]
    fn files_are_bounded_and_closed() {
        let outer = tempfile::tempdir().unwrap();
        let mut mounts = mounts(outer.path());
        let first = opened(&mut mounts, open(1, "f", OpenFlags::READ_WRITE));
        while let Some(Ok(_)) = mounts.handle(open(1, "f", READ)) {}
        assert_eq!(mounts.files.len(), max_files());
        assert_eq!(mounts.handle(open(1, "f", READ)), Some(Err(Errno::EMFILE)));
        let close = || MountRequest::File(first, MountedFileRequest::Close);
        let write = MountRequest::File(first, MountedFileRequest::Write(1, b"ON".to_vec()));
        assert_eq!(mounts.handle(write), Some(Ok(MountReply::Written(2))));
        assert_eq!(fs::read_to_string(outer.path().join("write/f")).unwrap(), "cONtent");
        assert_eq!(mounts.handle(close()), Some(Ok(MountReply::Done)));
        // No worker that follows the protocol sends these.
        let large = MountedFileRequest::Read(0, MAX_TRANSFER as u32 + 1);
        let second = opened(&mut mounts, open(1, "f", READ));
        for request in
            [close(), MountRequest::File(second, large), MountRequest::Directory(2, DirectoryRequest::Stat("f".into()))]
        {
            assert_eq!(mounts.handle(request), None);
        }
        mounts.close_all();
        assert_eq!(mounts.handle(MountRequest::File(second, MountedFileRequest::Stat)), None);
    }
}
