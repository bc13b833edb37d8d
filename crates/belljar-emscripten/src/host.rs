//! The data of an instance's wasmtime store: everything that the instance's imports can access.
//!
//! Invariant: no data here is shared with another instance, except read-only data.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
use crate::recording::Recording;
use crate::sources::{Readings, Sources};
use crate::stop::{SleepResult, StopHandle};
use crate::termination::Termination;
use crate::watchdog::Pause;

/// The reasons why a recording is incomplete.
pub(crate) const INTERRUPTED: &str = "it was interrupted";
pub(crate) const HOST_DIRECTORY: &str = "it used a directory of the host";
pub(crate) const NETWORK: &str = "it used the network";

/// The interval at which a recorded sleep is looked at.
const SLEEP_INTERVAL: Duration = Duration::from_millis(500);

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
    /// The network that sockets can reach; `None` if the program cannot create sockets.
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
            _ => match self.recording() {
                None => self.stop.sleep(time),
                Some(recording) => self.recorded_sleep(recording, time),
            },
        }
    }

    fn recorded_sleep(&self, recording: &Recording, time: Duration) -> Result<SleepResult, Termination> {
        self.stop.check()?;
        let was_replaying = recording.is_replaying();
        let time = recording.sleep_time(time);
        if was_replaying && recording.is_replaying() {
            return Ok(SleepResult::Elapsed);
        }
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (begin, until) = (Instant::now(), since_1970.saturating_add(time));
        loop {
            let part = time.saturating_sub(begin.elapsed()).min(SLEEP_INTERVAL);
            if self.stop.sleep(part)? == SleepResult::Signal {
                recording.set_incomplete(INTERRUPTED);
                return Ok(SleepResult::Signal);
            }
            let elapsed = begin.elapsed();
            if elapsed >= time {
                recording.slept();
                return Ok(SleepResult::Elapsed);
            }
            recording.on_sleep(elapsed, Some(until), self.clock.monotonic_of_host());
        }
    }

    /// Tells the network that the program waits for its connections.
    pub(crate) fn announce_wait(&self) {
        if let Some(network) = &self.network {
            network.on_wait();
        }
    }

    /// Returns the recording of the program, or `None` without one.
    pub fn recording(&self) -> Option<&Recording> {
        self.clock.sources().as_recorded()
    }

    /// Takes the pending signal; returns 0 if no signal is pending. A replay receives its signals at its end.
    pub fn take_signal(&self) -> i32 {
        if !self.stop.signal_pending() {
            return 0;
        }
        if let Some(recording) = self.recording() {
            if recording.is_replaying() {
                return 0;
            }
            recording.set_incomplete(INTERRUPTED);
        }
        self.stop.take_signal()
    }

    /// Has the program's time, random bytes and embedder recorded, or replayed.
    pub fn start_recording(&mut self, recording: Recording) {
        if self.files.has_host_descriptors() {
            recording.set_incomplete(HOST_DIRECTORY);
        }
        let sources = Sources::Recorded(recording);
        self.files.set_sources(sources.clone());
        self.clock.set_sources(sources);
    }

    /// Ends the recording. The clocks go on as they were in it.
    pub fn stop_recording(&mut self) {
        if self.recording().is_some() {
            self.clock = Clock::starting_at(self.clock.monotonic_of_host());
            self.files.set_sources(Sources::Host);
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
        host.announce_wait();
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
