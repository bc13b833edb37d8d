//! Notifications to a client while its code runs: log messages and progress.
//!
//! Guest threads create the events, and a task of the client's connection sends them. The queue between them is
//! bounded: a client that reads slowly makes the code wait, for a limited time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use belljar_core::Progress;
use belljar_core::progress::{ProgressStep, StepProgress, Unit};
use parking_lot::{Mutex, MutexGuard};
use rmcp::model::LoggingLevel;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

/// The capacity of the queue of events.
const QUEUE_CAPACITY: usize = 1024;
/// The total time that the code of one call waits for a client that does not read. After that, events are dropped.
const MAX_TOTAL_WAIT: Duration = Duration::from_secs(10);
/// The minimum time between two progress notifications within a step.
const MIN_PROGRESS_INTERVAL: Duration = Duration::from_millis(100);
/// The progress that a notification without news reports.
const TICK: f64 = 0.001;

/// A notification to the client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// A log message.
    Log { level: LoggingLevel, logger: &'static str, text: String },
    /// The progress of the call; `done` only increases.
    Progress { done: f64, total: Option<f64>, message: String },
    /// The end of the call's events.
    End,
}

/// A client's choice of notifications.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct NotificationFilter {
    /// The minimum level of log messages; `None` disables them.
    pub(crate) level: Option<LoggingLevel>,
    /// Set if the client requested progress.
    pub(crate) progress: bool,
}

impl NotificationFilter {
    /// Returns whether the client wants any notification: no log message has a level above that of errors.
    fn wants_any(self) -> bool {
        self.progress || self.level.is_some_and(|level| level as u8 <= LoggingLevel::Error as u8)
    }
}

/// The guest's end of the queue of notifications. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ClientNotifier {
    filter: NotificationFilter,
    shared: Arc<Shared>,
}

struct Shared {
    /// `None` if the client wants no notifications: a queue takes two kilobytes of each call that waits.
    events: Option<mpsc::Sender<Event>>,
    waited_ms: AtomicU64,
    progress: Arc<Mutex<ProgressState>>,
}

/// A work step that is in progress.
struct RunningStep {
    id: u64,
    name: String,
    begin: Instant,
    /// True once a log message has reported that the step takes long.
    is_logged: bool,
}

/// The steps of a call that are in progress, for notifications at intervals.
///
/// Does not keep the queue of events open.
#[derive(Clone)]
pub(crate) struct RunningSteps {
    filter: NotificationFilter,
    progress: Arc<Mutex<ProgressState>>,
}

impl RunningSteps {
    /// Returns what a client is sent when there has been no event for a while: that the step which began first still
    /// runs. Clients then do not take a long compilation for a server that hangs.
    pub(crate) fn tick(&self) -> Option<Event> {
        let mut state = self.progress.lock();
        let step = state.running.first_mut()?;
        let (name, seconds) = (step.name.clone(), step.begin.elapsed().as_secs());
        if self.filter.progress {
            state.reported += TICK;
            let message = if seconds == 0 { name } else { format!("{name} ({seconds} s)") };
            return Some(Event::Progress { done: state.reported, total: None, message });
        }
        let is_wanted = self.filter.level.is_some_and(|least| LoggingLevel::Info as u8 >= least as u8);
        if std::mem::replace(&mut step.is_logged, true) || !is_wanted {
            return None;
        }
        Some(Event::Log { level: LoggingLevel::Info, logger: "belljar", text: format!("{name} …") })
    }
}

/// The progress of a call.
#[derive(Default)]
struct ProgressState {
    /// The steps in progress, in the order of their start.
    running: Vec<RunningStep>,
    /// The number of steps that were started.
    started: u64,
    /// The number of completed steps.
    base: f64,
    /// The progress in the last notification.
    reported: f64,
    notified_at: Option<Instant>,
}

