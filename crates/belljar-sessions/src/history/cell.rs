//! The record of a cell.
//!
//! | file | subject |
//! | --- | --- |
//! | `state` | what the cell has done so far |
//! | `asking` | its questions and their answers |

mod asking;
mod state;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use belljar_core::activity::CpuClock;
use belljar_core::kernel::CellObserver;
use belljar_core::mime::{DisplayEvent, Image, ImageFormat, MimeBundle};
use belljar_core::truncation::cut_middle;
use belljar_core::{CellStatus, ConnectionRecord, Output, Stream, ToolCallEvent};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::observer::WatchedObserver;
use super::output::BoundedOutput;
use super::questions::Questions;
use super::run::RunEnd;
use super::snapshot::{CellSnapshot, CellState};
use super::{History, Place, SessionChange, SessionHistory};
use crate::error::SessionError;
use crate::report::CellReport;
use crate::runs::Run;
use crate::sessions::milliseconds_now;
use state::{State, size_of_error};

/// The maximum number of bytes of the recorded code of a cell.
const MAX_CODE: usize = 64 << 10;
/// The maximum number of recorded connections of a cell.
const MAX_CONNECTIONS: usize = 200;
/// The maximum number of bytes of the names of a cell's packages.
const MAX_INSTALLED: usize = 16 << 10;
/// The number of bytes that a record, a connection and a file count in addition to their texts.
const RECORD_BYTES: usize = 1024;
const CONNECTION_BYTES: usize = 200;
const FILE_BYTES: usize = 100;
/// The time in milliseconds after which an event that no reader has acted on is sent again.
const NEWS_INTERVAL: u64 = 1000;
/// The number of bytes by which a cell grows until the history counts them.
const COUNT_STEP: usize = 64 << 10;

/// The record of a cell.
pub struct CellRecord {
    /// The number of the cell in its session, from 1 on.
    pub number: u64,
    /// The code. The middle of long code is left out.
    pub code: Arc<str>,
    /// The time at which the cell was submitted, in milliseconds since 1970.
    pub queued: u64,
    /// True if an operator has submitted the cell.
    pub by_operator: bool,
    run: OnceLock<Weak<Run>>,
    place: Place,
    state: Mutex<State>,
    /// The permits for open questions, once there is one.
    asking: OnceLock<Arc<Semaphore>>,
    /// Set while a feed waits for its client.
    is_waiting: AtomicBool,
    /// The nanoseconds of processor time of the code so far; zero if they are not measured.
    cpu: AtomicU64,
    /// The time of the last event of [`CellRecord::send_news`], in milliseconds since 1970; zero once the cell was
    /// read.
    announced: AtomicU64,
    /// The bytes that the history has counted for this record. Changed while the session's state is locked.
    counted: AtomicUsize,
}

impl CellRecord {
    pub(super) fn new(
        number: u64,
        code: &str,
        by_operator: bool,
        session: &Arc<SessionHistory>,
        history: &Arc<History>,
    ) -> Self {
        // A byte of code has six bytes in JSON at most.
        let code: Arc<str> = if code.len() <= MAX_CODE / 6 { code.into() } else { bounded(code, MAX_CODE).into() };
        let state = State {
            state: CellState::Pending,
            began: None,
            ended: None,
            output: BoundedOutput::default(),
            files: Vec::new(),
            calls: Vec::new(),
            omitted_calls: 0,
            connections: Vec::new(),
            installed: Vec::new(),
            questions: Questions::default(),
            memory: None,
            other_bytes: 0,
        };
        Self {
            number,
            code,
            queued: milliseconds_now(),
            by_operator,
            run: OnceLock::new(),
            place: Place { history: Arc::downgrade(history), session: Arc::downgrade(session) },
            state: Mutex::new(state),
            asking: OnceLock::new(),
            is_waiting: AtomicBool::new(false),
            cpu: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            counted: AtomicUsize::new(0),
        }
    }

    /// Returns the bytes of the record, whose state has this size.
    fn size(&self, state: usize) -> usize {
        RECORD_BYTES + self.code.len() + state
    }

    pub(super) fn counted_bytes(&self) -> usize {
        self.counted.load(Ordering::Relaxed)
    }

    /// Counts the bytes of the record as it is now. Returns those that were counted before, and now. The session's
    /// state must be locked.
    pub(super) fn recount(&self) -> (usize, usize) {
        let now = self.size(self.state.lock().size());
        (self.counted.swap(now, Ordering::Relaxed), now)
    }

