//! The log of a run's tool calls.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use belljar_audit::{Details, Event};
use belljar_core::Scope;
use belljar_core::{CellWatcher, ToolCallEvent};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::ToolFailure;
use crate::python_text::{first_line, shorten};

/// The maximum number of calls that are recorded.
const MAX_RECORDS: usize = 200;
/// The maximum length of recorded arguments and errors, in characters.
const MAX_ARGUMENTS: usize = 200;
const MAX_ERROR: usize = 300;
/// The maximum number of lines of [`CallLog::failures`], and the maximum length of the arguments in one.
const MAX_FAILURES: usize = 10;
const MAX_SHOWN_ARGUMENTS: usize = 80;

/// The state of a call, or the way in which it has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CallStatus {
    /// The call has not ended.
    Running,
    /// The tool returned a result.
    Ok,
    /// The tool failed, or the arguments are not valid.
    Error,
    /// The policy or the user denied the call.
    Denied,
    /// The tool did not respond in time.
    Timeout,
    /// The server could not be reached.
    Unavailable,
    /// A limit was exceeded.
    Limit,
    /// The code ended or gave up before the call did.
    Cancelled,
    /// The process that had sent the call ended before the result arrived.
    Interrupted,
}

impl CallStatus {
    /// Returns the name, as JSON has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Denied => "denied",
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Limit => "limit",
            Self::Cancelled => "cancelled",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<&ToolFailure> for CallStatus {
    fn from(failure: &ToolFailure) -> Self {
        match failure {
            ToolFailure::Failed(_) | ToolFailure::ErrorResult(_) | ToolFailure::ErrorResponse { .. } => Self::Error,
            ToolFailure::Denied(_) => Self::Denied,
            ToolFailure::TimedOut { .. } => Self::Timeout,
            ToolFailure::Unavailable(_) => Self::Unavailable,
            ToolFailure::Limit(_) => Self::Limit,
            ToolFailure::Interrupted(_) => Self::Interrupted,
        }
    }
}

/// A tool call of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CallRecord {
    /// The server's name.
    pub server: String,
    /// The tool's name, as the code wrote it.
    pub tool: String,
    /// The arguments as JSON, shortened.
    pub arguments: String,
    /// How the call ended.
    pub status: CallStatus,
    /// The time from the call to its result, in milliseconds.
    pub duration_ms: f64,
    /// The size of the result, in bytes.
    pub result_bytes: u64,
    /// The error that the code received, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The calls of a run that were recorded.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct CallLog {
    /// The first calls, in the order in which they began.
    pub calls: Vec<CallRecord>,
    /// The number of calls that were not recorded.
    #[serde(rename = "omitted_calls", default, skip_serializing_if = "is_zero")]
    pub omitted: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl CallLog {
    /// Returns the number of calls, with those that were not recorded.
    pub fn count(&self) -> u64 {
        self.calls.len() as u64 + self.omitted
    }

    /// Returns a line for each call that failed, for the model: also if the code caught its error. At most
    /// [`MAX_FAILURES`].
    pub fn failures(&self) -> Vec<String> {
        let failed = self.calls.iter().filter_map(|call| Some((call, call.error.as_ref()?)));
        let line = |(call, error): (&CallRecord, &String)| {
            let error = first_line(error, MAX_ERROR);
            format!("{}.{}({}): {error}", call.server, call.tool, first_line(&call.arguments, MAX_SHOWN_ARGUMENTS))
        };
        failed.take(MAX_FAILURES).map(line).collect()
    }

    /// Returns the log within a size of JSON in bytes: failed calls first, then the others.
    #[must_use]
    pub fn within(mut self, max_bytes: usize) -> Self {
        let is_ok = |call: &CallRecord| call.status == CallStatus::Ok;
        let mut order: Vec<usize> = (0..self.calls.len()).collect();
        order.sort_by_key(|at| self.calls.get(*at).is_none_or(is_ok));
        let (mut kept, mut bytes) = (vec![false; self.calls.len()], 0);
        for at in order {
            let Some(call) = self.calls.get(at) else { continue };
            bytes += serde_json::to_string(call).map_or(0, |text| text.len());
            if bytes > max_bytes {
                break;
            }
            if let Some(slot) = kept.get_mut(at) {
                *slot = true;
            }
        }
        let mut kept = kept.into_iter();
        let all = self.calls.len();
        self.calls.retain(|_| kept.next() == Some(true));
        self.omitted += (all - self.calls.len()) as u64;
        self
    }
}

/// Receives the beginning and the end of each call.
pub trait ToolEvents: Send + Sync {
    /// Receives a call that begins, with the status [`CallStatus::Running`], or one that has ended.
    fn on_call(&self, call: &CallRecord);
}

/// A [`ToolEvents`] that ignores all events.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoToolEvents;

impl ToolEvents for NoToolEvents {
    fn on_call(&self, _: &CallRecord) {}
}

/// The recorder of a run.
pub(crate) struct Recorder {
    log: Mutex<CallLog>,
    events: Arc<dyn ToolEvents>,
    scope: Scope,
    /// Follows the calls for operators.
    watcher: OnceLock<Arc<dyn CellWatcher>>,
    /// The number of the next call for the watcher.
    next: AtomicU64,
    /// Set once the calls in progress go on elsewhere: their end here is no event.
    is_suspended: AtomicBool,
}

impl Recorder {
    /// Creates a recorder that goes on with a log. Calls in progress in it are left out: they are recorded again.
    pub(crate) fn restored(mut log: CallLog, events: Arc<dyn ToolEvents>, scope: Scope) -> Arc<Self> {
        log.calls.retain(|call| call.status != CallStatus::Running);
        let (watcher, next) = (OnceLock::new(), AtomicU64::new(log.count()));
        Arc::new(Self { log: Mutex::new(log), events, scope, watcher, next, is_suspended: AtomicBool::new(false) })
    }

