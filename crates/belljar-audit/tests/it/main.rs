//! The log from outside: what is written, what verification finds, and what happens when writing fails.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod continuation;
mod failures;
mod tampering;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use belljar_audit::{Audit, AuditOptions, ChainedRecord, Details, Event, FileSink, Record, Sink, Verification, verify};

use failures::wait_for;

/// Returns a record about a file of this name.
fn record(name: &str) -> Record {
    Record::new(Event::FileRead, Details { name: Some(name.into()), bytes: Some(7), ..Details::default() })
}

fn start_record() -> Record {
    Record::new(Event::ServerStart, Details::default())
}

fn stop_record() -> Record {
    Record::new(Event::ServerStop, Details::default())
}

/// Starts a log in a file.
fn start(path: &Path, max_size: Option<u64>) -> Audit {
    let file = Some(FileSink::open(path, max_size).unwrap());
    Audit::start(AuditOptions { file, ..AuditOptions::default() }, start_record()).unwrap()
}

/// Writes a log with this many records about files, and ends it.
fn write(path: &Path, count: usize, max_size: Option<u64>) {
    let audit = start(path, max_size);
    for at in 0..count {
        audit.record(|| record(&format!("file {at}")));
    }
    audit.close(stop_record);
}

fn check(files: &[PathBuf]) -> Verification {
    verify(files, None).unwrap()
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
}

fn set_lines(path: &Path, lines: &[String]) {
    std::fs::write(path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
}

#[test]
fn lines_are_json_with_their_number_time_and_event() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    write(&path, 2, None);
    let events: Vec<_> = lines(&path)
        .iter()
        .enumerate()
        .map(|(at, line)| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(record["seq"], at + 1);
            let time = record["time"].as_str().unwrap();
            assert!(time.len() == "2026-11-23T10:00:00.000000Z".len() && time.ends_with('Z'), "{time}");
            assert_eq!(record["hash"].as_str().unwrap().len(), 64);
            record["event"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_eq!(events, ["audit.open", "server.start", "file.read", "file.read", "server.stop"]);
    let found = check(&[path]);
    assert!(found.is_intact() && found.is_complete, "{found:?}");
    assert_eq!((found.records, found.first, found.last), (5, Some(1), Some(5)));
}

/// A place that counts how often it is synced.
struct SyncCounter(Arc<AtomicUsize>);

impl Sink for SyncCounter {
    fn push(&mut self, _: &[ChainedRecord]) {}

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn name(&self) -> String {
        "a counter".into()
    }
}

#[test]
fn records_are_written_and_synced_while_others_follow_and_after_a_pause() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let syncs = Arc::new(AtomicUsize::new(0));
    let file = Some(FileSink::open(&path, None).unwrap());
    let options = AuditOptions { file, sinks: vec![Box::new(SyncCounter(syncs.clone()))], ..AuditOptions::default() };
    let audit = Audit::start(options, start_record()).unwrap();
    for pause in 0..2 {
        let synced = syncs.load(Ordering::Relaxed);
        for at in 0..50 {
            audit.record(|| record(&format!("file {pause} {at}")));
            wait_for("the write", || lines(&path).len() == 3 + pause * 50 + at);
        }
        wait_for("the sync", || syncs.load(Ordering::Relaxed) > synced);
        // Longer than the thread looks for records by itself.
        std::thread::sleep(Duration::from_millis(500));
    }
    audit.close(stop_record);
    let found = check(&[path]);
    assert!(found.is_intact() && found.is_complete, "{found:?}");
    assert_eq!(found.records, 2 + 100 + 1);
}

#[test]
fn chains_of_different_logs_differ() {
    let directory = tempfile::tempdir().unwrap();
    let heads: Vec<_> = (0..2)
        .map(|at| {
            let path = directory.path().join(format!("{at}.log"));
            write(&path, 0, None);
            let first: serde_json::Value = serde_json::from_str(&lines(&path)[0]).unwrap();
            first["previous"].as_str().unwrap().to_owned()
        })
        .collect();
    assert_ne!(heads[0], heads[1]);
}

#[test]
fn records_of_many_threads_are_all_there() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("audit.log");
    let audit = start(&path, Some(20_000));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let audit = audit.clone();
            scope.spawn(move || (0..500).for_each(|at| audit.record(|| record(&format!("{thread}/{at}")))));
        }
    });
    audit.close(stop_record);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(files.len() > 2, "{files:?}");
    files.reverse();
    let found = check(&files);
    assert!(found.is_intact() && found.is_complete, "{found:?}");
    assert_eq!(found.records as usize, 2000 + 2 + files.len());
}

#[test]
fn without_a_log_nothing_is_recorded() {
    let audit = Audit::default();
    audit.record(|| panic!("a record was made"));
    assert!(!audit.is_on() && audit.admit().is_ok());
    audit.close(|| panic!("a record was made"));
}
