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

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::activity::Scope;
use crate::activity::trace::SpanName;
use crate::cancellation::CallCancellation;
use crate::cell_watcher::CellWatcher;
use crate::connection::ConnectionRecord;
use crate::exchange::{EncodedValue, Exchange, FunctionCall, FunctionError, FunctionReply};
use crate::execution::{CellResult, CellStatus, RunReport};
use crate::exit_reason::ExitReason;
use crate::files::{FileError, FileInfo, Range};
use crate::held_cell::CellRecorder;
use crate::install_record::InstallRecord;
use crate::limits::Limits;
use crate::mime::DisplayEvent;
use crate::output::Stream;
use crate::progress::{NoProgress, Progress, ProgressStep, StepProgress};
use crate::session_folder::SessionFolder;
use crate::statistics::BackendStatistics;
use crate::waiting::{CellStep, ReplySender, RestoredRun, RunStep, Waker};

pub use crate::kernel_error::{BoxError, CellError, InputError, InputReply, KernelError, ShellError};

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

    /// Returns whether requests may have an [`Exchange`].
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

/// Code that is run once, in an interpreter of its own.
#[derive(Debug, Clone, Default)]
pub struct OneShotRequest {
    /// Python source text.
    pub code: String,
    /// Variables to set before the code runs: a JSON object. Text, so that numbers keep their digits.
    pub globals: Option<Box<RawValue>>,
    /// Packages to install in addition to those that the code asks for, as PEP 508 requirements without addresses.
    pub dependencies: Vec<String>,
    /// The most elapsed time; the backend's own limit holds as well.
    pub timeout: Option<Duration>,
    /// Variables and functions of the caller. If set, the value is returned encoded.
    pub exchange: Option<Exchange>,
    /// True if the code can import the module `tools`: [`CellObserver::call_function`] receives its calls. Only for
    /// backends with [`Backend::supports_tools`].
    pub tools: bool,
    /// A network policy as JSON: code may use what it allows of what the backend does.
    pub network: Option<Value>,
    /// The owner of the call, who may be a client or a connection. Code of different owners never runs in the same
    /// process of a backend with processes for it, and code without an owner has a process of its own.
    pub owner: Option<Arc<str>>,
    /// The context of the call, for the audit log and for traces.
    pub scope: Scope,
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

/// The receiver of what code does while it runs: its output, display events, progress and input requests.
pub trait CellObserver: Progress + Send + Sync {
    /// Receives bytes that the code wrote. They may end inside of a line or a UTF-8 sequence.
    fn on_stream(&self, stream: Stream, bytes: &[u8]);

    /// Receives a display event. Observers that need no live display read [`CellResult::outputs`] instead.
    fn on_display(&self, event: &DisplayEvent) {
        let _ = event;
    }

    /// Receives the name of the phase that the call has reached, such as `running`.
    fn on_phase(&self, name: &str) {
        let _ = name;
    }

    /// Receives the stage of the work that begins: [`SpanName::Image`], [`SpanName::Restore`] or [`SpanName::Run`].
    fn on_stage(&self, stage: SpanName) {
        let _ = stage;
    }

    /// Receives the record of an installation of packages for the code that has changed something, or has failed.
    fn on_install(&self, record: &InstallRecord) {
        let _ = record;
    }

    /// Receives a message for debugging: why a package is not installed, what a helper cell raised.
    fn on_debug(&self, message: &str) {
        let _ = message;
    }

    /// Receives a line about a call of a tool that begins or has ended.
    fn on_tool_call(&self, line: &str) {
        let _ = line;
    }

    /// Receives the record of a connection, or of an HTTP request, that has ended or was refused.
    fn on_connection(&self, record: &ConnectionRecord) {
        let _ = record;
    }

    /// Requests a line of input from the client. The reply arrives at the returned receiver.
    ///
    /// # Errors
    /// Fails if the client cannot be asked.
    fn request_input(&self, prompt: &str, secret: bool) -> Result<Receiver<InputReply>, InputError>;

    /// Receives the result of the program of [`Backend::program`].
    fn on_report(&self, report: RunReport) {
        let _ = report;
    }

    /// Receives the value of a cell whose request had an [`Exchange`].
    fn on_value(&self, value: EncodedValue) {
        let _ = value;
    }

