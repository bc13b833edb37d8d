//! The data of an instance's wasmtime store: everything that the instance's imports can access.
//!
//! Invariant: no data here is shared with another instance, except read-only data.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use wasmtime::{Caller, Instance, Memory, Table};

use crate::Errno;
use crate::clock::Clock;
use crate::console::Console;
use crate::dylink::LinkState;
use crate::ffi::Closures;
use crate::fs::Filesystem;
use crate::guest_memory::{GuestMemory, Ptr};
use crate::limits::MemoryBudget;
use crate::network::Network;
use crate::sources::Readings;
use crate::stop::{SleepResult, StopHandle};
use crate::termination::Termination;
use crate::watchdog::Pause;

/// The state behind one instance's system interface.
pub struct Host {
    /// Files, directories, devices, pipes and open descriptors.
    pub files: Filesystem,
    /// The destination of standard output and error, and the source of standard input.
    pub console: Console,
    /// The guest's clocks.
    pub clock: Clock,
    /// `NAME=value` strings, as `environ` returns them when the program starts.
    pub environment: Vec<String>,
    /// What sockets can reach; `None` if the program cannot create sockets.
    pub network: Option<Arc<dyn Network>>,
    /// Soft interrupts and the hard stop.
    pub stop: Arc<StopHandle>,
    /// State of the embedder's own host functions.
    pub embedder: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) memory_budget: MemoryBudget,
    pub(crate) linked: LinkState,
    pub(crate) closures: Closures,
    /// `st_dev` and `st_ino` of the file behind each mapping that is written back, by the mapping's address.
    pub(crate) mapped_files: BTreeMap<Ptr, (u32, u64)>,
    pub(crate) main: Option<MainModule>,
}

impl Host {
    /// Returns how often the program has read its clock and random bytes since [`Instance::make_reproducible`].
    ///
    /// [`Instance::make_reproducible`]: crate::Instance::make_reproducible
    pub fn readings(&self) -> Readings {
        self.clock.sources().readings()
    }

    /// Sleeps for `time`, or until a signal or the hard stop arrives. On a reproducible clock, the time passes at once.
    pub(crate) fn sleep(&self, time: Duration) -> Result<SleepResult, Termination> {
        match self.clock.sources().as_reproducible() {
            Some(sources) if time < Duration::MAX => {
                self.stop.check()?;
                sources.advance(time);
                Ok(SleepResult::Elapsed)
            }
            _ => self.stop.sleep(time),
        }
    }
}

/// Repeats an operation on a socket while it would block, unless the socket is in non-blocking mode.
///
/// The program's limit on elapsed time is suspended meanwhile.
pub(crate) fn wait_for_socket<T>(
    host: &mut Host,
    fd: i32,
    mut operation: impl FnMut(&mut Host) -> Result<T, Errno>,
) -> Result<Result<T, Errno>, Termination> {
    loop {
        let seen = host.stop.changes();
        let result = operation(host);
        if !matches!(result, Err(Errno::EAGAIN)) || !host.files.is_blocking_socket(fd) {
            return Ok(result);
        }
        let _pause = Pause::start(&host.stop);
        if host.stop.sleep_until_change(seen, Duration::MAX)? == SleepResult::Signal {
            return Ok(Err(Errno::EINTR));
        }
    }
}

/// The handles of the instantiated main module that host functions need.
#[derive(Clone, Copy)]
pub(crate) struct MainModule {
    pub(crate) instance: Instance,
    pub(crate) memory: Memory,
    pub(crate) table: Table,
}

/// A host call in progress.
pub type Call<'a> = Caller<'a, Host>;

/// Splits a call into the guest's memory and the host's state, so that both can be used at once.
pub(crate) fn split<'a>(call: &'a mut Call<'_>) -> Result<(GuestMemory<'a>, &'a mut Host), Termination> {
    let main = main_module(call)?;
    let (bytes, host) = main.memory.data_and_store_mut(call);
    Ok((GuestMemory::new(bytes), host))
}

/// Returns the main module's handles.
pub(crate) fn main_module(call: &Call<'_>) -> Result<MainModule, Termination> {
    call.data().main.ok_or_else(|| Termination::Missing("memory".into()))
}
