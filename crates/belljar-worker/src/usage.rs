//! The memory and the processor time of a worker, as those of its owner.
//!
//! A worker asks before the memory of its interpreter grows, so that code gets a `MemoryError` at its owner's quota. It
//! is not trusted to ask: what the kernel measures beyond that counts, too, and a worker for which the quota has no
//! room is killed. Processor time is what the kernel measures.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::UsageMeter;
use parking_lot::Mutex;

/// The private memory of a worker that its owner is not charged with, in bytes: stacks, heaps and messages.
const UNCHARGED_MEMORY: u64 = 64 << 20;
/// The number of measurements in a row after which a worker is killed that uses more than its owner's quota has. The
/// first may still see the memory of the interpreter before.
const MAX_EXCESSES: u32 = 2;

/// The use of a worker.
#[derive(Default)]
pub(crate) struct WorkerUsage(Mutex<UsageState>);

#[derive(Default)]
struct UsageState {
    /// The meter of the owner, once there is one.
    meter: Option<Arc<dyn UsageMeter>>,
    /// True while an interpreter is in the worker.
    has_interpreter: bool,
    /// The bytes that the interpreter began with, and those that it has asked for.
    granted: u64,
    /// The bytes that the owner is charged with.
    charged: u64,
    /// True while the worker saves or restores an interpreter, of which it has several copies then.
    is_exchanging: bool,
    /// The number of the last measurements that were beyond the quota.
    excesses: u32,
    /// The last reading of the processor time.
    processor: Option<ProcessorReading>,
}

struct ProcessorReading {
    time: Duration,
    at: Instant,
}

impl UsageState {
    /// Sets the bytes that the owner is charged with. Returns false, and changes nothing, if the quota has no room.
    fn charge(&mut self, bytes: u64) -> bool {
        let Some(meter) = &self.meter else { return true };
        if bytes > self.charged {
            if !meter.grow_memory(bytes - self.charged) {
                return false;
            }
        } else {
            meter.release_memory(self.charged - bytes);
        }
        self.charged = bytes;
        true
    }
}

impl WorkerUsage {
    /// Begins an interpreter with memory of `bytes`, for the owner with this meter.
    pub(crate) fn begin(&self, meter: Option<Arc<dyn UsageMeter>>, bytes: u64) {
        let mut state = self.0.lock();
        state.charge(0);
        if let Some(meter) = &meter {
            meter.add_memory(bytes);
        }
        (state.granted, state.charged) = (bytes, if meter.is_some() { bytes } else { 0 });
        (state.meter, state.has_interpreter, state.excesses) = (meter, true, 0);
    }

    /// Returns whether the memory of the owner is limited.
    pub(crate) fn limits_memory(&self) -> bool {
        self.0.lock().meter.as_ref().is_some_and(|meter| meter.limits_memory())
    }

    /// Lets the interpreter grow by `bytes`. Returns false if the quota has no room.
    pub(crate) fn grow(&self, bytes: u64) -> bool {
        let mut state = self.0.lock();
        let granted = state.granted.saturating_add(bytes);
        let charged = state.charged.max(granted);
        let is_granted = state.charge(charged);
        if is_granted {
            state.granted = granted;
        }
        is_granted
    }

    /// Ends the interpreter, whose memory is free again.
    pub(crate) fn end(&self) {
        let mut state = self.0.lock();
        state.charge(0);
        (state.granted, state.has_interpreter) = (0, false);
    }

    /// Begins to save or restore the interpreter: its memory is not measured until [`WorkerUsage::end_exchange`].
    pub(crate) fn begin_exchange(&self) {
        self.0.lock().is_exchanging = true;
    }

    /// Ends saving or restoring the interpreter.
    pub(crate) fn end_exchange(&self) {
        self.0.lock().is_exchanging = false;
    }

    /// Charges the owner with the private memory that the kernel measures, in bytes, but for [`UNCHARGED_MEMORY`].
    /// Returns false if the worker is to be killed, because the quota has no room.
    pub(crate) fn measure(&self, private: u64) -> bool {
        let mut state = self.0.lock();
        let is_measured = state.has_interpreter && !state.is_exchanging;
        if !is_measured || !state.meter.as_ref().is_some_and(|meter| meter.limits_memory()) {
            return true;
        }
        let charged = state.granted.max(private.saturating_sub(UNCHARGED_MEMORY));
        state.excesses = if state.charge(charged) { 0 } else { state.excesses + 1 };
        state.excesses < MAX_EXCESSES
    }

