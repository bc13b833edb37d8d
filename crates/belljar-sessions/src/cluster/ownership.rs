//! The sessions that this replica owns: they are activated, their changes are stored, and they are given up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_store::{Activation, Changes, CommitError, Deletion, Facts, Ownership, SessionKey};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::parts::{FileStamps, changes_of, facts, write_parts};
use super::{Cluster, Node, Place, wait};
use crate::id::SessionId;
use crate::session::milliseconds;
use crate::sessions::milliseconds_now;
use crate::store::{Store, StoreError};

/// The time for which a session stays in this replica although the call that was admitted for it has not arrived. A call
/// that arrives later would find that its session does not exist; one that is refused ends the time.
const MAX_ARRIVAL: Duration = Duration::from_secs(30);

/// The place of a session that this replica owns, or is about to.
#[derive(Default)]
pub(super) struct Slot {
    /// The session; `None` while the session is looked at by its key only, since its time may be over.
    id: Option<SessionId>,
    use_of: Mutex<Use>,
    /// Locked while the session's record is written.
    session: Arc<tokio::sync::Mutex<Option<OwnedSession>>>,
}

/// The use of a session by this replica.
#[derive(Default)]
struct Use {
    /// True while the session is owned for certain, also if its changes are stored in the background.
    is_owned: bool,
    /// The time at which a call was told that the session is here, until the call has arrived.
    expects_call: Option<Instant>,
    /// The last use before the session came here, since 1970.
    last_used: Duration,
}

impl Use {
    fn is_expecting(&self) -> bool {
        self.expects_call.is_some_and(|since| since.elapsed() < MAX_ARRIVAL)
    }
}

impl Slot {
    fn set_owned(&self, is_owned: bool) {
        self.use_of.lock().is_owned = is_owned;
    }

    /// Ends the ownership, unless a call is on its way to the session.
    fn end_use(&self) -> bool {
        let mut use_of = self.use_of.lock();
        let is_expecting = use_of.is_expecting();
        use_of.is_owned &= is_expecting;
        !is_expecting
    }
}

/// A session that this replica owns.
struct OwnedSession {
    ownership: Ownership,
    /// The files that the store has.
    stored: FileStamps,
}

/// The content of a slot, which no other task can use meanwhile.
type LockedSession = OwnedMutexGuard<Option<OwnedSession>>;

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

fn key_of(id: &SessionId) -> SessionKey {
    SessionKey::from_id(id.as_str())
}

impl Cluster {
    /// Returns whether this replica owns a session, for certain.
    pub(crate) fn owns(&self, id: &SessionId) -> bool {
        self.find_slot(id).is_some_and(|slot| slot.use_of.lock().is_owned)
    }

    /// Expects a call for a session that this replica owns: until it has arrived, the session is not given up. Returns
    /// false if this replica does not own it.
    pub(crate) fn expect_call(&self, id: &SessionId) -> bool {
        self.find_slot(id).is_some_and(|slot| {
            let mut use_of = slot.use_of.lock();
            if use_of.is_owned {
                use_of.expects_call = Some(Instant::now());
            }
            use_of.is_owned
        })
    }

    /// Notes that a call is in the queue of its session, or was refused.
    pub(crate) fn note_arrival(&self, id: &SessionId) {
        if let Some(slot) = self.find_slot(id) {
            slot.use_of.lock().expects_call = None;
        }
    }

    /// Returns the time of a session's last use, since 1970, as the store had it when the session became active here:
    /// a use that changes nothing does not change the session's files.
    pub(crate) fn last_used(&self, id: &SessionId) -> Option<Duration> {
        self.find_slot(id).map(|slot| slot.use_of.lock().last_used)
    }

    /// Returns the sessions that this replica owns, except for those that expect a call.
    pub(crate) fn owned_sessions(&self) -> Vec<SessionId> {
        let slots: Vec<Arc<Slot>> = self.owned.lock().values().cloned().collect();
        let is_at_rest = |slot: &&Arc<Slot>| {
            let use_of = slot.use_of.lock();
            use_of.is_owned && !use_of.is_expecting()
        };
        slots.iter().filter(is_at_rest).filter_map(|slot| slot.id.clone()).collect()
    }

