//! Deletion of expired sessions and of unused objects in the store.

use std::time::Duration;

use belljar_store::{Activation, CollectOptions, Facts};

use super::{COLLECTION_INTERVAL, Cluster, is_due};
use crate::sessions::milliseconds_now;
use crate::store::StoreError;

/// The maximum interval between two looks for expired sessions in the store.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(5 * 60);

impl Cluster {
    /// Deletes the sessions in the store whose time is over, and objects without a use. Every replica may do this, at
    /// any time: a session is made active here first, so that no other replica uses it meanwhile.
    pub(crate) async fn clean_up(&self) {
        if !is_due(&self.next_clean_up, CLEAN_UP_INTERVAL.min(self.session_timeout)) {
            return;
        }
        let found = self.services.sessions().list_unused_for(self.session_timeout).await;
        let is_over = |facts: &Facts| facts.expires.is_some_and(|time| time < milliseconds_now());
        for header in found.unwrap_or_else(|error| {
            tracing::warn!(%error, "failed to look for expired sessions in the store");
            Vec::new()
        }) {
            if !is_over(&header.facts) {
                continue;
            }
            let expired = async {
                let Activation::Owned(ownership) = self.replica.activate(header.key).await? else { return Ok(()) };
                if is_over(&ownership.facts().await) {
                    ownership.delete().await?;
                } else {
                    ownership.release(None).await?;
                }
                Ok::<_, StoreError>(())
            };
            if let Err(error) = expired.await {
                tracing::warn!(%error, "failed to delete an expired session in the store");
            }
        }
        if is_due(&self.next_collection, COLLECTION_INTERVAL)
            && let Err(error) = self.replica.collect(CollectOptions::default()).await
        {
            tracing::warn!(%error, "failed to delete unused objects in the store");
        }
    }
}
