//! The observer that records what a cell does, and passes it on.

use std::pin::Pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Weak};

use belljar_core::activity::trace::SpanName;
use belljar_core::kernel::{CellObserver, InputError, InputReply};
use belljar_core::mime::DisplayEvent;
use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{
    CellWatcher, ConnectionRecord, EncodedValue, FunctionCall, InstallRecord, OperatorAnswer, Progress, ReplySender,
    RunReport, Stream, ToolCallEvent,
};

use super::cell::CellRecord;

/// Records what a cell does, and passes it to another observer.
pub(super) struct WatchedObserver {
    inner: Arc<dyn CellObserver>,
    record: Arc<CellRecord>,
}

impl WatchedObserver {
    pub(super) fn new(inner: Arc<dyn CellObserver>, record: Arc<CellRecord>) -> Self {
        let watcher: Arc<dyn CellWatcher> = Arc::new(Watcher(Arc::downgrade(&record)));
        inner.watch(&watcher);
        Self { inner, record }
    }
}

impl Progress for WatchedObserver {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        self.inner.start(step)
    }
}

impl CellObserver for WatchedObserver {
    fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        self.record.on_stream(stream, bytes);
        self.inner.on_stream(stream, bytes);
    }

    fn on_display(&self, event: &DisplayEvent) {
        self.record.on_display(event);
        self.inner.on_display(event);
    }

    fn on_phase(&self, name: &str) {
        self.inner.on_phase(name);
    }

    fn on_stage(&self, stage: SpanName) {
        self.inner.on_stage(stage);
    }

    fn on_install(&self, record: &InstallRecord) {
        if let Some(packages) = record.installed() {
            self.record.on_installed(packages);
        }
        self.inner.on_install(record);
    }

    fn on_debug(&self, message: &str) {
        self.inner.on_debug(message);
    }

    fn on_tool_call(&self, line: &str) {
        self.inner.on_tool_call(line);
    }

    fn on_connection(&self, record: &ConnectionRecord) {
        self.record.on_connection(record);
        self.inner.on_connection(record);
    }

    fn request_input(&self, prompt: &str, secret: bool) -> Result<Receiver<InputReply>, InputError> {
        match self.inner.request_input(prompt, secret) {
            // The operator has no other client than the console.
            Err(InputError::Unavailable) if self.record.by_operator => {
                let (reply, line) = channel();
                let is_asked = self.record.ask_for_line(prompt, move |line| {
                    // Fails if the code was stopped in the meantime.
                    let _ = reply.send(line.ok_or(InputError::Declined));
                });
                if is_asked { Ok(line) } else { Err(InputError::Unavailable) }
            }
            asked => asked,
        }
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

    fn watch(&self, watcher: &Arc<dyn CellWatcher>) {
        self.inner.watch(watcher);
    }
}

/// Follows the calls of a cell. Weak, since calls may outlive the record.
struct Watcher(Weak<CellRecord>);

impl CellWatcher for Watcher {
    fn on_call(&self, event: &ToolCallEvent<'_>) {
        if let Some(record) = self.0.upgrade() {
            record.on_call(event);
        }
    }

    fn ask(&self, question: String) -> Pin<Box<dyn Future<Output = OperatorAnswer> + Send + '_>> {
        Box::pin(async move {
            match self.0.upgrade() {
                Some(record) => record.ask(question).await,
                None => OperatorAnswer::Withdrawn,
            }
        })
    }
}
