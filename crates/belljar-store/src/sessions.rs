//! Sessions: creation, activation, deletion and listing.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::{Stream, StreamExt as _, stream};

use crate::cluster::Cluster;
use crate::content::{Content, Facts};
use crate::deadline::Deadline;
use crate::driver::{self, OperationEnd, Versioned};
use crate::error::StoreError;
use crate::names::{self, SessionKey};
use crate::objects::MAX_PARALLEL;
use crate::ownership::Ownership;
use crate::protocol::{Intent, Outcome, Owner, Status};
use crate::registers::Entry;
use crate::replica::Replica;

/// The result of an activation.
#[derive(Debug)]
pub enum Activation {
    /// This replica owns the session now.
    Owned(Ownership),
    /// Another replica owns it, whose lease may run: the request is for it.
    Elsewhere(Owner),
    /// The session does not exist.
    Missing,
}

/// The result of a deletion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deletion {
    /// This call has deleted the session. Of all calls for a session, one returns this.
    Deleted,
    /// The session does not exist.
    Missing,
    /// Another replica owns it, whose lease may run: the request is for it.
    Elsewhere(Owner),
}

/// A session in a listing.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// The session.
    pub key: SessionKey,
    /// The number of activations.
    pub epoch: u64,
    /// The number of commits.
    pub sequence: u64,
    /// The replica that owns it, if one does. Its lease may have run out.
    pub owner: Option<Owner>,
    /// The facts of the last commit.
    pub facts: Facts,
    /// The size of all parts, in bytes.
    pub size: u64,
}

impl Header {
    fn new(key: SessionKey, held: Versioned) -> Option<Self> {
        let record = held.record;
        let owner = match record.status {
            Status::Deleted => return None,
            Status::Asleep => None,
            Status::Owned(owner) => Some(owner),
        };
        let size = record.payload.size();
        Some(Self { key, epoch: record.epoch, sequence: record.sequence, owner, facts: record.payload.facts, size })
    }
}

impl Replica {
    /// Creates a session, owned by this replica. Returns `None` if it exists, or has existed lately.
    ///
    /// # Errors
    /// When the coordinator does not answer, or the facts are too large.
    pub async fn create(&self, key: SessionKey, facts: Facts) -> Result<Option<Ownership>, StoreError> {
        self.check()?;
        facts.check()?;
        let intent = Intent::Create { payload: Content { facts, ..Content::default() } };
        let end = driver::run(&self.shared, &key, intent, None, Deadline::new()).await?;
        match end {
            OperationEnd { outcome: Outcome::Done(record), version: Some(version), .. } => {
                Ok(Some(Ownership::new(self.clone(), key, Versioned { record, version })))
            }
            OperationEnd { outcome: Outcome::Exists, .. } => Ok(None),
            end => Err(end.failure("create the session")),
        }
    }

    /// Makes this replica the owner of a session, unless another one is whose lease may run.
    ///
    /// If this replica owns the session already, the epoch grows, too, and an earlier [`Ownership`] of it is lost: the
    /// caller has one for each session, and activates a session from one task at a time.
    ///
    /// An owner that has crashed counts as alive until it was observed for a whole lease: call this again, or
    /// [`Replica::activate_within`].
    ///
    /// # Errors
    /// When the coordinator does not answer, or the session's record is damaged.
    pub async fn activate(&self, key: SessionKey) -> Result<Activation, StoreError> {
        self.activate_until(key, Deadline::new()).await
    }

    async fn activate_until(&self, key: SessionKey, deadline: Deadline) -> Result<Activation, StoreError> {
        self.check()?;
        let end = driver::run(&self.shared, &key, Intent::Activate, None, deadline).await?;
        match end {
            OperationEnd { outcome: Outcome::Done(record), version: Some(version), was_owned, .. } => {
                self.check()?;
                let held = Versioned { record, version };
                if was_owned {
                    self.sweep(key, &held);
                }
                Ok(Activation::Owned(Ownership::new(self.clone(), key, held)))
            }
            OperationEnd { outcome: Outcome::Elsewhere(owner), .. } => Ok(Activation::Elsewhere(owner)),
            OperationEnd { outcome: Outcome::Missing, .. } => Ok(Activation::Missing),
            end => Err(end.failure("activate the session")),
        }
    }

