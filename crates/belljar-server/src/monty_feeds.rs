//! Feeds of Monty's protocol in the history that operators see.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use belljar_core::CellStatus;
use belljar_core::activity::CpuClock;
use belljar_core::kernel::{CellObserver, InterruptHandle};
use belljar_monty::{FeedView, OpenFeedView};
use belljar_sessions::{FeedsRecord, Sessions};

/// The feeds of a session, recorded in the history.
struct RecordedFeeds(FeedsRecord);

/// Returns what records feeds in the history of `sessions`, if operators see it.
pub(crate) fn open_views(sessions: Sessions) -> OpenFeedView {
    Arc::new(move |owner: Option<&Arc<str>>| -> Option<Box<dyn FeedView>> {
        let record = sessions.history()?.begin_feeds(owner);
        let record = record.inspect_err(|error| tracing::warn!(%error, "operators do not see a Monty session"));
        Some(Box::new(RecordedFeeds(record.ok()?)))
    })
}

impl FeedView for RecordedFeeds {
    fn begin(&mut self, code: &str) {
        self.0.begin(code);
    }

    fn observer(&self, inner: Arc<dyn CellObserver>) -> Arc<dyn CellObserver> {
        self.0.observer(inner)
    }

    fn set_running(&self, handle: Option<Arc<dyn InterruptHandle>>) {
        self.0.set_running(handle);
    }

    fn set_waiting(&self, is_waiting: bool) {
        self.0.set_waiting(is_waiting);
    }

    fn cpu(&self, clock: CpuClock) -> Option<&AtomicU64> {
        self.0.cpu(clock)
    }

    fn end(&mut self, result: Result<CellStatus, String>) {
        self.0.end(result);
    }
}
