//! Processes by number: that of a pidfd, and the children of one.

use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};

use procfs::process::Process;

/// Returns the process ID of the process behind a pidfd, as `/proc` has it; `None` if the process has been reaped.
#[must_use]
pub fn process_id(pidfd: BorrowedFd<'_>) -> Option<i32> {
    // `procfs` does not read the field `Pid`, which the kernel adds for pidfds.
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()?;
    let pid: i32 = info.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
    Some(pid).filter(|pid| *pid > 0)
}

/// Returns the process IDs of the children that any thread of `pid` has started and that have not been reaped. Empty if
/// the process has ended.
#[must_use]
pub fn children(pid: i32) -> Vec<i32> {
    let Ok(tasks) = Process::new(pid).and_then(|process| process.tasks()) else { return Vec::new() };
    let of_tasks = tasks.flatten().filter_map(|task| task.children().ok()).flatten();
    of_tasks.filter_map(|child| i32::try_from(child).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::syscalls::pidfd_open;

    #[test]
    fn process_of_a_pidfd_is_known_until_it_is_reaped() {
        let mut child = Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let pidfd = pidfd_open(pid).unwrap();
        assert_eq!(process_id(pidfd.as_fd()), Some(pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(process_id(pidfd.as_fd()), None);
    }

    #[test]
    fn child_of_any_thread_is_found() {
        let spawn = || Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut child = std::thread::scope(|scope| scope.spawn(spawn).join().unwrap());
        let pid = i32::try_from(child.id()).unwrap();
        assert!(children(i32::try_from(std::process::id()).unwrap()).contains(&pid));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(children(pid).is_empty());
    }
}
