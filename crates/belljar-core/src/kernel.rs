//! What a backend must do, and the words for what cells come to. Nothing here knows where Python runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::files::{FileError, FileInfo, Range};
use crate::progress::{NoProgress, Progress, Step, StepProgress};

/// Makes interpreters for sessions.
pub trait Backend: Send + Sync {
    /// A fresh one. Called on a guest thread.
    ///
    /// # Errors
    /// When Python cannot be made ready.
    fn start(&self, progress: &dyn Progress) -> Result<Box<dyn Kernel>, KernelError>;

    /// One that goes on from where [`Kernel::save`] was called. Called on a guest thread.
    ///
    /// # Errors
    /// [`KernelError::Refused`] when the state cannot be used by this backend as it is now.
    fn wake(&self, saved: &Saved, progress: &dyn Progress) -> Result<Box<dyn Kernel>, KernelError>;

    /// The session's files in a saved state, whether or not it can be woken: path and contents.
    fn files_of(&self, saved: &Saved) -> Vec<(String, Vec<u8>)>;
}

/// One session's interpreter and files. Used by one thread at a time, on guest threads.
pub trait Kernel: Send {
    /// Runs a cell to its end or to a limit.
    fn execute(&mut self, cell: &CellRequest, audience: Arc<dyn Audience>) -> Executed;

    /// Asks the shell something that is no cell: nothing is recorded, and it answers within seconds.
    ///
    /// The answer is the content of the reply that Jupyter's messaging specification has for the question. It is the
    /// guest's word: whoever passes it on looks at its shape.
    ///
    /// # Errors
    /// When the backend cannot do this, or the guest gave no answer in time.
    fn ask(&mut self, question: &Question) -> Result<Value, KernelError> {
        let _ = question;
        Err(KernelError::Unsupported("this backend answers nothing but cells".into()))
    }

    /// Puts packages beside the code's own: `pandas`, `pandas>=2,<3`, by the policy of this backend. It can be stopped as
    /// a cell can.
    ///
    /// # Errors
    /// When the backend cannot do this, or they cannot be had, in words for whoever wrote the code.
    fn install(&mut self, packages: &[String], progress: &dyn Progress) -> Result<(), KernelError> {
        let _ = (packages, progress);
        Err(KernelError::Unsupported("this backend installs nothing but what cells ask for".into()))
    }

    /// A handle to stop what is going to run next, good until [`Kernel::restart`].
    fn interrupter(&self) -> Arc<dyn Interrupt>;

    /// A fresh interpreter in place of this one, which may have ended; its files stay.
    ///
    /// # Errors
    /// When there is no memory for it.
    fn restart(&mut self) -> Result<(), KernelError>;

    /// Another one with the same variables and files.
    ///
    /// # Errors
    /// When there is no memory for it, or the backend cannot do this.
    fn fork(&mut self) -> Result<Box<dyn Kernel>, KernelError>;

    /// Its state as bytes.
    ///
    /// # Errors
    /// When the backend cannot do this.
    fn save(&mut self) -> Result<Saved, KernelError>;

    /// The regular files of the session, without hidden ones.
    fn files(&mut self) -> Vec<FileInfo>;

    /// A part of a file. The path is one that [`check_path`](crate::files::check_path) lets pass.
    ///
    /// # Errors
    /// When there is no such file, or it is not a regular one that the session has made.
    fn read(&mut self, path: &str, range: Range) -> Result<Vec<u8>, FileError>;

    /// Writes a whole file, in place of what was there.
    ///
    /// # Errors
    /// When it does not fit into the session's space.
    fn write(&mut self, path: &str, bytes: &[u8]) -> Result<(), FileError>;
}

/// Stops what a kernel runs; from any thread.
pub trait Interrupt: Send + Sync {
    /// Raises `KeyboardInterrupt` in the cell.
    fn interrupt(&self);

    /// Ends the interpreter, whatever it does.
    fn stop(&self);
}

/// Where a piece of output was written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Whoever waits for a cell.
pub trait Audience: Progress + Send + Sync {
    /// Hears what the cell writes, while it runs.
    fn wrote(&self, stream: Stream, bytes: &[u8]);

    /// Sees what the cell shows, while it runs. Most look at [`Executed::outputs`] instead.
    fn showed(&self, shown: &Showing) {
        let _ = shown;
    }

    /// Is asked for a line of input. `Err` says why nobody can be asked.
    fn ask(&self, prompt: &str, secret: bool) -> Result<Receiver<Answer>, String>;
}

