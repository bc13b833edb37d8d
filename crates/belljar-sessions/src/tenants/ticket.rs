//! The wait of one call until its work begins: counted for its owner, until exactly one of its ends.
//!
//! ```text
//!            ┌─ JobTicket::begin ──▶ begun
//!  waiting ──┼─ CallTicket::expire ▶ expired
//!            └─ either is dropped ─▶ abandoned
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use super::refusal::WorkRefusal;
use super::tenant::Tenant;

const WAITING: u8 = 0;
const BEGUN: u8 = 1;
const EXPIRED: u8 = 2;
const ABANDONED: u8 = 3;

struct Wait {
    tenant: Tenant,
    phase: AtomicU8,
    since: Instant,
}

impl Wait {
    /// Ends the wait. Returns false if it has ended before.
    fn end(&self, phase: u8) -> bool {
        let is_ended = self.phase.compare_exchange(WAITING, phase, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if is_ended {
            self.tenant.end_wait();
        }
        is_ended
    }
}

/// The caller's half of a wait. Dropping it gives the wait up.
#[must_use = "dropping it gives the call up"]
pub struct CallTicket(Option<Arc<Wait>>);

/// The half of the work that begins after the wait. Dropping it ends the wait.
pub struct JobTicket(Arc<Wait>);

/// Begins a wait, which is counted already.
pub(super) fn issue(tenant: Tenant) -> (CallTicket, JobTicket) {
    let wait = Arc::new(Wait { tenant, phase: AtomicU8::new(WAITING), since: Instant::now() });
    (CallTicket(Some(wait.clone())), JobTicket(wait))
}

impl CallTicket {
    /// Waits until the call has waited for `timeout` and its work has not begun. Does not complete otherwise, nor
    /// without a timeout.
    pub async fn expired(&self, timeout: Option<Duration>) -> WorkRefusal {
        if let (Some(timeout), Some(wait)) = (timeout, &self.0) {
            tokio::time::sleep(timeout.saturating_sub(wait.since.elapsed())).await;
            if let Some(refusal) = self.expire() {
                return refusal;
            }
        }
        std::future::pending().await
    }

    /// Ends the wait because it was too long. Returns `None` if the work has begun.
    pub fn expire(&self) -> Option<WorkRefusal> {
        let wait = self.0.as_ref()?;
        wait.end(EXPIRED).then(|| WorkRefusal::QueueTimeout { waited: wait.since.elapsed() })
    }

    /// Leaves the work to itself: it begins even if the caller has left.
    pub fn detach(mut self) {
        self.0 = None;
    }
}

impl Drop for CallTicket {
    fn drop(&mut self) {
        if let Some(wait) = &self.0 {
            wait.end(ABANDONED);
        }
    }
}

impl JobTicket {
    /// Begins the work. Returns false if it must not begin, since its caller waits no longer.
    #[must_use]
    pub fn begin(&self) -> bool {
        self.0.end(BEGUN)
    }

    /// Returns the time for which the call has waited.
    pub fn waited(&self) -> Duration {
        self.0.since.elapsed()
    }
}

impl Drop for JobTicket {
    fn drop(&mut self) {
        self.0.end(ABANDONED);
    }
}
