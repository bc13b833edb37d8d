//! The state of one session: its kernel, running or stored, and its files; and the operations that jobs run on them.
//!
//! | file | subject |
//! | --- | --- |
//! | `durable` | cells that wait on the disk |

pub(crate) mod durable;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use belljar_core::files::{FileError, FileInfo, Range, check_path};
use belljar_core::kernel::{Backend, CellError, CellObserver, CellRequest, InterruptHandle, Kernel, KernelError};
use belljar_core::{CellResult, CellStatus, CellStep, Output, Progress, Wait};

use crate::bases::PendingBase;
use crate::error::SessionError;
use crate::files::check_plain_name;
use crate::folders::{OpenedFolder, SessionFolders};
use crate::id::SessionId;
use crate::notebook;
use crate::outputs::truncate;
use crate::report::{AnswerOptions, CellReport, FileChange, save_images};
use crate::sessions::Owner;
use crate::store::{Lease, PendingSync, Store, StoreError};
use crate::traceback;
use durable::{CellWaits, DurableCell};

/// The maximum number of files that a cell's report lists.
const MAX_REPORTED_FILES: usize = 200;
/// The maximum size of an uploaded file, in bytes.
const MAX_UPLOAD: usize = 64 << 20;

/// The services that all sessions share.
pub(crate) struct SessionServices {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) store: Option<Store>,
    /// The directory of the host that has the sessions' files, if they do not end with their sessions.
    pub(crate) folders: Option<Arc<SessionFolders>>,
    pub(crate) answers: AnswerOptions,
}

/// The state of a session's kernel.
enum KernelState {
    /// The session has not been used.
    NotStarted,
    /// The kernel's snapshot is in the store.
    Stored,
    Running(Box<dyn Kernel>),
    /// The snapshot of the kernel, whose cell waits, is in the store.
    Asleep,
    /// The kernel's snapshot is in the store, but this backend cannot restore it. Its files are readable.
    Unrestorable {
        reason: String,
        files: UnrestoredFiles,
    },
}

/// The files of a session whose snapshot cannot be restored.
enum UnrestoredFiles {
    /// Those of the snapshot.
    Snapshot(BTreeMap<String, Vec<u8>>),
    /// Those in the session's folder, through a kernel that runs no cells.
    Folder(Box<dyn Kernel>),
}

/// The decision about a cell whose code is about to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CellStart {
    Started,
    /// The caller has gone.
    Cancelled,
    /// The cell was interrupted while it was queued.
    Interrupted,
}

/// The size and modification time of each file, by path.
type FileIndex = BTreeMap<String, (u64, i128)>;

/// The state of a session, on which its jobs work.
pub(crate) struct SessionState {
    pub(crate) id: SessionId,
    owner: Option<Owner>,
    kernel: KernelState,
    /// The files after the last cell: size and modification time by path.
    files: FileIndex,
    pub(crate) lease: Option<Lease>,
    /// The last write to the store, until it is synced to the disk.
    pending_sync: Option<PendingSync>,
    /// The base of the last snapshot, until the store has kept it.
    pending_base: Option<PendingBase>,
    /// The cell that waits.
    running: Option<RunningCell>,
}

/// A cell that has begun.
struct RunningCell {
    code: String,
    /// The files before the cell, if they may differ from those after the last one.
    before: Option<FileIndex>,
    /// Set if the cell can wait on the disk.
    durable: Option<DurableCell>,
}

/// The progress of a cell.
pub(crate) enum CellProgress {
    Completed(Box<CellReport>),
    /// The cell waits: [`SessionState::resume`] continues it.
    Waiting(Wait),
}

impl From<CellReport> for CellProgress {
    fn from(report: CellReport) -> Self {
        Self::Completed(Box::new(report))
    }
}