impl ClientNotifier {
    /// Creates a notifier and the receiving end of its queue, if the client wants notifications.
    pub(crate) fn new(filter: NotificationFilter) -> (Self, Option<mpsc::Receiver<Event>>) {
        let (events, queue) = filter.wants_any().then(|| mpsc::channel(QUEUE_CAPACITY)).unzip();
        let shared = Shared { events, waited_ms: AtomicU64::new(0), progress: Arc::default() };
        (Self { filter, shared: Arc::new(shared) }, queue)
    }

    /// Returns the steps of the call.
    pub(crate) fn running_steps(&self) -> RunningSteps {
        RunningSteps { filter: self.filter, progress: self.shared.progress.clone() }
    }

    /// Sends a log message, if the client wants messages of its level.
    pub(crate) fn log(&self, level: LoggingLevel, logger: &'static str, text: impl Into<String>) {
        if self.filter.level.is_some_and(|least| level as u8 >= least as u8) {
            self.send(Event::Log { level, logger, text: text.into() });
        }
    }

    /// Reports that the call has reached its next step.
    pub(crate) fn step(&self, message: &str) {
        if !self.filter.progress {
            return;
        }
        let mut state = self.progress_state();
        state.base = state.reported.floor() + 1.0;
        state.reported = state.base;
        state.notified_at = None;
        let event = Event::Progress { done: state.reported, total: None, message: message.to_owned() };
        drop(state);
        self.send(event);
    }

    /// Reports that the step has completed `done` of `total` units.
    pub(crate) fn part(&self, done: f64, total: f64, message: impl FnOnce() -> String) {
        if !(self.filter.progress && done.is_finite() && total.is_finite()) {
            return;
        }
        let mut state = self.progress_state();
        if state.base + done < state.reported {
            // Another progress bar has started.
            state.base = state.reported;
        }
        let soon = state.notified_at.is_some_and(|time| time.elapsed() < MIN_PROGRESS_INTERVAL) && done < total;
        if state.base + done <= state.reported || soon {
            return;
        }
        state.reported = state.base + done;
        state.notified_at = Some(Instant::now());
        let event = Event::Progress { done: state.reported, total: Some(state.base + total), message: message() };
        drop(state);
        self.send(event);
    }

    /// Reports the end of the call's events.
    pub(crate) fn end(&self) {
        self.send(Event::End);
    }

    fn progress_state(&self) -> MutexGuard<'_, ProgressState> {
        self.shared.progress.lock()
    }

    fn send(&self, event: Event) {
        let Some(events) = &self.shared.events else { return };
        let mut event = event;
        loop {
            match events.try_send(event) {
                Ok(()) | Err(TrySendError::Closed(_)) => return,
                Err(TrySendError::Full(back)) => {
                    let pause = Duration::from_millis(2);
                    let waited_ms = self.shared.waited_ms.fetch_add(pause.as_millis() as u64, Ordering::Relaxed);
                    if u128::from(waited_ms) > MAX_TOTAL_WAIT.as_millis() {
                        return;
                    }
                    event = back;
                    std::thread::sleep(pause);
                }
            }
        }
    }

    /// Returns whether the client receives anything of the output of code.
    pub(crate) fn wants_output(&self) -> bool {
        self.filter.progress || self.filter.level.is_some_and(|least| (least as u8) <= LoggingLevel::Warning as u8)
    }
}

/// Reports work on packages and images.
impl Progress for ClientNotifier {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        self.log(LoggingLevel::Debug, "belljar", step.name.clone());
        self.step(&step.name);
        let mut state = self.progress_state();
        state.started += 1;
        let id = state.started;
        state.running.push(RunningStep { id, name: step.name.clone(), begin: Instant::now(), is_logged: false });
        drop(state);
        Box::new(NotifiedStep { notifier: self.clone(), step, id, done: AtomicU64::new(0) })
    }
}

struct NotifiedStep {
    notifier: ClientNotifier,
    step: ProgressStep,
    id: u64,
    done: AtomicU64,
}

impl Drop for NotifiedStep {
    fn drop(&mut self) {
        self.notifier.progress_state().running.retain(|running| running.id != self.id);
    }
}

