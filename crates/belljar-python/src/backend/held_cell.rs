//! A cell that is recorded, so that it can be continued elsewhere while it holds its thread in a wait.
//!
//! The interpreter's recording has what the code received (`belljar_emscripten::recording`). This is the host's part:
//! the packages and calls of the cell, its time, and the snapshot that is made of all that. ARCHITECTURE.md, "A wait
//! with a stack is replayed", has the whole.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use belljar_core::activity::trace::SpanName;
use belljar_core::kernel::{CellObserver, InputError, InputReply, KernelError};
use belljar_core::mime::DisplayEvent;
use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{
    CellRecorder, ConnectionRecord, EncodedValue, FunctionCall, HeldSnapshot, HeldWait, HeldWaitDecision, HeldWaitKind,
    InstallRecord, Limits, Progress, ReplySender, RunReport, Stream,
};
use belljar_emscripten::recording::SleepSaver;
use belljar_emscripten::termination::Termination;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::exchange::{RunCalls, SavedCalls};
use super::session_kernel::SnapshotMetadata;
use super::since_1970::microseconds;
use crate::host_calls::HostCallContext;
use crate::packages::WheelId;

/// The version of what host calls do and of how they are recorded: a recording is replayed by the same version only.
const VERSION: u32 = 1;
/// The interval at which a wait is looked at, in its first [`EARLY`] and later.
const INTERVALS: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(100)];
const EARLY: Duration = Duration::from_millis(100);

/// The host's half of a cell that held its thread, which is serialized as JSON into saved sessions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ReplayedCell {
    version: u32,
    /// The limits of space, on which the errors that code receives depend.
    limits: String,
    /// The length of the snapshot at the start of the recording, which the recording follows.
    pub(super) start_length: usize,
    /// The packages of the cell.
    pub(super) members: Vec<WheelId>,
    pub(super) tried: Vec<String>,
    /// The calls of functions of the host, if the cell waits for them.
    pub(super) calls: Option<SavedCalls>,
    /// The limit that the caller has chosen, in microseconds.
    pub(super) own_timeout: Option<u64>,
    /// The time for which the cell has run, in microseconds.
    pub(super) spent: u64,
    /// The object of the wait.
    pub(super) kind: HeldWaitKind,
}

impl ReplayedCell {
    /// Checks that the recording means the same here.
    ///
    /// # Errors
    /// Fails if the recording was made by another version, or under other limits.
    pub(super) fn check(&self, limits: &Limits) -> Result<(), KernelError> {
        let incompatible = |reason: &str| Err(KernelError::IncompatibleSnapshot(reason.into()));
        if self.version != VERSION {
            return incompatible("the waiting cell was recorded by another build of Belljar");
        }
        if self.limits != limits_of_space(limits) {
            return incompatible("the waiting cell was recorded with other limits of memory, output or files");
        }
        Ok(())
    }
}

fn limits_of_space(limits: &Limits) -> String {
    let Limits { memory, output, disk, files, value, .. } = limits;
    format!("{memory} {output} {disk} {files} {value}")
}

/// The recorded cell of a kernel.
pub(super) struct HeldCell {
    pub(super) recorder: CellRecorder,
    limits: Limits,
    facts: Mutex<Facts>,
    /// The number of early replies when the cell was saved.
    saved_replies: AtomicUsize,
    is_suspended: AtomicBool,
}

struct Facts {
    members: Vec<WheelId>,
    tried: Vec<String>,
    own_timeout: Option<Duration>,
    /// The time that the steps before this one have taken.
    spent: Duration,
    step: Instant,
    /// The time that this step has waited.
    waited: Duration,
}

/// Returns the recording of a cell that waits with a state.
type Save<'a> = &'a dyn Fn(&[u8]) -> Result<Vec<u8>, Cow<'static, str>>;

/// The error of replies that cannot be saved.
#[derive(Debug, Clone, Copy)]
pub(super) struct BinaryReplies;

