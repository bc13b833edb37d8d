//! The sessions that this replica owns: they are activated, their changes are stored, and they are given up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_store::{Activation, Changes, CommitError, Deletion, Facts, Ownership, SessionKey};
use parking_lot::Mutex;

use super::parts::{FileStamps, changes_of, facts, write_parts};
use super::{Cluster, Node, Place, wait};
use crate::id::SessionId;
use crate::store::{Store, StoreError};

/// The time for which a session stays in this replica although the call that was admitted for it has not arrived.
const MAX_ARRIVAL: Duration = Duration::from_secs(5);

/// The place of a session that this replica owns, or is about to.
#[derive(Default)]
pub(super) struct Slot {
    use_of: Mutex<Use>,
    /// Locked while the session's record is written.
    session: tokio::sync::Mutex<Option<OwnedSession>>,
}

/// The use of a session by this replica.
#[derive(Default)]
struct Use {
    /// True while the session is owned for certain, also if its changes are stored in the background.
    is_owned: bool,
    /// The time at which a call was told that the session is here, until the call has arrived.
    expects_call: Option<Instant>,
}

impl Slot {
    fn set_owned(&self, is_owned: bool) {
        self.use_of.lock().is_owned = is_owned;
    }

    /// Ends the ownership, unless a call is on its way to the session.
    fn end_use(&self) -> bool {
        let mut use_of = self.use_of.lock();
        let is_expecting = use_of.expects_call.is_some_and(|since| since.elapsed() < MAX_ARRIVAL);
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

impl Cluster {
    /// Returns whether this replica owns a session, for certain.
    pub(crate) fn owns(&self, id: &SessionId) -> bool {
        let slot = self.owned.lock().get(id).cloned();
        slot.is_some_and(|slot| slot.use_of.lock().is_owned)
    }

    /// Expects a call for a session that this replica owns: until it has arrived, the session is not given up. Returns
    /// false if this replica does not own it.
    pub(crate) fn expect_call(&self, id: &SessionId) -> bool {
        let slot = self.owned.lock().get(id).cloned();
        slot.is_some_and(|slot| {
            let mut use_of = slot.use_of.lock();
            if use_of.is_owned {
                use_of.expects_call = Some(Instant::now());
            }
            use_of.is_owned
        })
    }

    /// Notes that a call is in the queue of its session.
    pub(crate) fn note_arrival(&self, id: &SessionId) {
        let slot = self.owned.lock().get(id).cloned();
        if let Some(slot) = slot {
            slot.use_of.lock().expects_call = None;
        }
    }

    /// Makes a session active here, unless another replica has it: its files are in `store` afterwards. With
    /// `expects_call`, it is not given up until the call has arrived.
    pub(crate) async fn activate(
        &self,
        store: &Store,
        id: &SessionId,
        expects_call: bool,
    ) -> Result<Place, StoreError> {
        let mut slot = self.slot(id);
        let mut owned = slot.session.lock().await;
        // While this waited, the session may have been given up, and its slot with it.
        while !self.is_current(id, &slot) {
            drop(owned);
            slot = self.slot(id);
            owned = slot.session.lock().await;
        }
        if owned.is_some() {
            if expects_call {
                slot.use_of.lock().expects_call = Some(Instant::now());
            }
            return Ok(Place::Here);
        }
        let activation = self.replica.activate(SessionKey::from_id(id.as_str())).await;
        let place = match activation {
            Ok(Activation::Owned(ownership)) => {
                store.remove(id)?;
                let stored = write_parts(store, id, &ownership).await?;
                *owned = Some(OwnedSession { ownership, stored });
                *slot.use_of.lock() = Use { is_owned: true, expects_call: expects_call.then(Instant::now) };
                return Ok(Place::Here);
            }
            Ok(Activation::Elsewhere(owner)) => {
                Ok(Place::Elsewhere(Node { id: owner.node.to_string(), address: owner.address }))
            }
            Ok(Activation::Missing) => Ok(Place::Nowhere),
            Err(error) => Err(error.into()),
        };
        self.forget(id);
        place
    }

    /// Stores what has changed in a session's directory. The first commit of a new session creates its record. Blocks:
    /// it takes as long as two writes to the store.
    ///
    /// # Errors
    /// When the state is not stored, or it is unknown whether it is. The session may have another owner then.
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
        let mut session = slot.session.lock().await;
        let committed = self.commit_owned(&mut session, store, id).await;
        let has_lost = committed.as_ref().is_err_and(StoreError::has_lost_session);
        if has_lost {
            // Before another call activates the session, which writes its files again.
            *session = None;
            self.forget(id);
            if let Err(error) = store.remove(id) {
                tracing::warn!(%error, "failed to delete the files of a session that was lost");
            }
        }
        slot.set_owned(!has_lost);
        committed
    }

    async fn commit_owned(
        &self,
        session: &mut Option<OwnedSession>,
        store: &Store,
        id: &SessionId,
    ) -> Result<(), StoreError> {
        let owned = self.own(session, id).await?;
        let Some((changes, now)) = self.changes_of(store, id, &owned.stored)? else { return Ok(()) };
        owned.ownership.commit(changes).await?;
        owned.stored = now;
        Ok(())
    }

    /// Returns what has changed in a session's directory, with what the store lists of the session.
    fn changes_of(
        &self,
        store: &Store,
        id: &SessionId,
        stored: &FileStamps,
    ) -> Result<Option<(Changes, FileStamps)>, StoreError> {
        let Some((changes, now)) = changes_of(store, id, stored)? else { return Ok(None) };
        let header = store.header(id).ok().or_else(|| store.waiting_header(id));
        let Some(header) = header else { return Ok(Some((changes, now))) };
        let images = header.base().and_then(|base| self.images.digest(base)).into_iter().collect();
        Ok(Some((changes.facts(Facts { images, ..facts(&header, self.session_timeout) }), now)))
    }

    /// Stores a session that is at rest and gives it up, so that any replica can have it. Deletes its directory.
    /// Returns false, and keeps the session, if a call is on its way to it, or if `is_wanted` then.
    ///
    /// # Errors
    /// When the state is not stored.
    pub(crate) fn release(
        &self,
        store: &Store,
        id: &SessionId,
        is_wanted: impl Fn() -> bool + Send + Sync,
    ) -> Result<bool, StoreError> {
        wait(&self.handle, async {
            let slot = self.slot(id);
            let mut session = slot.session.lock().await;
            if !slot.end_use() {
                return Ok(false);
            }
            // A call that has arrived before is in the queue now; one that arrives later activates the session again.
            if is_wanted() {
                slot.set_owned(true);
                return Ok(false);
            }
            let owned = self.own(&mut session, id).await?;
            let changes = match self.changes_of(store, id, &owned.stored) {
                Err(StoreError::Missing) => {
                    *session = None;
                    self.forget(id);
                    return Err(StoreError::Missing);
                }
                changes => changes?,
            };
            if let Err(error) = owned.ownership.release(changes.map(|(changes, _)| changes)).await {
                slot.set_owned(true);
                return Err(error.into());
            }
            *session = None;
            // Before another call activates the session, which writes its files again.
            self.forget(id);
            store.remove(id)?;
            Ok(true)
        })
    }

    /// Returns whether a slot is still the one of its session.
    fn is_current(&self, id: &SessionId, slot: &Arc<Slot>) -> bool {
        self.owned.lock().get(id).is_some_and(|current| Arc::ptr_eq(current, slot))
    }

    fn slot(&self, id: &SessionId) -> Arc<Slot> {
        self.owned.lock().entry(id.clone()).or_default().clone()
    }

    /// Returns the session in a slot. A session that was not committed before is created in the store.
    async fn own<'a>(
        &self,
        session: &'a mut Option<OwnedSession>,
        id: &SessionId,
    ) -> Result<&'a mut OwnedSession, StoreError> {
        if session.is_none() {
            let created = self.replica.create(SessionKey::from_id(id.as_str()), Facts::default()).await?;
            let ownership = created.ok_or(CommitError::Lost)?;
            *session = Some(OwnedSession { ownership, stored: FileStamps::default() });
        }
        session.as_mut().ok_or(StoreError::Missing)
    }

    /// Deletes a session in the store.
    ///
    /// # Errors
    /// When the store cannot be reached, or another replica has the session.
    pub(crate) fn delete(&self, id: &SessionId) -> Result<(), StoreError> {
        let deleted = wait(&self.handle, self.replica.delete(SessionKey::from_id(id.as_str())))?;
        self.forget(id);
        match deleted {
            Deletion::Deleted | Deletion::Missing => Ok(()),
            Deletion::Elsewhere(_) => Err(CommitError::Lost.into()),
        }
    }

    /// Treats a session as one that this replica does not own.
    pub(crate) fn forget(&self, id: &SessionId) {
        self.owned.lock().remove(id);
    }
}
