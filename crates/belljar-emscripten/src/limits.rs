//! What one instance may use.

use wasmtime::ResourceLimiter;

/// Bounds on one instance. Time is not here: see [`crate::stop`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of linear memory; growth beyond is refused and the program sees `ENOMEM`.
    pub memory: u64,
    /// Bytes written to standard output and error together; more ends the program.
    pub output: u64,
    /// Bounds on its private files.
    pub files: crate::fs::Quota,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 2 << 30, output: 64 << 20, files: crate::fs::Quota::default() }
    }
}

/// Entries that an instance's tables may hold together: functions of every library it loads.
const TABLE_ENTRIES: usize = 1 << 20;

/// Refuses growth of linear memory beyond a bound, and remembers the most that was in use.
#[derive(Debug, Clone)]
pub(crate) struct MemoryBudget {
    limit: usize,
    peak: usize,
}

impl MemoryBudget {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit: usize::try_from(limit).unwrap_or(usize::MAX), peak: 0 }
    }

    /// Bytes allowed.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Takes notice of a size that was not asked for by growing.
    pub(crate) fn note(&mut self, size: usize) {
        self.peak = self.peak.max(size);
    }

    /// The largest size that the memory had, in bytes.
    pub(crate) fn peak(&self) -> usize {
        self.peak
    }
}

impl ResourceLimiter for MemoryBudget {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let allowed = desired <= self.limit;
        if allowed {
            self.peak = self.peak.max(desired);
        }
        Ok(allowed)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ENTRIES)
    }
}
