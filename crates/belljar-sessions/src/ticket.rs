//! A cell whose caller goes away is stopped: interrupted first, which it can handle, and ended after a while.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_core::kernel::Interrupt;

/// Time between the interrupt of a cell whose caller is gone, and its end.
const GRACE: Duration = Duration::from_secs(5);

/// One call's cell, as far as its caller may stop it.
#[derive(Default)]
pub(crate) struct Ticket(Mutex<Stage>);

#[derive(Default)]
enum Stage {
    #[default]
    Waiting,
    Running(Arc<dyn Interrupt>),
    Over,
}

impl Ticket {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cell is about to run; `false` if it is not to.
    pub(crate) fn starts(&self, interrupt: Arc<dyn Interrupt>) -> bool {
        let mut stage = self.stage();
        if matches!(*stage, Stage::Over) {
            return false;
        }
        *stage = Stage::Running(interrupt);
        true
    }

    pub(crate) fn ends(&self) {
        *self.stage() = Stage::Over;
    }
}

/// Stops the ticket's cell when it is dropped before the cell is over.
pub(crate) struct CancelOnDrop(Arc<Ticket>);

impl CancelOnDrop {
    pub(crate) fn new(ticket: Arc<Ticket>) -> Self {
        Self(ticket)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let mut stage = self.0.stage();
        match &*stage {
            Stage::Over => return,
            Stage::Waiting => {
                *stage = Stage::Over;
                return;
            }
            Stage::Running(interrupt) => interrupt.interrupt(),
        }
        drop(stage);
        let ticket = self.0.clone();
        let watcher = std::thread::Builder::new().name("cancel".into()).spawn(move || {
            std::thread::sleep(GRACE);
            if let Stage::Running(interrupt) = &*ticket.stage() {
                interrupt.stop();
            }
        });
        if let Err(error) = watcher {
            tracing::warn!(%error, "a cell whose caller is gone may run on");
        }
    }
}
