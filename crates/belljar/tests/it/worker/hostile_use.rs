//! Workers that an attacker has taken over, and the quotas of their owners.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use belljar_core::{ExitReason, LimitKind, MeterScope, UsageMeter};
use parking_lot::Mutex;

use super::hostile::{CountingHost, call_and_then};
use belljar_python::GuestReturn;

const MB: u64 = 1 << 20;

/// Meters the use of an owner with quotas. Memory of 0 bytes means no quota of memory.
#[derive(Default)]
struct Quota {
    memory: u64,
    used: AtomicU64,
    most: AtomicU64,
    processor: Mutex<Duration>,
}

impl UsageMeter for Quota {
    fn grow_memory(&self, bytes: u64) -> bool {
        let fits = self.used.load(Ordering::Relaxed) + bytes <= self.memory;
        if fits {
            self.add_memory(bytes);
        }
        fits
    }

    fn add_memory(&self, bytes: u64) {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.most.fetch_max(used, Ordering::Relaxed);
    }

    fn limits_memory(&self) -> bool {
        self.memory > 0
    }

    fn release_memory(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn limits_processor_time(&self) -> bool {
        true
    }

    fn add_processor_time(&self, time: Duration) {
        *self.processor.lock() += time;
    }

    fn add_network(&self, _: u64) {}

    fn check_network(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Calls a worker that behaves like `mode` for an owner with a quota of memory, in megabytes.
fn call_with_quota(mode: &str, megabytes: u64) -> (GuestReturn, CountingHost, Arc<Quota>) {
    let quota = Arc::new(Quota { memory: megabytes * MB, ..Quota::default() });
    let _scope = MeterScope::enter(quota.clone());
    let (returned, _, host) = call_and_then(mode, |_| {});
    assert_eq!(quota.used.load(Ordering::Relaxed), 0, "{mode}");
    (returned, host, quota)
}

#[test]
fn worker_that_grows_without_asking_is_killed_at_the_quota() {
    let (returned, _, quota) = call_with_quota("grows", 200);
    assert!(matches!(returned.result, Err(ExitReason::Limit(LimitKind::Memory))), "{returned:?}");
    // The owner was charged for the memory that the kernel has measured.
    let most = quota.most.load(Ordering::Relaxed) / MB;
    assert!((50..=200).contains(&most), "{most}");
}

#[test]
fn memory_is_granted_up_to_the_quota() {
    let (returned, host, quota) = call_with_quota("grows-when-granted", 300);
    assert!(returned.result.is_ok(), "{returned:?}");
    let most = quota.most.load(Ordering::Relaxed) / MB;
    assert!((284..=300).contains(&most) && host.output >= 10, "{most} {}", host.output);
}

#[test]
fn forged_requests_for_memory_end_the_worker() {
    for (mode, megabytes) in [("unasked-growth", 0), ("growth-by-nothing", 300), ("growth-beyond-the-limit", 300)] {
        let (returned, ..) = call_with_quota(mode, megabytes);
        assert!(matches!(returned.result, Err(ExitReason::Crash(_))), "{mode}: {returned:?}");
    }
    let (returned, ..) = call_with_quota("endless-growth", 300);
    assert!(returned.result.is_err(), "{returned:?}");
}

#[test]
fn worker_that_works_after_its_call_is_charged() {
    let quota = Arc::new(Quota::default());
    let _scope = MeterScope::enter(quota.clone());
    let (returned, ..) = call_and_then("works", |_| {
        let begin = Instant::now();
        while *quota.processor.lock() < Duration::from_secs(2) {
            assert!(begin.elapsed() < Duration::from_secs(120));
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(returned.result.is_ok(), "{returned:?}");
}
