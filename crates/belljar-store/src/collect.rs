//! Deletion of what nothing refers to, while other replicas write.
//!
//! | what | when | why no writer is disturbed |
//! | --- | --- | --- |
//! | blobs of a session's earlier epochs that its record does not name | at once | owners of those epochs cannot commit |
//! | blobs of deleted sessions | at once | a deleted session is never written again |
//! | blobs without a record | at once | a record is written before the first blob, and deleted after the last |
//! | records of deleted sessions | an hour later | a request that was sent before the deletion has failed by then |
//! | images | marked, and deleted a day later | see `images` |
//! | objects of images that no record names | a day after they were written | their writer has finished by then |
//! | contents of records that do not exist | a day after they were written | their writer has finished by then |
//! | records of replicas | once their lease has ended | the state is final |

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;

use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::images::{self, ImageRecord, ImageState};
use crate::names::{self, Digest, SessionKey};
use crate::objects::ObjectEntry;
use crate::protocol::{NodeId, Status};
use crate::replica::{Finding, Replica};
use crate::sessions::{ReadSession, milliseconds_now};

/// The ages from which on items are deleted. The clocks of the replicas and of the store may differ by less.
#[derive(Debug, Clone, Copy)]
pub struct CollectOptions {
    /// The age of a deletion after which the record of the session is deleted.
    pub tombstone_age: Duration,
    /// The time between the two phases for an image, and the age of objects that nothing refers to.
    pub image_age: Duration,
}

impl Default for CollectOptions {
    fn default() -> Self {
        Self { tombstone_age: Duration::from_secs(3600), image_age: Duration::from_secs(24 * 3600) }
    }
}

/// The numbers of a collection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CollectionReport {
    /// Sessions that exist.
    pub sessions: usize,
    /// Blobs of sessions.
    pub blobs: usize,
    /// Records of deleted sessions.
    pub tombstones: usize,
    /// Images that were marked.
    pub marked_images: usize,
    /// Images.
    pub images: usize,
    /// Contents whose records do not exist.
    pub contents: usize,
    /// Records of replicas that have crashed.
    pub replicas: usize,
    /// Records that could not be read. Images are not deleted then.
    pub damaged: usize,
}

/// The references in the records of the sessions.
#[derive(Default)]
struct References {
    /// The epoch of each session, and its blobs; `None` for a deleted one.
    sessions: BTreeMap<SessionKey, Option<(u64, BTreeSet<String>)>>,
    images: BTreeSet<Digest>,
    /// Deleted sessions whose records are old enough.
    tombstones: Vec<SessionKey>,
    is_complete: bool,
}

impl Replica {
    /// Deletes what nothing refers to. This reads all records of sessions: once a day is enough, and by one replica,
    /// though more do no harm.
    ///
    /// # Errors
    /// When the store or the coordinator does not answer. Earlier deletions stay.
    pub async fn collect(&self, options: CollectOptions) -> Result<CollectionReport, StoreError> {
        self.check()?;
        let mut collected = CollectionReport::default();
        let references = self.references(options, &mut collected).await?;
        self.collect_blobs(&references, &mut collected).await?;
        for key in &references.tombstones {
            self.shared.cluster.registers.delete(&names::session(key)).await?;
            collected.tombstones += 1;
        }
        if references.is_complete {
            self.collect_images(&references, options, &mut collected).await?;
        }
        self.collect_contents(options, &mut collected).await?;
        self.collect_replicas(&mut collected).await?;
        Ok(collected)
    }

    async fn references(
        &self,
        options: CollectOptions,
        collected: &mut CollectionReport,
    ) -> Result<References, StoreError> {
        let cluster = &self.shared.cluster;
        let mut references = References { is_complete: true, ..References::default() };
        let mut read = pin!(cluster.read_sessions(cluster.session_records().await?));
        while let Some(found) = read.next().await {
            let ReadSession { key, held, .. } = found?;
            let record = match held {
                Ok(held) => held.record,
                Err(error) => {
                    tracing::warn!(%error, "images are not collected");
                    references.is_complete = false;
                    collected.damaged += 1;
                    // Its blobs stay: no epoch is lower than 0.
                    references.sessions.insert(key, Some((0, BTreeSet::new())));
                    continue;
                }
            };
            if record.status == Status::Deleted {
                let deleted = Duration::from_millis(record.payload.facts.last_used);
                let age = Duration::from_millis(milliseconds_now()).saturating_sub(deleted);
                if age > options.tombstone_age {
                    references.tombstones.push(key);
                }
                references.sessions.insert(key, None);
            } else {
                collected.sessions += 1;
                references.images.extend(&record.payload.facts.images);
                let blobs = record.payload.blobs.into_keys().collect();
                references.sessions.insert(key, Some((record.epoch, blobs)));
            }
        }
        Ok(references)
    }

