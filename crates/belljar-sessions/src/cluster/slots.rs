//! The slots of sessions in this replica: which it owns, which expect a call, and which nothing else may touch now.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_store::{Ownership, SessionKey};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::Cluster;
use super::parts::FileStamps;
use crate::id::SessionId;

/// The time for which a session stays in this replica although the call that was admitted for it has not arrived. A
/// call that arrives later would find that its session does not exist; one that is refused ends the time.
const MAX_ARRIVAL: Duration = Duration::from_secs(15);

/// The place of a session that this replica owns, or is about to.
#[derive(Default)]
pub(super) struct Slot {
    /// The session; `None` while the session is looked at by its key only, since its time may be over.
    pub(super) id: Option<SessionId>,
    pub(super) usage: Mutex<SlotUsage>,
    /// Locked while the session's record is written.
    pub(super) session: Arc<tokio::sync::Mutex<Option<OwnedSession>>>,
}

/// The use of a session by this replica.
#[derive(Default)]
pub(super) struct SlotUsage {
    /// True while the session is owned for certain, also if its changes are stored in the background.
    pub(super) is_owned: bool,
    /// The times at which calls were admitted since the session is here, until a call has arrived for each.
    pub(super) expected_calls: Vec<Instant>,
    /// The last use before the session came here, since 1970.
    pub(super) last_used: Duration,
}

impl SlotUsage {
    /// Expects a call.
    pub(super) fn expect_call(&mut self) {
        self.expected_calls.retain(|since| since.elapsed() < MAX_ARRIVAL);
        self.expected_calls.push(Instant::now());
    }

    fn is_expecting(&self) -> bool {
        self.expected_calls.iter().any(|since| since.elapsed() < MAX_ARRIVAL)
    }
}

impl Slot {
    pub(super) fn set_owned(&self, is_owned: bool) {
        self.usage.lock().is_owned = is_owned;
    }

    /// Ends the ownership, unless a call is on its way to the session.
    pub(super) fn end_use(&self) -> bool {
        let mut usage = self.usage.lock();
        let is_expecting = usage.is_expecting();
        usage.is_owned &= is_expecting;
        !is_expecting
    }
}

/// A session that this replica owns.
pub(super) struct OwnedSession {
    pub(super) ownership: Ownership,
    /// The files that the store has.
    pub(super) stored: FileStamps,
}

/// The content of a slot, which no other task can use meanwhile.
pub(super) type LockedSession = OwnedMutexGuard<Option<OwnedSession>>;

/// A session that this replica neither has nor makes active while this exists.
pub(super) struct Reservation<'a> {
    cluster: &'a Cluster,
    key: SessionKey,
    _session: LockedSession,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        // Before it is unlocked: tasks that wait for it take another slot.
        self.cluster.owned.lock().remove(&self.key);
    }
}

/// Returns the name of a session in the store.
pub(super) fn key_of(id: &SessionId) -> SessionKey {
    SessionKey::from_id(id.as_str())
}

impl Cluster {
    /// Returns whether this replica owns a session, for certain.
    pub(crate) fn owns(&self, id: &SessionId) -> bool {
        self.find_slot(id).is_some_and(|slot| slot.usage.lock().is_owned)
    }

    /// Expects a call for a session that this replica owns: until it has arrived, the session is not given up. Returns
    /// false if this replica does not own it.
    pub(crate) fn expect_call(&self, id: &SessionId) -> bool {
        self.find_slot(id).is_some_and(|slot| {
            let mut usage = slot.usage.lock();
            if usage.is_owned {
                usage.expect_call();
            }
            usage.is_owned
        })
    }

    /// Notes that a call is in the queue of its session, or was refused. It counts as the last one that was expected,
    /// so that the time of one that never arrives ends.
    pub(crate) fn note_arrival(&self, id: &SessionId) {
        if let Some(slot) = self.find_slot(id) {
            slot.usage.lock().expected_calls.pop();
        }
    }

    /// Returns the time of a session's last use, since 1970, as the store had it when the session became active here:
    /// a use that changes nothing does not change the session's files.
    pub(crate) fn last_used(&self, id: &SessionId) -> Option<Duration> {
        self.find_slot(id).map(|slot| slot.usage.lock().last_used)
    }

    /// Returns the sessions that this replica owns, except for those that expect a call.
    pub(crate) fn owned_sessions(&self) -> Vec<SessionId> {
        let slots: Vec<Arc<Slot>> = self.owned.lock().values().cloned().collect();
        let is_at_rest = |slot: &&Arc<Slot>| {
            let usage = slot.usage.lock();
            usage.is_owned && !usage.is_expecting()
        };
        slots.iter().filter(is_at_rest).filter_map(|slot| slot.id.clone()).collect()
    }

    /// Keeps this replica from making a session active. Returns `None` if it has the session, or is about to.
    pub(super) fn reserve(&self, key: SessionKey) -> Option<Reservation<'_>> {
        let mut slots = self.owned.lock();
        let slot = slots.entry(key).or_default();
        if slot.usage.lock().is_owned {
            return None;
        }
        let session = slot.session.clone().try_lock_owned().ok().filter(|session| session.is_none())?;
        Some(Reservation { cluster: self, key, _session: session })
    }

    /// Returns whether a slot is still the one of its session.
    pub(super) fn is_current(&self, id: &SessionId, slot: &Arc<Slot>) -> bool {
        self.find_slot(id).is_some_and(|current| Arc::ptr_eq(&current, slot))
    }

    pub(super) fn find_slot(&self, id: &SessionId) -> Option<Arc<Slot>> {
        self.owned.lock().get(&key_of(id)).cloned()
    }

    pub(super) fn slot(&self, id: &SessionId) -> Arc<Slot> {
        let new = || Arc::new(Slot { id: Some(id.clone()), ..Slot::default() });
        self.owned.lock().entry(key_of(id)).or_insert_with(new).clone()
    }

    /// Locks the slot of a session.
    pub(super) async fn lock_slot(&self, id: &SessionId) -> (Arc<Slot>, LockedSession) {
        loop {
            let slot = self.slot(id);
            let session = slot.session.clone().lock_owned().await;
            // While this waited, the session may have been given up, and its slot with it.
            if self.is_current(id, &slot) {
                return (slot, session);
            }
        }
    }

    /// Treats a session as one that this replica does not own.
    pub(crate) fn forget(&self, id: &SessionId) {
        self.owned.lock().remove(&key_of(id));
    }
}