    /// Activates a session whose owner does not answer requests. Waits until its lease has run out, at most for
    /// `limit`.
    ///
    /// # Errors
    /// As [`Replica::activate`].
    pub async fn activate_within(&self, key: SessionKey, limit: Duration) -> Result<Activation, StoreError> {
        let end = tokio::time::Instant::now() + limit;
        loop {
            let found = self.activate_until(key, Deadline::new()).await?;
            let next = tokio::time::Instant::now() + self.shared.question_interval();
            if !matches!(found, Activation::Elsewhere(_)) || next >= end {
                return Ok(found);
            }
            tokio::time::sleep_until(next).await;
        }
    }

    /// Deletes a session, unless another replica owns it whose lease may run.
    ///
    /// # Errors
    /// When the coordinator does not answer, or the session's record is damaged.
    pub async fn delete(&self, key: SessionKey) -> Result<Deletion, StoreError> {
        self.check()?;
        // The record of a deleted session has the time of its deletion.
        let facts = Facts { last_used: milliseconds_now(), ..Facts::default() };
        let intent = Intent::Delete { payload: Content { facts, ..Content::default() } };
        let end = driver::run(&self.shared, &key, intent, None, Deadline::new()).await?;
        match end.outcome {
            Outcome::Done(_) => {
                self.delete_state(key).await;
                Ok(Deletion::Deleted)
            }
            Outcome::Elsewhere(owner) => Ok(Deletion::Elsewhere(owner)),
            Outcome::Missing => Ok(Deletion::Missing),
            _ => Err(end.failure("delete the session")),
        }
    }

    /// Deletes the blobs of a deleted session. The collection deletes the rest.
    async fn delete_state(&self, key: SessionKey) {
        let objects = &self.shared.cluster.objects;
        let deleted = async {
            let names = objects.list(&names::state(&key)).await?.into_iter().map(|listed| listed.name).collect();
            objects.delete_all(names).await
        };
        if let Err(error) = deleted.await {
            tracing::debug!(%error, "failed to delete the state of a deleted session");
        }
    }

    /// Deletes in the background what an owner that has crashed left behind: blobs of earlier epochs without a use.
    fn sweep(&self, key: SessionKey, held: &Versioned) {
        let (objects, record) = (self.shared.cluster.objects.clone(), held.record.clone());
        tokio::spawn(async move {
            let folder = names::state(&key);
            let swept = async {
                let listed = objects.list(&folder).await?;
                let names = listed.into_iter().map(|listed| listed.name);
                let is_unused = |name: &String| {
                    let blob = name.strip_prefix(&folder).unwrap_or_default();
                    let is_earlier = names::epoch_of_blob(blob).is_some_and(|epoch| epoch < record.epoch);
                    is_earlier && !record.payload.blobs.contains_key(blob)
                };
                objects.delete_all(names.filter(is_unused).collect()).await
            };
            if let Err(error) = swept.await {
                tracing::debug!(%error, "failed to delete what a session's last owner left behind");
            }
        });
    }
}

/// The sessions of a cluster.
#[derive(Debug, Clone)]
pub struct Sessions {
    cluster: Cluster,
}

impl Cluster {
    /// Returns the sessions of the store, active in some replica or not.
    #[must_use]
    pub fn sessions(&self) -> Sessions {
        Sessions { cluster: self.clone() }
    }
}

impl Sessions {
    /// Reads the header of a session. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// When the coordinator does not answer, or the record is damaged.
    pub async fn header(&self, key: SessionKey) -> Result<Option<Header>, StoreError> {
        let name = names::session(&key);
        let found = self.cluster.registers.read(&name, Deadline::new()).await?;
        let held = found.map(|found| driver::decode(&name, found)).transpose()?;
        Ok(held.and_then(|held| Header::new(key, held)))
    }

