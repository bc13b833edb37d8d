//! An owner at run time: what it uses now, and whether it may use more.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use belljar_core::UsageMeter;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::fair_queue::{LaneId, LaneLimits};
use super::quotas::{QuotaKind, Quotas};
use super::refusal::{QuotaExceeded, WorkRefusal};
use super::spending::Spending;
use crate::id::SessionId;

/// An owner of calls and sessions. Clones are the same owner.
#[derive(Clone)]
pub struct Tenant(Arc<State>);

struct State {
    id: LaneId,
    /// The name of the owner's quotas.
    name: Option<Arc<str>>,
    quotas: Mutex<Quotas>,
    /// The number of calls that wait.
    waiting: AtomicUsize,
    /// The number of jobs that run, without control jobs.
    running: AtomicUsize,
    /// The number of sessions that are not in the table of sessions: those of Monty's protocol.
    connections: AtomicUsize,
    memory: AtomicU64,
    /// The memory of the smallest interpreter so far, of all owners; zero if there was none.
    least_interpreter: Arc<AtomicU64>,
    processor: Mutex<Spending>,
    network: Mutex<Spending>,
    /// The bytes of each session in the store.
    stored: Mutex<HashMap<SessionId, u64>>,
    /// Notified when idle sessions are to sleep soon.
    sleep: Arc<Notify>,
    /// The time of the last call, if there was one.
    last_used: Mutex<Option<Instant>>,
}

impl fmt::Debug for Tenant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tenant").field("id", &self.0.id).finish_non_exhaustive()
    }
}

impl PartialEq for Tenant {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Tenant {}

/// Counts a session that is not in the table of sessions, until this is dropped.
pub struct SessionSlot(Tenant);

impl Drop for SessionSlot {
    fn drop(&mut self) {
        self.0.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Tenant {
    pub(super) fn new(
        id: LaneId,
        name: Option<Arc<str>>,
        quotas: Quotas,
        least_interpreter: Arc<AtomicU64>,
        sleep: Arc<Notify>,
    ) -> Self {
        let now = Instant::now();
        Self(Arc::new(State {
            id,
            name,
            quotas: Mutex::new(quotas),
            waiting: AtomicUsize::new(0),
            running: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            memory: AtomicU64::new(0),
            least_interpreter,
            processor: Mutex::new(Spending::new(now)),
            network: Mutex::new(Spending::new(now)),
            stored: Mutex::default(),
            sleep,
            last_used: Mutex::default(),
        }))
    }

    pub(crate) fn id(&self) -> LaneId {
        self.0.id
    }

    /// Returns a name that no other owner of this process has or will have.
    pub fn unique_name(&self) -> Arc<str> {
        format!("owner:{}", self.0.id).into()
    }

    /// Returns the name of the owner's quotas: the subject of its OAuth token, or the name of its token.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    pub(super) fn set_quotas(&self, quotas: Quotas) {
        *self.0.quotas.lock() = quotas;
    }

    /// Returns the quotas that hold now. A reload of the file of quotas changes them.
    pub fn quotas(&self) -> Quotas {
        self.0.quotas.lock().clone()
    }

    pub(crate) fn lane_limits(&self) -> LaneLimits {
        let quotas = self.0.quotas.lock();
        let max_running = quotas.runs.map_or(usize::MAX, |runs| usize::try_from(runs).unwrap_or(usize::MAX));
        LaneLimits { weight: quotas.weight, max_running }
    }

    /// Returns whether the owner has used the server since `time` ago, or its code runs.
    pub(super) fn is_present(&self, time: Duration, now: Instant) -> bool {
        self.0.running.load(Ordering::Relaxed) > 0
            || self.0.waiting.load(Ordering::Relaxed) > 0
            || self.0.last_used.lock().is_some_and(|used| now.saturating_duration_since(used) < time)
    }

    /// Returns whether nothing is known of this owner that a new one would not have. `references` is the number of
    /// clones of which the caller knows.
    pub(super) fn is_forgettable(&self, references: usize, now: Instant) -> bool {
        let quotas = self.quotas();
        let is_paid = |spending: &Mutex<Spending>, rate: Option<super::spending::Rate>| {
            rate.is_none_or(|rate| spending.lock().outstanding(rate, now) <= 0.0)
        };
        Arc::strong_count(&self.0) <= references
            && self.0.memory.load(Ordering::Relaxed) == 0
            && self.0.stored.lock().is_empty()
            && is_paid(&self.0.processor, quotas.processor_rate())
            && is_paid(&self.0.network, quotas.network_rate())
    }

    /// Checks whether a new call may wait or run, of which `max_running` can run at the same time, and counts it as
    /// waiting.
    pub(super) fn begin_wait(&self, max_running: usize, now: Instant) -> Result<(), WorkRefusal> {
        let quotas = self.quotas();
        *self.0.last_used.lock() = Some(now);
        if quotas.runs == Some(0) {
            return Err(exceeded(QuotaKind::Runs, self.0.running.load(Ordering::Relaxed) as f64, 0.0, None));
        }
        for (kind, rate, spending) in [
            (QuotaKind::Processor, quotas.processor_rate(), &self.0.processor),
            (QuotaKind::Network, quotas.network_rate(), &self.0.network),
        ] {
            if let Some(rate) = rate
                && let Err((used, wait)) = spending.lock().check(rate, now)
            {
                return Err(exceeded(kind, used, rate.amount, wait));
            }
        }
        let Some(queue) = quotas.queue else {
            self.0.waiting.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        };
        // A call that can run at once waits for a moment, too.
        let can_run =
            quotas.runs.map_or(max_running, |runs| usize::try_from(runs).unwrap_or(usize::MAX).min(max_running));
        let free = can_run.saturating_sub(self.0.running.load(Ordering::Relaxed));
        let limit = usize::try_from(queue).unwrap_or(usize::MAX);
        let most = limit.saturating_add(free);
        let added = self
            .0
            .waiting
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |waiting| (waiting < most).then_some(waiting + 1));
        match added {
            Ok(_) => Ok(()),
            Err(waiting) => Err(exceeded(QuotaKind::Queue, waiting.min(limit) as f64, queue as f64, None)),
        }
    }