/// Something that a cell shows, as frontends are told of it that draw while it runs.
#[derive(Debug, Clone, PartialEq)]
pub enum Showing {
    /// It displayed this.
    Display(Display),
    /// This is the value of its last line.
    Value(Display),
    /// This takes the place of what was displayed under the same name.
    Update(Display),
    /// All that it has shown and written is to be taken away: at once, or when the next thing is shown.
    Clear {
        /// Whether to wait for the next thing.
        wait: bool,
    },
}

/// One thing that is displayed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Display {
    /// Its forms.
    pub data: Bundle,
    /// What frontends are told about the forms, by MIME type: `{"image/png": {"width": 640}}`.
    pub metadata: Map<String, Value>,
    /// A name under which it can be updated.
    pub id: Option<String>,
}

/// What a shell can be asked beside running cells. Positions count Unicode code points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// What may stand at the cursor: a `complete_reply`.
    Complete {
        /// The cell's source.
        code: String,
        /// Where the cursor is.
        cursor: usize,
    },
    /// What the name at the cursor is: an `inspect_reply`.
    Inspect {
        /// The cell's source.
        code: String,
        /// Where the cursor is.
        cursor: usize,
        /// 0, or 1 for source code too.
        detail: u8,
    },
    /// Whether this can be run or needs more lines: an `is_complete_reply`.
    IsComplete {
        /// What was typed.
        code: String,
    },
    /// After a cell: `payload` and `user_expressions` of its `execute_reply`.
    Aftermath {
        /// Expressions to evaluate, by names that the answer has too.
        expressions: BTreeMap<String, String>,
    },
}

/// What was answered to a question: a line, or why there is none.
pub type Answer = Result<String, String>;

/// Nobody waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {
    fn start(&self, step: Step) -> Box<dyn StepProgress> {
        NoProgress.start(step)
    }
}

impl Audience for Silent {
    fn wrote(&self, _: Stream, _: &[u8]) {}

    fn ask(&self, _: &str, _: bool) -> Result<Receiver<Answer>, String> {
        Err("nobody is there to be asked: set the value in the code instead".into())
    }
}

/// A cell to be run.
#[derive(Debug, Clone, Default)]
pub struct CellRequest {
    /// Its source, in IPython's Python.
    pub code: String,
    /// Interrupt it after so much time; the backend's own limit holds as well.
    pub timeout: Option<Duration>,
    /// Run it without showing its value, and without a number and a record of its own.
    pub silent: bool,
    /// Run it without a number and a record of its own.
    pub off_record: bool,
    /// Keep what is meant for a frontend's pager and for its next cell, instead of showing it:
    /// [`Question::Aftermath`] gives it.
    pub payloads: bool,
}

/// Forms of one thing, by MIME type: text, base64 for binary ones, or JSON.
pub type Bundle = BTreeMap<String, Value>;

/// Something that a cell gave.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// It wrote this.
    Text {
        /// To where.
        stream: Stream,
        /// What.
        text: String,
    },
    /// It displayed this.
    Shown(Bundle),
    /// This is the value of its last line.
    Value(Bundle),
}

/// How a cell ended.
#[derive(Debug, Clone, PartialEq)]
pub enum End {
    /// It ran to its end.
    Success,
    /// It raised. The interpreter lives on.
    Raised {
        /// `ZeroDivisionError: division by zero`
        error: String,
        /// What is printed of it, piece by piece.
        traceback: Vec<String>,
    },
    /// Its interpreter is gone, for the reason that the text gives: `MemoryLimit: …`.
    Died(String),
}

/// What running a cell came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Executed {
    /// The cell's number, from 1 on.
    pub count: u64,
    /// How it ended.
    pub end: End,
    /// What it gave, in order.
    pub outputs: Vec<Output>,
}

/// A kernel's state as bytes.
#[derive(Debug, Clone)]
pub struct Saved {
    /// What the backend has to know before it looks at the rest. Small.
    pub about: Value,
    /// The rest. Compresses well.
    pub body: Vec<u8>,
}

/// Why a kernel does not do what it is told.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// Python cannot be made ready.
    #[error("{0}")]
    Start(String),
    /// A saved state cannot be used.
    #[error("{0}")]
    Refused(String),
    /// The backend cannot do this.
    #[error("{0}")]
    Unsupported(String),
    /// The session is too large, or its memory cannot be had.
    #[error("{0}")]
    Failed(String),
}
