//! What a client hears while its code runs: log messages and progress.
//!
//! Events are made on guest threads and sent by a task of the client's connection. The queue between them is bounded: a
//! client that reads slowly makes the code wait, for a while.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belljar_core::kernel::Stream;
use belljar_core::progress::{Progress, Step, StepProgress, Unit};
use belljar_emscripten::console::{self, OutputSink};
use rmcp::model::LoggingLevel;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use crate::lines::Lines;

/// Events that wait to be sent.
const QUEUE: usize = 1024;
/// How long one call's code may wait, all in all, for a client that does not read. After that messages are dropped.
const PATIENCE: Duration = Duration::from_secs(10);
/// Shortest time between two progress messages about the same work.
const PACE: Duration = Duration::from_millis(100);

/// Something to tell the client.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    /// A log message.
    Log { level: LoggingLevel, logger: &'static str, text: String },
    /// How far the call is: `done` only ever grows.
    Progress { done: f64, total: Option<f64>, message: String },
    /// Nothing more comes.
    End,
}

/// What a client wants to hear.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Interest {
    /// The least level of log messages; `None` when it wants none.
    pub(crate) level: Option<LoggingLevel>,
    /// Whether it asked for progress.
    pub(crate) progress: bool,
}

/// The guest's end of the queue. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Listener {
    interest: Interest,
    shared: Arc<Shared>,
}

struct Shared {
    events: mpsc::Sender<Event>,
    waited: AtomicU64,
    at: Mutex<At>,
}

/// How far the call is.
#[derive(Default)]
struct At {
    /// Steps that are behind us.
    base: f64,
    /// What was told last.
    told: f64,
    when: Option<Instant>,
}

impl Listener {
    /// A listener and the queue that it fills.
    pub(crate) fn new(interest: Interest) -> (Self, mpsc::Receiver<Event>) {
        let (events, queue) = mpsc::channel(QUEUE);
        let shared = Shared { events, waited: AtomicU64::new(0), at: Mutex::default() };
        (Self { interest, shared: Arc::new(shared) }, queue)
    }

    /// Logs one message, if the client wants it.
    pub(crate) fn log(&self, level: LoggingLevel, logger: &'static str, text: impl Into<String>) {
        if self.interest.level.is_some_and(|least| level as u8 >= least as u8) {
            self.send(Event::Log { level, logger, text: text.into() });
        }
    }

    /// The call has come to its next step.
    pub(crate) fn step(&self, message: &str) {
        if !self.interest.progress {
            return;
        }
        let mut at = self.at();
        at.base = at.told.floor() + 1.0;
        at.told = at.base;
        at.when = None;
        let event = Event::Progress { done: at.told, total: None, message: message.to_owned() };
        drop(at);
        self.send(event);
    }

    /// The step is at `done` of `total`.
    fn part(&self, done: f64, total: f64, message: impl FnOnce() -> String) {
        if !(self.interest.progress && done.is_finite() && total.is_finite()) {
            return;
        }
        let mut at = self.at();
        if at.base + done < at.told {
            // Another bar, from its beginning.
            at.base = at.told;
        }
        let soon = at.when.is_some_and(|when| when.elapsed() < PACE) && done < total;
        if at.base + done <= at.told || soon {
            return;
        }
        at.told = at.base + done;
        at.when = Some(Instant::now());
        let event = Event::Progress { done: at.told, total: Some(at.base + total), message: message() };
        drop(at);
        self.send(event);
    }

    /// Everything was said.
    pub(crate) fn end(&self) {
        self.send(Event::End);
    }

    fn at(&self) -> MutexGuard<'_, At> {
        self.shared.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, event: Event) {
        let mut event = event;
        loop {
            match self.shared.events.try_send(event) {
                Ok(()) | Err(TrySendError::Closed(_)) => return,
                Err(TrySendError::Full(back)) => {
                    let pause = Duration::from_millis(2);
                    let waited = self.shared.waited.fetch_add(pause.as_millis() as u64, Ordering::Relaxed);
                    if u128::from(waited) > PATIENCE.as_millis() {
                        return;
                    }
                    event = back;
                    std::thread::sleep(pause);
                }
            }
        }
    }

    fn wants_output(&self) -> bool {
        self.interest.progress || self.interest.level.is_some_and(|least| (least as u8) <= LoggingLevel::Warning as u8)
    }
}

/// Package work and the making of images.
impl Progress for Listener {
    fn start(&self, step: Step) -> Box<dyn StepProgress> {
        self.log(LoggingLevel::Debug, "belljar", step.name.clone());
        self.step(&step.name);
        Box::new(Running { listener: self.clone(), step, done: AtomicU64::new(0) })
    }
}

