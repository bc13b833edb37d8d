//! The host calls of code in a session: its output, its displays and its requests for input.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use belljar_core::kernel::{CellObserver, INPUT_TIMEOUT, InputError, InputReply};
use belljar_core::mime::{DisplayData, DisplayEvent, MimeBundle};
use belljar_core::{HeldWaitKind, OutputCollector, bounded_json};
use belljar_emscripten::console::{self, OutputSink};
use belljar_emscripten::termination::Termination;
use belljar_network::Scrubber;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};

use super::core_stream;
use super::exchange::RunCalls;
use super::held_cell::{HeldCell, WaitPoint};
use crate::host_calls::{CallError, HostCall, HostCallContext, WaitError};

/// The maximum length of a prompt, in characters.
const MAX_PROMPT: usize = 10_000;

/// Passes what a cell writes to its collector.
pub(super) struct CollectorSink(pub(super) OutputCollector);

impl OutputSink for CollectorSink {
    fn write(&mut self, stream: console::Stream, bytes: &[u8]) {
        self.0.write(core_stream(stream), bytes);
    }
}

/// The host call `show`: publishes a display event.
pub(super) struct DisplayHandler {
    pub(super) collector: OutputCollector,
    /// Removes secrets from what is shown.
    pub(super) scrubber: Scrubber,
}

impl HostCall for DisplayHandler {
    fn call(&self, request: &RawValue, _: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "lowercase", tag = "kind")]
        enum ShowRequest {
            Display(Object),
            Result(Object),
            Update(Object),
            Clear { wait: bool },
        }
        #[derive(Deserialize)]
        struct Object {
            data: MimeBundle,
            metadata: Map<String, Value>,
            display_id: Option<String>,
        }
        impl From<Object> for DisplayData {
            fn from(Object { data, metadata, display_id }: Object) -> Self {
                Self { data, metadata, display_id }
            }
        }
        let request: ShowRequest = bounded_json::parse(&self.scrubber.scrub_text(request.get()))
            .ok_or_else(|| CallError::Refused("`show` takes representations by MIME type".into()))?;
        let event = match request {
            ShowRequest::Display(object) => DisplayEvent::Display(object.into()),
            ShowRequest::Result(object) => DisplayEvent::ExecuteResult(object.into()),
            ShowRequest::Update(object) => DisplayEvent::Update(object.into()),
            ShowRequest::Clear { wait } => DisplayEvent::Clear { wait },
        };
        self.collector.publish(event).map_err(|error| CallError::Refused(error.to_string()))?;
        to_raw_value(&()).map_err(|error| CallError::Refused(error.to_string()))
    }
}

/// The host call `input`: requests a line from the cell's observer.
pub(super) struct InputHandler {
    pub(super) observer: Arc<dyn CellObserver>,
    /// Set if the cell is recorded.
    pub(super) held: Option<Arc<HeldCell>>,
    /// The calls of functions of the host that the cell can make.
    pub(super) calls: Option<RunCalls>,
    /// Removes secrets from prompts.
    pub(super) scrubber: Scrubber,
}

impl InputHandler {
    fn wait(
        &self,
        reply: &Receiver<InputReply>,
        context: &HostCallContext<'_>,
    ) -> Result<Result<InputReply, WaitError>, Termination> {
        let Some(held) = &self.held else { return context.wait(reply, INPUT_TIMEOUT) };
        let start = Instant::now();
        let result = loop {
            let elapsed = start.elapsed();
            let left = INPUT_TIMEOUT.saturating_sub(elapsed);
            let result = context.wait(reply, left.min(HeldCell::interval(elapsed)))?;
            let is_abandoned = matches!(result, Err(WaitError::Disconnected));
            let waits_on = matches!(result, Err(WaitError::TimedOut)) && !left.is_zero();
            if waits_on || is_abandoned {
                let point = WaitPoint {
                    elapsed: start.elapsed(),
                    kind: HeldWaitKind::Input,
                    state: &(),
                    calls: self.calls.as_ref().map(RunCalls::save_held).transpose(),
                    replies: &|| self.calls.as_ref().map_or(0, RunCalls::replies_left),
                    timer: None,
                    is_abandoned,
                };
                held.on_wait(context, &point)?;
            }
            if !waits_on {
                break result;
            }
        };
        held.end_wait(start.elapsed())?;
        Ok(result)
    }
}

impl HostCall for InputHandler {
    fn call(&self, request: &RawValue, context: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        #[derive(Deserialize)]
        struct InputRequest {
            prompt: String,
            secret: bool,
        }
        let request: InputRequest =
            serde_json::from_str(request.get()).map_err(|_| CallError::Refused("`input` takes a prompt".into()))?;
        let prompt: String = self.scrubber.scrub_text(&request.prompt).chars().take(MAX_PROMPT).collect();
        let refused = |error: InputError| CallError::Refused(error.to_string());
        let reply = self.observer.request_input(&prompt, request.secret).map_err(refused)?;
        match self.wait(&reply, context)? {
            Ok(Ok(line)) => to_raw_value(&line).map_err(|error| CallError::Refused(error.to_string())),
            Ok(Err(error)) => Err(refused(error)),
            Err(WaitError::Interrupted) => Err(refused(InputError::Interrupted)),
            Err(WaitError::TimedOut) => Err(refused(InputError::TimedOut)),
            Err(WaitError::Disconnected) => Err(refused(InputError::Disconnected)),
        }
    }
}

/// Refuses host calls between cells.
pub(super) struct NoCellRunning;

impl HostCall for NoCellRunning {
    fn call(&self, _: &RawValue, _: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        Err(CallError::Refused("no cell is running".into()))
    }
}