    /// Makes a session active here, unless another replica has it: its files are in `store` afterwards. With
    /// `expects_call`, it is not given up until the call has arrived.
    ///
    /// The future must not be dropped before it has ended: the session could be left with this replica, which does not
    /// use it, until [`Cluster::release_record`].
    pub(crate) async fn activate(
        &self,
        store: &Store,
        id: &SessionId,
        expects_call: bool,
    ) -> Result<Place, StoreError> {
        let (slot, mut owned) = self.lock_slot(id).await;
        if owned.is_some() {
            if expects_call {
                slot.use_of.lock().expects_call = Some(Instant::now());
            }
            return Ok(Place::Here);
        }
        let place = match self.replica.activate(key_of(id)).await {
            Ok(Activation::Owned(ownership)) => match fetch(store, id, &ownership).await {
                Ok(stored) => {
                    let epoch = ownership.epoch().await;
                    tracing::debug!(session = id.as_str(), epoch, "a session is active here");
                    let last_used = self.last_use(&ownership.facts().await);
                    *owned = Some(OwnedSession { ownership, stored });
                    let expects_call = expects_call.then(Instant::now);
                    *slot.use_of.lock() = Use { is_owned: true, expects_call, last_used };
                    return Ok(Place::Here);
                }
                Err(error) => {
                    // Another replica may be able to use it.
                    if let Err(error) = ownership.release(None).await {
                        tracing::warn!(%error, "failed to give up a session that cannot be fetched");
                    }
                    Err(error)
                }
            },
            Ok(Activation::Elsewhere(owner)) => {
                Ok(Place::Elsewhere(Node { id: owner.node.to_string(), address: owner.address }))
            }
            Ok(Activation::Missing) => Ok(Place::Nowhere),
            Err(error) => Err(error.into()),
        };
        self.forget(id);
        place
    }

    /// Returns the last use of a session, since 1970: that from which on it expires without another one.
    fn last_use(&self, facts: &Facts) -> Duration {
        let expires = Duration::from_millis(facts.expires.unwrap_or_default());
        Duration::from_millis(facts.last_used).max(expires.saturating_sub(self.session_timeout))
    }

    /// Stores what has changed in a session's directory. The first commit of a new session creates its record. Blocks:
    /// it takes as long as two writes to the store.
    ///
    /// # Errors
    /// Fails if the state is not stored, or it is unknown whether it is. The session may have another owner then.
    pub(crate) fn commit(&self, store: &Store, id: &SessionId) -> Result<(), StoreError> {
        let slot = self.slot(id);
        // Until it is stored, calls for the session wait.
        slot.set_owned(false);
        wait(&self.handle, self.commit_changes(&slot, store, id))
    }

    /// Stores what has changed in a session's directory, in the background.
    pub(crate) fn commit_later(self: &Arc<Self>, store: Arc<Store>, id: SessionId) {
        let this = self.clone();
        let slot = self.slot(&id);
        // This replica has the session, or has just created it.
        slot.set_owned(true);
        self.handle.spawn(async move {
            // A session that was given up in the meantime is stored.
            if !this.is_current(&id, &slot) {
                return;
            }
            if let Err(error) = this.commit_changes(&slot, &store, &id).await {
                tracing::warn!(%error, "failed to store a session: it would be lost with this machine");
            }
        });
    }

    async fn commit_changes(&self, slot: &Slot, store: &Store, id: &SessionId) -> Result<(), StoreError> {
        let mut session = slot.session.clone().lock_owned().await;
        let committed = self.commit_owned(&mut session, store, id).await;
        match &committed {
            Ok(()) => slot.set_owned(true),
            Err(error) => self.after_failure(slot, &mut session, store, id, error).await,
        }
        committed
    }

    /// Has a slot be right after a commit or a release that has failed. A session that was lost is not used any more:
    /// the next call activates it, and begins with what the store has.
    async fn after_failure(
        &self,
        slot: &Slot,
        session: &mut Option<OwnedSession>,
        store: &Store,
        id: &SessionId,
        error: &StoreError,
    ) {
        tracing::debug!(session = id.as_str(), %error, has_session = session.is_some(), "a session was not stored");
        if !error.has_lost_session() {
            return slot.set_owned(true);
        }
        if let (StoreError::Missing, Some(owned)) = (error, session.as_ref())
            && let Err(error) = owned.ownership.release(None).await
        {
            tracing::warn!(%error, "failed to give up a session whose files are missing");
        }
        *session = None;
        slot.set_owned(false);
        // While the slot is locked: a call that activates the session afterwards writes its files again.
        if let Err(error) = store.remove(id) {
            tracing::warn!(%error, "failed to delete the files of a session that was lost");
        }
        self.forget(id);
    }

