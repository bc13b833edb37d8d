//! Shutdown of a server or kernel: waits until its backends have deleted their temporary directories.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use belljar_core::kernel::Backend;

/// The maximum time that the process waits for backends. Clients kill a server that has not ended a few seconds after
/// they disconnected.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval at which the process checks whether backends have been dropped.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The time in which directories are deleted by a separate thread after the last backend has been dropped.
const DIRECTORY_CLEANUP_GRACE: Duration = Duration::from_millis(200);

/// The backends of a server.
#[derive(Default)]
pub(crate) struct BackendTracker(RefCell<Vec<Weak<dyn Backend>>>);

impl BackendTracker {
    /// Adds a backend.
    pub(crate) fn add(&self, backend: &Arc<dyn Backend>) {
        self.0.borrow_mut().push(Arc::downgrade(backend));
    }

    /// Waits until all backends have been dropped. Interrupted cells and starting kernels keep theirs for a while;
    /// after the timeout they are ignored, because their results are no longer needed.
    pub(crate) fn wait(&self) {
        if self.are_dropped() {
            return;
        }
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        while !self.are_dropped() {
            if Instant::now() > deadline {
                tracing::warn!("a backend is still in use; temporary directories may remain");
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        std::thread::sleep(DIRECTORY_CLEANUP_GRACE);
    }

    fn are_dropped(&self) -> bool {
        self.0.borrow().iter().all(|backend| backend.strong_count() == 0)
    }
}
