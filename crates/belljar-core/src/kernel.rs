//! The interface between sessions and what runs Python: [`Backend`] and [`Kernel`].
//!
//! ```text
//!  belljar-server, belljar-jupyter, belljar run x.ipynb
//!        │ run_once(OneShotRequest)        │ start, restore
//!        ▼                                 ▼
//!     Backend ───────────────────────▶ Kernel ── execute(CellRequest) ─▶ CellResult
//!        ▲                                 │ while the code runs
//!  belljar-python (WebAssembly)            ▼
//!  belljar-native (Linux processes)   CellObserver: output, display events, input()
//! ```

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use crate::cancellation::CallCancellation;
use crate::execution::{CellResult, CellStatus, RunReport};
use crate::exit_reason::ExitReason;
use crate::files::{FileError, FileInfo, Range};
use crate::held_cell::CellRecorder;
use crate::limits::Limits;
use crate::progress::Progress;
use crate::session_folder::SessionFolder;
use crate::statistics::BackendStatistics;
use crate::waiting::{CellStep, ReplySender, RestoredRun, RunStep, Waker};

pub use crate::cell_observer::{CellObserver, INPUT_TIMEOUT, NullObserver};
pub use crate::kernel_error::{BoxError, CellError, InputError, InputReply, KernelError, ShellError};
pub use crate::kernel_requests::{CellRequest, OneShotRequest, ShellRequest};

/// Runs work to its end on a new thread that has the stack which a backend's interpreters need. Fails when the system
/// refuses another thread.
pub type RunOnThread = fn(Box<dyn FnOnce() + Send>) -> std::io::Result<()>;

/// Finds the base of a snapshot.
pub type FindBase<'a> = &'a dyn Fn() -> Option<PathBuf>;

/// Runs Python: code in interpreters of its own, and kernels of sessions.
pub trait Backend: Send + Sync {
    /// Returns the limits of each piece of code that this backend runs.
    fn limits(&self) -> &Limits;

    /// Runs code in an interpreter of its own, which nothing survives.
    ///
    /// Must be called on a thread of [`Backend::thread_runner`]. `observer` receives what the code writes while it
    /// runs. The code's interpreter may outlive the report, since freeing its memory takes a while: see
    /// [`CompletedRun`].
    ///
    /// # Errors
    /// Fails if the code was not run: see [`KernelError`]. The report contains the errors of the code itself.
    fn run_once(
        &self,
        request: OneShotRequest,
        observer: Arc<dyn CellObserver>,
        cancellation: &CallCancellation,
    ) -> Result<CompletedRun, KernelError>;

    /// Does the same as [`Backend::run_once`], but returns when the code waits and its thread can do other work, if the
    /// backend supports it. `waker` is called when waiting code can go on.
    ///
    /// # Errors
    /// The same as for [`Backend::run_once`].
    fn begin_run(
        &self,
        request: OneShotRequest,
        observer: Arc<dyn CellObserver>,
        cancellation: &CallCancellation,
        waker: Waker,
    ) -> Result<RunStep, KernelError> {
        let _ = waker;
        self.run_once(request, observer, cancellation).map(|completed| RunStep::Completed(Box::new(completed)))
    }

    /// Restores a run from a snapshot. Its code goes on with [`WaitingRun::resume`](crate::WaitingRun::resume).
    ///
    /// Must be called on a thread of [`Backend::thread_runner`].
    ///
    /// # Errors
    /// Returns [`KernelError::IncompatibleSnapshot`] if this backend cannot use the snapshot as it is now.
    fn restore_run(
        &self,
        snapshot: &KernelSnapshot,
        observer: Arc<dyn CellObserver>,
        cancellation: &CallCancellation,
        waker: Waker,
    ) -> Result<RestoredRun, KernelError> {
        let _ = (snapshot, observer, cancellation, waker);
        Err(KernelError::Unsupported("this backend's runs wait in their process only".into()))
    }

    /// Starts a kernel, whose files are in `folder` if one is given. Must be called on a thread of
    /// [`Backend::thread_runner`].
    ///
    /// # Errors
    /// Fails if Python cannot be made ready.
    fn start(&self, folder: Option<&SessionFolder>, progress: &dyn Progress) -> Result<Box<dyn Kernel>, KernelError>;

