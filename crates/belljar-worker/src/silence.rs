//! Silence of a worker during a call: its code computes, or holds the thread of its caller while it waits, such as in
//! `time.sleep`. The kernel's measurement of its processor time tells which.

use std::time::{Duration, Instant};

use belljar_core::HoldingWait;

use crate::image_workers::WorkerControl;

/// The interval at which a silent worker is looked at.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
/// The part of the time for which code that waits uses the processor at most: it wakes up now and then.
const MAX_USED: u32 = 5;

/// Counts the silence of a worker whose code waits among the waits that hold their thread.
pub(crate) struct Silence<'a> {
    worker: &'a WorkerControl,
    /// The last look: its time, and the processor time of the worker.
    last: Option<(Instant, Duration)>,
    wait: Option<HoldingWait>,
}

impl<'a> Silence<'a> {
    pub(crate) fn new(worker: &'a WorkerControl) -> Self {
        Self { worker, last: None, wait: None }
    }

    /// Looks at a worker that has been silent for [`INTERVAL`].
    pub(crate) fn look(&mut self) {
        let Some(used) = self.worker.process.processor_time() else { return };
        let (now, before) = (Instant::now(), self.last);
        self.last = Some((now, used));
        let Some((since, used_before)) = before else { return };
        let is_waiting = used.saturating_sub(used_before) < now.saturating_duration_since(since) / MAX_USED;
        if !is_waiting {
            self.wait = None;
        } else if self.wait.is_none() {
            self.wait = Some(HoldingWait::begin());
        }
    }

    /// Ends the silence.
    pub(crate) fn end(&mut self) {
        (self.last, self.wait) = (None, None);
    }
}
