//! The processor time of a kernel's process and its descendants, from `/proc`.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use procfs::process::Process;

/// The number of processes that are counted at most: more than a sandbox allows.
const MAX_PROCESSES: usize = 1024;

/// Returns the processor time of the process behind a pidfd, of its children that have exited, and of its descendants
/// that run; `None` when the process has exited.
pub(crate) fn process_tree_cpu_time(pidfd: BorrowedFd<'_>) -> Option<Duration> {
    let pid = belljar_sandbox::process_id(pidfd)?;
    let root = Process::new(pid).ok()?;
    let mut ticks = cpu_ticks(&root)?;
    let mut seen = HashSet::from([pid]);
    let mut pending = belljar_sandbox::children(pid);
    while let Some(pid) = pending.pop() {
        if seen.len() < MAX_PROCESSES
            && seen.insert(pid)
            && let Ok(process) = Process::new(pid)
        {
            ticks = ticks.saturating_add(cpu_ticks(&process).unwrap_or(0));
            pending.extend(belljar_sandbox::children(pid));
        }
    }
    Some(Duration::from_millis(ticks.saturating_mul(1000) / procfs::ticks_per_second()))
}

/// Returns the clock ticks that a process and its children that were waited for have used in user mode and in the
/// kernel.
fn cpu_ticks(process: &Process) -> Option<u64> {
    let stat = process.stat().ok()?;
    let of_children = u64::try_from(stat.cutime.saturating_add(stat.cstime)).unwrap_or(0);
    Some(stat.utime.saturating_add(stat.stime).saturating_add(of_children))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::process::Command;
    use std::time::Instant;

    use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

    use super::*;

    #[test]
    fn cpu_time_of_children_counts() {
        // The name of the busy process has a parenthesis, and a byte that is not UTF-8.
        let script = r#"name=$(printf 'x) y\377'); cp /bin/sh "$name"; "./$name" -c 'while :; do :; done' & wait"#;
        let root = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh").args(["-c", script]).current_dir(&root).spawn().unwrap();
        let pidfd = pidfd_open(Pid::from_child(&shell), PidfdFlags::empty()).unwrap();
        let started = Instant::now();
        while process_tree_cpu_time(pidfd.as_fd()).unwrap() < Duration::from_millis(100) {
            assert!(started.elapsed() < Duration::from_secs(60), "the processor time did not grow");
            std::thread::sleep(Duration::from_millis(10));
        }
        for child in belljar_sandbox::children(i32::try_from(shell.id()).unwrap()) {
            kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
        assert_eq!(process_tree_cpu_time(pidfd.as_fd()), None);
    }
}
