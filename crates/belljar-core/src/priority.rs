//! Threads whose work gives way to that of others.

use std::cell::Cell;

use crate::os::set_idle_policy;

thread_local! {
    static GIVES_WAY: Cell<bool> = const { Cell::new(false) };
}

/// Has the current thread give way to others from now on: it gets what they leave of the processors. A process without
/// privileges cannot take this back. Other systems than Linux treat all threads alike.
pub fn give_way() {
    note_giving_way();
    set_idle_policy();
}

/// Notes that the work of the current thread, which other processes do, gives way to others. The thread itself keeps
/// its priority: it holds locks that threads with other work need, and would be without a processor meanwhile.
pub fn note_giving_way() {
    GIVES_WAY.set(true);
}

/// Returns whether the work of the current thread gives way to others.
pub fn gives_way() -> bool {
    GIVES_WAY.get()
}

// Only Linux has a priority that a test can read.
#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn thread_that_gives_way_has_the_policy_for_idle_processors() {
        /// The number of `SCHED_IDLE`.
        const IDLE: &str = "5";
        let policy = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            // The fields after the name, which may have spaces: the policy is the 41st of all.
            stat.rsplit(')').next().unwrap().split_whitespace().nth(38).unwrap().to_owned()
        };
        std::thread::spawn(move || {
            assert!(!gives_way() && policy() != IDLE);
            give_way();
            assert!(gives_way() && policy() == IDLE);
        })
        .join()
        .unwrap();
        assert!(!gives_way());
    }
}