    /// Changes the state, and has the history count it if it has grown or shrunk by much.
    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (changed, size) = {
            let mut state = self.state.lock();
            let changed = change(&mut state);
            (changed, state.size())
        };
        if self.size(size).abs_diff(self.counted_bytes()) >= COUNT_STEP {
            self.place.recount(self);
        }
        changed
    }

    /// Leaves out the output so far.
    pub(super) fn drop_output(&self) {
        self.state.lock().output.omit();
    }

    /// Returns the nanoseconds of processor time of the code, to which the threads that continue it add. `clock` says
    /// whose time that is: without one, nothing is measured.
    pub(crate) fn cpu(&self, clock: CpuClock) -> Option<&AtomicU64> {
        (clock == CpuClock::Thread).then_some(&self.cpu)
    }

    pub(crate) fn set_run(&self, run: &Arc<Run>) {
        let _ = self.run.set(Arc::downgrade(run));
    }

    /// Returns the run, if the cell can wait on the disk and has not ended.
    pub fn run(&self) -> Option<Arc<Run>> {
        self.run.get()?.upgrade()
    }

    /// Returns whether the cell has ended.
    pub fn has_ended(&self) -> bool {
        self.state.lock().ended.is_some()
    }

    /// Returns the cell as it is now.
    pub fn snapshot(&self) -> CellSnapshot {
        // Before the state is read: what is recorded later sends an event again.
        self.announced.store(0, Ordering::Relaxed);
        let (state, questions) = (self.current_state(), self.questions());
        let now = self.state.lock();
        CellSnapshot {
            state,
            began: now.began,
            ended: now.ended,
            outputs: now.output.outputs().to_vec(),
            omitted: now.output.omitted,
            written: now.output.written,
            files: now.files.clone(),
            calls: now.calls.clone(),
            omitted_calls: now.omitted_calls,
            connections: now.connections.clone(),
            installed: now.installed.clone(),
            questions,
            memory: now.memory,
            cpu: Some(Duration::from_nanos(self.cpu.load(Ordering::Relaxed))).filter(|cpu| !cpu.is_zero()),
        }
    }

    /// Returns the state: waiting, if the cell runs and has an open question or waits without a thread.
    pub fn current_state(&self) -> CellState {
        let is_waiting =
            self.is_waiting.load(Ordering::Relaxed) || self.run().is_some_and(|run| run.state().is_waiting());
        let state = self.state.lock();
        match &state.state {
            CellState::Running if is_waiting || !state.questions.open().is_empty() => CellState::Waiting,
            other => other.clone(),
        }
    }

    /// Returns the observer that records what the cell does, and passes it to `inner`.
    pub(crate) fn observer(self: &Arc<Self>, inner: Arc<dyn CellObserver>) -> Arc<dyn CellObserver> {
        Arc::new(WatchedObserver::new(inner, self.clone()))
    }

    pub(crate) fn begin(&self) {
        {
            let mut state = self.state.lock();
            if state.ended.is_some() {
                return;
            }
            state.began.get_or_insert_with(milliseconds_now);
            state.state = CellState::Running;
        }
        self.send(SessionChange::Began);
    }

    pub(crate) fn complete(&self, result: &Result<CellReport, SessionError>) {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return;
        }
        match result {
            Ok(report) => {
                state.state = CellState::Completed(report.status.clone());
                state.output = BoundedOutput::from_outputs(&report.outputs);
                state.files.clone_from(&report.files);
                let files: usize = report.files.iter().map(|change| FILE_BYTES + change.file.path.len()).sum();
                state.other_bytes += files + size_of_error(&report.status);
                state.memory = report.memory;
            }
            Err(error) => state.state = CellState::NotRun(described(error)),
        }
        self.end(state);
    }

    /// Ends the record of code that ran once, and whose output was recorded while it ran.
    pub(super) fn complete_run(&self, RunEnd { images, value, status, peak_memory }: RunEnd) {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return;
        }
        for image in &images {
            state.output.push_bundle(&bundle_of(image), Output::Display);
        }
        if let Some(text) = value {
            state.output.push_value(&text);
        }
        // Backends that do not measure it report zero.
        state.memory = Some(peak_memory).filter(|memory| *memory > 0);
        state.state = match status {
            Ok(status) => {
                state.other_bytes += size_of_error(&status);
                CellState::Completed(status)
            }
            Err(reason) => CellState::NotRun(reason),
        };
        self.end(state);
    }

    /// Ends the record of a feed, whose output was recorded while it ran.
    pub(super) fn complete_feed(&self, result: Result<CellStatus, String>) {
        let mut state = self.state.lock();
        if state.ended.is_some() {
            return;
        }
        state.state = match result {
            Ok(status) => {
                state.other_bytes += size_of_error(&status);
                CellState::Completed(status)
            }
            Err(reason) => CellState::NotRun(reason),
        };
        self.end(state);
    }

    /// Notes whether a feed waits for its client.
    pub(super) fn set_waiting(&self, is_waiting: bool) {
        self.is_waiting.store(is_waiting, Ordering::Relaxed);
        // Readers request the state then.
        self.send(SessionChange::Called);
    }

    /// Ends the record of a cell whose job was dropped.
    pub(super) fn abandon(&self) {
        let mut state = self.state.lock();
        if state.ended.is_none() {
            state.state = CellState::NotRun("the call was cancelled, or the session has ended".into());
            self.end(state);
        }
    }

    fn end(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        state.ended = Some(milliseconds_now());
        state.questions.clear();
        let memory = state.memory;
        drop(state);
        if memory.is_some()
            && let Some(session) = self.place.session.upgrade()
        {
            session.state.lock().memory = memory;
        }
        self.place.recount(self);
        self.send(SessionChange::Completed);
    }

    fn send(&self, change: SessionChange) {
        if let Some(session) = self.place.session.upgrade() {
            session.send(Some(self.number), change);
        }
    }

    /// Sends a change that code can cause at any rate: once, until a reader has requested the cell, which then has all
    /// that was recorded before. A reader may fail to, or only count events, so that the next is sent after a second.
    ///
    /// The change must have been recorded, by [`CellRecord::update`].
    fn send_news(&self, change: SessionChange) {
        let now = milliseconds_now();
        if now.abs_diff(self.announced.load(Ordering::Relaxed)) >= NEWS_INTERVAL {
            self.announced.store(now, Ordering::Relaxed);
            self.send(change);
        }
    }

    pub(super) fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        let (text, end) = self.update(|state| (state.output.push_bytes(stream, bytes), state.output.written));
        let Some(session) = self.place.session.upgrade().filter(|session| session.is_followed()) else { return };
        if !text.is_empty() {
            session.send(Some(self.number), SessionChange::Output { stream, text: text.into(), end });
        }
    }

    pub(super) fn on_display(&self, event: &DisplayEvent) {
        self.update(|state| match event {
            DisplayEvent::Display(display) => state.output.push_display(display, Output::Display),
            DisplayEvent::ExecuteResult(display) => state.output.push_display(display, Output::ExecuteResult),
            DisplayEvent::Update(display) => state.output.update_display(display),
            DisplayEvent::Clear { .. } => state.output.clear(),
        });
        self.send_news(SessionChange::Displayed);
    }

    pub(super) fn on_installed(&self, packages: &str) {
        self.update(|state| {
            let installed: usize = state.installed.iter().map(String::len).sum();
            if installed + packages.len() <= MAX_INSTALLED {
                state.installed.push(packages.to_owned());
                state.other_bytes += packages.len();
            }
        });
        self.send_news(SessionChange::Called);
    }

    pub(super) fn on_connection(&self, record: &ConnectionRecord) {
        self.update(|state| {
            if state.connections.len() < MAX_CONNECTIONS {
                let texts = [&record.method, &record.path, &record.rule, &record.error];
                let bytes: usize = texts.into_iter().flatten().map(String::len).sum();
                state.other_bytes += CONNECTION_BYTES + record.host.len() + bytes;
                state.connections.push(record.clone());
            }
        });
        self.send_news(SessionChange::Called);
    }

    pub(super) fn on_call(&self, event: &ToolCallEvent<'_>) {
        self.update(|state| state.note_call(event));
        self.send(SessionChange::Called);
    }
}

