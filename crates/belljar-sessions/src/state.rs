//! The state of one session: its kernel, running or stored, and its files; and the operations that jobs run on them.
//!
//! | file | subject |
//! | --- | --- |
//! | `durable` | cells that wait on the disk |
//! | `files` | the files of a session |
//! | `persistence` | snapshots in the store, and the end of a session |

pub(crate) mod durable;
pub(crate) mod files;
mod persistence;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use belljar_audit::{Details, Event};
use belljar_core::activity::trace::SpanName;
use belljar_core::activity::{Activity, CodeActivity, CodeKind, CodeOutcome, CpuClock};
use belljar_core::files::{FileError, FileInfo};
use belljar_core::kernel::{
    Backend, CellError, CellObserver, CellRequest, InterruptHandle, Kernel, KernelError, ShellRequest,
};
use belljar_core::{CellResult, CellStatus, CellStep, ExitReason, Output, Progress, Wait};

use crate::bases::PendingBase;
use crate::error::SessionError;
use crate::folders::{OpenedFolder, SessionFolders};
use crate::id::SessionId;
use crate::notebook;
use crate::outputs::truncate;
use crate::report::{AfterKernelDeath, AnswerOptions, CellReport, FileChange, save_images};
use crate::sessions::Owner;
use crate::store::{Lease, PendingSync, Store, StoreError};
use crate::tenants::Tenant;
use crate::traceback;
use durable::{CellWaits, DurableCell};

/// The maximum number of files that a cell's report lists.
const MAX_REPORTED_FILES: usize = 200;

/// The services that all sessions share.
pub(crate) struct SessionServices {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) store: Option<Arc<Store>>,
    /// The directory of the host that has the sessions' files, if they do not end with their sessions.
    pub(crate) folders: Option<Arc<SessionFolders>>,
    pub(crate) answers: AnswerOptions,
    /// The audit log and the traces.
    pub(crate) activity: Arc<OnceLock<Activity>>,
}

impl SessionServices {
    /// Returns the audit log and the traces.
    pub(crate) fn activity(&self) -> Activity {
        self.activity.get().cloned().unwrap_or_default()
    }