    /// Lists the sessions, ordered by their keys.
    ///
    /// # Errors
    /// When the coordinator does not answer. Damaged records are left out, with a warning.
    pub async fn list(&self) -> Result<Vec<Header>, StoreError> {
        let mut cache = HeaderCache::default();
        self.list_unused_for(Duration::ZERO, &mut cache).await?;
        Ok(cache.0.into_values().filter_map(|(_, header)| header).collect())
    }

    /// Has `cache` have the sessions whose records were not written for a time, by the clock of the store. The store
    /// needs one request for 1,000 sessions, and one more for each session whose record has changed since the cache was
    /// used last. etcd lists records with their content, and does not know their times: from there all sessions are
    /// returned.
    ///
    /// # Errors
    /// When the coordinator does not answer. Damaged records are left out, with a warning.
    pub async fn list_unused_for(&self, time: Duration, cache: &mut HeaderCache) -> Result<(), StoreError> {
        let now = SystemTime::now();
        let is_old = |entry: &Entry| match entry.modified {
            Some(modified) => time.is_zero() || modified.checked_add(time).is_some_and(|end| end <= now),
            None => true,
        };
        let (mut known, mut changed) = (BTreeMap::new(), Vec::new());
        for entry in self.cluster.session_records().await?.into_iter().filter(is_old) {
            let Some(key) = key_of(&entry) else { continue };
            match cache.0.remove(&key) {
                Some((tag, header)) if !tag.is_empty() && tag == entry.tag => {
                    known.insert(key, (tag, header));
                }
                _ => changed.push(entry),
            }
        }
        let mut read = pin!(self.cluster.read_sessions(changed));
        while let Some(found) = read.next().await {
            let ReadSession { key, tag, held } = found?;
            let header = match held {
                Ok(held) => Header::new(key, held),
                Err(error) => {
                    tracing::warn!(%error, "a session is left out of a list");
                    None
                }
            };
            known.insert(key, (tag, header));
        }
        cache.0 = known;
        Ok(())
    }
}

/// The headers of sessions as they were read last, so that those whose records have not changed are not read again.
#[derive(Debug, Default)]
pub struct HeaderCache(BTreeMap<SessionKey, (String, Option<Header>)>);

impl HeaderCache {
    /// Returns the headers of the last list, ordered by the keys of their sessions.
    pub fn headers(&self) -> impl Iterator<Item = &Header> {
        self.0.values().filter_map(|(_, header)| header.as_ref())
    }
}

/// The record of a session, as it was read after a listing.
pub(crate) struct ReadSession {
    pub(crate) key: SessionKey,
    /// The tag of the entry in the listing.
    pub(crate) tag: String,
    pub(crate) held: Result<Versioned, StoreError>,
}

/// Returns the session of an entry in a listing.
fn key_of(entry: &Entry) -> Option<SessionKey> {
    SessionKey::parse(entry.name.strip_prefix(names::SESSIONS)?)
}

impl Cluster {
    pub(crate) async fn session_records(&self) -> Result<Vec<Entry>, StoreError> {
        self.registers.list(names::SESSIONS).await
    }

    /// Reads the records of sessions, in no particular order. Those that were deleted since the listing are left out.
    pub(crate) fn read_sessions(&self, entries: Vec<Entry>) -> impl Stream<Item = Result<ReadSession, StoreError>> {
        let reads = entries.into_iter().filter_map(move |entry| {
            let key = key_of(&entry)?;
            Some(async move {
                let found = match entry.stamped {
                    Some(stamped) => Some(stamped),
                    None => match self.registers.read(&entry.name, Deadline::new()).await {
                        Err(error @ StoreError::Damaged { .. }) => {
                            return Ok(Some(ReadSession { key, tag: entry.tag, held: Err(error) }));
                        }
                        found => found?,
                    },
                };
                let read = |stamped| ReadSession { key, tag: entry.tag, held: driver::decode(&entry.name, stamped) };
                Ok::<_, StoreError>(found.map(read))
            })
        });
        stream::iter(reads).buffer_unordered(MAX_PARALLEL).filter_map(|found| std::future::ready(found.transpose()))
    }
}

/// Returns the time since 1970, in milliseconds. It decides about ages only, never about ownership.
pub(crate) fn milliseconds_now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}
