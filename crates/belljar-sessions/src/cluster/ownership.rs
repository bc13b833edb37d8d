//! The sessions that this replica owns: they are activated, their changes are stored, and they are given up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_store::{Activation, Changes, CommitError, Deletion, Facts, Ownership};

use super::parts::{FileStamps, changes_of, facts, write_parts};
use super::slots::{OwnedSession, Slot, SlotUsage, key_of};
use super::{Cluster, Node, Place, wait};
use crate::id::SessionId;
use crate::session::milliseconds;
use crate::sessions::milliseconds_now;
use crate::store::{Store, StoreError};

impl Cluster {
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
                slot.usage.lock().expect_call();
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
                    let expected_calls = expects_call.then(Instant::now).into_iter().collect();
                    *slot.usage.lock() = SlotUsage { is_owned: true, expected_calls, last_used };
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