/// A cell that was submitted. Dropping it ends the record if the cell has not ended.
pub(crate) struct CellGuard(pub(crate) Arc<CellRecord>);

impl CellGuard {
    pub(crate) fn new(record: Arc<CellRecord>) -> Self {
        Self(record)
    }

    /// Returns the number of the cell.
    pub(crate) fn number(&self) -> u64 {
        self.0.number
    }
}

impl Drop for CellGuard {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// Returns the text of an error for operators. That of an unknown session names the ID that was given.
fn described(error: &SessionError) -> String {
    match error {
        SessionError::Expired { .. } => "the session does not exist, or has expired".into(),
        other => other.to_string(),
    }
}

/// Returns an image as Jupyter displays it.
fn bundle_of(image: &Image) -> MimeBundle {
    let data = match image.format {
        // Jupyter has SVG as text.
        ImageFormat::Svg => String::from_utf8_lossy(&image.bytes()).into_owned(),
        ImageFormat::Png | ImageFormat::Jpeg => image.base64.clone(),
    };
    [(image.format.mime_type().to_owned(), data.into())].into()
}

/// Returns a text without its middle beyond a length in bytes.
fn bounded(text: &str, max: usize) -> String {
    cut_middle(text, max, |omitted| format!("\n[… {omitted} bytes are left out …]\n"))
}