struct Running {
    listener: Listener,
    step: Step,
    done: AtomicU64,
}

impl StepProgress for Running {
    fn advance(&self, amount: u64) {
        let done = self.done.fetch_add(amount, Ordering::Relaxed) + amount;
        if let Some(total) = self.step.total {
            // Megabytes, so that a download's numbers do not dwarf those of other steps.
            let unit = if self.step.unit == Unit::Bytes { f64::from(1 << 20) } else { 1.0 };
            self.listener.part(done as f64 / unit, total as f64 / unit, || self.step.name.clone());
        }
    }

    fn finish(self: Box<Self>) {
        self.listener.log(LoggingLevel::Debug, "belljar", format!("{}: done", self.step.name));
    }
}

/// Keeps what the code writes, and tells the client line by line. Clones share it.
#[derive(Clone)]
pub(crate) struct Output(Arc<Mutex<Written>>);

struct Written {
    /// `None` when somebody else keeps it.
    all: Option<Vec<u8>>,
    listener: Option<Listener>,
    stdout: Lines,
    stderr: Lines,
}

impl Output {
    pub(crate) fn new(listener: &Listener) -> Self {
        Self::with(listener, Some(Vec::new()))
    }

    /// One that tells the client, and keeps nothing.
    pub(crate) fn heard(listener: &Listener) -> Self {
        Self::with(listener, None)
    }

    fn with(listener: &Listener, all: Option<Vec<u8>>) -> Self {
        let listener = listener.wants_output().then(|| listener.clone());
        let written = Written { all, listener, stdout: Lines::default(), stderr: Lines::default() };
        Self(Arc::new(Mutex::new(written)))
    }

    /// The code has ended: everything that it wrote, in order.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut written = self.written();
        let Written { listener, stdout, stderr, .. } = &mut *written;
        if let Some(listener) = listener {
            stdout.finish(|line| listener.log(LoggingLevel::Info, "python", line));
            stderr.finish(|line| listener.log(LoggingLevel::Warning, "python", line));
        }
        written.all.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes what code has written.
    pub(crate) fn wrote(&self, stream: Stream, bytes: &[u8]) {
        let mut written = self.written();
        let Written { all, listener, stdout, stderr } = &mut *written;
        if let Some(all) = all {
            all.extend_from_slice(bytes);
        }
        let Some(listener) = listener else { return };
        let (lines, level) = match stream {
            Stream::Stdout => (stdout, LoggingLevel::Info),
            Stream::Stderr => (stderr, LoggingLevel::Warning),
        };
        lines.push(bytes, |line| listener.log(level, "python", line));
        if let Some(bar) = lines.bar() {
            listener.part(bar.done, bar.total, || bar.title.clone());
        }
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputSink for Output {
    fn write(&mut self, stream: console::Stream, bytes: &[u8]) {
        let stream = match stream {
            console::Stream::Stdout => Stream::Stdout,
            console::Stream::Stderr => Stream::Stderr,
        };
        self.wrote(stream, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(interest: Interest, act: impl FnOnce(&Listener)) -> Vec<Event> {
        let (listener, mut queue) = Listener::new(interest);
        act(&listener);
        std::iter::from_fn(|| queue.try_recv().ok()).collect()
    }

    #[test]
    fn what_is_below_the_level_is_not_sent() {
        let say = |listener: &Listener| {
            listener.log(LoggingLevel::Info, "python", "a");
            listener.log(LoggingLevel::Warning, "python", "b");
        };
        assert!(heard(Interest { level: None, progress: false }, say).is_empty());
        assert!(heard(Interest { level: Some(LoggingLevel::Emergency), progress: false }, say).is_empty());
        assert_eq!(heard(Interest { level: Some(LoggingLevel::Warning), progress: false }, say).len(), 1);
        assert_eq!(heard(Interest { level: Some(LoggingLevel::Info), progress: false }, say).len(), 2);
    }

    #[test]
    fn progress_only_ever_grows() {
        let events = heard(Interest { level: None, progress: true }, |listener| {
            listener.step("one");
            for done in [1.0, 2.0, 10.0, 10.0, 1.0, 3.0, f64::NAN] {
                listener.part(done, 10.0, String::new);
            }
            listener.step("two");
        });
        let told: Vec<f64> = events
            .iter()
            .map(|event| match event {
                Event::Progress { done, .. } => *done,
                Event::Log { .. } | Event::End => panic!("not asked for"),
            })
            .collect();
        assert!(told.len() >= 3 && told.is_sorted_by(|one, other| one < other), "{told:?}");
    }
}
