//! The connection between a cell and its client: it forwards output and progress, and asks the client for input if
//! the client supports elicitation: during the call, or in the protocol's modern era between two calls
//! (`input_rounds`).

use std::sync::{Arc, OnceLock, mpsc};

use belljar_core::kernel::{CellObserver, INPUT_TIMEOUT, InputError, InputReply};
use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{
    ConnectionLog, ConnectionRecord, EncodedValue, InstallRecord, Progress, RecordedConnections, RunReport, Stream,
};
use belljar_sessions::{Run, RunAnswer};
use parking_lot::{Mutex, MutexGuard};
use rmcp::model::LoggingLevel;
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::is_modern;
use crate::apps;
use crate::code_output::CodeOutput;
use crate::elicitation::{can_ask, elicit};
use crate::input_rounds::{CodeClient, InputPrompt, MAX_SUSPENDED};
use crate::notifier::{ClientNotifier, NotificationFilter};
use crate::report::Recording;

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
    /// The run, which passes questions on, if the cell can outlast its client.
    run: OnceLock<RunQuestions>,
    /// The result of code in an interpreter of its own.
    report: Mutex<Option<RunReport>>,
    connections: ConnectionLog,
    /// Set if the client shows panels.
    shows_panel: bool,
}

/// The questions of a run that come from `input()`, which holds its thread.
struct RunQuestions {
    run: Arc<Run>,
    runtime: tokio::runtime::Handle,
    /// The permits for questions between two calls.
    permits: Option<Arc<Semaphore>>,
}

/// The call that currently receives a cell's output.
#[derive(Clone)]
struct AttachedCall {
    notifier: ClientNotifier,
    output: CodeOutput,
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
        Self { output: CodeOutput::notify_only(&notifier), notifier }
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
        let mut prompts = None;
        let input = if !can_ask(context) {
            Err(InputError::Unsupported("the client does not support elicitation"))
        } else if is_modern(context) {
            let (send, receive) = unbounded_channel();
            prompts = Some(receive);
            Ok(InputChannel::NextRound(send))
        } else {
            Ok(InputChannel::Elicit(context.peer.clone(), tokio::runtime::Handle::current()))
        };
        let attached = Mutex::new(AttachedCall::new(notifier));
        let (run, report, connections) = (OnceLock::new(), Mutex::default(), ConnectionLog::default());
        let shows_panel = apps::shows_panels(context);
        let shared = Shared { attached, input, recording, run, report, connections, shows_panel };
        (Self { shared: Arc::new(shared) }, prompts)
    }

    /// Creates the client of a run that goes on without one, until a call is attached.
    pub(super) fn absent() -> Self {
        let (notifier, _) = ClientNotifier::new(NotificationFilter { level: None, progress: false });
        let (attached, input) = (Mutex::new(AttachedCall::new(notifier)), Err(InputError::Disconnected));
        let (run, report, connections) = (OnceLock::new(), Mutex::default(), ConnectionLog::default());
        let shared = Shared { attached, input, recording: None, run, report, connections, shows_panel: false };
        Self { shared: Arc::new(shared) }
    }

    /// Has a run pass the questions on. `permits` limits those of `input()`, if the client answers them between two
    /// calls.
    pub(super) fn set_run(&self, run: Arc<Run>, permits: Option<Arc<Semaphore>>) {
        let runtime = tokio::runtime::Handle::current();
        let _ = self.shared.run.set(RunQuestions { run, runtime, permits });
    }

    /// Returns whether the client shows panels.
    pub(super) fn shows_panel(&self) -> bool {
        self.shared.shows_panel
    }

    /// Returns the connections of the code so far, and forgets them.
    pub(super) fn take_connections(&self) -> RecordedConnections {
        self.shared.connections.take()
    }

    /// Returns whether the client can be asked. One that is absent can, once it is there.
    pub(super) fn can_ask(&self) -> bool {
        !matches!(self.shared.input, Err(InputError::Unsupported(_)))
    }

    /// Returns the recording for the report, if the caller wants one.
    pub(super) fn recording(&self) -> Option<&Recording> {
        self.shared.recording.as_deref()
    }

    /// Returns the result of code in an interpreter of its own that has ended.
    pub(super) fn take_report(&self) -> Option<RunReport> {
        self.shared.report.lock().take()
    }

    /// Returns the notifier of the call that waits, or waited last.
    pub(super) fn notifier(&self) -> ClientNotifier {
        self.shared.attached().notifier.clone()
    }

    pub(super) fn observer(&self) -> Arc<dyn CellObserver> {
        self.shared.clone()
    }
}

impl RunQuestions {
    fn ask(&self, message: String) -> Result<mpsc::Receiver<InputReply>, InputError> {
        let (run, call) = (self.run.clone(), self.run.next_input());
        let permit = match &self.permits {
            // Code that asks again for what was answered meanwhile does not wait.
            _ if run.has_answer(call) => None,
            None => None,
            Some(permits) => {
                let permit = permits.clone().try_acquire_owned();
                Some(permit.map_err(|_| InputError::TooManyWaiting(MAX_SUSPENDED))?)
            }
        };
        let (send, answer) = mpsc::channel();
        self.runtime.spawn(async move {
            let asked = run.ask(call, message, true);
            // Code that is interrupted does not wait any more: the question is withdrawn in the end.
            if let Ok((answer, _)) = tokio::time::timeout(INPUT_TIMEOUT, asked).await {
                let _ = send.send(match answer {
                    RunAnswer::Text(line) => Ok(line),
                    RunAnswer::Declined => Err(InputError::Declined),
                });
            }
            drop(permit);
        });
        Ok(answer)
    }
}

impl CodeClient for CellClient {
    fn attach(&self, notifier: ClientNotifier) {
        *self.shared.attached() = AttachedCall::new(notifier);
    }

    fn detach(&self) {
        self.shared.attached().end();
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

    fn on_install(&self, record: &InstallRecord) {
        if let Some(packages) = record.installed() {
            let notifier = self.attached().notifier.clone();
            notifier.log(LoggingLevel::Info, "belljar", format!("installed {packages}"));
        }
    }

    fn on_connection(&self, record: &ConnectionRecord) {
        self.connections.push(record.clone());
        let notifier = self.attached().notifier.clone();
        notifier.log(LoggingLevel::Info, "network", record.to_string());
    }

    fn on_tool_call(&self, line: &str) {
        let notifier = self.attached().notifier.clone();
        notifier.log(LoggingLevel::Info, "tools", line.to_owned());
        notifier.step(line);
    }

    fn on_report(&self, report: RunReport) {
        *self.report.lock() = Some(report);
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
        let input = self.input.clone();
        if let Err(InputError::Unsupported(reason)) = input {
            return Err(InputError::Unsupported(reason));
        }
        if secret {
            // The protocol forbids the elicitation of secrets.
            return Err(InputError::SecretsForbidden("MCP forbids to ask a client for secrets"));
        }
        let message =
            if prompt.trim().is_empty() { "The code requests a line of input".into() } else { prompt.to_owned() };
        if let Some(questions) = self.run.get() {
            return questions.ask(message);
        }
        let (send, answer) = mpsc::channel();
        match input? {
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
