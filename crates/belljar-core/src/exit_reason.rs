//! The reasons why an interpreter ends.

use crate::kernel::CellError;
use crate::limits::{Limits, format_size};

/// The reason why an interpreter ended before or instead of returning from the code that it ran.
///
/// The crates that render answers turn it into text: see `belljar_server` for models, `belljar` for terminals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExitReason {
    /// The code reached a limit and was ended.
    Limit(LimitKind),
    /// The code ended the interpreter (`sys.exit`, `os._exit`) with this status, 0 to 255.
    Exit(i32),
    /// A signal ended the interpreter's process.
    Signal(i32),
    /// The caller cancelled the call, or another client ended it.
    Cancelled,
    /// The code broke the interpreter (a wild pointer, `os.abort`, a malformed reply). The text has the details.
    Crash(String),
}

/// A limit that ends code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitKind {
    /// Elapsed time: [`Limits::wall_time`](crate::Limits::wall_time).
    WallTime,
    /// Processor time: [`Limits::cpu_time`](crate::Limits::cpu_time).
    CpuTime,
    /// Time of waiting: [`Limits::wait_time`](crate::Limits::wait_time).
    WaitTime,
    /// Bytes written: [`Limits::output`](crate::Limits::output).
    Output,
    /// Depth of the native stack.
    Stack,
    /// Bytes of memory: [`Limits::memory`](crate::Limits::memory). Interpreters in WebAssembly raise `MemoryError`
    /// instead.
    Memory,
}

impl LimitKind {
    /// Returns the limit's name in answers to programs: `time`, `cpu`, `wait`, `output`, `stack` or `memory`.
    pub fn name(self) -> &'static str {
        match self {
            Self::WallTime => "time",
            Self::CpuTime => "cpu",
            Self::WaitTime => "wait",
            Self::Output => "output",
            Self::Stack => "stack",
            Self::Memory => "memory",
        }
    }
}

impl ExitReason {
    /// Returns the reason as the error of the cell whose kernel died of it, with the limits that held.
    ///
    /// The texts are here, and not in the crates that render them, because three of them show the same error: answers
    /// to models, Jupyter frontends and notebooks.
    pub fn to_cell_error(&self, limits: &Limits) -> CellError {
        let (name, message) = match self {
            Self::Limit(LimitKind::WallTime) => {
                ("TimeLimit", "the cell did not stop when it was interrupted, and its interpreter was ended".into())
            }
            Self::Limit(LimitKind::CpuTime) => ("CpuLimit", "the cell used more processor time than it may".into()),
            Self::Limit(LimitKind::WaitTime) => ("WaitLimit", "the cell waited for longer than it may".into()),
            Self::Limit(LimitKind::Output) => {
                ("OutputLimit", format!("the cell wrote more than {}", format_size(limits.output)))
            }
            Self::Limit(LimitKind::Stack) => ("StackLimit", "the cell recursed too deeply".into()),
            Self::Limit(LimitKind::Memory) => {
                ("MemoryLimit", format!("the session took more than {} of memory", format_size(limits.memory)))
            }
            Self::Exit(status) => ("SystemExit", format!("the cell ended its interpreter with status {status}")),
            Self::Cancelled => ("Stopped", "the cell was ended from outside".into()),
            Self::Signal(SIGKILL) => (
                "Crash",
                "the interpreter was killed (signal 9), by its own code or because the machine has no memory left"
                    .into(),
            ),
            Self::Signal(signal) => {
                ("Crash", format!("the cell broke its interpreter: signal {signal}{}", signal_meaning(*signal)))
            }
            Self::Crash(reason) => ("Crash", format!("the cell broke its interpreter: {reason}")),
        };
        CellError { name: name.into(), message, traceback: Vec::new() }
    }
}

/// The number of `SIGKILL`, on every Unix.
const SIGKILL: i32 = 9;

/// Returns the name and meaning of a signal that ends programs, with Linux's numbers (signal(7)).
fn signal_meaning(signal: i32) -> &'static str {
    match signal {
        4 => " (SIGILL)",
        6 => " (SIGABRT, it gave itself up)",
        7 => " (SIGBUS)",
        8 => " (SIGFPE)",
        11 => " (SIGSEGV, a wild pointer)",
        25 => " (SIGXFSZ, a file became too long)",
        31 => " (SIGSYS, a system call that is not allowed)",
        _ => "",
    }
}
