//! An observer of code that can call tools.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use belljar_core::activity::trace::SpanName;
use belljar_core::kernel::{CellObserver, InputError, InputReply};
use belljar_core::mime::DisplayEvent;
use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{
    CellWatcher, ConnectionRecord, EncodedValue, FunctionCall, InstallRecord, Progress, ReplySender, RunReport, Stream,
};

use crate::run::ToolRun;

/// Passes the operations of tools to a [`ToolRun`], and everything else to another observer.
///
/// The numbers of calls are unique in a run, so that a cancellation reaches the one that has the call. Dropping the
/// observer ends the operations in progress.
pub struct ToolObserver {
    inner: Arc<dyn CellObserver>,
    run: ToolRun,
}

impl ToolObserver {
    /// Creates the observer of a run.
    pub fn new(inner: Arc<dyn CellObserver>, run: ToolRun) -> Self {
        Self { inner, run }
    }
}

impl Drop for ToolObserver {
    fn drop(&mut self) {
        self.run.cancel_all();
    }
}

impl Progress for ToolObserver {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        self.inner.start(step)
    }
}

impl CellObserver for ToolObserver {
    fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        self.inner.on_stream(stream, bytes);
    }

    fn on_display(&self, event: &DisplayEvent) {
        self.inner.on_display(event);
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

    fn on_holding_wait(&self) {
        self.inner.on_holding_wait();
    }

    fn call_function(&self, call: FunctionCall, replies: &ReplySender) {
        if ToolRun::handles(&call) {
            self.run.start(call, replies);
        } else {
            self.inner.call_function(call, replies);
        }
    }

    fn cancel_function(&self, id: u64) {
        self.run.cancel(id);
        self.inner.cancel_function(id);
    }

    fn watch(&self, watcher: &Arc<dyn CellWatcher>) {
        self.run.set_watcher(watcher);
        self.inner.watch(watcher);
    }
}
