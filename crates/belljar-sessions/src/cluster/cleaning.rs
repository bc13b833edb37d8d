//! Deletion of expired sessions, of old results and of unused objects in the store, by one replica at a time.
//!
//! ```text
//! records/tasks/clean-up   the replica that cleans up, as long as its lease runs, and the time of its last collection
//! ```
//!
//! Several replicas could do this at a time without harm: the record saves requests.

use std::collections::HashMap;
use std::time::Duration;

use belljar_store::protocol::NodeId;
use belljar_store::{Activation, Changes, CollectOptions, Facts, HeaderCache, RecordVersion, SessionKey};
use serde::{Deserialize, Serialize};

use super::Cluster;
use super::ownership::prolonged;
use crate::sessions::milliseconds_now;
use crate::store::StoreError;

/// The maximum interval between two looks for expired sessions in the store.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(5 * 60);
/// The minimum one.
const MIN_CLEAN_UP_INTERVAL: Duration = Duration::from_millis(500);
/// The interval between two collections of unused objects, which read all records.
const COLLECTION_INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// The collection and the name of the record of the replica that cleans up.
const CLAIM: (&str, &str) = ("tasks", "clean-up");

/// The record of the replica that cleans up.
#[derive(Debug, Serialize, Deserialize)]
struct Claim {
    node: String,
    /// The time of the last collection, in milliseconds since 1970.
    collected: u64,
}

impl Cluster {
    /// Returns the interval between two calls of [`Cluster::clean_up`].
    pub(crate) fn clean_up_interval(&self) -> Duration {
        CLEAN_UP_INTERVAL.min(self.session_timeout).max(MIN_CLEAN_UP_INTERVAL)
    }

    /// Deletes the sessions in the store whose time is over, results of runs that no client has fetched in time, and
    /// objects without a use, unless another replica does so. `headers` has what the last call has read.
    pub(crate) async fn clean_up(&self, headers: &mut HeaderCache) {
        let (claim, version) = match self.claim().await {
            Ok(Some(claimed)) => claimed,
            Ok(None) => {
                *headers = HeaderCache::default();
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "failed to find out which replica cleans the store up");
                return;
            }
        };
        if let Err(error) = self.delete_expired(headers).await {
            tracing::warn!(%error, "failed to look for expired sessions in the store");
        }
        if let Err(error) = self.delete_old_runs().await {
            tracing::warn!(%error, "failed to look for old results in the store");
        }
        if has_passed(claim.collected, COLLECTION_INTERVAL)
            && let Err(error) = self.collect(&version).await
        {
            tracing::warn!(%error, "failed to delete unused objects in the store");
        }
    }

    /// Has this replica clean up, unless another one does whose lease runs.
    async fn claim(&self) -> Result<Option<(Claim, RecordVersion)>, StoreError> {
        let (collection, name) = CLAIM;
        let records = self.services.records(collection)?;
        let found = records.get(name).await?;
        let version = found.as_ref().map(|found| found.version.clone());
        let last = found.and_then(|found| serde_json::from_slice::<Claim>(&found.value).ok());
        let collected = match last {
            Some(last) if last.node == self.node => return Ok(version.map(|version| (last, version))),
            Some(last) => {
                if self.is_alive(&last.node).await {
                    return Ok(None);
                }
                last.collected
            }
            None => milliseconds_now(),
        };
        let claim = Claim { node: self.node.clone(), collected };
        let written = records.put(name, version.as_ref(), &encode(&claim)?).await?;
        Ok(written.map(|version| (claim, version)))
    }

    async fn collect(&self, version: &RecordVersion) -> Result<(), StoreError> {
        self.replica.collect(CollectOptions::default()).await?;
        let (collection, name) = CLAIM;
        let claim = Claim { node: self.node.clone(), collected: milliseconds_now() };
        self.services.records(collection)?.put(name, Some(version), &encode(&claim)?).await?;
        Ok(())
    }

    async fn delete_expired(&self, headers: &mut HeaderCache) -> Result<(), StoreError> {
        self.services.sessions().list_unused_for(self.session_timeout, headers).await?;
        let mut alive: HashMap<NodeId, bool> = HashMap::new();
        for header in headers.headers().filter(|header| is_over(&header.facts)) {
            if let Some(owner) = header.owner.as_ref().filter(|owner| owner.node != self.replica.node()) {
                let is_alive = match alive.get(&owner.node) {
                    Some(is_alive) => *is_alive,
                    None => !matches!(self.replica.find(owner.node).await, Ok(None)),
                };
                alive.insert(owner.node, is_alive);
                // Its owner ends it: the record has only the last use that was stored.
                if is_alive {
                    continue;
                }
            }
            if let Err(error) = self.delete_if_expired(header.key, header.owner.is_some()).await {
                tracing::warn!(%error, "failed to delete an expired session in the store");
            }
        }
        Ok(())
    }

    /// Deletes a session that no replica uses, if its time is over. It is made active for that, so that no other
    /// replica uses it meanwhile.
    async fn delete_if_expired(&self, key: SessionKey, had_owner: bool) -> Result<(), StoreError> {
        // A session that is here ends by itself.
        let Some(_reservation) = self.reserve(key) else { return Ok(()) };
        let Activation::Owned(ownership) = self.replica.activate(key).await? else { return Ok(()) };
        let facts = ownership.facts().await;
        if !is_over(&facts) {
            ownership.release(None).await?;
        } else if had_owner {
            // The replica that had it may have used it until it ended, without a commit.
            let now = Duration::from_millis(milliseconds_now());
            let changes = Changes::new().facts(prolonged(facts, now, self.session_timeout));
            ownership.release(Some(changes)).await?;
        } else {
            ownership.delete().await?;
        }
        Ok(())
    }
}

/// Returns whether the time of a session is over.
fn is_over(facts: &Facts) -> bool {
    facts.expires.is_some_and(|time| time < milliseconds_now())
}

/// Returns whether more time than `length` has passed since `time`, in milliseconds since 1970.
pub(super) fn has_passed(time: u64, length: Duration) -> bool {
    Duration::from_millis(milliseconds_now().saturating_sub(time)) > length
}

/// Returns the content of a record.
pub(super) fn encode(record: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(record).map_err(|error| StoreError::io("write")(std::io::Error::other(error)))
}