    /// Records that a call waits no longer.
    pub(super) fn end_wait(&self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn begin_running(&self) {
        self.0.running.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_running(&self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// Adds the processor time of a job.
    pub(crate) fn add_processor_time(&self, time: Duration) {
        self.0.add_processor_time(time);
    }

    /// Returns whether the memory of the owner's code is limited.
    pub fn has_memory_quota(&self) -> bool {
        self.0.limits_memory()
    }

    /// Returns whether processor time is counted.
    pub(crate) fn has_processor_quota(&self) -> bool {
        self.0.limits_processor_time()
    }

    /// Checks that the owner may have another session; `in_table` is the number of those in the table of sessions.
    ///
    /// # Errors
    /// Fails if the quota is used up.
    pub(crate) fn check_sessions(&self, in_table: usize) -> Result<(), WorkRefusal> {
        let Some(limit) = self.0.quotas.lock().sessions else { return Ok(()) };
        let used = in_table + self.0.connections.load(Ordering::Relaxed);
        if used as u64 >= limit {
            return Err(exceeded(QuotaKind::Sessions, used as f64, limit as f64, None));
        }
        Ok(())
    }

    /// Counts a session that is not in the table, which has `in_table` sessions of this owner.
    ///
    /// # Errors
    /// Fails if the quota is used up.
    pub(super) fn begin_session(&self, in_table: usize) -> Result<SessionSlot, WorkRefusal> {
        // Counted first, so that no two are admitted for one place.
        self.0.connections.fetch_add(1, Ordering::Relaxed);
        let slot = SessionSlot(self.clone());
        let Some(limit) = self.0.quotas.lock().sessions else { return Ok(slot) };
        let used = in_table + self.0.connections.load(Ordering::Relaxed) - 1;
        if used as u64 >= limit {
            return Err(exceeded(QuotaKind::Sessions, used as f64, limit as f64, None));
        }
        Ok(slot)
    }

    /// Checks that the owner's code may have another interpreter.
    ///
    /// # Errors
    /// Fails if the interpreter's memory would exceed the quota.
    pub fn check_memory(&self) -> Result<(), WorkRefusal> {
        let Some(limit) = self.0.quotas.lock().memory else { return Ok(()) };
        let used = self.0.memory.load(Ordering::Relaxed);
        let least = self.0.least_interpreter.load(Ordering::Relaxed);
        if used.saturating_add(least) > limit {
            // Those of its sessions that are idle free their memory.
            self.0.sleep.notify_one();
            return Err(exceeded(QuotaKind::Memory, used as f64, limit as f64, None));
        }
        Ok(())
    }

    /// Returns whether the owner has no memory for another interpreter.
    pub(crate) fn is_short_of_memory(&self) -> bool {
        let limit = self.0.quotas.lock().memory.unwrap_or(u64::MAX);
        let least = self.0.least_interpreter.load(Ordering::Relaxed);
        self.0.memory.load(Ordering::Relaxed).saturating_add(least) > limit
    }

    /// Checks that the owner's sessions may store more.
    ///
    /// # Errors
    /// Fails if the quota is used up.
    pub(crate) fn check_storage(&self) -> Result<(), WorkRefusal> {
        let Some(limit) = self.0.quotas.lock().storage else { return Ok(()) };
        let used: u64 = self.0.stored.lock().values().sum();
        if used >= limit {
            return Err(exceeded(QuotaKind::Storage, used as f64, limit as f64, None));
        }
        Ok(())
    }

    /// Sets the bytes that a session has in the store; `None` if it has ended.
    pub(crate) fn set_stored(&self, session: &SessionId, bytes: Option<u64>) {
        let mut stored = self.0.stored.lock();
        match bytes {
            Some(bytes) => stored.insert(session.clone(), bytes),
            None => stored.remove(session),
        };
    }

    /// Returns the meter of what the owner's code uses.
    pub(crate) fn meter(&self) -> Arc<dyn UsageMeter> {
        self.0.clone()
    }
}

fn exceeded(kind: QuotaKind, used: f64, limit: f64, retry_after: Option<Duration>) -> WorkRefusal {
    WorkRefusal::Quota(QuotaExceeded { kind, used, limit, retry_after })
}

impl UsageMeter for State {
    fn grow_memory(&self, bytes: u64) -> bool {
        let limit = self.quotas.lock().memory.unwrap_or(u64::MAX);
        let grown = self.memory.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= limit)
        });
        grown.is_ok()
    }