impl SessionState {
    /// Creates the state of a session that has not been used, or that is in the store.
    pub(crate) fn new(id: SessionId, owner: Option<Owner>, stored: bool) -> Self {
        let kernel = if stored { KernelState::Stored } else { KernelState::NotStarted };
        Self {
            id,
            owner,
            kernel,
            files: BTreeMap::new(),
            lease: None,
            pending_sync: None,
            pending_base: None,
            running: None,
        }
    }

    /// Creates the state of a session with a running kernel.
    pub(crate) fn with_kernel(id: SessionId, owner: Option<Owner>, mut kernel: Box<dyn Kernel>) -> Self {
        let files = file_index(&mut *kernel);
        Self {
            id,
            owner,
            kernel: KernelState::Running(kernel),
            files,
            lease: None,
            pending_sync: None,
            pending_base: None,
            running: None,
        }
    }

    /// Returns the kernel. Starts or restores it first if it is not running.
    fn ensure_running(
        &mut self,
        services: &SessionServices,
        progress: &dyn Progress,
    ) -> Result<&mut Box<dyn Kernel>, SessionError> {
        if let Some(store) =
            services.store.as_ref().filter(|store| store.is_persistent() || matches!(self.kernel, KernelState::Stored))
            && self.lease.is_none()
        {
            self.lease = Some(store.lease(&self.id, !matches!(self.kernel, KernelState::Stored))?);
        }
        match &self.kernel {
            KernelState::Asleep => self.wake(services)?,
            KernelState::NotStarted => {
                let folder = self.folder(services)?.map(|opened| opened.folder);
                self.kernel = KernelState::Running(services.backend.start(folder.as_ref(), progress)?);
            }
            KernelState::Stored => self.restore(services, progress)?,
            KernelState::Running(_) | KernelState::Unrestorable { .. } => {}
        }
        match &mut self.kernel {
            KernelState::Running(kernel) => Ok(kernel),
            KernelState::Unrestorable { reason, .. } => Err(SessionError::Unrestorable(reason.clone())),
            KernelState::NotStarted | KernelState::Stored | KernelState::Asleep => Err(SessionError::Gone),
        }
    }

    fn restore(&mut self, services: &SessionServices, progress: &dyn Progress) -> Result<(), SessionError> {
        let store = services.store.as_ref().ok_or(StoreError::Missing)?;
        let stored = store.read(&self.id)?;
        let base = store.bases().zip(stored.snapshot.base.as_deref()).and_then(|(bases, name)| bases.find(name));
        let opened = self.folder(services)?;
        let folder = opened.as_ref().map(|opened| &opened.folder);
        // The session was saved by a server without folders: its files are in the snapshot.
        let is_new = opened.as_ref().is_some_and(|opened| opened.is_new);
        let snapshot_files = || services.backend.snapshot_files(&stored.snapshot);
        self.kernel = match services.backend.restore(&stored.snapshot, base.as_deref(), folder, progress) {
            Ok(mut kernel) => {
                if is_new {
                    write_files(&mut *kernel, snapshot_files())?;
                }
                self.files = file_index(&mut *kernel);
                KernelState::Running(kernel)
            }
            Err(KernelError::IncompatibleSnapshot(reason)) => {
                let files = match folder {
                    None => UnrestoredFiles::Snapshot(snapshot_files().into_iter().collect()),
                    Some(folder) => {
                        let mut kernel = services.backend.start(Some(folder), progress)?;
                        if is_new {
                            write_files(&mut *kernel, snapshot_files())?;
                        }
                        UnrestoredFiles::Folder(kernel)
                    }
                };
                KernelState::Unrestorable { reason: reason.to_string(), files }
            }
            Err(other) => return Err(other.into()),
        };
        Ok(())
    }

    /// Opens the session's folder, if sessions have folders.
    fn folder(&self, services: &SessionServices) -> Result<Option<OpenedFolder>, SessionError> {
        let folders = services.folders.as_ref();
        Ok(folders.map(|folders| folders.open_or_create(&self.id, self.owner.as_deref())).transpose()?)
    }

