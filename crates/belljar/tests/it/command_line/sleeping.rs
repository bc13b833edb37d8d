//! `time.sleep`: how often it wakes its thread.

use super::interrupting::{press, start, wait_for_line};
use crate::harness::Running;

#[test]
fn a_sleeping_program_seldom_wakes_up() {
    let (running, mut stdout) = start("import time\nprint('ready')\ntime.sleep(1)\nprint('slept')\ntime.sleep(600)");
    let before = wake_ups(&running);
    wait_for_line(&mut stdout);
    let count = wake_ups(&running) - before;
    assert!(count < 100, "the process woke up {count} times");
    press(&running);
    assert_eq!(running.wait().status, Some(130));
}

/// Returns how often threads of the process have given up their processor in order to wait.
fn wake_ups(running: &Running) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.child.id())).unwrap();
    let switches = |status: String| {
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.unwrap().trim().parse::<u64>().unwrap()
    };
    tasks.map(|task| switches(std::fs::read_to_string(task.unwrap().path().join("status")).unwrap())).sum()
}
