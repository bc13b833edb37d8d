//! The meter of what code uses on behalf of one owner of a server, on the thread that runs the code.
//!
//! A pool of threads sets the meter around each job. Memory of interpreters and connections that the job creates
//! keep the meter for as long as they exist.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    /// The meter of the job that this thread runs.
    static CURRENT: RefCell<Option<Arc<dyn UsageMeter>>> = const { RefCell::new(None) };
}

/// A meter of memory, network use, and the processor time of other processes. Its methods are called from any thread.
pub trait UsageMeter: Send + Sync {
    /// Adds bytes of memory, unless the quota would be exceeded. Returns whether they were added.
    fn grow_memory(&self, bytes: u64) -> bool;

    /// Adds bytes of memory that exist already: those of a new interpreter.
    fn add_memory(&self, bytes: u64);

    /// Returns whether there is a quota of memory, so that [`UsageMeter::grow_memory`] may refuse.
    fn limits_memory(&self) -> bool;

    /// Subtracts bytes of memory.
    fn release_memory(&self, bytes: u64);

    /// Returns whether there is a quota of processor time.
    fn limits_processor_time(&self) -> bool;

    /// Adds processor time that code has used in another process. That of the job's thread is not added with this.
    fn add_processor_time(&self, time: Duration);

    /// Adds bytes that were sent or received.
    fn add_network(&self, bytes: u64);

    /// Checks that another connection may be opened.
    ///
    /// # Errors
    /// Returns the reason if the quota of the network is used up.
    fn check_network(&self) -> Result<(), String>;
}

/// Returns the meter of the job that this thread runs, if it has one.
pub fn current_meter() -> Option<Arc<dyn UsageMeter>> {
    CURRENT.with_borrow(Clone::clone)
}

/// A period in which a thread works for a meter. Dropping it ends the period.
#[must_use = "the meter is used until this is dropped"]
pub struct MeterScope(Option<Arc<dyn UsageMeter>>);

impl MeterScope {
    /// Begins to use `meter` on the current thread.
    pub fn enter(meter: Arc<dyn UsageMeter>) -> Self {
        Self(CURRENT.replace(Some(meter)))
    }
}

impl Drop for MeterScope {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}
