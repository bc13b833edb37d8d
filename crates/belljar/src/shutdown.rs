//! Shutdown of a server or kernel: waits until its backends have deleted their temporary directories, and leaves
//! unfinished work on packages to another process.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use belljar_core::kernel::Backend;
use belljar_python::Python;

use crate::background;
use crate::global_options::GlobalOptions;

/// The maximum time that the process waits for backends. Clients kill a server that has not ended a few seconds after
/// they disconnected.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// The maximum time that the process waits for backends with a temporary directory. It is longer, since a directory
/// that is left over has files of sessions, and is not deleted later.
const DIRECTORY_TIMEOUT: Duration = Duration::from_secs(15);
/// The interval at which the process checks whether backends have been dropped.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The time in which directories are deleted by a separate thread after the last backend has been dropped.
const DIRECTORY_CLEANUP_GRACE: Duration = Duration::from_millis(200);

/// The backends of a server, and the Python that they load.
#[derive(Default)]
pub(crate) struct BackendTracker {
    backends: RefCell<Vec<TrackedBackend>>,
    python: Arc<OnceLock<Python>>,
}

/// A backend that the process waits for.
struct TrackedBackend {
    backend: Weak<dyn Backend>,
    temporary_directory: Option<PathBuf>,
}

impl TrackedBackend {
    /// Returns the maximum time to wait, or `None` if the backend has been dropped and its directory deleted.
    fn timeout(&self) -> Option<Duration> {
        // The backend is not counted any more while another thread drops it and deletes the directory.
        if self.temporary_directory.as_ref().is_some_and(|directory| directory.exists()) {
            return Some(DIRECTORY_TIMEOUT);
        }
        (self.backend.strong_count() > 0).then_some(SHUTDOWN_TIMEOUT)
    }
}

impl BackendTracker {
    /// Adds a backend.
    pub(crate) fn add(&self, backend: &Arc<dyn Backend>) {
        let temporary_directory = backend.temporary_directory().map(Path::to_owned);
        let backend = Arc::downgrade(backend);
        self.backends.borrow_mut().push(TrackedBackend { backend, temporary_directory });
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

    /// Waits until all backends have been dropped and their temporary directories deleted. Interrupted cells and
    /// starting kernels keep theirs for a while; after the timeout they are ignored, because their results are not
    /// needed any more.
    pub(crate) fn wait(&self) {
        if self.timeout().is_none() {
            return;
        }
        let begin = Instant::now();
        while let Some(timeout) = self.timeout() {
            if begin.elapsed() > timeout {
                tracing::warn!("a backend is still in use; temporary directories may remain");
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        std::thread::sleep(DIRECTORY_CLEANUP_GRACE);
    }

    /// Returns the maximum time to wait, or `None` if nothing is left to wait for.
    fn timeout(&self) -> Option<Duration> {
        self.backends.borrow().iter().filter_map(TrackedBackend::timeout).max()
    }
}