    /// Runs a cell until it ends or waits. `begin_running` receives the cell's interrupt handle when the kernel is
    /// ready for its code, and `waker` is called when the waiting cell can go on.
    pub(crate) fn execute(
        &mut self,
        services: &SessionServices,
        cell: CellRequest,
        observer: Arc<dyn CellObserver>,
        now: Duration,
        begin_running: impl FnOnce(Arc<dyn InterruptHandle>) -> CellStart,
        CellWaits { waker, durable }: CellWaits,
    ) -> Result<CellProgress, SessionError> {
        let kernel = self.ensure_running(services, &*observer)?;
        match begin_running(kernel.interrupt_handle()) {
            CellStart::Started => {}
            CellStart::Cancelled => return Err(SessionError::Gone),
            CellStart::Interrupted => return Ok(CellReport::interrupted().into()),
        }
        // Files that the host has changed in the session's folder are not changes of the cell.
        let before = services.folders.is_some().then(|| file_index(&mut **kernel));
        let step = kernel.begin(&cell, observer, waker);
        self.after_step(services, RunningCell { code: cell.code, before, durable }, step, now)
    }

    /// Continues the cell that waits, until it ends or waits again.
    pub(crate) fn resume(&mut self, services: &SessionServices, now: Duration) -> Result<CellProgress, SessionError> {
        self.prepare_resume(services)?;
        let running = self.running.take().ok_or(SessionError::Gone)?;
        let KernelState::Running(kernel) = &mut self.kernel else { return Err(SessionError::Gone) };
        let step = kernel.resume();
        self.after_step(services, running, step, now)
    }

    fn after_step(
        &mut self,
        services: &SessionServices,
        running: RunningCell,
        step: CellStep,
        now: Duration,
    ) -> Result<CellProgress, SessionError> {
        match step {
            CellStep::Waiting(wait) => {
                self.running = Some(running);
                Ok(CellProgress::Waiting(wait))
            }
            CellStep::Completed(result) => self.complete(services, running, result, now).map(Into::into),
        }
    }

    /// Reports and stores a cell that has ended.
    fn complete(
        &mut self,
        services: &SessionServices,
        RunningCell { code, before, durable }: RunningCell,
        result: CellResult,
        now: Duration,
    ) -> Result<CellReport, SessionError> {
        let KernelState::Running(kernel) = &mut self.kernel else { return Err(SessionError::Gone) };
        if matches!(result.status, CellStatus::KernelDied(_)) {
            kernel.restart()?;
        }
        let limits = *services.backend.limits();
        let is_program = durable.as_ref().is_some_and(|durable| durable.run.info.is_program);
        let is_recorded = !is_program && services.store.as_ref().is_some_and(Store::is_persistent);
        let record = is_recorded.then(|| notebook::code_cell(&code, &result, &limits));
        let mut answers = services.answers;
        if is_program {
            // It has no files for the rest of its output.
            answers.max_bytes = usize::MAX;
        }
        let report = self.report(result, before, answers)?;
        self.persist(services, now)?;
        if let (Some(_), Some(store)) = (durable, &services.store) {
            store.remove_waiting(&self.id)?;
        }
        if let (Some(record), Some(store)) = (record, &services.store) {
            store.append_cell(&self.id, &record)?;
        }
        Ok(report)
    }

