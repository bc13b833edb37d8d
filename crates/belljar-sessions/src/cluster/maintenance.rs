//! Operations on the sessions of a store, for the command line. They block.

use belljar_store::Header;

use super::{Cluster, Place, wait};
use crate::id::SessionId;
use crate::store::{Store, StoreError};

impl Cluster {
    /// Lists the sessions. Their IDs give access, and are not in the store: they are named by digests.
    ///
    /// # Errors
    /// Fails if the coordinator does not answer.
    pub fn list(&self) -> Result<Vec<Header>, StoreError> {
        Ok(wait(&self.handle, self.services.sessions().list())?)
    }

    /// Has the directory of `store` contain a session, which belongs to this process until [`Cluster::give_back`].
    ///
    /// # Errors
    /// Returns [`StoreError::Missing`] if the session does not exist, and [`StoreError::InUse`] if it is active in a
    /// replica.
    pub fn take(&self, store: &Store, id: &SessionId) -> Result<(), StoreError> {
        match wait(&self.handle, self.activate(store, id, false))? {
            Place::Here => Ok(()),
            Place::Elsewhere(_) => Err(StoreError::InUse),
            Place::Nowhere => Err(StoreError::Missing),
        }
    }

    /// Stores a session as it is in the directory of `store`, also a new one, and gives it up.
    ///
    /// # Errors
    /// Fails if the session is not stored.
    pub fn give_back(&self, store: &Store, id: &SessionId) -> Result<(), StoreError> {
        self.release(store, id, None, || false).map(drop)
    }

    /// Deletes a session.
    ///
    /// # Errors
    /// Returns [`StoreError::Missing`] if the session does not exist, and [`StoreError::InUse`] if it is active in a
    /// replica.
    pub fn remove(&self, store: &Store, id: &SessionId) -> Result<(), StoreError> {
        self.take(store, id)?;
        self.delete(id)?;
        store.remove(id)
    }
}