    /// Starts a kernel that continues from a snapshot, and whose files are in `folder` if one is given. Must be called
    /// on a thread of [`Backend::thread_runner`].
    ///
    /// `base` finds the directory that [`Backend::write_base`] wrote for [`KernelSnapshot::base`], if it is available.
    /// Its contents are not trusted. It is called only if this backend does not have the base, since it may take a
    /// while.
    ///
    /// # Errors
    /// Returns [`KernelError::IncompatibleSnapshot`] if this backend cannot use the snapshot as it is now.
    fn restore(
        &self,
        snapshot: &KernelSnapshot,
        base: FindBase<'_>,
        folder: Option<&SessionFolder>,
        progress: &dyn Progress,
    ) -> Result<Box<dyn Kernel>, KernelError>;

    /// Creates a kernel that runs `request` in an interpreter of its own, as its only cell, and whose snapshots
    /// [`Backend::restore`] restores while the code waits. [`CellObserver::on_report`] receives the result. Returns
    /// `None` if this backend's runs wait in their process only.
    fn program(&self, request: OneShotRequest) -> Option<Box<dyn Kernel>> {
        let _ = request;
        None
    }

    /// Returns whether [`Backend::program`] creates kernels.
    fn supports_programs(&self) -> bool {
        false
    }

    /// Writes the base of snapshots that this backend has taken or restored into an empty directory.
    ///
    /// # Errors
    /// Fails if the backend does not have this base, or a file cannot be written.
    fn write_base(&self, base: &str, directory: &Path) -> Result<(), KernelError> {
        let _ = (base, directory);
        Err(KernelError::Unsupported("this backend's snapshots have no base".into()))
    }

    /// Returns whether requests may have an [`Exchange`](crate::Exchange).
    fn supports_exchange(&self) -> bool {
        true
    }

    /// Returns whether requests may have `tools` set.
    fn supports_tools(&self) -> bool {
        true
    }

    /// Returns whether cells may be feeds: see [`CellRequest::monty`].
    fn supports_feeds(&self) -> bool {
        false
    }

    /// Returns whether the processor time of code is known: it is that of the thread that continues the code, or was
    /// added by [`add_processor_time`](crate::add_processor_time).
    fn measures_processor_time(&self) -> bool {
        true
    }

    /// Returns whether [`Kernel::fork`] works. The tool for it is offered only then.
    fn supports_fork(&self) -> bool {
        true
    }

    /// Returns the files in a snapshot, as paths and contents, whether or not it can be restored.
    fn snapshot_files(&self, snapshot: &KernelSnapshot) -> Vec<(String, Vec<u8>)>;

    /// Returns the statistics of this backend, and of those that share its runtime or its packages. Reads files, so it
    /// may take milliseconds.
    fn statistics(&self) -> BackendStatistics {
        BackendStatistics::default()
    }

    /// Returns the directory of this backend's temporary files, if it has one. It is deleted with the backend, after
    /// the exit of its kernels and background threads.
    fn temporary_directory(&self) -> Option<&Path> {
        None
    }

    /// Returns the function that runs work on threads for this backend. A pool keeps it without the backend, which can
    /// then be dropped before the pool's threads end.
    fn thread_runner(&self) -> RunOnThread;
}

/// A run that has ended.
pub struct CompletedRun {
    /// The result.
    pub report: RunReport,
    /// The ended interpreter. Dropping it frees its memory, for which the result need not wait.
    pub interpreter: Box<dyn std::any::Any + Send>,
}

/// One session's interpreter and files. Used by one thread at a time, on threads of [`Backend::thread_runner`].
pub trait Kernel: Send {
    /// Runs a cell until it ends or reaches a limit.
    fn execute(&mut self, cell: &CellRequest, observer: Arc<dyn CellObserver>) -> CellResult;

    /// Does the same as [`Kernel::execute`], but returns when the cell waits and its thread can do other work, if the
    /// backend supports it. `waker` is called when a waiting cell can go on. Until the cell has ended, only
    /// [`Kernel::resume`], [`Kernel::snapshot`] and the interrupt handle may be used.
    fn begin(&mut self, cell: &CellRequest, observer: Arc<dyn CellObserver>, waker: Waker) -> CellStep {
        let _ = waker;
        CellStep::Completed(self.execute(cell, observer))
    }

    /// Has the next cell, or the one that waits in the restored snapshot, recorded, so that it can be continued
    /// elsewhere while it holds its thread in a wait. Returns false if the backend does not support it.
    fn record(&mut self, recorder: CellRecorder) -> bool {
        drop(recorder);
        false
    }

    /// Continues the cell that waits, until it ends or waits again.
    fn resume(&mut self) -> CellStep {
        let status = CellStatus::KernelDied(ExitReason::Crash("no cell waits".into()));
        CellStep::Completed(CellResult { execution_count: 0, status, outputs: Vec::new() })
    }