/// A wait of the code for the host.
pub(super) struct WaitPoint<'a, S> {
    pub(super) elapsed: Duration,
    pub(super) kind: HeldWaitKind,
    /// The state with which the handler of the call waits on elsewhere.
    pub(super) state: &'a S,
    pub(super) calls: Result<Option<SavedCalls>, BinaryReplies>,
    /// The number of replies that have arrived, and do not end the wait.
    pub(super) replies: &'a dyn Fn() -> usize,
    /// The time after which the code goes on by itself.
    pub(super) timer: Option<Duration>,
    /// True if there will be no reply.
    pub(super) is_abandoned: bool,
}

impl HeldCell {
    pub(super) fn new(recorder: CellRecorder, limits: Limits, own_timeout: Option<Duration>) -> Self {
        let facts = Facts {
            members: Vec::new(),
            tried: Vec::new(),
            own_timeout,
            spent: Duration::ZERO,
            step: Instant::now(),
            waited: Duration::ZERO,
        };
        let (saved_replies, is_suspended) = (AtomicUsize::new(0), AtomicBool::new(false));
        Self { recorder, limits, facts: Mutex::new(facts), saved_replies, is_suspended }
    }

    /// Sets the packages of the cell, which its code does not change.
    pub(super) fn set_packages(&self, members: Vec<WheelId>, tried: Vec<String>) {
        let mut facts = self.facts.lock();
        (facts.members, facts.tried) = (members, tried);
    }

    /// Begins a step of code that has run for the time `spent` before.
    pub(super) fn begin_step(&self, spent: Duration) {
        let mut facts = self.facts.lock();
        (facts.spent, facts.step, facts.waited) = (spent, Instant::now(), Duration::ZERO);
    }

    /// Returns whether the interpreter has ended because the cell goes on elsewhere.
    pub(super) fn is_suspended(&self) -> bool {
        self.is_suspended.load(Ordering::Relaxed)
    }

    /// Returns the interval at which a wait calls [`HeldCell::on_wait`].
    pub(super) fn interval(elapsed: Duration) -> Duration {
        INTERVALS[usize::from(elapsed >= EARLY)]
    }

    /// Has the cell saved while it waits.
    ///
    /// # Errors
    /// Fails if the interpreter is to end, since the cell goes on elsewhere.
    pub(super) fn on_wait<S: Serialize>(
        &self,
        context: &HostCallContext<'_>,
        point: &WaitPoint<'_, S>,
    ) -> Result<(), Termination> {
        self.on_wait_with(&|state| context.save(state), point)
    }

    fn on_wait_with<S: Serialize>(&self, save: Save<'_>, point: &WaitPoint<'_, S>) -> Result<(), Termination> {
        let mut snapshot = |metadata: &Value, length| self.snapshot(metadata, length, save, point);
        let wait = HeldWait {
            elapsed: point.elapsed,
            kind: point.kind,
            has_replies: &|| (point.replies)() != self.saved_replies.load(Ordering::Relaxed),
            timer: point.timer,
            is_abandoned: point.is_abandoned,
        };
        match self.recorder.saver.on_wait(&wait, &mut snapshot) {
            HeldWaitDecision::Wait => Ok(()),
            HeldWaitDecision::Suspend => {
                self.is_suspended.store(true, Ordering::Relaxed);
                Err(Termination::Stopped)
            }
        }
    }

    /// Ends a wait that has taken a time.
    ///
    /// # Errors
    /// Fails if the code must not go on.
    pub(super) fn end_wait(&self, elapsed: Duration) -> Result<(), Termination> {
        self.facts.lock().waited += elapsed;
        self.saved_replies.store(0, Ordering::Relaxed);
        self.recorder.saver.end_wait().map_err(Termination::Abort)
    }