impl StepProgress for NotifiedStep {
    fn advance(&self, amount: u64) {
        let done = self.done.fetch_add(amount, Ordering::Relaxed) + amount;
        if let Some(total) = self.step.total {
            // Mebibytes, so that the numbers of a download do not dwarf those of other steps.
            let unit = if self.step.unit == Unit::Bytes { f64::from(1 << 20) } else { 1.0 };
            self.notifier.part(done as f64 / unit, total as f64 / unit, || self.step.name.clone());
        }
    }

    fn finish(self: Box<Self>) {
        self.notifier.log(LoggingLevel::Debug, "belljar", format!("{}: done", self.step.name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events_of(filter: NotificationFilter, act: impl FnOnce(&ClientNotifier)) -> Vec<Event> {
        let (notifier, mut queue) = ClientNotifier::new(filter);
        act(&notifier);
        std::iter::from_fn(|| queue.as_mut()?.try_recv().ok()).collect()
    }

    #[test]
    fn messages_below_the_level_are_not_sent() {
        let log = |notifier: &ClientNotifier| {
            notifier.log(LoggingLevel::Info, "python", "a");
            notifier.log(LoggingLevel::Warning, "python", "b");
        };
        assert!(events_of(NotificationFilter { level: None, progress: false }, log).is_empty());
        assert!(
            events_of(NotificationFilter { level: Some(LoggingLevel::Emergency), progress: false }, log).is_empty()
        );
        assert_eq!(events_of(NotificationFilter { level: Some(LoggingLevel::Warning), progress: false }, log).len(), 1);
        assert_eq!(events_of(NotificationFilter { level: Some(LoggingLevel::Info), progress: false }, log).len(), 2);
    }

    #[test]
    fn client_that_wants_no_notifications_has_no_queue() {
        for (level, progress, has_queue) in [
            (None, false, false),
            (Some(LoggingLevel::Emergency), false, false),
            (Some(LoggingLevel::Critical), false, false),
            (Some(LoggingLevel::Error), false, true),
            (None, true, true),
        ] {
            let (notifier, queue) = ClientNotifier::new(NotificationFilter { level, progress });
            notifier.end();
            assert_eq!(queue.is_some(), has_queue, "{level:?} {progress}");
        }
    }

    #[test]
    fn long_step_is_reported_again_until_it_ends() {
        let (notifier, _queue) = ClientNotifier::new(NotificationFilter { level: None, progress: true });
        let steps = notifier.running_steps();
        assert_eq!(steps.tick(), None);
        let step = notifier.start(ProgressStep::indeterminate("compiling"));
        let ticks: Vec<Event> = std::iter::from_fn(|| steps.tick()).take(3).collect();
        let progress = ticks.iter().map(|event| match event {
            Event::Progress { done, message, .. } if message.starts_with("compiling") => *done,
            event => panic!("unexpected event {event:?}"),
        });
        assert!(progress.is_sorted_by(|one, other| one < other), "{ticks:?}");
        step.finish();
        assert_eq!(steps.tick(), None);
    }

    #[test]
    fn long_step_is_logged_once() {
        let (notifier, _queue) =
            ClientNotifier::new(NotificationFilter { level: Some(LoggingLevel::Info), progress: false });
        let steps = notifier.running_steps();
        let _step = notifier.start(ProgressStep::indeterminate("compiling"));
        assert!(matches!(steps.tick(), Some(Event::Log { text, .. }) if text == "compiling …"));
        assert_eq!(steps.tick(), None);
    }

    #[test]
    fn progress_only_increases() {
        let events = events_of(NotificationFilter { level: None, progress: true }, |notifier| {
            notifier.step("one");
            for done in [1.0, 2.0, 10.0, 10.0, 1.0, 3.0, f64::NAN] {
                notifier.part(done, 10.0, String::new);
            }
            notifier.step("two");
        });
        let progress: Vec<f64> = events
            .iter()
            .map(|event| match event {
                Event::Progress { done, .. } => *done,
                Event::Log { .. } | Event::End => panic!("unexpected event"),
            })
            .collect();
        assert!(progress.len() >= 3 && progress.is_sorted_by(|one, other| one < other), "{progress:?}");
    }
}
