//! Entries that several threads and processes create, some of which are aborted.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use belljar_core::progress::{ProgressStep, StepProgress};
use belljar_core::{NoProgress, Progress};

use super::{CODE, Fixture, key};
use crate::{Cache, CacheError, EntryKey, NewEntry};

/// A [`Progress`] that sends the name of every step.
struct StepNames(Mutex<mpsc::Sender<String>>);

impl Progress for StepNames {
    fn start(&self, step: ProgressStep) -> Box<dyn StepProgress> {
        self.0.lock().unwrap().send(step.name).unwrap();
        Box::new(NoProgress)
    }
}

#[test]
fn second_thread_reports_its_wait_and_gets_the_first_ones_entry() {
    let fixture = Fixture::new();
    let (step_sender, steps) = mpsc::channel();
    let (started_sender, started) = mpsc::channel();
    std::thread::scope(|scope| {
        let cache = &fixture.cache;
        scope.spawn(move || {
            let create = |new: &NewEntry| {
                started_sender.send(()).unwrap();
                // Continue only once the second thread waits.
                assert_eq!(steps.recv().unwrap(), "waiting for another belljar process");
                new.write("code", CODE)
            };
            cache.get_or_create::<CacheError>(&key(), &NoProgress, create).unwrap();
        });
        started.recv().unwrap();
        let create = |_: &NewEntry| panic!("created twice");
        let entry = cache.get_or_create::<CacheError>(&key(), &StepNames(Mutex::new(step_sender)), create).unwrap();
        assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
    });
}

/// The environment variable with the cache directory of a child process.
pub(super) const CHILD_CACHE: &str = "BELLJAR_TEST_CHILD_CACHE";
/// The environment variable that makes a child process abort while it creates the entry.
const CHILD_ABORTS: &str = "BELLJAR_TEST_CHILD_ABORTS";
/// The environment variable with the number of child processes that have to be running before the entry is complete.
const CHILD_COUNT: &str = "BELLJAR_TEST_CHILD_COUNT";
/// The deadline for conditions that depend on other processes.
pub(super) const PROCESS_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a command that runs this test binary as a child process, which creates the entry in `cache`.
fn child(cache: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "tests::concurrency::child_creates_entry", "--ignored"]);
    command.env(CHILD_CACHE, cache).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn append_line(path: &Path, line: &str) {
    let mut file = File::options().create(true).append(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

#[test]
#[ignore = "runs as a child process of other tests"]
fn child_creates_entry() {
    let Some(root) = std::env::var_os(CHILD_CACHE).map(PathBuf::from) else { return };
    let cache = Cache::open(Some(root.clone())).unwrap();
    let started = root.with_extension("started");
    append_line(&started, "started");
    let create = |new: &NewEntry| {
        append_line(&root.with_extension("log"), "created");
        new.write("code", CODE)?;
        if std::env::var_os(CHILD_ABORTS).is_some() {
            std::process::abort();
        }
        // Keep the entry incomplete until all child processes are running.
        let count: usize = std::env::var(CHILD_COUNT).map_or(1, |count| count.parse().unwrap());
        let deadline = Instant::now() + PROCESS_TIMEOUT;
        while fs::read_to_string(&started).unwrap().lines().count() < count {
            assert!(Instant::now() < deadline, "the other child processes did not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    };
    let entry = cache.get_or_create::<CacheError>(&key(), &NoProgress, create).unwrap();
    assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
}

#[test]
fn one_of_several_processes_creates_the_entry() {
    let fixture = Fixture::new();
    let spawn = |_| child(fixture.cache.root()).env(CHILD_COUNT, "4").spawn().unwrap();
    let children: Vec<_> = (0..4).map(spawn).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(fs::read_to_string(fixture.cache.root().with_extension("log")).unwrap(), "created\n");
    assert_eq!(fixture.leftovers(), [""; 0]);
}

#[test]
fn leftovers_of_an_aborted_process_are_deleted_and_unused() {
    let fixture = Fixture::new();
    assert!(!child(fixture.cache.root()).env(CHILD_ABORTS, "1").status().unwrap().success());
    assert_eq!(fixture.leftovers().len(), 1);
    assert!(fixture.cache.get(&key()).unwrap().is_none());
    // Creating any entry deletes leftovers, not only creating the entry that was interrupted.
    let other = EntryKey::new("image");
    fixture.cache.get_or_create::<CacheError>(&other, &NoProgress, |new| new.write("base", b"")).unwrap();
    assert_eq!(fixture.leftovers(), [""; 0]);
    fixture.get_or_create();
    assert_eq!(fixture.created(), 1);
}

#[test]
fn cleanup_spares_an_entry_that_is_being_created() {
    let fixture = Fixture::new();
    let create = |new: &NewEntry| {
        new.write("code", CODE)?;
        let other = EntryKey::new("image");
        fixture.cache.get_or_create::<CacheError>(&other, &NoProgress, |new| new.write("base", b""))?;
        Ok(())
    };
    let entry = fixture.cache.get_or_create::<CacheError>(&key(), &NoProgress, create).unwrap();
    assert_eq!(fs::read(entry.file("code").unwrap()).unwrap(), CODE);
}
