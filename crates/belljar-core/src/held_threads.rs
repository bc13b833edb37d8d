//! Threads of a pool that code holds while it waits: in `time.sleep`, in `input()`, in an event loop of its own, or for
//! a function of the host without `await`.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    /// The count that the waits of this thread belong to.
    static COUNT: RefCell<Option<HeldThreads>> = const { RefCell::new(None) };
}

/// The number of a pool's threads that code holds while it waits. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct HeldThreads(Arc<AtomicUsize>);

impl HeldThreads {
    /// Counts the waits of the current thread from now on.
    pub fn add_current_thread(&self) {
        COUNT.set(Some(self.clone()));
    }

    /// Returns the number of threads that code holds now while it waits.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A wait that holds the current thread until this is dropped. It counts if the thread belongs to [`HeldThreads`].
#[derive(Debug)]
#[must_use = "the wait counts until this is dropped"]
pub struct HoldingWait(Option<HeldThreads>);

impl HoldingWait {
    /// Begins a wait.
    pub fn begin() -> Self {
        let count = COUNT.with_borrow(Clone::clone);
        if let Some(HeldThreads(count)) = &count {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Self(count)
    }
}

impl Drop for HoldingWait {
    fn drop(&mut self) {
        if let Some(HeldThreads(count)) = &self.0 {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_of_added_threads_are_counted() {
        let held = HeldThreads::default();
        let elsewhere = HoldingWait::begin();
        assert_eq!(held.count(), 0);
        held.add_current_thread();
        let waits = [HoldingWait::begin()];
        std::thread::scope(|scope| {
            scope.spawn(|| drop(HoldingWait::begin()));
            let other = held.clone();
            scope.spawn(move || {
                other.add_current_thread();
                let _wait = HoldingWait::begin();
                assert_eq!(other.count(), 2);
            });
        });
        assert_eq!(held.count(), 1);
        drop((waits, elsewhere));
        assert_eq!(held.count(), 0);
    }
}
