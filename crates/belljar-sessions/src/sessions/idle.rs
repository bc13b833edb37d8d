//! Expiry and hibernation of idle sessions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use belljar_audit::{Details, Event};
use tokio::task::JoinSet;

use super::queueing::{WorkStep, result};
use super::table::{SessionEntry, is_expired};
use super::{SessionOptions, Sessions};
use crate::id::SessionId;
use crate::session::{JobKind, Session};
use crate::state::SessionState;
use crate::store::Store;
use crate::tenants::LoadState;

/// The idle time after which a session is hibernated if memory is scarce.
const SCARCE_SLEEP_AFTER: Duration = Duration::from_secs(1);

/// The number of sessions that are hibernated at once when the server ends.
const MAX_HIBERNATING: usize = 32;

impl Sessions {
    /// Returns the time since a session was used last, which is zero while it has calls, or `None` if the session does
    /// not exist. To ask is not a use.
    pub fn idle_time(&self, id: &SessionId) -> Option<Duration> {
        let now = self.shared.clock.now();
        match self.shared.table.lock().get(id)? {
            SessionEntry::Active(session) if !session.is_idle() => Some(Duration::ZERO),
            SessionEntry::Active(session) => Some(now.saturating_sub(session.last_used())),
            SessionEntry::Hibernated(hibernated) => Some(now.saturating_sub(hibernated.last_used)),
            SessionEntry::Ending => None,
        }
    }

    /// Waits until memory is scarce, of the machine or of an owner: [`Sessions::evict_idle`] should be called then.
    pub async fn memory_is_scarce(&self) {
        self.shared.pool.tenants().sleep_requested().await;
    }

    /// Ends expired sessions and hibernates idle ones. Must be called every few minutes.
    pub async fn evict_idle(&self) {
        let now = self.shared.clock.now();
        let SessionOptions { timeout, sleep_after, .. } = self.shared.options;
        let is_tight = self.shared.pool.tenants().load() != LoadState::Normal;
        // Where memory is scarce, idle sessions sleep before others are refused.
        let sleep_after = |session: &Session| {
            if is_tight || session.tenant.is_short_of_memory() {
                sleep_after.min(SCARCE_SLEEP_AFTER)
            } else {
                sleep_after
            }
        };
        let mut expired = Vec::new();
        let mut idle = Vec::new();
        for (id, entry) in self.shared.table.lock().iter() {
            match entry {
                SessionEntry::Active(session) if !session.is_idle() => {}
                SessionEntry::Active(session) if is_expired(session.last_used(), timeout, now) => {
                    expired.push(id.clone())
                }
                SessionEntry::Active(session) if is_expired(session.last_used(), sleep_after(session), now) => {
                    idle.push(session.clone())
                }
                SessionEntry::Hibernated(hibernated) if is_expired(hibernated.last_used, timeout, now) => {
                    expired.push(id.clone())
                }
                SessionEntry::Active(_) | SessionEntry::Hibernated(_) | SessionEntry::Ending => {}
            }
        }
        for id in expired {
            let shared = self.shared.clone();
            // Freeing an interpreter's memory and deleting files take a while.
            let ended = tokio::task::spawn_blocking(move || shared.expire(&id)).await;
            if let Err(error) = ended {
                tracing::error!(%error, "failed to end an expired session");
            }
        }
        if self.shared.services.store.is_some() {
            for session in idle {
                self.hibernate(session).await;
            }
        }
        self.release_unused().await;
        if self.cluster().is_some_and(|cluster| cluster.is_adoption_due()) {
            self.update_results();
            self.adopt_runs().await;
        }
    }

    /// Hibernates all idle sessions if the store is persistent; otherwise deletes the store, and folders of sessions
    /// that are empty. Must be called when the process is about to end.
    pub async fn hibernate_all(&self) {
        let store = self.shared.services.store.as_deref();
        if !store.is_some_and(Store::is_persistent) {
            if let Some(store) = store {
                store.delete_all();
            }
            self.shared.remove_empty_folders();
            return;
        }
        self.shared.is_ending.store(true, Ordering::Relaxed);
        self.save_waiting_runs();
        let sessions: Vec<Arc<Session>> = {
            let table = self.shared.table.lock();
            let active = table.values().filter_map(|entry| match entry {
                SessionEntry::Active(session) => Some(session.clone()),
                SessionEntry::Hibernated(_) | SessionEntry::Ending => None,
            });
            active.filter(|session| session.is_idle()).collect()
        };
        // Each writes to the disk, or to the cluster's store.
        let mut hibernating = JoinSet::new();
        for session in sessions {
            if hibernating.len() >= MAX_HIBERNATING {
                hibernating.join_next().await;
            }
            let this = self.clone();
            hibernating.spawn(async move { this.hibernate(session).await });
        }
        hibernating.join_all().await;
        if let Some(cluster) = self.cluster() {
            cluster.finish_results().await;
            cluster.leave().await;
        }
    }

    pub(super) async fn hibernate(&self, session: Arc<Session>) {
        let shared = self.shared.clone();
        let work = move |state: &mut SessionState, session: &Session| {
            let last_used = session.last_used();
            let is_wanted = || session.waiting() > 0;
            let hibernated = state.hibernate(&shared.services, last_used, is_wanted).map(|is_stored| {
                if is_stored && session.close_if_last() {
                    shared.put_to_sleep(session, last_used);
                    state.record(&shared.services, Event::SessionSleep, Details::default);
                }
            });
            WorkStep::Completed(hibernated)
        };
        if let Err(error) = result(self.queue(session, JobKind::Other(0), Box::new(work))).await {
            tracing::warn!(%error, "failed to hibernate a session");
        }
    }
}