    fn add_memory(&self, bytes: u64) {
        self.memory.fetch_add(bytes, Ordering::Relaxed);
        let least = self.least_interpreter.load(Ordering::Relaxed);
        if least == 0 || bytes < least {
            self.least_interpreter.store(bytes, Ordering::Relaxed);
        }
    }

    fn release_memory(&self, bytes: u64) {
        self.memory.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn limits_memory(&self) -> bool {
        self.quotas.lock().memory.is_some()
    }

    fn limits_processor_time(&self) -> bool {
        self.quotas.lock().processor.is_some()
    }

    fn add_processor_time(&self, time: Duration) {
        let rate = self.quotas.lock().processor_rate();
        if let Some(rate) = rate {
            self.processor.lock().add(time.as_secs_f64(), rate, Instant::now());
        }
    }

    fn add_network(&self, bytes: u64) {
        let rate = self.quotas.lock().network_rate();
        if let Some(rate) = rate {
            self.network.lock().add(bytes as f64, rate, Instant::now());
        }
    }

    fn check_network(&self) -> Result<(), String> {
        let Some(rate) = self.quotas.lock().network_rate() else { return Ok(()) };
        let checked = self.network.lock().check(rate, Instant::now());
        checked.map_err(|(used, wait)| exceeded(QuotaKind::Network, used, rate.amount, wait).to_string())
    }
}