    /// Saves images and overlong text in files, and reports the changes to the session's files. `before` has the files
    /// before the cell, if they may differ from those after the last one.
    fn report(
        &mut self,
        result: CellResult,
        before: Option<FileIndex>,
        answers: AnswerOptions,
    ) -> Result<CellReport, SessionError> {
        let KernelState::Running(kernel) = &mut self.kernel else { return Err(SessionError::Gone) };
        let CellResult { execution_count: count, mut status, mut outputs } = result;
        let mut images = Vec::new();
        for output in &outputs {
            if let Output::Display(bundle) | Output::ExecuteResult(bundle) = output {
                save_images(&mut **kernel, bundle, count, &mut images);
            }
        }
        if let CellStatus::Error(CellError { traceback, .. }) | CellStatus::TimedOut { traceback, .. } = &mut status
            && !answers.all_frames
        {
            traceback::leave_out_library_frames(traceback);
        }
        truncate(&mut **kernel, &self.id, count, answers.max_bytes, &mut outputs, &mut status);
        let now: Vec<FileInfo> = kernel.files();
        let last = std::mem::take(&mut self.files);
        self.files = now.iter().map(|file| (file.path.clone(), (file.size, file.modified))).collect();
        let list_changed = !last.keys().eq(self.files.keys());
        let before = before.unwrap_or(last);
        let changed = now.into_iter().filter(|file| before.get(&file.path) != Some(&(file.size, file.modified)));
        let change = |file: FileInfo| FileChange { is_new: !before.contains_key(&file.path), file };
        let mut files: Vec<FileChange> = changed.map(change).collect();
        files.sort_by(|one, other| one.file.path.cmp(&other.file.path));
        let more_files = files.len().saturating_sub(MAX_REPORTED_FILES);
        files.truncate(MAX_REPORTED_FILES);
        Ok(CellReport { status, outputs, images, files, more_files, list_changed })
    }

    /// Writes a snapshot if the store is persistent.
    fn persist(&mut self, services: &SessionServices, now: Duration) -> Result<(), SessionError> {
        match &services.store {
            Some(store) if store.is_persistent() => self.write(services, store, now).map(drop),
            _ => Ok(()),
        }
    }