    fn snapshot<S: Serialize>(
        &self,
        start: &Value,
        length: usize,
        save: Save<'_>,
        point: &WaitPoint<'_, S>,
    ) -> Result<HeldSnapshot, KernelError> {
        let failed = |error: serde_json::Error| KernelError::Failed(error.into());
        let state = serde_json::to_vec(point.state).map_err(failed)?;
        let recording = save(&state).map_err(KernelError::Unsupported)?;
        let calls = point.calls.clone();
        let calls =
            calls.map_err(|BinaryReplies| KernelError::Unsupported("binary data of a function waits for it".into()))?;
        // A reply that has arrived since then is not in the snapshot.
        self.saved_replies.store(calls.as_ref().map_or(0, SavedCalls::replies), Ordering::Relaxed);
        let mut metadata = SnapshotMetadata::read(start)?;
        // The cell may have been replayed before: its recording has gone on since.
        let start_length = metadata.replay.as_ref().map_or(length, |replay| replay.start_length);
        let facts = self.facts.lock();
        let ran = facts.step.elapsed().saturating_sub(facts.waited).saturating_sub(point.elapsed);
        metadata.replay = Some(ReplayedCell {
            version: VERSION,
            limits: limits_of_space(&self.limits),
            start_length,
            members: facts.members.clone(),
            tried: facts.tried.clone(),
            calls,
            own_timeout: facts.own_timeout.map(microseconds),
            spent: microseconds(facts.spent + ran),
            kind: point.kind,
        });
        drop(facts);
        Ok(HeldSnapshot { metadata: serde_json::to_value(metadata).map_err(failed)?, start_length, recording })
    }
}

/// Saves a cell while it sleeps.
pub(super) struct SleepingCell {
    pub(super) held: Arc<HeldCell>,
    pub(super) calls: Option<RunCalls>,
}

impl SleepSaver for SleepingCell {
    fn on_sleep(&self, elapsed: Duration, save: &dyn Fn() -> Result<Vec<u8>, Cow<'static, str>>) {
        let point = WaitPoint {
            elapsed,
            kind: HeldWaitKind::Sleep,
            state: &(),
            calls: self.calls.as_ref().map(RunCalls::save_held).transpose(),
            replies: &|| self.calls.as_ref().map_or(0, RunCalls::replies_left),
            // Only the code knows when it goes on: it does so at once, and sleeps on.
            timer: Some(Duration::ZERO),
            is_abandoned: false,
        };
        // A cell that sleeps goes on here.
        let _ = self.held.on_wait_with(&|_| save(), &point);
    }

    fn end_sleep(&self) -> Result<(), Termination> {
        self.held.end_wait(Duration::ZERO)
    }
}

/// Passes on what a cell does, except for what it repeats.
pub(super) struct ReplayObserver {
    pub(super) inner: Arc<dyn CellObserver>,
    /// True while the cell repeats what it did.
    pub(super) is_replaying: Arc<AtomicBool>,
}

impl Progress for ReplayObserver {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        self.inner.start(step)
    }
}

impl CellObserver for ReplayObserver {
    fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        if !self.is_replaying.load(Ordering::Relaxed) {
            self.inner.on_stream(stream, bytes);
        }
    }

    fn on_display(&self, event: &DisplayEvent) {
        if !self.is_replaying.load(Ordering::Relaxed) {
            self.inner.on_display(event);
        }
    }

    fn on_phase(&self, name: &str) {
        self.inner.on_phase(name);
    }

    fn on_stage(&self, stage: SpanName) {
        self.inner.on_stage(stage);
    }

    fn on_install(&self, record: &InstallRecord) {
        self.inner.on_install(record);
    }

    fn on_debug(&self, message: &str) {
        self.inner.on_debug(message);
    }

    fn on_tool_call(&self, line: &str) {
        self.inner.on_tool_call(line);
    }

    fn on_connection(&self, record: &ConnectionRecord) {
        self.inner.on_connection(record);
    }

    fn request_input(&self, prompt: &str, secret: bool) -> Result<Receiver<InputReply>, InputError> {
        self.inner.request_input(prompt, secret)
    }

    fn on_report(&self, report: RunReport) {
        self.inner.on_report(report);
    }

    fn on_value(&self, value: EncodedValue) {
        self.inner.on_value(value);
    }

    fn call_function(&self, call: FunctionCall, replies: &ReplySender) {
        self.inner.call_function(call, replies);
    }

    fn on_holding_wait(&self) {
        self.inner.on_holding_wait();
    }

    fn cancel_function(&self, id: u64) {
        self.inner.cancel_function(id);
    }
}
