//! Resource limits of one instance.

use std::sync::Arc;

use wasmtime::ResourceLimiter;

/// The limits of one instance. Time limits are in [`crate::watchdog`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of linear memory. Growth beyond this limit is refused, and the program sees `ENOMEM`.
    pub memory: u64,
    /// Bytes written to standard output and error together. Exceeding this limit ends the program.
    pub output: u64,
    /// Limits on the instance's private files.
    pub files: crate::fs::Quota,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 2 << 30, output: 64 << 20, files: crate::fs::Quota::default() }
    }
}

/// The maximum number of entries of an instance's tables together: functions of every library it loads.
const MAX_TABLE_ENTRIES: usize = 1 << 20;

/// The maximum number of wasm instances of an instance: the program, its libraries, and parts of these.
const MAX_INSTANCES: usize = 1 << 20;

/// A meter of the memory of several instances, which may have a limit for all of them.
pub trait MemoryMeter: Send + Sync {
    /// Adds bytes by which a memory is to grow. Returns false, and adds nothing, if that is refused.
    fn grow(&self, bytes: u64) -> bool;

    /// Adds bytes of a memory that exists already.
    fn add(&self, bytes: u64);

    /// Subtracts bytes.
    fn release(&self, bytes: u64);
}

/// A limiter that refuses growth of linear memory beyond a limit, and records the peak.
pub(crate) struct MemoryBudget {
    limit: usize,
    peak: usize,
    meter: Option<MeteredMemory>,
}

/// The bytes of an instance that a meter counts.
struct MeteredMemory {
    meter: Arc<dyn MemoryMeter>,
    bytes: u64,
}

impl Drop for MeteredMemory {
    fn drop(&mut self) {
        self.meter.release(self.bytes);
    }
}

impl MemoryBudget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit: usize::try_from(limit).unwrap_or(usize::MAX), peak: 0, meter: None }
    }

    /// Returns the limit in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Counts the memory, whose size is `bytes`, with `meter` from now on.
    pub(crate) fn set_meter(&mut self, meter: Arc<dyn MemoryMeter>, bytes: u64) {
        meter.add(bytes);
        self.meter = Some(MeteredMemory { meter, bytes });
    }

    /// Records a size that did not result from growth.
    pub(crate) fn record(&mut self, size: usize) {
        self.peak = self.peak.max(size);
    }

    /// Returns the largest size that the memory had, in bytes.
    pub(crate) fn peak(&self) -> usize {
        self.peak
    }
}

impl ResourceLimiter for MemoryBudget {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let mut allowed = desired <= self.limit;
        if let Some(metered) = self.meter.as_mut().filter(|_| allowed) {
            let bytes = desired.saturating_sub(current) as u64;
            allowed = metered.meter.grow(bytes);
            metered.bytes += if allowed { bytes } else { 0 };
        }
        if allowed {
            self.peak = self.peak.max(desired);
        }
        Ok(allowed)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= MAX_TABLE_ENTRIES)
    }

    fn instances(&self) -> usize {
        MAX_INSTANCES
    }

    fn tables(&self) -> usize {
        MAX_INSTANCES
    }
}
