//! Logs that cannot be written.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use belljar_audit::{Audit, AuditOptions, ChainedRecord, Event, FailureMode, FileSink, Sink, StreamSink, verify};

use super::{check, record, start_record, stop_record};

/// A file on a disk that can be full.
struct Disk {
    file: FileSink,
    is_full: Arc<AtomicBool>,
}

impl Sink for Disk {
    fn push(&mut self, batch: &[ChainedRecord]) {
        self.file.push(batch);
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.file.flush()
    }

    fn name(&self) -> String {
        self.file.name()
    }
}

pub(crate) fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn full_disk_stops_code_until_there_is_space_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let is_full = Arc::new(AtomicBool::new(false));
    let disk = Disk { file: FileSink::open(&path, None).unwrap(), is_full: is_full.clone() };
    let options = AuditOptions { sinks: vec![Box::new(disk)], ..AuditOptions::default() };
    let audit = Audit::start(options, start_record()).unwrap();
    assert!(audit.admit().is_ok());
    is_full.store(true, Ordering::Relaxed);
    audit.record(|| record("a"));
    wait_for("the refusal", || audit.admit().is_err());
    let error = audit.admit().unwrap_err().to_string();
    assert!(error.contains("audit.log"), "{error}");
    audit.record(|| record("b"));
    is_full.store(false, Ordering::Relaxed);
    wait_for("the end of the refusals", || audit.admit().is_ok());
    audit.close(stop_record);
    let found = check(&[path]);
    assert!(found.is_intact() && found.is_complete, "{found:?}");
    assert_eq!(found.records, 5);
}

/// A file on a disk that may not sync.
struct UnsyncedDisk {
    file: FileSink,
    has_failed: Arc<AtomicBool>,
}

impl Sink for UnsyncedDisk {
    fn push(&mut self, batch: &[ChainedRecord]) {
        self.file.push(batch);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.has_failed.load(Ordering::Relaxed) {
            return Err(io::Error::other("the disk has an error"));
        }
        self.file.sync()
    }

    fn name(&self) -> String {
        self.file.name()
    }
}

#[test]
fn failed_sync_stops_code_until_a_sync_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let has_failed = Arc::new(AtomicBool::new(true));
    let disk = UnsyncedDisk { file: FileSink::open(&path, None).unwrap(), has_failed: has_failed.clone() };
    let audit = Audit::start(AuditOptions { sinks: vec![Box::new(disk)], ..AuditOptions::default() }, start_record());
    let audit = audit.unwrap();
    wait_for("the refusal", || audit.admit().is_err());
    let error = audit.admit().unwrap_err().to_string();
    assert!(error.contains("failed to sync") && error.contains("the disk has an error"), "{error}");
    // That a record is written does not make it safe.
    audit.record(|| record("a"));
    wait_for("the write", || std::fs::read_to_string(&path).unwrap().contains("\"name\":\"a\""));
    std::thread::sleep(Duration::from_millis(50));
    assert!(audit.admit().is_err());
    has_failed.store(false, Ordering::Relaxed);
    wait_for("the end of the refusals", || audit.admit().is_ok());
    audit.close(stop_record);
    let found = check(&[path]);
    assert!(found.is_intact() && found.is_complete, "{found:?}");
}

/// A place that loses records after it has taken them.
struct Lossy(u64);

impl Sink for Lossy {
    fn push(&mut self, batch: &[ChainedRecord]) {
        self.0 += batch.iter().filter(|chained| chained.record.event == Event::FileRead).count() as u64;
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.0)
    }

    fn name(&self) -> String {
        "a lossy place".into()
    }
}

#[test]
fn records_that_a_place_has_lost_are_counted_with_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let file = Some(FileSink::open(&path, None).unwrap());
    let options = AuditOptions { file, sinks: vec![Box::new(Lossy(0))], ..AuditOptions::default() };
    let audit = Audit::start(options, start_record()).unwrap();
    for name in ["a", "b"] {
        audit.record(|| record(name));
        wait_for("the write", || std::fs::read_to_string(&path).unwrap().contains(&format!("\"name\":\"{name}\"")));
    }
    assert!(audit.admit().is_ok());
    audit.close(stop_record);
    assert!(check(std::slice::from_ref(&path)).is_intact());
    let text = std::fs::read_to_string(&path).unwrap();
    let records: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lost: Vec<_> = records.iter().filter(|record| record["event"] == "audit.lost").collect();
    assert_eq!(lost.iter().map(|record| record["count"].as_u64().unwrap()).sum::<u64>(), 2, "{text}");
    assert!(lost.iter().all(|record| record["name"] == "a lossy place"), "{text}");
}