    /// Writes a snapshot. Returns `false` if the backend has no snapshots: the session then ends with the process.
    fn write(&mut self, services: &SessionServices, store: &Store, now: Duration) -> Result<bool, SessionError> {
        let KernelState::Running(kernel) = &mut self.kernel else { return Ok(false) };
        match kernel.snapshot() {
            Ok(snapshot) => {
                self.pending_sync = store.write(&self.id, self.owner.as_deref(), &snapshot, now)?;
                self.pending_base = store.bases().zip(snapshot.base).map(|(bases, name)| PendingBase {
                    bases,
                    backend: services.backend.clone(),
                    name,
                });
            }
            Err(KernelError::Unsupported(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// Waits until the last write is on the disk, and keeps the base of the last snapshot. Called after each job, when
    /// its result has been delivered, and when a job waits.
    pub(crate) fn sync(&mut self) {
        if let Some(base) = self.pending_base.take()
            && let Err(error) = base.keep()
        {
            tracing::warn!(%error, "failed to keep a session's image: an update of Belljar may lose its variables");
        }
        if let Some(written) = &self.pending_sync {
            match written.sync() {
                Ok(()) => self.pending_sync = None,
                // The next write tries again, and reports its error to the caller.
                Err(error) => tracing::warn!(%error, "failed to sync a session's state: a power failure may lose it"),
            }
        }
    }

    /// Writes a snapshot and drops the kernel. Returns whether the store has a snapshot now.
    pub(crate) fn hibernate(&mut self, services: &SessionServices, used: Duration) -> Result<bool, SessionError> {
        let Some(store) = &services.store else { return Ok(false) };
        if matches!(self.kernel, KernelState::Running(_)) {
            // A persistent store has a snapshot from after the last cell, unless no cell has been run.
            let unwritten = !store.is_persistent() || matches!(store.header(&self.id), Err(StoreError::Missing));
            if unwritten && !self.write(services, store, used)? {
                return Ok(false);
            }
            self.kernel = KernelState::Stored;
            self.files.clear();
        }
        self.sync();
        self.lease = None;
        Ok(matches!(self.kernel, KernelState::Stored | KernelState::Unrestorable { .. }))
    }

    /// Drops the kernel and deletes the session's files and snapshot. Files in the session's folder stay.
    pub(crate) fn destroy(&mut self, services: &SessionServices) -> Result<(), SessionError> {
        self.kernel = KernelState::NotStarted;
        self.running = None;
        self.pending_sync = None;
        if let Some(store) = &services.store {
            if self.lease.is_none() && !matches!(store.header(&self.id), Err(StoreError::Missing)) {
                self.lease = Some(store.lease(&self.id, false)?);
            }
            let base = store.header(&self.id).ok().and_then(|header| header.base().map(str::to_owned));
            store.remove(&self.id)?;
            if base.is_some()
                && let Err(error) = store.clean_up()
            {
                tracing::warn!(%error, "failed to delete images that no session needs");
            }
        }
        if let Some(folders) = &services.folders {
            folders.remove_if_empty(&self.id, self.owner.as_deref());
        }
        self.lease = None;
        Ok(())
    }

    /// Replaces the interpreter by a new one. The files stay.
    pub(crate) fn restart(&mut self, services: &SessionServices, now: Duration) -> Result<(), SessionError> {
        match self.ensure_running(services, &belljar_core::NoProgress) {
            Ok(kernel) => kernel.restart()?,
            Err(SessionError::Unrestorable(_)) => {
                let unrestorable = std::mem::replace(&mut self.kernel, KernelState::Stored);
                let KernelState::Unrestorable { files, .. } = unrestorable else { return Err(SessionError::Gone) };
                let mut kernel = match files {
                    UnrestoredFiles::Folder(kernel) => kernel,
                    UnrestoredFiles::Snapshot(files) => {
                        let mut kernel = services.backend.start(None, &belljar_core::NoProgress)?;
                        write_files(&mut *kernel, files)?;
                        kernel
                    }
                };
                self.files = file_index(&mut *kernel);
                self.kernel = KernelState::Running(kernel);
            }
            Err(error) => return Err(error),
        }
        self.persist(services, now)
    }

    /// Starts another kernel with the same variables and files, for the session `new`.
    pub(crate) fn fork(
        &mut self,
        services: &SessionServices,
        new: &SessionId,
    ) -> Result<Box<dyn Kernel>, SessionError> {
        self.ensure_running(services, &belljar_core::NoProgress)?;
        let (owner, max_bytes) = (self.owner.as_deref(), services.backend.limits().disk);
        let copied = services.folders.as_ref().map(|folders| folders.copy(&self.id, new, owner, max_bytes));
        let folder = copied.transpose()?;
        let KernelState::Running(kernel) = &mut self.kernel else { return Err(SessionError::Gone) };
        Ok(kernel.fork(folder.as_ref())?)
    }

    /// Writes the first snapshot of a session whose kernel was forked, and has not run a cell since.
    pub(crate) fn persist_initial(&mut self, services: &SessionServices, now: Duration) -> Result<(), SessionError> {
        self.ensure_running(services, &belljar_core::NoProgress)?;
        self.persist(services, now)
    }

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

    /// Reads a part of a file.
    pub(crate) fn read(
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
        if bytes.len() > MAX_UPLOAD {
            let reason = format!("the file has {} bytes; the maximum is {MAX_UPLOAD}", bytes.len());
            return Err(FileError::Other { path: name.into(), reason }.into());
        }
        let kernel = self.ensure_running(services, &belljar_core::NoProgress)?;
        kernel.write(name, bytes)?;
        self.files = file_index(&mut **kernel);
        self.persist(services, now)?;
        Ok(FileInfo { path: name.into(), size: bytes.len() as u64, modified: 0 })
    }
}

/// Returns the size and modification time of each file, by path.
fn file_index(kernel: &mut dyn Kernel) -> FileIndex {
    kernel.files().into_iter().map(|file| (file.path, (file.size, file.modified))).collect()
}

/// Writes files of a snapshot into the session's directory.
fn write_files(kernel: &mut dyn Kernel, files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<(), FileError> {
    files.into_iter().try_for_each(|(path, bytes)| kernel.write(&path, &bytes))
}
