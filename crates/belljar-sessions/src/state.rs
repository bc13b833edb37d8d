//! The state of one session: its kernel, running or stored, and its files; and the operations that jobs run on them.
//!
//! | file | subject |
//! | --- | --- |
//! | `cell` | running a cell, and reporting it |
//! | `durable` | cells that wait on the disk |
//! | `files` | the files of a session |
//! | `persistence` | snapshots in the store, and the end of a session |

mod cell;
pub(crate) mod durable;
pub(crate) mod files;
mod persistence;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use belljar_audit::{Details, Event};
use belljar_core::Progress;
use belljar_core::activity::{Activity, CpuClock};
use belljar_core::files::FileError;
use belljar_core::kernel::{Backend, Kernel, KernelError, ShellRequest};

use crate::bases::PendingBase;
use crate::error::SessionError;
use crate::folders::{OpenedFolder, SessionFolders};
use crate::id::SessionId;
use crate::report::{AfterKernelDeath, AnswerOptions};
use crate::sessions::Owner;
use crate::store::{Lease, PendingSync, Store, StoreError};
use crate::tenants::Tenant;
use cell::RunningCell;
pub(crate) use cell::{CellProgress, CellStart};

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
        if self.backend.measures_processor_time() { CpuClock::Thread } else { CpuClock::None }
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
        let begin = Instant::now();
        let restored = self.restore_stored(services, progress);
        let error = match (&restored, &self.kernel) {
            (Err(error), _) => Some(error.to_string()),
            (Ok(()), KernelState::Unrestorable { reason, .. }) => Some(reason.clone()),
            (Ok(()), _) => None,
        };
        self.record_wake(services, begin, error);
        restored
    }

    fn restore_stored(&mut self, services: &SessionServices, progress: &dyn Progress) -> Result<(), SessionError> {
        let store = services.store.as_ref().ok_or(StoreError::Missing)?;
        let stored = store.read(&self.id)?;
        self.is_lost = false;
        let base = || store.find_base(stored.snapshot.base.as_deref());
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

    /// Returns an error for records: without the session's ID, which is in the paths of its files.
    fn recorded_error(&self, error: &dyn std::fmt::Display) -> String {
        error.to_string().replace(self.id.as_str(), "SESSION")
    }

    /// Records that the session's interpreter was restored, or why not.
    fn record_wake(&self, services: &SessionServices, begin: Instant, error: Option<String>) {
        self.record(services, Event::SessionWake, || Details {
            outcome: Some(if error.is_some() { "failed" } else { "success" }.into()),
            error: error.map(|error| self.recorded_error(&error)),
            duration: Some(begin.elapsed()),
            ..Details::default()
        });
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
