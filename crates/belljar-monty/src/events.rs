//! Events of a worker: their contents, and the limits and times that each has.

use std::time::Instant;

use belljar_core::kernel::CellError;
use prost::Message as _;
use serde::{Deserialize, Serialize};

use crate::frame::MAX_FRAME;
use crate::link::Link;
use crate::proto::{ChildEvent, ErrorEvent, Event, RaisedException, ResolveFutures, ResourceLimits};

/// The number of suspensions that parents allow by default.
const DEFAULT_MAX_SUSPENSIONS: u64 = 1000;

/// The time that the code of a session has run.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct RunTimes {
    /// In all feeds, in microseconds.
    pub(crate) total: u64,
    /// In this feed.
    pub(crate) feed: u64,
    #[serde(skip)]
    started: Option<Instant>,
}

impl RunTimes {
    /// Begins to count.
    pub(crate) fn start(&mut self) {
        self.started = Some(Instant::now());
    }

    /// Stops to count.
    pub(crate) fn stop(&mut self) {
        if let Some(started) = self.started.take() {
            let time = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.total = self.total.saturating_add(time);
            self.feed = self.feed.saturating_add(time);
        }
    }
}

/// Returns the event that asks for results of futures.
pub(crate) fn resolve(pending_call_ids: Vec<u32>) -> Event {
    Event::ResolveFutures(ResolveFutures { pending_call_ids })
}

/// Returns an exception without a traceback.
pub(crate) fn exception(exc_type: &str, message: impl Into<String>) -> RaisedException {
    RaisedException { exc_type: exc_type.into(), message: Some(message.into()), traceback: Vec::new() }
}

/// Returns the error of a cell as an exception of a class that clients know.
pub(crate) fn exception_of_cell(error: &CellError, note: &str) -> RaisedException {
    let known = match error.name.as_str() {
        "TimeLimit" | "CpuLimit" | "WaitLimit" => "TimeoutError",
        "MemoryLimit" => "MemoryError",
        "StackLimit" => "RecursionError",
        name @ ("SystemExit" | "KeyboardInterrupt" | "OSError" | "ValueError") => {
            return exception(name, format!("{}{note}", error.message));
        }
        _ => "RuntimeError",
    };
    exception(known, format!("{}: {}{note}", error.name, error.message))
}

/// Returns the event of an exception.
pub(crate) fn error_event(exception: RaisedException) -> Event {
    Event::Error(ErrorEvent { exception: Some(exception) })
}

/// Returns the event of a request that is refused. Nothing has changed.
pub(crate) fn violation(reason: &str) -> Event {
    error_event(exception("RuntimeError", reason))
}

/// Sends an event, with the limits and times of a session.
pub(crate) fn send(
    link: &Link,
    event: Event,
    session: Option<(&ResourceLimits, &RunTimes)>,
    restored_script_name: Option<String>,
) {
    let with = |event| {
        let mut message = ChildEvent {
            kind: Some(event),
            restored_script_name: restored_script_name.clone(),
            ..ChildEvent::default()
        };
        if let Some((limits, times)) = session {
            message.total_execution_micros = times.total;
            message.feed_execution_micros = times.feed;
            message.max_suspensions = Some(limits.max_suspensions.unwrap_or(DEFAULT_MAX_SUSPENSIONS));
            message.max_feed_duration_micros = limits.max_feed_duration_micros;
            message.max_turn_duration_micros = limits.max_turn_duration_micros;
            message.max_total_sleep_micros = limits.max_total_sleep_micros;
        }
        message
    };
    let message = with(event);
    let length = message.encoded_len();
    let message = if length <= MAX_FRAME {
        message
    } else {
        with(error_event(exception(
            "MemoryError",
            format!("the event takes {length} bytes, and has at most {MAX_FRAME}"),
        )))
    };
    link.sender().send(message.encode_to_vec());
}