    async fn commit_owned(
        &self,
        session: &mut Option<OwnedSession>,
        store: &Store,
        id: &SessionId,
    ) -> Result<(), StoreError> {
        let owned = self.own(session, id).await?;
        let Some((changes, now)) = self.changes_of(store, id, owned, None).await? else { return Ok(()) };
        owned.ownership.commit(changes).await?;
        owned.stored = now;
        Ok(())
    }

    /// Returns what has changed in a session's directory, with what the store lists of the session. Without a time, the
    /// session was used now.
    async fn changes_of(
        &self,
        store: &Store,
        id: &SessionId,
        owned: &OwnedSession,
        last_used: Option<Duration>,
    ) -> Result<Option<(Changes, FileStamps)>, StoreError> {
        let Some((changes, now)) = changes_of(store, id, &owned.stored)? else { return Ok(None) };
        let waiting = store.waiting_header(id);
        let lifetime = match &waiting {
            // Its cell may wait for long without a use of the session.
            Some(_) => self.max_wait.saturating_add(self.session_timeout),
            None => self.session_timeout,
        };
        let Some(header) = store.header(id).ok().or(waiting) else { return Ok(Some((changes, now))) };
        let known = header.base().and_then(|base| self.images.digest(base));
        let images = match known {
            Some(image) => vec![image],
            // The snapshot came from the store, which has its image.
            None => owned.ownership.facts().await.images,
        };
        let last_used = last_used.unwrap_or_else(|| Duration::from_millis(milliseconds_now()));
        let facts = Facts { images, ..facts(header.owner().as_deref(), last_used, lifetime) };
        Ok(Some((changes.facts(facts), now)))
    }

    /// Stores a session that is at rest and gives it up, so that any replica can have it. Deletes its directory.
    /// Returns false, and keeps the session, if a call is on its way to it, or if `is_wanted` then. `last_used` is the
    /// time of the last use, since 1970, if it was used.
    ///
    /// # Errors
    /// Fails if the state is not stored.
    pub(crate) fn release(
        &self,
        store: &Store,
        id: &SessionId,
        last_used: Option<Duration>,
        is_wanted: impl Fn() -> bool + Send + Sync,
    ) -> Result<bool, StoreError> {
        wait(&self.handle, async {
            let (slot, mut session) = self.lock_slot(id).await;
            if !slot.end_use() {
                return Ok(false);
            }
            // A call that has arrived before is in the queue now; one that arrives later activates the session again.
            if is_wanted() {
                slot.set_owned(true);
                return Ok(false);
            }
            if let Err(error) = self.release_owned(&mut session, store, id, last_used).await {
                self.after_failure(&slot, &mut session, store, id, &error).await;
                return Err(error);
            }
            *session = None;
            tracing::debug!(session = id.as_str(), "a session was given up");
            // While the slot is locked: a call that activates the session afterwards writes its files again.
            let removed = store.remove(id);
            self.forget(id);
            removed.map(|()| true)
        })
    }

    async fn release_owned(
        &self,
        session: &mut Option<OwnedSession>,
        store: &Store,
        id: &SessionId,
        last_used: Option<Duration>,
    ) -> Result<(), StoreError> {
        let owned = self.own(session, id).await?;
        let changes = match (self.changes_of(store, id, owned, last_used).await?, last_used) {
            (Some((changes, _)), _) => Some(changes),
            // A use that has changed nothing counts, too.
            (None, Some(last_used)) => {
                let before = owned.ownership.facts().await;
                Some(Changes::new().facts(prolonged(before, last_used, self.session_timeout)))
            }
            (None, None) => None,
        };
        Ok(owned.ownership.release(changes).await?)
    }

