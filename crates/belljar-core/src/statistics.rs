//! The statistics of a backend, which the metrics of a server show.

use std::collections::BTreeMap;
use std::time::Instant;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

/// The upper bounds of the durations of installations, in seconds. A package from the cache takes milliseconds, and the
/// time limit of an installation is minutes.
const INSTALL_BUCKETS: [f64; 11] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 180.0];

/// The statistics of a backend since it was created.
#[derive(Debug, Clone, Default)]
pub struct BackendStatistics {
    /// The installations of packages.
    pub installs: InstallStatistics,
    /// The cache of the backend; `None` if it has none, or has not opened it.
    pub cache: Option<CacheStatistics>,
}

/// The installations of packages. Clones share the numbers.
#[derive(Debug, Clone)]
pub struct InstallStatistics {
    /// The number of installations that succeeded.
    pub succeeded: Counter,
    /// The number of installations that failed, were refused or were cancelled.
    pub failed: Counter,
    /// The time that installations took, in seconds.
    pub duration: Histogram,
}

impl Default for InstallStatistics {
    fn default() -> Self {
        Self { succeeded: Counter::default(), failed: Counter::default(), duration: Histogram::new(INSTALL_BUCKETS) }
    }
}

impl InstallStatistics {
    /// Records an installation that began at `begin` and ends now.
    pub fn record(&self, begin: Instant, has_succeeded: bool) {
        if has_succeeded { &self.succeeded } else { &self.failed }.inc();
        self.duration.observe(begin.elapsed().as_secs_f64());
    }
}

/// The statistics of a cache.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheStatistics {
    /// The uses of this process, by kind of entry.
    pub uses: BTreeMap<&'static str, CacheUses>,
    /// The number of entries, of all processes.
    pub entries: u64,
    /// The size of their files, in bytes.
    pub bytes: u64,
}

/// The number of uses of a cache's entries of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheUses {
    /// The number of lookups that found an entry.
    pub hits: u64,
    /// The number of lookups that found none.
    pub misses: u64,
    /// The number of entries that were created.
    pub builds: u64,
}