    async fn collect_blobs(&self, references: &References, collected: &mut CollectionReport) -> Result<(), StoreError> {
        let cluster = &self.shared.cluster;
        let mut unused = Vec::new();
        let mut unknown: BTreeMap<SessionKey, Vec<String>> = BTreeMap::new();
        for listed in cluster.objects.list(names::STATE).await? {
            let path = listed.name.strip_prefix(names::STATE).and_then(|path| path.split_once('/'));
            let Some((key, blob)) = path.and_then(|(key, blob)| Some((SessionKey::parse(key)?, blob))) else {
                continue;
            };
            match references.sessions.get(&key) {
                Some(Some((epoch, blobs))) => {
                    let is_earlier = names::epoch_of_blob(blob).is_some_and(|found| found < *epoch);
                    if is_earlier && !blobs.contains(blob) {
                        unused.push(listed.name);
                    }
                }
                Some(None) => unused.push(listed.name),
                None => unknown.entry(key).or_default().push(listed.name),
            }
        }
        for (key, names) in unknown {
            // The session may have been created since the records were listed.
            if cluster.registers.read(&names::session(&key), Deadline::new()).await?.is_none() {
                unused.extend(names);
            }
        }
        collected.blobs = unused.len();
        for names in unused.chunks(1000) {
            cluster.objects.delete_all(names.to_vec()).await?;
        }
        Ok(())
    }

    async fn collect_images(
        &self,
        references: &References,
        options: CollectOptions,
        collected: &mut CollectionReport,
    ) -> Result<(), StoreError> {
        let cluster = &self.shared.cluster;
        let images = cluster.images();
        let mut named = BTreeSet::new();
        // Objects are listed before records: one that is written meanwhile is not in the list.
        let objects = cluster.objects.list(names::IMAGES).await?;
        for entry in cluster.registers.list(names::SHARED).await? {
            let Some(digest) = entry.name.strip_prefix(names::SHARED).and_then(Digest::parse) else { continue };
            let found = match entry.stamped {
                Some(found) => Some(found),
                None => cluster.registers.read(&entry.name, Deadline::new()).await?,
            };
            let Some(found) = found else { continue };
            let record = images::decode(&entry.name, &found)?;
            let expected = Some((found.write, found.version));
            let is_used = references.images.contains(&digest);
            let change = |state| ImageRecord { state, ..record.clone() };
            match record.state {
                ImageState::Live if !is_used => {
                    let marked = change(ImageState::Marked(milliseconds_now()));
                    let written = images.write(&digest, expected, &marked, Deadline::new()).await?;
                    collected.marked_images += usize::from(written);
                }
                ImageState::Marked(_) if is_used => {
                    images.write(&digest, expected, &change(ImageState::Live), Deadline::new()).await?;
                }
                ImageState::Marked(time) if is_older(time, options.image_age) => {
                    if images.write(&digest, expected, &change(ImageState::Deleting), Deadline::new()).await? {
                        cluster.objects.delete(&record.object, Deadline::new()).await?;
                        collected.images += 1;
                        continue;
                    }
                }
                ImageState::Deleting => {
                    // The collector may have ended before it deleted the object.
                    cluster.objects.delete(&record.object, Deadline::new()).await?;
                    continue;
                }
                ImageState::Live | ImageState::Marked(_) => {}
            }
            named.insert(record.object);
        }
        let is_old = |listed: &ObjectEntry| is_written_before(listed, options.image_age);
        let unused = objects.into_iter().filter(|listed| !named.contains(&listed.name) && is_old(listed));
        cluster.objects.delete_all(unused.map(|listed| listed.name).collect()).await
    }

    async fn collect_contents(
        &self,
        options: CollectOptions,
        collected: &mut CollectionReport,
    ) -> Result<(), StoreError> {
        let cluster = &self.shared.cluster;
        let mut old: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for listed in cluster.objects.list(names::CONTENTS).await? {
            if is_written_before(&listed, options.image_age)
                && let Some(record) = names::record_of_content(&listed.name)
            {
                old.entry(record).or_default().push(listed.name);
            }
        }
        for (record, contents) in old {
            if cluster.registers.read(&record, Deadline::new()).await?.is_none() {
                collected.contents += contents.len();
                cluster.objects.delete_all(contents).await?;
            }
        }
        Ok(())
    }

    async fn collect_replicas(&self, collected: &mut CollectionReport) -> Result<(), StoreError> {
        let cluster = &self.shared.cluster;
        for entry in cluster.registers.list(names::NODES).await? {
            let Some(node) = entry.name.strip_prefix(names::NODES).and_then(NodeId::parse) else { continue };
            // A replica that was seen for the first time counts as alive, and is dealt with by the next collection.
            if node != self.node() && self.shared.observe(node, Deadline::new()).await? == Finding::Gone {
                cluster.registers.delete(&entry.name).await?;
                collected.replicas += 1;
            }
        }
        Ok(())
    }
}

fn is_written_before(listed: &ObjectEntry, age: Duration) -> bool {
    SystemTime::now().duration_since(listed.modified).is_ok_and(|found| found > age)
}

fn is_older(time: u64, age: Duration) -> bool {
    Duration::from_millis(milliseconds_now().saturating_sub(time)) > age
}
