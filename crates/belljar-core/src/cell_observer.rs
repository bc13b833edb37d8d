//! The receiver of what code does while it runs: [`CellObserver`].

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::activity::trace::SpanName;
use crate::cell_watcher::CellWatcher;
use crate::connection::ConnectionRecord;
use crate::exchange::{EncodedValue, FunctionCall, FunctionError, FunctionReply};
use crate::execution::RunReport;
use crate::install_record::InstallRecord;
use crate::kernel_error::{InputError, InputReply};
use crate::mime::DisplayEvent;
use crate::output::Stream;
use crate::progress::{NoProgress, Progress, ProgressStep, StepProgress};
use crate::waiting::ReplySender;

/// The receiver of what code does while it runs: its output, display events, progress and input requests.
pub trait CellObserver: Progress + Send + Sync {
    /// Receives bytes that the code wrote. They may end inside of a line or a UTF-8 sequence.
    fn on_stream(&self, stream: Stream, bytes: &[u8]);

    /// Receives a display event. Observers that need no live display read
    /// [`CellResult::outputs`](crate::CellResult::outputs) instead.
    fn on_display(&self, event: &DisplayEvent) {
        let _ = event;
    }

    /// Receives the name of the phase that the call has reached, such as `running`.
    fn on_phase(&self, name: &str) {
        let _ = name;
    }

    /// Receives the stage of the work that begins: [`SpanName::Image`], [`SpanName::Restore`] or [`SpanName::Run`].
    fn on_stage(&self, stage: SpanName) {
        let _ = stage;
    }

    /// Receives the record of an installation of packages for the code that has changed something, or has failed.
    fn on_install(&self, record: &InstallRecord) {
        let _ = record;
    }

    /// Receives a message for debugging: why a package is not installed, what a helper cell raised.
    fn on_debug(&self, message: &str) {
        let _ = message;
    }

    /// Receives a line about a call of a tool that begins or has ended.
    fn on_tool_call(&self, line: &str) {
        let _ = line;
    }

    /// Receives the record of a connection, or of an HTTP request, that has ended or was refused.
    fn on_connection(&self, record: &ConnectionRecord) {
        let _ = record;
    }

    /// Requests a line of input from the client. The reply arrives at the returned receiver.
    ///
    /// # Errors
    /// Fails if the client cannot be asked.
    fn request_input(&self, prompt: &str, secret: bool) -> Result<Receiver<InputReply>, InputError>;

    /// Receives the result of the program of [`Backend::program`](crate::kernel::Backend::program).
    fn on_report(&self, report: RunReport) {
        let _ = report;
    }

    /// Receives the value of a cell whose request had an [`Exchange`](crate::Exchange).
    fn on_value(&self, value: EncodedValue) {
        let _ = value;
    }

    /// Starts a call of a function of the host. The reply is sent to `replies`, at once or later. Runs on the
    /// thread that runs the code or serves its kernel, which is blocked meanwhile.
    fn call_function(&self, call: FunctionCall, replies: &ReplySender) {
        let message = format!("the host has no function `{}`", call.name);
        let error = FunctionError { name: "NameError".into(), message };
        // Ignore send errors: the code may have ended.
        let _ = replies.send(FunctionReply { id: call.id, result: Err(error) });
    }

    /// Receives, several times a second, that the code waits for functions of the host and holds its thread meanwhile:
    /// it cannot be continued elsewhere before it has received a reply.
    fn on_holding_wait(&self) {}

    /// Cancels a call that [`CellObserver::call_function`] started: the code does not wait for its reply any more.
    fn cancel_function(&self, id: u64) {
        let _ = id;
    }

    /// Receives the watcher of the cell, which follows its calls of tools. Called before the code begins.
    fn watch(&self, watcher: &Arc<dyn CellWatcher>) {
        let _ = watcher;
    }
}

/// The time that a person has to reply to a prompt of `input()`.
pub const INPUT_TIMEOUT: Duration = Duration::from_secs(600);

/// A [`CellObserver`] that ignores everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NullObserver;

impl Progress for NullObserver {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        NoProgress.start(step)
    }
}

impl CellObserver for NullObserver {
    fn on_stream(&self, _: Stream, _: &[u8]) {}

    fn request_input(&self, _: &str, _: bool) -> Result<Receiver<InputReply>, InputError> {
        Err(InputError::Unavailable)
    }
}