    /// Returns whose processor time is that of code.
    pub(crate) fn cpu_clock(&self) -> CpuClock {
        if self.backend.runs_on_caller() { CpuClock::Thread } else { CpuClock::None }
    }
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
pub(crate) type FileIndex = BTreeMap<String, (u64, i128)>;

/// The state of a session, on which its jobs work.
pub(crate) struct SessionState {
    pub(crate) id: SessionId,
    owner: Option<Owner>,
    kernel: KernelState,
    /// The files after the last cell: size and modification time by path.
    files: FileIndex,
    pub(crate) lease: Option<Lease>,
    /// The last write to the store, until it is synced to the disk, or stored in the cluster.
    pending_sync: Option<PendingSync>,
    /// The base of the last snapshot, until the store has kept it.
    pending_base: Option<PendingBase>,
    /// The cell that waits.
    running: Option<RunningCell>,
    /// True if the store has the kernel's state as it is, or has nothing and no code has run.
    matches_store: bool,
    /// True if the session came from the store, or was stored in the cluster.
    was_stored: bool,
    /// True once another replica of the cluster may have the session, until it is read from the store again.
    is_lost: bool,
    /// The owner whose quotas the session counts for.
    tenant: Option<Tenant>,
}

/// A cell that has begun.
struct RunningCell {
    code: String,
    activity: CodeActivity,
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
            matches_store: true,
            was_stored: stored,
            is_lost: false,
            tenant: None,
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
            matches_store: false,
            was_stored: false,
            is_lost: false,
            tenant: None,
        }
    }

    /// Sets the owner whose quotas the session counts for.
    pub(crate) fn set_tenant(&mut self, tenant: Tenant) {
        self.tenant = Some(tenant);
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
        // A cell that wakes has begun, and goes on.
        if matches!(self.kernel, KernelState::NotStarted | KernelState::Stored)
            && let Some(tenant) = &self.tenant
        {
            tenant.check_memory()?;
        }
        match &self.kernel {
            KernelState::Asleep => self.wake(services)?,
            KernelState::NotStarted => {
                let folder = self.folder(services)?.map(|opened| opened.folder);
                self.kernel = KernelState::Running(services.backend.start(folder.as_ref(), progress)?);
            }
            KernelState::Stored => self.restore(services, progress).inspect_err(|error| {
                let cluster = services.store.as_deref().and_then(Store::cluster);
                if let (SessionError::Store(StoreError::Missing), Some(cluster)) = (error, cluster) {
                    // The next call brings it from the cluster's store again.
                    cluster.forget(&self.id);
                }
            })?,
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
        self.is_lost = false;
        let base = || store.find_base(stored.snapshot.base.as_deref());
        self.record(services, Event::SessionWake, Details::default);
        let opened = self.folder(services)?;
        let folder = opened.as_ref().map(|opened| &opened.folder);
        // The session was saved by a server without folders: its files are in the snapshot.
        let is_new = opened.as_ref().is_some_and(|opened| opened.is_new);
        let snapshot_files = || services.backend.snapshot_files(&stored.snapshot);
        self.kernel = match services.backend.restore(&stored.snapshot, &base, folder, progress) {
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

    /// Records an event of this session.
    pub(crate) fn record(&self, services: &SessionServices, event: Event, details: impl FnOnce() -> Details) {
        if let Some(activity) = services.activity.get() {
            activity.record_session(event, self.id.as_str(), self.owner.as_deref(), details);
        }
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
        CellWaits { waker, durable, cpu }: CellWaits<'_>,
    ) -> Result<CellProgress, SessionError> {
        let CellRequest { scope, .. } = &cell;
        scope.set_session(self.id.as_str());
        let is_program = durable.as_ref().is_some_and(|durable| durable.run.info.is_program);
        let kind = if is_program { CodeKind::Run } else { CodeKind::Cell };
        let activity = CodeActivity::begin(scope, kind, &cell.code, services.cpu_clock());
        let observer = activity.observe(observer);
        activity.enter(SpanName::Restore);
        if let Err(error) = self.ensure_running(services, &*observer) {
            activity.end(CodeOutcome::failed(&error));
            return Err(error);
        }
        let KernelState::Running(kernel) = &mut self.kernel else { return Err(SessionError::Gone) };
        match begin_running(kernel.interrupt_handle()) {
            CellStart::Started => {}
            CellStart::Cancelled => return Err(SessionError::Gone),
            CellStart::Interrupted => return Ok(CellReport::interrupted().into()),
        }
        let matches_store = std::mem::replace(&mut self.matches_store, false);
        // Files that the host has changed in the session's folder are not changes of the cell.
        let before = services.folders.is_some().then(|| file_index(&mut **kernel));
        let is_resumable = cell.exchange.as_ref().is_none_or(|exchange| exchange.is_resumable);
        match &durable {
            Some(durable) if before.is_some() => durable.refuse_recording(),
            Some(durable) if matches_store && is_resumable => durable.record_new(&mut **kernel, &self.files),
            _ => {}
        }
        activity.enter(SpanName::Run);
        let step = activity.measure_with(cpu, || kernel.begin(&cell, observer, waker));
        self.after_step(services, RunningCell { code: cell.code, activity, before, durable }, step, now)
    }

    /// Continues the cell that waits, until it ends or waits again. Its processor time is added to `cpu`.
    pub(crate) fn resume(
        &mut self,
        services: &SessionServices,
        now: Duration,
        cpu: Option<&AtomicU64>,
    ) -> Result<CellProgress, SessionError> {
        self.prepare_resume(services)?;
        let running = self.running.take().ok_or(SessionError::Gone)?;
        let KernelState::Running(kernel) = &mut self.kernel else { return Err(SessionError::Gone) };
        let step = running.activity.measure_with(cpu, || kernel.resume());
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
            CellStep::Completed(result) if self.loses_to_cancellation(services, &result.status) => {
                running.activity.end(&result.status);
                if let (Some(_), Some(store)) = (running.durable, &services.store) {
                    store.remove_waiting(&self.id)?;
                }
                self.discard_kernel(services);
                Err(KernelError::Cancelled.into())
            }
            CellStep::Completed(result) => self.complete(services, running, result, now).map(Into::into),
            CellStep::Suspended => self.after_suspension(running).map(CellProgress::Waiting),
            CellStep::Failed(error) => {
                running.activity.end(CodeOutcome::failed(&error));
                self.discard_kernel(services);
                Err(error.into())
            }
        }
    }

    /// Returns whether a cell has ended its interpreter because its call was cancelled, while the state from before it
    /// is stored. The session goes on from that: what was answered before is not lost.
    fn loses_to_cancellation(&self, services: &SessionServices, status: &CellStatus) -> bool {
        let store = services.store.as_deref().filter(|store| store.is_persistent());
        matches!(status, CellStatus::KernelDied(ExitReason::Cancelled))
            && store.is_some_and(|store| store.header(&self.id).is_ok())
    }

    /// Reports and stores a cell that has ended.
    fn complete(
        &mut self,
        services: &SessionServices,
        RunningCell { code, activity, mut before, durable }: RunningCell,
        result: CellResult,
        now: Duration,
    ) -> Result<CellReport, SessionError> {
        activity.end(&result.status);
        let KernelState::Running(kernel) = &mut self.kernel else { return Err(SessionError::Gone) };
        let mut after_death = AfterKernelDeath::Files;
        if matches!(result.status, CellStatus::KernelDied(_)) {
            match kernel.restart() {
                Err(KernelError::ProcessEnded) => after_death = self.recover(services)?,
                restarted => restarted?,
            }
        }
        let limits = *services.backend.limits();
        let is_program = durable.as_ref().is_some_and(|durable| durable.run.info.is_program);
        let is_recorded = !is_program && services.store.as_deref().is_some_and(Store::is_persistent);
        let record = is_recorded.then(|| notebook::code_cell(&code, &result, &limits));
        let mut answers = services.answers;
        if is_program {
            // It has no files for the rest of its output.
            answers.max_bytes = usize::MAX;
        }
        if after_death != AfterKernelDeath::Files {
            // The files are those from before the cell.
            before = None;
        }
        let report = CellReport { after_death, ..self.report(result, before, answers)? };
        self.persist(services, now)?;
        if let (Some(_), Some(store)) = (durable, &services.store) {
            store.remove_waiting(&self.id)?;
        }
        if let (Some(record), Some(store)) = (record, &services.store) {
            store.append_cell(&self.id, &record)?;
        }
        // A program ends now, and with it what was stored of it.
        if !is_program {
            self.commit(services)?;
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
        let memory = kernel.memory();
        let after_death = AfterKernelDeath::default();
        Ok(CellReport { status, outputs, images, files, more_files, list_changed, memory, after_death })
    }

    /// Starts another kernel in place of one whose process has ended: with the state in the store, if there is one.
    ///
    /// # Errors
    /// Fails if the kernel cannot be started or restored.
    fn recover(&mut self, services: &SessionServices) -> Result<AfterKernelDeath, SessionError> {
        self.discard_kernel(services);
        let is_stored = matches!(self.kernel, KernelState::Stored);
        if !is_stored {
            self.files.clear();
        }
        self.ensure_running(services, &belljar_core::NoProgress)?;
        Ok(if is_stored { AfterKernelDeath::LastState } else { AfterKernelDeath::Nothing })
    }

    /// Replaces the interpreter by a new one. The files stay.
    pub(crate) fn restart(&mut self, services: &SessionServices, now: Duration) -> Result<(), SessionError> {
        match self.ensure_running(services, &belljar_core::NoProgress) {
            Ok(kernel) => match kernel.restart() {
                Err(KernelError::ProcessEnded) => {
                    self.recover(services)?;
                    let KernelState::Running(kernel) = &mut self.kernel else { return Err(SessionError::Gone) };
                    kernel.restart()?;
                }
                restarted => restarted?,
            },
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
        self.persist(services, now)?;
        self.commit(services)
    }

    /// Sends the shell a request that is not a cell.
    pub(crate) fn shell_request(
        &mut self,
        services: &SessionServices,
        request: &ShellRequest,
    ) -> Result<serde_json::Value, SessionError> {
        let kernel = self.ensure_running(services, &belljar_core::NoProgress)?;
        Ok(kernel.shell_request(request)?)
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
        self.persist(services, now)?;
        self.commit(services)
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
