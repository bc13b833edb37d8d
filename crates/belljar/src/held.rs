//! The end of a server or kernel: what has temporary folders goes before the process does, or they would stay behind.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use belljar_core::kernel::Backend;

/// How long the process waits for backends. Clients kill a server that has not ended a few seconds after
/// they left.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(5);
/// What goes together with the last backend, on a thread of its own: folders are deleted within it.
const LAST_FOLDERS: Duration = Duration::from_millis(200);

/// The backends that a server has.
#[derive(Default)]
pub(crate) struct Held(RefCell<Vec<Weak<dyn Backend>>>);

impl Held {
    /// This one, too.
    pub(crate) fn add(&self, backend: &Arc<dyn Backend>) {
        self.0.borrow_mut().push(Arc::downgrade(backend));
    }

    /// Waits until all are gone: cells that were interrupted and kernels that were being started have them a little longer.
    /// Not for long: what still runs then is for nobody.
    pub(crate) fn wait(&self) {
        if self.are_gone() {
            return;
        }
        let end = Instant::now() + PATIENCE;
        while !self.are_gone() {
            if Instant::now() > end {
                tracing::warn!("something still runs; temporary folders may stay behind");
                return;
            }
            std::thread::sleep(LOOK);
        }
        std::thread::sleep(LAST_FOLDERS);
    }

    fn are_gone(&self) -> bool {
        self.0.borrow().iter().all(|backend| backend.strong_count() == 0)
    }
}