    /// Returns whether replies have arrived for the cell that waits. Without replies, it need not be continued before
    /// its timer is due or it is interrupted.
    fn has_replies(&mut self) -> bool {
        true
    }

    /// Excludes the current wait of the cell so far from its limits of time: see
    /// [`WaitingRun::exclude_wait`](crate::WaitingRun::exclude_wait).
    fn exclude_wait(&mut self) {}

    /// Connects the waiting cell of a restored snapshot to a new observer. [`Kernel::resume`] continues it then. The
    /// returned sender takes the replies to the calls of functions of the host that the cell waits for.
    ///
    /// # Errors
    /// Fails if no cell waits in the snapshot.
    fn reattach(&mut self, observer: Arc<dyn CellObserver>, waker: Waker) -> Result<ReplySender, KernelError> {
        let _ = (observer, waker);
        Err(KernelError::Unsupported("this backend's snapshots have no waiting cells".into()))
    }

    /// Sends the shell a request that is not a cell: nothing is recorded, and the reply takes seconds at most.
    ///
    /// Returns the content of the reply that Jupyter's messaging specification has for the request. The guest made it:
    /// the caller must check its shape.
    ///
    /// # Errors
    /// Fails if the backend does not support the request, or the guest sent no reply in time.
    fn shell_request(&mut self, request: &ShellRequest) -> Result<Value, KernelError> {
        let _ = request;
        Err(KernelError::Unsupported("this backend runs cells only".into()))
    }

    /// Installs packages for the session: `pandas`, `pandas>=2,<3`, as far as the backend's policy allows. Can be
    /// interrupted as a cell can.
    ///
    /// # Errors
    /// Returns [`KernelError::Install`] if a package cannot be installed.
    fn install(&mut self, packages: &[String], progress: &dyn Progress) -> Result<(), KernelError> {
        let _ = (packages, progress);
        Err(KernelError::Unsupported("this backend installs only the packages that cells ask for".into()))
    }

    /// Returns a handle that interrupts what runs next; valid until [`Kernel::restart`].
    fn interrupt_handle(&self) -> Arc<dyn InterruptHandle>;

    /// Replaces the interpreter, which may have ended, by a new one. The files stay.
    ///
    /// # Errors
    /// Fails if a new interpreter cannot be started.
    fn restart(&mut self) -> Result<(), KernelError>;

    /// Starts another kernel with the same variables and files. If this kernel has a folder, then `folder` is a copy of
    /// it, in which the files of the other kernel are.
    ///
    /// # Errors
    /// Fails if the backend does not support copies of kernels, or the new kernel cannot be started.
    fn fork(&mut self, folder: Option<&SessionFolder>) -> Result<Box<dyn Kernel>, KernelError>;

    /// Takes a snapshot of variables and of the files that are not in a folder, and of the cell if one waits.
    ///
    /// # Errors
    /// Fails if the backend does not support snapshots, the interpreter has ended, or the cell that waits can go on at
    /// once or cannot be continued elsewhere.
    fn snapshot(&mut self) -> Result<KernelSnapshot, KernelError>;

    /// Returns the bytes of memory that the interpreter has, if the backend measures them.
    fn memory(&mut self) -> Option<u64> {
        None
    }

    /// Returns the session's regular files, without hidden ones.
    fn files(&mut self) -> Vec<FileInfo>;

    /// Reads a part of a file. The caller has checked the path with [`check_path`](crate::files::check_path).
    ///
    /// # Errors
    /// Fails if the file does not exist, or is not a regular file that the session has made.
    fn read(&mut self, path: &str, range: Range) -> Result<Vec<u8>, FileError>;

    /// Writes a whole file, replacing what was there.
    ///
    /// # Errors
    /// Fails if the file does not fit into the session's space.
    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), FileError>;
}

/// Interrupts or kills what a kernel runs, from any thread.
pub trait InterruptHandle: Send + Sync {
    /// Raises `KeyboardInterrupt` in the code, which may handle it.
    fn interrupt(&self);

    /// Ends the interpreter, whatever it does.
    fn kill(&self);
}

/// A kernel's state as bytes.
#[derive(Debug, Clone)]
pub struct KernelSnapshot {
    /// The facts that the backend needs before it reads the data. Small.
    pub metadata: Value,
    /// The state. Compresses well.
    pub data: Vec<u8>,
    /// True if another kernel may continue from the same state, or has done so: the restored kernel then seeds its
    /// random number generators, as a fork does.
    pub is_copy: bool,
    /// The name of what the snapshot is a difference from: hexadecimal digits. `None` if it is complete.
    pub base: Option<String>,
}
