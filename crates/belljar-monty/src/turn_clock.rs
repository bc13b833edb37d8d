//! The limit of the time that the code of a feed runs in one turn: from a request of the parent to the event that ends
//! the turn.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::kernel::InterruptHandle;
use parking_lot::{Condvar, Mutex};

use crate::events::exception;
use crate::proto::RaisedException;

/// The time that code has to end after it was interrupted.
const INTERRUPT_GRACE: Duration = Duration::from_secs(3);

/// The clock of a feed's turns. While the code runs, a thread waits to interrupt it.
pub(crate) struct TurnClock(Arc<WatchedTurn>);

struct WatchedTurn {
    limit: Duration,
    state: Mutex<TurnState>,
    changed: Condvar,
}

#[derive(Default)]
struct TurnState {
    /// The time that the code has run in this turn until it stopped the last time.
    spent: Duration,
    /// The beginning of the time that is not in `spent`, and what ends the code, while it runs.
    running: Option<(Instant, Arc<dyn InterruptHandle>)>,
    /// The time at which the code was interrupted.
    exceeded: Option<Instant>,
    /// True while there is a thread that watches the code.
    is_watched: bool,
}

impl TurnClock {
    /// Creates the clock of a feed whose first turn begins.
    pub(crate) fn new(limit: Duration) -> Self {
        Self(Arc::new(WatchedTurn { limit, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Begins the next turn. The code does not run.
    pub(crate) fn begin(&self) {
        self.0.state.lock().spent = Duration::ZERO;
    }

    /// Begins to count: the code runs, and `handle` ends it.
    pub(crate) fn start(&self, handle: &Arc<dyn InterruptHandle>) {
        let mut state = self.0.state.lock();
        if state.exceeded.is_some() {
            // The code has handled the interrupt, and goes on.
            handle.interrupt();
        }
        state.running = Some((Instant::now(), handle.clone()));
        if state.is_watched {
            self.0.changed.notify_one();
            return;
        }
        let turn = self.0.clone();
        let started = std::thread::Builder::new().name("turn-clock".into()).spawn(move || turn.watch());
        match started {
            Ok(_) => state.is_watched = true,
            Err(error) => tracing::error!(%error, "failed to start the thread that limits the time of a turn"),
        }
    }

    /// Stops to count. The code is not interrupted after this.
    pub(crate) fn stop(&self) {
        let mut state = self.0.state.lock();
        state.spent = state.run_time();
        state.running = None;
        self.0.changed.notify_one();
    }

    /// Returns the error of a feed whose code has exceeded the limit.
    pub(crate) fn error(&self) -> Option<RaisedException> {
        let state = self.0.state.lock();
        state.exceeded?;
        let (spent, limit) = (state.run_time(), self.0.limit);
        Some(exception("TimeoutError", format!("turn time limit exceeded: {spent:?} > {limit:?}")))
    }
}

impl TurnState {
    /// Returns the time that the code has run in this turn.
    fn run_time(&self) -> Duration {
        self.spent + self.running.as_ref().map_or(Duration::ZERO, |(since, _)| since.elapsed())
    }
}

impl WatchedTurn {
    /// Interrupts the code when it exceeds the limit, and ends it after the grace. Returns when the code does not run.
    fn watch(&self) {
        let mut state = self.state.lock();
        while let Some((_, handle)) = state.running.clone() {
            let left = match state.exceeded {
                None => self.limit.saturating_sub(state.run_time()),
                Some(since) => INTERRUPT_GRACE.saturating_sub(since.elapsed()),
            };
            if !left.is_zero() {
                self.changed.wait_for(&mut state, left);
            } else if state.exceeded.is_none() {
                state.exceeded = Some(Instant::now());
                handle.interrupt();
            } else {
                handle.kill();
                break;
            }
        }
        state.is_watched = false;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    struct Signals(Mutex<Sender<&'static str>>);

    impl InterruptHandle for Signals {
        fn interrupt(&self) {
            let _ = self.0.lock().send("interrupt");
        }

        fn kill(&self) {
            let _ = self.0.lock().send("kill");
        }
    }

    fn signals() -> (Arc<dyn InterruptHandle>, Receiver<&'static str>) {
        let (sender, receiver) = channel();
        (Arc::new(Signals(Mutex::new(sender))), receiver)
    }

    #[test]
    fn code_that_handles_its_interrupt_is_interrupted_again_and_ended() {
        let (handle, received) = signals();
        let clock = TurnClock::new(Duration::from_millis(1));
        assert_eq!(clock.error(), None);
        clock.start(&handle);
        assert_eq!(received.recv(), Ok("interrupt"));
        clock.stop();
        let error = clock.error().unwrap();
        assert_eq!(error.exc_type, "TimeoutError");
        assert!(error.message.unwrap().starts_with("turn time limit exceeded: "));
        clock.start(&handle);
        assert_eq!(received.recv(), Ok("interrupt"));
        assert_eq!(received.recv(), Ok("kill"));
    }

    #[test]
    fn turns_and_waits_are_not_added_up() {
        let (handle, received) = signals();
        let clock = TurnClock::new(Duration::from_secs(3600));
        for _ in 0..2 {
            clock.0.state.lock().spent = Duration::from_secs(3599);
            clock.begin();
            clock.start(&handle);
            clock.stop();
        }
        assert!(clock.0.state.lock().spent < Duration::from_secs(3599));
        assert_eq!(clock.error(), None);
        assert!(received.try_recv().is_err());
    }
}
