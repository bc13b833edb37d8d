//! Workers whose backend starts no interpreter.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use belljar_audit::{Audit, AuditOptions, ChainedRecord, Details, Event as AuditEvent, Record, Sink, StreamSink};
use belljar_core::kernel::{
    CellObserver, CompletedRun, FindBase, KernelError, KernelSnapshot, OneShotRequest, RunOnThread,
};
use belljar_core::{CallCancellation, Limits, Progress, SessionFolder};
use parking_lot::Mutex;

use super::*;
use crate::proto::Feed;

/// A backend that starts no interpreter.
#[derive(Default)]
struct NoInterpreters(Limits);

const REASON: &str = "no interpreter is started here";

impl Backend for NoInterpreters {
    fn limits(&self) -> &Limits {
        &self.0
    }

    fn run_once(
        &self,
        _: OneShotRequest,
        _: Arc<dyn CellObserver>,
        _: &CallCancellation,
    ) -> Result<CompletedRun, KernelError> {
        Err(KernelError::Unsupported(REASON.into()))
    }

    fn start(&self, _: Option<&SessionFolder>, _: &dyn Progress) -> Result<Box<dyn Kernel>, KernelError> {
        Err(KernelError::Unsupported(REASON.into()))
    }

    fn restore(
        &self,
        _: &KernelSnapshot,
        _: FindBase<'_>,
        _: Option<&SessionFolder>,
        _: &dyn Progress,
    ) -> Result<Box<dyn Kernel>, KernelError> {
        Err(KernelError::Unsupported(REASON.into()))
    }

    fn supports_feeds(&self) -> bool {
        true
    }

    fn snapshot_files(&self, _: &KernelSnapshot) -> Vec<(String, Vec<u8>)> {
        Vec::new()
    }

    fn thread_runner(&self) -> RunOnThread {
        run_here
    }
}

fn run_here(work: Box<dyn FnOnce() + Send>) -> io::Result<()> {
    work();
    Ok(())
}

/// Returns a worker that has been configured by a client of this version.
fn worker(activity: Activity, protocol_version: u32, monty_version: &str) -> Worker {
    let options = WorkerOptions {
        backend: Arc::new(NoInterpreters::default()),
        with_memory: None,
        dump_key: DumpKey::for_local_workers(),
        activity,
        owner: None,
        view: None,
    };
    let (link, _) = Link::new(|_| true);
    let mut worker = Worker::new(options, link);
    let monty_version = monty_version.to_owned();
    worker.configure(Configure { protocol_version, monty_version, ..Configure::default() });
    worker
}

/// Returns the dump of a session.
fn saved(worker: &mut Worker) -> Vec<u8> {
    match worker.dump() {
        Event::DumpResult(DumpResult { state }) => state,
        other => panic!("not a dump: {other:?}"),
    }
}

/// Text that is written and read.
#[derive(Clone, Default)]
struct SharedText(Arc<Mutex<Vec<u8>>>);

impl Write for SharedText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn audit(sink: impl Sink + 'static) -> Audit {
    let options = AuditOptions { sinks: vec![Box::new(sink)], ..AuditOptions::default() };
    Audit::start(options, Record::new(AuditEvent::ServerStart, Details::default())).unwrap()
}

#[test]
fn feed_that_cannot_start_ends_in_the_audit_log() {
    let text = SharedText::default();
    let audit = audit(StreamSink::new(text.clone(), "text"));
    let mut worker = worker(Activity::new(audit.clone(), false), MAX_VERSION, "1.4.0");
    let end = worker.handle_session_request(Request::Feed(Feed { code: "1".into(), ..Feed::default() }));
    assert!(matches!(end, TurnEnd::Event(Event::Error(_))));
    // Not when the session ends.
    audit.close(|| Record::new(AuditEvent::ServerStop, Details::default()));
    let text = String::from_utf8(text.0.lock().clone()).unwrap();
    let records: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ends: Vec<_> = records.iter().filter(|record| record["event"] == "cell.end").collect();
    assert_eq!(ends.len(), 1, "{text}");
    assert_eq!(ends[0]["outcome"], "failed");
    assert!(ends[0]["error"].as_str().unwrap().contains(REASON), "{text}");
    drop(worker);
}

#[test]
fn loaded_session_has_the_client_that_has_loaded_it() {
    let state = saved(&mut worker(Activity::default(), 5, "1.1.0"));
    let mut second = worker(Activity::default(), 6, "1.4.2");
    let configured = format!("{:?}", second.session.as_ref().unwrap().settings());
    second.load(&state);
    assert_eq!(format!("{:?}", second.session.as_ref().unwrap().settings()), configured);
    assert_eq!(second.session.as_ref().unwrap().settings().version, 6);
}

/// A place that cannot be written from some time on.
struct Failing(Arc<AtomicBool>);

impl Sink for Failing {
    fn push(&mut self, _: &[ChainedRecord]) {}

    fn flush(&mut self) -> io::Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn name(&self) -> String {
        "a full disk".into()
    }
}

#[test]
fn no_session_is_loaded_while_the_audit_log_cannot_be_written() {
    let state = saved(&mut worker(Activity::default(), MAX_VERSION, "1.4.0"));
    let has_failed = Arc::new(AtomicBool::new(false));
    let audit = audit(Failing(has_failed.clone()));
    let mut second = worker(Activity::new(audit.clone(), false), MIN_VERSION, "1.4.0");
    second.session = None;
    has_failed.store(true, Ordering::Relaxed);
    audit.record(|| Record::new(AuditEvent::FileRead, Details::default()));
    let begin = Instant::now();
    while audit.admit().is_ok() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(5));
    }
    second.load(&state);
    assert!(second.session.is_none());
}
