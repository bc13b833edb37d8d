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
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cancellation::CallCancellation;
use crate::exchange::{EncodedValue, Exchange, FunctionCall, FunctionError, FunctionReply};
use crate::execution::{CellResult, RunReport};
use crate::exit_reason::ExitReason;
use crate::files::{FileError, FileInfo, Range};
use crate::limits::Limits;
use crate::mime::DisplayEvent;
use crate::output::Stream;
use crate::progress::{NoProgress, Progress, ProgressStep, StepProgress};
use crate::session_folder::SessionFolder;
use crate::statistics::BackendStatistics;

/// The cause of an error, as the crate that knows its type reports it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Runs work to its end on a new thread that has the stack which a backend's interpreters need. Fails when the system
/// refuses another thread.
pub type RunOnThread = fn(Box<dyn FnOnce() + Send>) -> std::io::Result<()>;

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
    /// When the code was not run: see [`KernelError`]. The report contains the errors of the code itself.
    fn run_once(
        &self,
        request: OneShotRequest,
        observer: Arc<dyn CellObserver>,
        cancellation: &CallCancellation,
    ) -> Result<CompletedRun, KernelError>;

    /// Starts a kernel, whose files are in `folder` if one is given. Must be called on a thread of
    /// [`Backend::thread_runner`].
    ///
    /// # Errors
    /// When Python cannot be made ready.
    fn start(&self, folder: Option<&SessionFolder>, progress: &dyn Progress) -> Result<Box<dyn Kernel>, KernelError>;

    /// Starts a kernel that continues from a snapshot, and whose files are in `folder` if one is given. Must be called
    /// on a thread of [`Backend::thread_runner`].
    ///
    /// `base` is the directory that [`Backend::write_base`] wrote for [`KernelSnapshot::base`], if it is available. Its
    /// contents are not trusted.
    ///
    /// # Errors
    /// [`KernelError::IncompatibleSnapshot`] when this backend cannot use the snapshot as it is now.
    fn restore(
        &self,
        snapshot: &KernelSnapshot,
        base: Option<&Path>,
        folder: Option<&SessionFolder>,
        progress: &dyn Progress,
    ) -> Result<Box<dyn Kernel>, KernelError>;

    /// Writes the base of snapshots that this backend has taken or restored into an empty directory.
    ///
    /// # Errors
    /// When the backend does not have this base, or a file cannot be written.
    fn write_base(&self, base: &str, directory: &Path) -> Result<(), KernelError> {
        let _ = (base, directory);
        Err(KernelError::Unsupported("this backend's snapshots have no base"))
    }

    /// Returns whether requests may have an [`Exchange`].
    fn supports_exchange(&self) -> bool {
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
    /// backends with [`Backend::supports_exchange`].
    pub tools: bool,
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

    /// Sends the shell a request that is not a cell: nothing is recorded, and the reply takes seconds at most.
    ///
    /// Returns the content of the reply that Jupyter's messaging specification has for the request. The guest made it:
    /// the caller must check its shape.
    ///
    /// # Errors
    /// When the backend does not support the request, or the guest sent no reply in time.
    fn shell_request(&mut self, request: &ShellRequest) -> Result<Value, KernelError> {
        let _ = request;
        Err(KernelError::Unsupported("this backend runs cells only"))
    }

    /// Installs packages for the session: `pandas`, `pandas>=2,<3`, as far as the backend's policy allows. Can be
    /// interrupted as a cell can.
    ///
    /// # Errors
    /// [`KernelError::Install`] when a package cannot be installed.
    fn install(&mut self, packages: &[String], progress: &dyn Progress) -> Result<(), KernelError> {
        let _ = (packages, progress);
        Err(KernelError::Unsupported("this backend installs only the packages that cells ask for"))
    }

    /// Returns a handle that interrupts what runs next; valid until [`Kernel::restart`].
    fn interrupt_handle(&self) -> Arc<dyn InterruptHandle>;

    /// Replaces the interpreter, which may have ended, by a new one. The files stay.
    ///
    /// # Errors
    /// When a new interpreter cannot be started.
    fn restart(&mut self) -> Result<(), KernelError>;

    /// Starts another kernel with the same variables and files. If this kernel has a folder, then `folder` is a copy of
    /// it, in which the files of the other kernel are.
    ///
    /// # Errors
    /// When the backend does not support it, or the new kernel cannot be started.
    fn fork(&mut self, folder: Option<&SessionFolder>) -> Result<Box<dyn Kernel>, KernelError>;

    /// Takes a snapshot of variables and of the files that are not in a folder.
    ///
    /// # Errors
    /// When the backend does not support it, or the interpreter has ended.
    fn snapshot(&mut self) -> Result<KernelSnapshot, KernelError>;

    /// Returns the session's regular files, without hidden ones.
    fn files(&mut self) -> Vec<FileInfo>;

    /// Reads a part of a file. The caller has checked the path with [`check_path`](crate::files::check_path).
    ///
    /// # Errors
    /// When the file does not exist, or is not a regular file that the session has made.
    fn read(&mut self, path: &str, range: Range) -> Result<Vec<u8>, FileError>;

    /// Writes a whole file, replacing what was there.
    ///
    /// # Errors
    /// When it does not fit into the session's space.
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

    /// Receives the names and versions of the packages that were installed for the code: `humanize 4.15.0`.
    fn on_installed(&self, packages: &str) {
        let _ = packages;
    }

    /// Receives a message for debugging: why a package is not installed, what a helper cell raised.
    fn on_debug(&self, message: &str) {
        let _ = message;
    }

    /// Receives a line about a call of a tool that begins or has ended.
    fn on_tool_call(&self, line: &str) {
        let _ = line;
    }

    /// Requests a line of input from the client. The reply arrives at the returned receiver.
    ///
    /// # Errors
    /// When the client cannot be asked.
    fn request_input(&self, prompt: &str, secret: bool) -> Result<Receiver<InputReply>, InputError>;

    /// Receives the value of a cell whose request had an [`Exchange`].
    fn on_value(&self, value: EncodedValue) {
        let _ = value;
    }

    /// Starts a call of a function of the host. The reply is sent to `replies`, at once or later. Runs on the
    /// interpreter's thread, which is blocked meanwhile.
    fn call_function(&self, call: FunctionCall, replies: &Sender<FunctionReply>) {
        let message = format!("the host has no function `{}`", call.name);
        let error = FunctionError { name: "NameError".into(), message };
        // Ignore send errors: the code may have ended.
        let _ = replies.send(FunctionReply { id: call.id, result: Err(error) });
    }

    /// Cancels a call that [`CellObserver::call_function`] started: the code does not wait for its reply any more.
    fn cancel_function(&self, id: u64) {
        let _ = id;
    }
}