/// Returns the number of records about files that are in a log, or are counted there as lost.
fn counted(path: &Path) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    // The last line may not be complete yet.
    let records = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let count = |record: serde_json::Value| match record["event"].as_str() {
        Some("audit.lost") => record["count"].as_u64().unwrap(),
        Some("file.read") => 1,
        _ => 0,
    };
    records.map(count).sum()
}

#[test]
fn records_beyond_the_queue_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let is_full = Arc::new(AtomicBool::new(false));
    let disk = Disk { file: FileSink::open(&path, None).unwrap(), is_full: is_full.clone() };
    let failure = FailureMode::Warn;
    let options = AuditOptions { sinks: vec![Box::new(disk)], failure, ..AuditOptions::default() };
    let audit = Audit::start(options, start_record()).unwrap();
    is_full.store(true, Ordering::Relaxed);
    for at in 0..20_000 {
        audit.record(|| record(&at.to_string()));
    }
    assert!(audit.admit().is_ok(), "calls go on");
    is_full.store(false, Ordering::Relaxed);
    // The writer has room again before the last record.
    wait_for("the end of the queue", || counted(&path) == 20_000);
    audit.close(stop_record);
    let found = check(std::slice::from_ref(&path));
    assert!(found.is_intact() && found.is_complete, "{found:?}");
    assert_eq!(counted(&path), 20_000);
}

#[cfg(target_os = "linux")]
#[test]
fn full_device_refuses_the_start_or_warns() {
    let start = |failure| {
        let file = Some(FileSink::open("/dev/full".as_ref(), Some(1000)).unwrap());
        Audit::start(AuditOptions { file, failure, ..AuditOptions::default() }, start_record())
    };
    let error = start(FailureMode::Stop).unwrap_err().to_string();
    assert!(error.starts_with("failed to write /dev/full: "), "{error}");
    let audit = start(FailureMode::Warn).unwrap();
    assert!(audit.admit().is_ok());
    audit.record(|| record("a"));
    audit.close(stop_record);
}

#[test]
fn stream_gets_the_same_lines_as_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let (path, copy) = (directory.path().join("audit.log"), directory.path().join("copy.log"));
    let stream = StreamSink::new(std::fs::File::create(&copy).unwrap(), "copy");
    let file = Some(FileSink::open(&path, None).unwrap());
    let options = AuditOptions { file, sinks: vec![Box::new(stream)], ..AuditOptions::default() };
    let audit = Audit::start(options, start_record()).unwrap();
    audit.record(|| record("a"));
    audit.close(stop_record);
    assert_eq!(std::fs::read(&path).unwrap(), std::fs::read(&copy).unwrap());
    assert!(verify(&[copy], None).unwrap().is_intact());
}

#[test]
fn secrets_are_not_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let file = Some(FileSink::open(&path, None).unwrap());
    // The second is also a key by its beginning, but not as a whole.
    let known = ["known-value", "sk-abcdefgh1234.tail"];
    let scrub = Box::new(move |text: String| {
        known.iter().fold(text, |text, secret| text.replace(secret, &"*".repeat(secret.len())))
    });
    let audit = Audit::start(AuditOptions { file, scrub, ..AuditOptions::default() }, start_record()).unwrap();
    audit.record(|| {
        let mut record = record("postgres://ann:hunter2@db");
        record.details.arguments = Some("{\"password\": \"hunter2\", \"text\": \"known-value\"}".into());
        record.details.error = Some("denied: Bearer hunter2hunter2".into());
        record.details.code = Some("token = 'hunter2'; print('sk-abcdefgh1234.tail')".into());
        record
    });
    audit.close(stop_record);
    let text = std::fs::read_to_string(&path).unwrap();
    for secret in ["hunter2", "known-value", "sk-", "abcdefgh", "tail"] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
    assert!(check(&[path]).is_intact());
}
