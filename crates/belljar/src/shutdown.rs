//! Shutdown of a server or kernel: waits until its backends have deleted their temporary directories, and leaves
//! unfinished work on packages to another process.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use belljar_core::kernel::Backend;
use belljar_python::Python;

use crate::background;
use crate::global_options::GlobalOptions;

/// The maximum time that the process waits for backends. Clients kill a server that has not ended a few seconds after
/// they disconnected.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// The interval at which the process checks whether backends have been dropped.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The time in which directories are deleted by a separate thread after the last backend has been dropped.
const DIRECTORY_CLEANUP_GRACE: Duration = Duration::from_millis(200);

/// The backends of a server, and the Python that they load.
#[derive(Default)]
pub(crate) struct BackendTracker {
    backends: RefCell<Vec<Weak<dyn Backend>>>,
    python: Arc<OnceLock<Python>>,
}

impl BackendTracker {
    /// Adds a backend.
    pub(crate) fn add(&self, backend: &Arc<dyn Backend>) {
        self.backends.borrow_mut().push(Arc::downgrade(backend));
    }

    /// Returns the place for the Python of backends in WebAssembly, which is set when it has been loaded.
    pub(crate) fn python(&self) -> Arc<OnceLock<Python>> {
        self.python.clone()
    }

    /// Leaves the optimization of packages that were compiled quickly to another process. Called at the end.
    pub(crate) fn optimize_libraries(&self, global: &GlobalOptions) {
        if let Some(python) = self.python.get() {
            background::optimize_libraries(python, global);
        }
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
        self.backends.borrow().iter().all(|backend| backend.strong_count() == 0)
    }
}
