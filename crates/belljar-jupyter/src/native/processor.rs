//! How much processor time a kernel's process and those below it have taken.

use std::collections::HashSet;
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// Milliseconds of what `/proc` counts in: `USER_HZ` is 100 on x86-64 and on aarch64.
const TICK: u64 = 10;
/// Processes that are looked at: more than a sandbox lets there be.
const MOST: usize = 1024;

/// The processor time of the process behind a descriptor, of its children that have ended, and of those below it that run.
/// `None` when that cannot be told, as of one that has ended.
pub(crate) fn time(process: BorrowedFd<'_>) -> Option<Duration> {
    let about = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd())).ok()?;
    let number: i32 = about.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()?;
    let own = ticks(number)?;
    let mut known = HashSet::from([number]);
    let mut waiting = children(number);
    let mut all = own;
    while let Some(number) = waiting.pop() {
        if known.len() < MOST && known.insert(number) {
            all = all.saturating_add(ticks(number).unwrap_or(0));
            waiting.extend(children(number));
        }
    }
    Some(Duration::from_millis(all.saturating_mul(TICK)))
}

/// `utime`, `stime`, `cutime` and `cstime` of `/proc/PID/stat`, from the fourteenth field on.
fn ticks(process: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name that may hold anything, in parentheses.
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split(' ').skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum())
}

fn children(process: i32) -> Vec<i32> {
    let threads = fs::read_dir(Path::new("/proc").join(process.to_string()).join("task"));
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap_or_default();
    let texts: Vec<String> = threads.into_iter().flatten().flatten().take(MOST).map(of_thread).collect();
    texts.iter().flat_map(|text| text.split_whitespace()).filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_a_child_burns_counts() {
        // The name of the one that burns has a parenthesis.
        let script = "cp /bin/sh 'x) y'; ./'x) y' -c 'while :; do :; done' & wait";
        let place = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh").args(["-c", script]).current_dir(&place).spawn().unwrap();
        let descriptor =
            rustix::process::pidfd_open(rustix::process::Pid::from_child(&shell), rustix::process::PidfdFlags::empty())
                .unwrap();
        let begun = Instant::now();
        while time(descriptor.as_fd()).unwrap() < Duration::from_millis(100) {
            assert!(begun.elapsed() < Duration::from_secs(60), "nothing is counted");
            std::thread::sleep(Duration::from_millis(10));
        }
        for child in children(i32::try_from(shell.id()).unwrap()) {
            let child = rustix::process::Pid::from_raw(child).unwrap();
            rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
        }
        shell.wait().unwrap();
        assert_eq!(time(descriptor.as_fd()), None);
    }
}
