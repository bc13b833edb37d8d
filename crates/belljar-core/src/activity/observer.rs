//! An observer that records what code does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime};

use belljar_audit::{Details, Event};

use super::code::CodeActivity;
use super::trace::{Attributes, KeyValue, SpanName};
use crate::cell_watcher::CellWatcher;
use crate::connection::ConnectionRecord;
use crate::exchange::{EncodedValue, FunctionCall};
use crate::execution::RunReport;
use crate::install_record::InstallRecord;
use crate::kernel::{CellObserver, InputError, InputReply};
use crate::mime::DisplayEvent;
use crate::output::Stream;
use crate::progress::{Progress, ProgressStep, StepProgress};
use crate::waiting::ReplySender;

/// Records what code does, and passes it to another observer.
pub(super) struct ActivityObserver {
    pub(super) inner: Arc<dyn CellObserver>,
    pub(super) activity: CodeActivity,
}

impl ActivityObserver {
    fn connection(&self, record: &ConnectionRecord) {
        let scope = self.activity.scope();
        scope.record(Event::Connection, || details(record));
        let begin = SystemTime::now().checked_sub(Duration::from_millis(record.duration_ms));
        let name = record.method.as_deref().unwrap_or_default();
        scope.add_span(SpanName::Connection, name, begin.unwrap_or(SystemTime::UNIX_EPOCH), || attributes(record));
    }
}

/// Returns the fields of a record.
fn details(record: &ConnectionRecord) -> Details {
    let ConnectionRecord { host, port, method, path, status, allowed, rule, error, .. } = record;
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    let request = match (method, path) {
        (Some(method), path) => Some(format!("{method} {}", path.as_deref().unwrap_or_default())),
        (None, path) => path.clone(),
    };
    let outcome = match (allowed, status, error) {
        (false, ..) => "refused".into(),
        (true, Some(status), _) => status.to_string().into(),
        (true, None, Some(_)) => "failed".into(),
        (true, None, None) => "closed".into(),
    };
    Details {
        name: Some(format!("{host}{port}")),
        arguments: request,
        outcome: Some(outcome),
        // The entry of the policy that allowed it.
        target: rule.clone(),
        error: error.clone(),
        duration: Some(Duration::from_millis(record.duration_ms)),
        bytes_sent: Some(record.bytes_sent),
        bytes_received: Some(record.bytes_received),
        ..Details::default()
    }
}

/// Returns the fields of a record. The packages are not known if the code's declaration of them cannot be read.
fn install_details(InstallRecord { packages, duration, error }: &InstallRecord) -> Details {
    Details {
        name: Some(packages.clone()).filter(|packages| !packages.is_empty()),
        outcome: Some(if error.is_some() { "failed" } else { "success" }.into()),
        error: error.clone(),
        duration: Some(*duration),
        ..Details::default()
    }
}

fn attributes(record: &ConnectionRecord) -> Attributes {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let mut attributes = vec![
        KeyValue::new("server.address", record.host.clone()),
        KeyValue::new("network.io.sent", number(record.bytes_sent)),
        KeyValue::new("network.io.received", number(record.bytes_received)),
    ];
    attributes.extend(record.port.map(|port| KeyValue::new("server.port", i64::from(port))));
    attributes.extend(record.method.clone().map(|method| KeyValue::new("http.request.method", method)));
    attributes.extend(record.status.map(|status| KeyValue::new("http.response.status_code", i64::from(status))));
    // The query may have secrets of the code.
    let path = record.path.as_deref().map(|path| path.split('?').next().unwrap_or_default().to_owned());
    attributes.extend(path.map(|path| KeyValue::new("url.path", path)));
    if !record.allowed {
        attributes.push(KeyValue::new("error.type", "refused"));
    } else if record.error.is_some() {
        attributes.push(KeyValue::new("error.type", "failed"));
    }
    attributes
}

impl Progress for ActivityObserver {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        self.inner.start(step)
    }
}

impl CellObserver for ActivityObserver {
    fn on_stream(&self, stream: Stream, bytes: &[u8]) {
        if let Some(state) = &self.activity.0 {
            state.output_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        self.inner.on_stream(stream, bytes);
    }

    fn on_display(&self, event: &DisplayEvent) {
        self.inner.on_display(event);
    }

    fn on_phase(&self, name: &str) {
        self.inner.on_phase(name);
    }

    fn on_stage(&self, stage: SpanName) {
        self.activity.enter(stage);
        self.inner.on_stage(stage);
    }

    fn on_install(&self, record: &InstallRecord) {
        if record.error.is_none() || self.activity.count_failed_install() {
            self.activity.scope().record(Event::Install, || install_details(record));
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
        self.connection(record);
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

    fn watch(&self, watcher: &Arc<dyn CellWatcher>) {
        self.inner.watch(watcher);
    }

    fn cancel_function(&self, id: u64) {
        self.inner.cancel_function(id);
    }
}