    /// Starts a call of a function of the host. The reply is sent to `replies`, at once or later. Runs on the
    /// thread that runs the code or serves its kernel, which is blocked meanwhile.
    fn call_function(&self, call: FunctionCall, replies: &ReplySender) {
        let message = format!("the host has no function `{}`", call.name);
        let error = FunctionError { name: "NameError".into(), message };
        // Ignore send errors: the code may have ended.
        let _ = replies.send(FunctionReply { id: call.id, result: Err(error) });
    }

    /// Receives, several times a second, that the code waits for functions of the host and holds its thread meanwhile:
    /// it cannot be continued elsewhere before it has received a reply.
    fn on_holding_wait(&self) {}

    /// Cancels a call that [`CellObserver::call_function`] started: the code does not wait for its reply any more.
    fn cancel_function(&self, id: u64) {
        let _ = id;
    }

    /// Receives the watcher of the cell, which follows its calls of tools. Called before the code begins.
    fn watch(&self, watcher: &Arc<dyn CellWatcher>) {
        let _ = watcher;
    }
}

/// The time that a person has to reply to a prompt of `input()`.
pub const INPUT_TIMEOUT: Duration = Duration::from_secs(600);

/// A [`CellObserver`] that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullObserver;

impl Progress for NullObserver {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        NoProgress.start(step)
    }
}

impl CellObserver for NullObserver {
    fn on_stream(&self, _: Stream, _: &[u8]) {}

    fn request_input(&self, _: &str, _: bool) -> Result<Receiver<InputReply>, InputError> {
        Err(InputError::Unavailable)
    }
}

/// A cell to run.
#[derive(Debug, Clone, Serialize)]
pub struct CellRequest {
    /// The source, in IPython's Python.
    pub code: String,
    /// The elapsed time after which the cell is interrupted; the backend's own limit holds as well.
    #[serde(skip)]
    pub timeout: Option<Duration>,
    /// Runs the cell without showing its value, and without a number and a history entry of its own.
    pub silent: bool,
    /// Gives the cell a number and a history entry.
    pub store_history: bool,
    /// Keeps payloads (text for a frontend's pager, its next cell) for [`ShellRequest::UserExpressions`] instead of
    /// displaying them.
    pub collect_payloads: bool,
    /// Variables and functions of the caller. If set, the observer receives the cell's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
    /// The same as [`OneShotRequest::tools`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub tools: bool,
    /// The same as [`OneShotRequest::network`], for the whole session. Only its first cell can set it.
    #[serde(skip)]
    pub network: Option<Value>,
    /// The context of the call, for the audit log and for traces.
    #[serde(skip)]
    pub scope: Scope,
    /// Has the guest run the cell as a feed of a session of Monty's worker protocol instead of in IPython's shell: the
    /// settings of session and feed, a JSON object. All cells of such a session have it. Only for backends with
    /// [`Backend::supports_feeds`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub monty: Option<Box<RawValue>>,
}

impl Default for CellRequest {
    fn default() -> Self {
        Self {
            code: String::new(),
            timeout: None,
            silent: false,
            store_history: true,
            collect_payloads: false,
            exchange: None,
            tools: false,
            network: None,
            scope: Scope::default(),
            monty: None,
        }
    }
}

/// A request of Jupyter's shell channel that is not a cell. Positions count Unicode code points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum ShellRequest {
    /// Asks for completions at the cursor: `complete_request`.
    Complete {
        /// The cell's source.
        code: String,
        /// The cursor's position.
        cursor: usize,
    },
    /// Asks what the name at the cursor is: `inspect_request`.
    Inspect {
        /// The cell's source.
        code: String,
        /// The cursor's position.
        cursor: usize,
        /// 0, or 1 to include source code.
        detail: u8,
    },
    /// Asks whether the code can be run or needs more lines: `is_complete_request`.
    IsComplete {
        /// The code typed so far.
        code: String,
    },
    /// Asks, after a cell, for the `payload` and `user_expressions` of its `execute_reply`.
    UserExpressions {
        /// The expressions to evaluate, by the names that the reply gives them.
        expressions: BTreeMap<String, String>,
    },
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
