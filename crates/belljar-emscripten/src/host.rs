//! What one instance's imports can reach: the data of its wasmtime store.
//!
//! Invariant: nothing here is shared with another instance, except what is read-only.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use wasmtime::{Caller, Instance, Memory, Table};

use crate::clock::Clock;
use crate::console::Console;
use crate::dylink::Linked;
use crate::ffi::Closures;
use crate::fs::Filesystem;
use crate::guest::{GuestMemory, Ptr};
use crate::limits::MemoryBudget;
use crate::stop::Stop;

/// The state behind one instance's system interface.
pub struct Host {
    /// Files, directories, devices, pipes and open descriptors.
    pub files: Filesystem,
    /// Where standard output and error go, where standard input comes from.
    pub console: Console,
    /// What the guest's clocks show.
    pub clock: Clock,
    /// `NAME=value` strings, as `environ` gives them at start.
    pub environment: Vec<String>,
    /// Soft interrupts and the hard stop.
    pub stop: Arc<Stop>,
    /// What the embedder's own host functions work on.
    pub embedder: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) memory_budget: MemoryBudget,
    pub(crate) linked: Linked,
    pub(crate) closures: Closures,
    /// `st_dev` and `st_ino` of the file behind each mapping that is written back, by the mapping's address.
    pub(crate) mapped_files: BTreeMap<Ptr, (u32, u64)>,
    pub(crate) main: Option<MainModule>,
}

/// The handles of the main module that host functions need, once it is instantiated.
#[derive(Clone, Copy)]
pub(crate) struct MainModule {
    pub(crate) instance: Instance,
    pub(crate) memory: Memory,
    pub(crate) table: Table,
}

/// A host call in progress.
pub type Call<'a> = Caller<'a, Host>;

/// Why the guest cannot go on. A host function that returns one ends the instance: it must be dropped.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum Termination {
    /// The program called `exit`.
    #[error("the program exited with status {0}")]
    Exit(i32),
    /// The program called `abort` or failed an assertion.
    #[error("the program aborted: {0}")]
    Abort(String),
    /// The hard stop was asked for.
    #[error("the program was stopped")]
    Stopped,
    /// The program wrote more than it may.
    #[error("the program wrote more than {limit} bytes of output")]
    OutputLimit {
        /// Bytes allowed.
        limit: u64,
    },
    /// An import that this host names but does not serve.
    #[error("the program called the host function `{0}`, which does not exist here")]
    Unsupported(String),
    /// The program called a function that a library imports and nobody defines.
    #[error("the program called the undefined function `{symbol}`, which `{library}` imports")]
    Undefined {
        /// The function.
        symbol: String,
        /// Path of the library that called it.
        library: String,
    },
    /// A call through libffi that cannot be made: a pointer that is no function's, a signature that does not fit.
    #[error("the program made a foreign call that cannot be: {0}")]
    ForeignCall(String),
    /// The host was called before its main module was ready, or with one that lacks a needed export.
    #[error("the program has no usable `{0}`")]
    Missing(String),
}

/// Splits a call into the guest's memory and the host's state, to use both at once.
pub(crate) fn split<'a>(call: &'a mut Call<'_>) -> Result<(GuestMemory<'a>, &'a mut Host), Termination> {
    let main = main_module(call)?;
    let (bytes, host) = main.memory.data_and_store_mut(call);
    Ok((GuestMemory::new(bytes), host))
}

/// The main module's handles.
pub(crate) fn main_module(call: &Call<'_>) -> Result<MainModule, Termination> {
    call.data().main.ok_or_else(|| Termination::Missing("memory".into()))
}
