//! The connection between a cell and its client: it forwards output and progress, and asks the client for input if
//! the client supports elicitation: during the call, or in the protocol's modern era between two calls
//! (`input_rounds`).

use std::sync::{Arc, mpsc};

use belljar_core::kernel::{CellObserver, InputError, InputReply};
use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{EncodedValue, Progress, Stream};
use parking_lot::{Mutex, MutexGuard};
use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, LoggingLevel, PrimitiveSchemaDefinition,
    StringSchema,
};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::input_rounds::InputPrompt;
use super::is_modern;
use crate::notifier::{ClientNotifier, Output};
use crate::report::Recording;

/// The name of the only field of an elicitation.
const FIELD: &str = "value";

/// The client of one cell. Clones share it.
#[derive(Clone)]
pub(super) struct CellClient {
    shared: Arc<Shared>,
}

struct Shared {
    /// The call that waits for the cell.
    attached: Mutex<AttachedCall>,
    /// The way to ask for input, or the reason why input is unavailable.
    input: Result<InputChannel, InputError>,
    /// Set if the caller wants a report.
    recording: Option<Arc<Recording>>,
}

/// The call that currently receives a cell's output.
#[derive(Clone)]
struct AttachedCall {
    notifier: ClientNotifier,
    output: Output,
}

/// A way to ask a client for input.
#[derive(Clone)]
enum InputChannel {
    /// A request to the client during the call.
    Elicit(Peer<RoleServer>, tokio::runtime::Handle),
    /// The result of the call: the task that answers the call receives the prompt.
    NextRound(UnboundedSender<InputPrompt>),
}

impl AttachedCall {
    fn new(notifier: ClientNotifier) -> Self {
        Self { output: Output::notify_only(&notifier), notifier }
    }

    /// Sends an incomplete last line, and ends the call's events.
    fn end(&self) {
        self.output.take();
        self.notifier.end();
    }
}

impl CellClient {
    /// Creates the client of a call. Also returns the receiver of its prompts, if the client is asked between two
    /// calls.
    pub(super) fn new(
        notifier: ClientNotifier,
        context: &RequestContext<RoleServer>,
        recording: Option<Arc<Recording>>,
    ) -> (Self, Option<UnboundedReceiver<InputPrompt>>) {
        let elicitation = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
        let mut prompts = None;
        let input = match elicitation {
            Some(modes) if modes.form.is_some() || modes.url.is_none() => Ok(if is_modern(context) {
                let (send, receive) = unbounded_channel();
                prompts = Some(receive);
                InputChannel::NextRound(send)
            } else {
                InputChannel::Elicit(context.peer.clone(), tokio::runtime::Handle::current())
            }),
            _ => Err(InputError::Unsupported("the client does not support elicitation")),
        };
        let shared = Shared { attached: Mutex::new(AttachedCall::new(notifier)), input, recording };
        (Self { shared: Arc::new(shared) }, prompts)
    }

    /// Returns the recording for the report, if the caller wants one.
    pub(super) fn recording(&self) -> Option<&Recording> {
        self.shared.recording.as_deref()
    }

    pub(super) fn observer(&self) -> Arc<dyn CellObserver> {
        self.shared.clone()
    }

    /// Ends the call's events: the cell has ended, or no call waits for it until [`CellClient::attach`] is called.
    pub(super) fn detach(&self) {
        self.shared.attached().end();
    }

    /// Makes another call the receiver of the cell's output.
    pub(super) fn attach(&self, notifier: ClientNotifier) {
        *self.shared.attached() = AttachedCall::new(notifier);
    }
}

impl Shared {
    fn attached(&self) -> MutexGuard<'_, AttachedCall> {
        self.attached.lock()
    }
}

impl Progress for Shared {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        let notifier = self.attached().notifier.clone();
        notifier.start(step)
    }
}

impl CellObserver for Shared {
    fn on_phase(&self, name: &str) {
        self.attached().notifier.step(name);
    }

    fn on_installed(&self, packages: &str) {
        let notifier = self.attached().notifier.clone();
        notifier.log(LoggingLevel::Info, "belljar", format!("installed {packages}"));
    }

    fn on_tool_call(&self, line: &str) {
        let notifier = self.attached().notifier.clone();
        notifier.log(LoggingLevel::Info, "tools", line.to_owned());
        notifier.step(line);
    }

    fn on_value(&self, value: EncodedValue) {
        if let Some(recording) = &self.recording {
            recording.on_value(value);
        }
    }

    fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        if let Some(recording) = &self.recording {
            recording.on_stream(stream, bytes);
        }
        // The lock is released first, so that a client that reads slowly delays only its own cell.
        let output = self.attached().output.clone();
        output.on_stream(stream, bytes);
    }

    fn request_input(&self, prompt: &str, secret: bool) -> Result<mpsc::Receiver<InputReply>, InputError> {
        let input = self.input.clone()?;
        if secret {
            // The protocol forbids the elicitation of secrets.
            return Err(InputError::SecretsForbidden("MCP forbids to ask a client for secrets"));
        }
        let (send, answer) = mpsc::channel();
        let message =
            if prompt.trim().is_empty() { "The code requests a line of input".into() } else { prompt.to_owned() };
        match input {
            InputChannel::Elicit(peer, runtime) => drop(runtime.spawn(async move {
                // Sending fails when the cell was stopped in the meantime.
                let _ = send.send(elicit(&peer, message).await);
            })),
            InputChannel::NextRound(prompts) => {
                let prompt = InputPrompt { message, reply: send };
                prompts.send(prompt).map_err(|_| InputError::Disconnected)?;
            }
        }
        Ok(answer)
    }
}

/// Asks a client for a line during a call.
pub(crate) async fn elicit(peer: &Peer<RoleServer>, message: String) -> InputReply {
    let result = peer.create_elicitation(elicit_line(message)).await;
    parse_elicit_result(result.map_err(|error| InputError::NoAnswer(error.to_string()))?)
}

/// Returns an elicitation of one line.
pub(super) fn elicit_line(message: String) -> ElicitRequestParams {
    let field = PrimitiveSchemaDefinition::String(StringSchema::new());
    let mut requested_schema = ElicitationSchema::new([(FIELD.to_owned(), field)].into());
    requested_schema.required = Some(vec![FIELD.into()]);
    ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema }
}

/// Returns the line from a client's response.
pub(super) fn parse_elicit_result(result: ElicitResult) -> InputReply {
    match result.action {
        ElicitationAction::Accept => {
            let content = result.content.unwrap_or_default();
            match content.get(FIELD) {
                Some(serde_json::Value::String(line)) => Ok(line.clone()),
                Some(other) if !other.is_null() => Ok(other.to_string()),
                _ => Err(InputError::NoAnswer("it accepted the question without a value".into())),
            }
        }
        _ => Err(InputError::Declined),
    }
}
