//! The files of a session, also of one whose snapshot cannot be restored.

use std::time::Duration;

use belljar_audit::{Details, Event};
use belljar_core::files::{FileError, FileInfo, Range, check_path};

use super::{KernelState, SessionServices, SessionState, UnrestoredFiles, file_index};
use crate::error::SessionError;
use crate::files::check_plain_name;

/// The maximum size of an uploaded file, in bytes.
pub const MAX_UPLOAD: usize = 64 << 20;

/// The fields of the record of a read that do not follow from its result.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReadRecord {
    /// The size of the file, if the record is that of a download, whose first part is read.
    pub(crate) size: Option<u64>,
    /// The party that reads, if it is not the client.
    pub(crate) by: Option<&'static str>,
}

impl SessionState {
    /// Returns the session's files, sorted by path.
    pub(crate) fn list(&mut self, services: &SessionServices) -> Result<Vec<FileInfo>, SessionError> {
        let kernel = self.ensure_running(services, &belljar_core::NoProgress);
        let mut files = match kernel.map(|kernel| kernel.files()) {
            Ok(files) => files,
            Err(SessionError::Unrestorable(_)) => self.unrestored_files(),
            Err(error) => return Err(error),
        };
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(files)
    }

    fn unrestored_files(&mut self) -> Vec<FileInfo> {
        let files = match &mut self.kernel {
            KernelState::Unrestorable { files: UnrestoredFiles::Snapshot(files), .. } => files,
            KernelState::Unrestorable { files: UnrestoredFiles::Folder(kernel), .. } => return kernel.files(),
            _ => return Vec::new(),
        };
        let visible = files.iter().filter(|(path, _)| check_path(path).is_ok());
        visible.map(|(path, bytes)| FileInfo { path: path.clone(), size: bytes.len() as u64, modified: 0 }).collect()
    }

    /// Records that a file, or a part of it, was read. Paths that are not valid are not recorded.
    pub(crate) fn record_read(
        &self,
        services: &SessionServices,
        path: &str,
        read: &Result<Vec<u8>, SessionError>,
        ReadRecord { size, by }: ReadRecord,
    ) {
        if check_path(path).is_err() {
            return;
        }
        self.record(services, Event::FileRead, || Details {
            name: Some(path.to_owned()),
            outcome: Some(if read.is_ok() { "success" } else { "failed" }.into()),
            by,
            error: read.as_ref().err().map(ToString::to_string),
            bytes: read.as_ref().ok().map(|bytes| size.unwrap_or(bytes.len() as u64)),
            ..Details::default()
        });
    }

    /// Reads a part of a file.
    pub(crate) fn read_part(
        &mut self,
        services: &SessionServices,
        path: &str,
        range: Range,
    ) -> Result<Vec<u8>, SessionError> {
        check_path(path)?;
        match self.ensure_running(services, &belljar_core::NoProgress) {
            Ok(kernel) => Ok(kernel.read(path, range)?),
            Err(SessionError::Unrestorable(_)) => {
                let files = match &mut self.kernel {
                    KernelState::Unrestorable { files: UnrestoredFiles::Snapshot(files), .. } => files,
                    KernelState::Unrestorable { files: UnrestoredFiles::Folder(kernel), .. } => {
                        return Ok(kernel.read(path, range)?);
                    }
                    _ => return Err(SessionError::Gone),
                };
                let bytes = files.get(path).ok_or_else(|| FileError::Missing(path.into()))?;
                let start = usize::try_from(range.offset).unwrap_or(usize::MAX).min(bytes.len());
                let length = range.length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
                Ok(bytes[start..start + length.min(bytes.len() - start)].to_vec())
            }
            Err(error) => Err(error),
        }
    }

    /// Writes an uploaded file.
    pub(crate) fn upload(
        &mut self,
        services: &SessionServices,
        name: &str,
        bytes: &[u8],
        now: Duration,
    ) -> Result<FileInfo, SessionError> {
        check_plain_name(name)?;
        self.write_file(services, name, bytes, now)
    }

    /// Writes a whole file, and creates the directories on its path.
    pub(crate) fn write_file(
        &mut self,
        services: &SessionServices,
        path: &str,
        bytes: &[u8],
        now: Duration,
    ) -> Result<FileInfo, SessionError> {
        check_path(path)?;
        if bytes.len() > MAX_UPLOAD {
            let reason = format!("the file has {} bytes; the maximum is {MAX_UPLOAD}", bytes.len());
            return Err(FileError::Other { path: path.into(), reason }.into());
        }
        let kernel = self.ensure_running(services, &belljar_core::NoProgress)?;
        kernel.write(path, bytes)?;
        self.files = file_index(&mut **kernel);
        self.record(services, Event::FileWrite, || Details {
            name: Some(path.to_owned()),
            outcome: Some("success".into()),
            bytes: Some(bytes.len() as u64),
            ..Details::default()
        });
        self.persist(services, now)?;
        self.commit(services)?;
        Ok(FileInfo { path: path.into(), size: bytes.len() as u64, modified: 0 })
    }
}
