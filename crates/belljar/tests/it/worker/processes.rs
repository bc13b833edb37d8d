//! The processes of a server, as the machine shows them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// The time for which a test waits for something that must happen.
const TIMEOUT: Duration = Duration::from_secs(180);

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process(u32);

impl Process {
    /// Returns the children of a process.
    fn children(self) -> Vec<Self> {
        let tasks = fs::read_dir(self.path("task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        lists.flat_map(|list| list.split_whitespace().map(|id| Self(id.parse().unwrap())).collect::<Vec<_>>()).collect()
    }

    pub(super) fn path(self, name: &str) -> PathBuf {
        format!("/proc/{}/{name}", self.0).into()
    }

    /// Returns the value of a field of `status`, if the process exists.
    pub(super) fn status(self, field: &str) -> Option<String> {
        let status = fs::read_to_string(self.path("status")).ok()?;
        status.lines().find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.trim().to_owned()))
    }

    /// Returns whether the process exists and has not ended.
    pub(super) fn lives(self) -> bool {
        self.status("State").is_some_and(|state| !state.starts_with('Z'))
    }

    /// Returns the processor time that the process has used, in ticks.
    pub(super) fn processor_time(self) -> u64 {
        let stat = fs::read_to_string(self.path("stat")).unwrap_or_default();
        let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
        fields.split(' ').nth(11).map_or(0, |ticks| ticks.parse().unwrap())
    }

    /// Returns the processor time of the threads that give way to others, in ticks.
    pub(super) fn yielding_time(self) -> u64 {
        /// The number of the policy `SCHED_IDLE`.
        const IDLE: &str = "5";
        let tasks = fs::read_dir(self.path("task")).into_iter().flatten().flatten();
        let times = tasks.filter_map(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).ok()?;
            let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
            (*fields.get(38)? == IDLE).then(|| fields[11].parse::<u64>().unwrap())
        });
        times.sum()
    }

    pub(super) fn signal(self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.0.to_string()]).status().unwrap().success());
    }
}

/// Waits until `find` finds something.
pub(super) fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(start.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the templates of a server: their first processes, which are the parents of workers.
pub(super) fn templates(server: u32) -> Vec<Process> {
    let outer = Process(server).children().into_iter();
    let is_template = |process: &Process| {
        fs::read(process.path("cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|part| part == b"__belljar-worker"))
    };
    // A template without namespaces is the parent itself.
    let first = |process: Process| process.children().into_iter().find(|_| !has_workers(process)).unwrap_or(process);
    outer.filter(is_template).map(first).collect()
}

/// Returns whether a process is the parent of workers, which are sealed.
fn has_workers(process: Process) -> bool {
    process.children().iter().any(|child| child.status("Seccomp").as_deref() == Some("2"))
}

/// Returns the sealed workers of a server.
pub(super) fn workers(server: u32) -> Vec<Process> {
    let children = templates(server).into_iter().flat_map(Process::children);
    let mut workers: Vec<_> = children.filter(|worker| worker.status("Seccomp").as_deref() == Some("2")).collect();
    workers.sort();
    workers
}

/// Waits until one worker has used the processor for longer than its start takes, and returns it.
pub(super) fn busy_worker(server: u32) -> Process {
    wait_for("a worker runs code", || workers(server).into_iter().find(|worker| worker.processor_time() > 50))
}

/// Waits until the server has this many workers.
pub(super) fn wait_for_workers(server: u32, count: usize) -> Vec<Process> {
    wait_for("the number of workers", || Some(workers(server)).filter(|workers| workers.len() == count))
}
