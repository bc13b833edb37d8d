//! The children of a process.

use procfs::process::Process;

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
    use std::process::{Command, Stdio};

    use super::*;

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