    /// Returns whether a worker without an interpreter holds memory that its owner would not be charged with.
    pub(crate) fn holds_uncharged(&self, private: impl FnOnce() -> Option<u64>) -> bool {
        self.limits_memory() && private().is_some_and(|private| private > UNCHARGED_MEMORY)
    }

    /// Charges the owner with the processor time since the last reading, if it is limited. `read` returns that of the
    /// whole process, or nothing if the process has ended.
    pub(crate) fn count_processor_time(&self, read: impl FnOnce() -> Option<Duration>) {
        let mut state = self.0.lock();
        let Some(meter) = state.meter.clone().filter(|meter| meter.limits_processor_time()) else {
            state.processor = None;
            return;
        };
        let (at, time) = (Instant::now(), read());
        let used = state.processor.take().map(|former| match time {
            Some(time) => time.saturating_sub(former.time),
            // The kernel does not keep the time of a process that has ended.
            None => at.saturating_duration_since(former.at),
        });
        state.processor = time.map(|time| ProcessorReading { time, at });
        drop(state);
        if let Some(used) = used {
            meter.add_processor_time(used);
        }
    }
}

impl Drop for WorkerUsage {
    fn drop(&mut self) {
        self.0.get_mut().charge(0);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A meter with a quota of memory.
    #[derive(Default)]
    struct Quota {
        memory: u64,
        used: AtomicU64,
        processor: Mutex<Duration>,
    }

    impl UsageMeter for Quota {
        fn grow_memory(&self, bytes: u64) -> bool {
            let fits = self.used.load(Ordering::Relaxed) + bytes <= self.memory;
            self.used.fetch_add(if fits { bytes } else { 0 }, Ordering::Relaxed);
            fits
        }

        fn add_memory(&self, bytes: u64) {
            self.used.fetch_add(bytes, Ordering::Relaxed);
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

    fn quota(memory: u64) -> Arc<Quota> {
        Arc::new(Quota { memory, ..Quota::default() })
    }

    #[test]
    fn memory_that_was_not_asked_for_counts_when_it_is_measured() {
        const MB: u64 = 1 << 20;
        let quota = quota(200 * MB);
        let used = || quota.used.load(Ordering::Relaxed) / MB;
        let usage = WorkerUsage::default();
        usage.begin(Some(quota.clone()), 20 * MB);
        assert!(usage.grow(30 * MB) && !usage.grow(151 * MB));
        assert_eq!(used(), 50);
        // Less than it has asked for, and a little more.
        assert!(usage.measure(10 * MB) && usage.measure(114 * MB));
        assert_eq!(used(), 50);
        assert!(usage.measure(UNCHARGED_MEMORY + 120 * MB));
        assert_eq!(used(), 120);
        assert!(usage.grow(70 * MB));
        assert_eq!(used(), 120);
        // One measurement beyond the quota may see memory that is being freed.
        let above = UNCHARGED_MEMORY + 201 * MB;
        assert!(usage.measure(above) && usage.measure(0) && usage.measure(above));
        assert!(!usage.measure(above));
        usage.begin_exchange();
        assert!(usage.measure(above));
        usage.end_exchange();
        usage.end();
        assert_eq!(used(), 0);
        assert!(usage.measure(above));
        assert!(usage.holds_uncharged(|| Some(above)) && !usage.holds_uncharged(|| Some(MB)));
        usage.begin(Some(quota.clone()), 20 * MB);
        drop(usage);
        assert_eq!(used(), 0);
    }

    #[test]
    fn time_of_a_process_that_has_ended_is_that_since_the_last_reading() {
        let quota = quota(0);
        let usage = WorkerUsage::default();
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        // Without a meter.
        usage.count_processor_time(|| seconds(9));
        usage.begin(Some(quota.clone()), 0);
        for (reading, sum) in [(seconds(10), 0), (seconds(12), 2), (seconds(11), 2), (seconds(14), 5)] {
            usage.count_processor_time(|| reading);
            assert_eq!(*quota.processor.lock(), Duration::from_secs(sum));
        }
        std::thread::sleep(Duration::from_millis(20));
        for _ in 0..2 {
            usage.count_processor_time(|| None);
        }
        let sum = *quota.processor.lock();
        assert!((Duration::from_millis(5020)..Duration::from_secs(7)).contains(&sum), "{sum:?}");
    }
}