    /// Gives a session up that this replica has by its record only: an activation or a commit has failed in between.
    ///
    /// # Errors
    /// Fails if the coordinator does not answer.
    pub(crate) async fn release_record(&self, id: &SessionId) -> Result<(), StoreError> {
        let (_slot, session) = self.lock_slot(id).await;
        if session.is_some() {
            return Ok(());
        }
        let key = key_of(id);
        let release = async {
            let owner = self.services.sessions().header(key).await?.and_then(|header| header.owner);
            if owner.is_some_and(|owner| owner.node == self.replica.node())
                && let Activation::Owned(ownership) = self.replica.activate(key).await?
            {
                ownership.release(None).await?;
            }
            Ok::<_, StoreError>(())
        };
        let released = release.await;
        self.forget(id);
        released
    }

    /// Keeps this replica from making a session active. Returns `None` if it has the session, or is about to.
    pub(super) fn reserve(&self, key: SessionKey) -> Option<Reservation<'_>> {
        let mut slots = self.owned.lock();
        let slot = slots.entry(key).or_default();
        if slot.use_of.lock().is_owned {
            return None;
        }
        let session = slot.session.clone().try_lock_owned().ok().filter(|session| session.is_none())?;
        Some(Reservation { cluster: self, key, _session: session })
    }

    /// Returns whether a slot is still the one of its session.
    fn is_current(&self, id: &SessionId, slot: &Arc<Slot>) -> bool {
        self.find_slot(id).is_some_and(|current| Arc::ptr_eq(&current, slot))
    }

    fn find_slot(&self, id: &SessionId) -> Option<Arc<Slot>> {
        self.owned.lock().get(&key_of(id)).cloned()
    }

    fn slot(&self, id: &SessionId) -> Arc<Slot> {
        let new = || Arc::new(Slot { id: Some(id.clone()), ..Slot::default() });
        self.owned.lock().entry(key_of(id)).or_insert_with(new).clone()
    }

    /// Locks the slot of a session.
    async fn lock_slot(&self, id: &SessionId) -> (Arc<Slot>, LockedSession) {
        loop {
            let slot = self.slot(id);
            let session = slot.session.clone().lock_owned().await;
            // While this waited, the session may have been given up, and its slot with it.
            if self.is_current(id, &slot) {
                return (slot, session);
            }
        }
    }

    /// Returns the session in a slot. A session that was not committed before is created in the store.
    async fn own<'a>(
        &self,
        session: &'a mut Option<OwnedSession>,
        id: &SessionId,
    ) -> Result<&'a mut OwnedSession, StoreError> {
        if session.is_none() {
            // The first commit follows. Without it, the record is of no use.
            let now = Duration::from_millis(milliseconds_now());
            let facts = prolonged(Facts::default(), now, self.session_timeout);
            let created = self.replica.create(key_of(id), facts).await?;
            let ownership = created.ok_or(CommitError::Lost)?;
            *session = Some(OwnedSession { ownership, stored: FileStamps::default() });
        }
        session.as_mut().ok_or(StoreError::Missing)
    }

    /// Deletes a session in the store.
    ///
    /// # Errors
    /// Fails if the store cannot be reached, or another replica has the session.
    pub(crate) fn delete(&self, id: &SessionId) -> Result<(), StoreError> {
        let deleted = wait(&self.handle, self.replica.delete(key_of(id)))?;
        self.forget(id);
        match deleted {
            Deletion::Deleted | Deletion::Missing => Ok(()),
            Deletion::Elsewhere(_) => Err(CommitError::Lost.into()),
        }
    }

    /// Treats a session as one that this replica does not own.
    pub(crate) fn forget(&self, id: &SessionId) {
        self.owned.lock().remove(&key_of(id));
    }
}

/// Writes the files of a session that is active here into its directory.
async fn fetch(store: &Store, id: &SessionId, ownership: &Ownership) -> Result<FileStamps, StoreError> {
    store.remove(id)?;
    write_parts(store, id, ownership).await
}

/// Returns the facts of a session that was last used at a time, since 1970, and expires a time later at the earliest.
pub(super) fn prolonged(facts: Facts, last_used: Duration, lifetime: Duration) -> Facts {
    let expires = milliseconds(last_used.saturating_add(lifetime)).max(facts.expires.unwrap_or_default());
    Facts { last_used: milliseconds(last_used).max(facts.last_used), expires: Some(expires), ..facts }
}