    /// Sets the watcher of the calls. Only the first call has an effect.
    pub(crate) fn set_watcher(&self, watcher: &Arc<dyn CellWatcher>) {
        let _ = self.watcher.set(watcher.clone());
    }

    pub(crate) fn watcher(&self) -> Option<&Arc<dyn CellWatcher>> {
        self.watcher.get()
    }

    fn notify(&self, number: u64, record: &CallRecord) {
        self.events.on_call(record);
        if let Some(watcher) = self.watcher() {
            watcher.on_call(&ToolCallEvent {
                number,
                server: &record.server,
                tool: &record.tool,
                arguments: &record.arguments,
                status: record.status.name(),
                duration_ms: record.duration_ms,
                result_bytes: record.result_bytes,
                error: record.error.as_deref(),
            });
        }
    }

    /// Ends the recording: the calls in progress go on elsewhere.
    pub(crate) fn suspend(&self) {
        self.is_suspended.store(true, Ordering::Relaxed);
    }

    /// Records a call that begins.
    pub(crate) fn begin(self: &Arc<Self>, server: &str, tool: &str, arguments: &str) -> CallInProgress {
        let record = CallRecord {
            server: shorten(server, 80),
            tool: shorten(tool, 128),
            arguments: shorten(arguments, MAX_ARGUMENTS),
            status: CallStatus::Running,
            duration_ms: 0.0,
            result_bytes: 0,
            error: None,
        };
        self.scope.record(Event::ToolStart, || Details {
            name: Some(format!("{}.{}", record.server, record.tool)),
            arguments: Some(arguments.to_owned()),
            ..Details::default()
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.notify(number, &record);
        let mut log = self.log.lock();
        let at = (log.calls.len() < MAX_RECORDS).then_some(log.calls.len());
        match at {
            Some(_) => log.calls.push(record.clone()),
            None => log.omitted += 1,
        }
        drop(log);
        CallInProgress { recorder: self.clone(), at, number, record, start: Instant::now() }
    }

    /// Records that the calls in progress are cancelled, before their tasks have ended.
    pub(crate) fn cancel(&self) {
        let mut log = self.log.lock();
        for call in log.calls.iter_mut().filter(|call| call.status == CallStatus::Running) {
            call.status = CallStatus::Cancelled;
        }
    }

    pub(crate) fn log(&self) -> CallLog {
        self.log.lock().clone()
    }
}

/// A call that has begun. Dropping it records that it was cancelled.
pub(crate) struct CallInProgress {
    recorder: Arc<Recorder>,
    at: Option<usize>,
    number: u64,
    record: CallRecord,
    start: Instant,
}

impl CallInProgress {
    /// Records the end of the call: the size of its result, or its failure.
    pub(crate) fn end(mut self, result: Result<u64, &ToolFailure>) {
        match result {
            Ok(bytes) => {
                self.record.status = CallStatus::Ok;
                self.record.result_bytes = bytes;
            }
            Err(failure) => {
                self.record.status = CallStatus::from(failure);
                self.record.error = Some(shorten(&failure.to_string(), MAX_ERROR));
            }
        }
    }
}

impl Drop for CallInProgress {
    fn drop(&mut self) {
        if self.recorder.is_suspended.load(Ordering::Relaxed) {
            return;
        }
        if self.record.status == CallStatus::Running {
            self.record.status = CallStatus::Cancelled;
        }
        self.record.duration_ms = (self.start.elapsed().as_secs_f64() * 1e6).round() / 1e3;
        if let Some(at) = self.at
            && let Some(slot) = self.recorder.log.lock().calls.get_mut(at)
        {
            slot.clone_from(&self.record);
        }
        self.recorder.notify(self.number, &self.record);
        let CallRecord { server, tool, status, error, result_bytes, .. } = &self.record;
        self.recorder.scope.record(Event::ToolEnd, || Details {
            name: Some(format!("{server}.{tool}")),
            outcome: Some(status.name().into()),
            error: error.clone(),
            duration: Some(self.start.elapsed()),
            bytes: Some(*result_bytes),
            ..Details::default()
        });
    }
}