/// The time that a person has to reply to a prompt of `input()`.
pub const INPUT_TIMEOUT: Duration = Duration::from_secs(600);

/// The reply to a request for input: a line, or the reason for its absence.
pub type InputReply = Result<String, InputError>;

/// The reason why a request for input gets no line. The code that asked receives the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The caller of the code cannot be asked.
    #[error("input() is not available here: set the value in the code instead")]
    Unavailable,
    /// The caller of the code cannot be asked, for this reason.
    #[error("input() is not available: {0}. Set the value in the code instead")]
    Unsupported(&'static str),
    /// The caller of the code cannot be asked for secrets, for this reason.
    #[error("getpass() is not available: {0}")]
    SecretsForbidden(&'static str),
    /// As many cells as may wait for input wait for it.
    #[error("{0} cells wait for answers already: set the value in the code instead")]
    TooManyWaiting(usize),
    /// The client was asked, and declined.
    #[error("the question was declined")]
    Declined,
    /// The client was asked, and its answer has no line.
    #[error("the client did not answer: {0}")]
    NoAnswer(String),
    /// The client is gone.
    #[error("the client has disconnected")]
    Disconnected,
    /// The client was asked, and no answer arrived in time.
    #[error("no input arrived in time")]
    TimedOut,
    /// The code was interrupted while it waited.
    #[error("interrupted while waiting for input")]
    Interrupted,
}

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

/// The error of a kernel or of its backend.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Python could not be made ready.
    #[error("{0}")]
    Start(#[source] BoxError),
    /// A package that the caller of the code asked for is not a valid requirement.
    #[error("dependencies: {0}")]
    InvalidDependency(#[source] BoxError),
    /// The limit of memory is lower than what an interpreter takes before it runs anything.
    #[error("a session needs at least {needed_megabytes} MB of memory, and its limit is lower")]
    MemoryLimitTooLow {
        /// The memory that an idle session takes.
        needed_megabytes: u64,
    },
    /// A snapshot cannot be used by this backend, or not any more.
    #[error("{0}")]
    IncompatibleSnapshot(#[source] BoxError),
    /// A package could not be installed.
    #[error("{0}")]
    Install(#[source] BoxError),
    /// The backend does not support the operation.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The shell failed to answer a request that is not a cell.
    #[error(transparent)]
    Shell(#[from] ShellError),
    /// The call was cancelled before its code ran.
    #[error("the call was cancelled")]
    Cancelled,
    /// The operation failed.
    #[error("{0}")]
    Failed(#[source] BoxError),
}

/// The reason why a shell request has no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShellError {
    /// Code that the request ran, such as a property's, raised this exception.
    #[error("{0}")]
    Exception(CellError),
    /// The shell was interrupted.
    #[error("KeyboardInterrupt")]
    Interrupted,
    /// The shell did not reply in time.
    #[error("TimeoutError: the kernel did not reply in time")]
    TimedOut,
    /// The reply is missing or does not match the messaging specification.
    #[error("the kernel sent an invalid reply")]
    InvalidReply,
    /// The interpreter ended.
    #[error("the interpreter ended while it handled the request")]
    Exited(ExitReason),
}

/// An exception that left a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CellError {
    /// The name of the exception's class: `ZeroDivisionError`. Jupyter's `ename`.
    pub name: String,
    /// The exception's text. Jupyter's `evalue`.
    pub message: String,
    /// The traceback as the shell prints it, piece by piece; may have ANSI colours.
    pub traceback: Vec<String>,
}

impl fmt::Display for CellError {
    /// Writes `ZeroDivisionError: division by zero`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)?;
        if self.message.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.message) }
    }
}
