//! The interface by which operators of a server see the feeds of a session.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use belljar_core::CellStatus;
use belljar_core::activity::CpuClock;
use belljar_core::kernel::{CellObserver, InterruptHandle};

/// Opens the view of a session of this client at its first feed.
pub type OpenFeedView = Arc<dyn Fn(Option<&Arc<str>>) -> Option<Box<dyn FeedView>> + Send + Sync>;

/// The view that operators have of a session, which runs one feed after the other. Dropping it ends the session for
/// them.
pub trait FeedView: Send {
    /// Begins a feed with this code.
    fn begin(&mut self, code: &str);

    /// Returns an observer that shows what the feed does, and passes it to `inner`.
    fn observer(&self, inner: Arc<dyn CellObserver>) -> Arc<dyn CellObserver>;

    /// Sets the handle by which operators interrupt the code, while it runs.
    fn set_running(&self, handle: Option<Arc<dyn InterruptHandle>>);

    /// Notes whether the feed waits for its parent.
    fn set_waiting(&self, is_waiting: bool);

    /// Returns the nanoseconds of processor time of the feed, if they are shown and measured with `clock`.
    fn cpu(&self, clock: CpuClock) -> Option<&AtomicU64>;

    /// Ends the feed with its status, or with the reason why it was not run.
    fn end(&mut self, result: Result<CellStatus, String>);
}
