//! Small records that replicas share, such as those of runs, and contents that are too large for them.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};

use crate::cluster::Cluster;
use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::names;
use crate::objects::MAX_PARALLEL;
use crate::protocol::WriteId;
use crate::registers::{self, RegisterValue, Version};

/// The maximum size of a content, in bytes.
const MAX_CONTENT: usize = 64 << 20;

/// A collection of small records with conditional writes. A record has at most 512 KiB.
#[derive(Debug, Clone)]
pub struct Records {
    cluster: Cluster,
    collection: String,
}

/// The version of a record: the write that made it.
#[derive(Debug, Clone)]
pub struct RecordVersion {
    write: WriteId,
    version: Version,
}

impl PartialEq for RecordVersion {
    fn eq(&self, other: &Self) -> bool {
        self.write == other.write
    }
}

impl Eq for RecordVersion {}

/// A record that was read.
#[derive(Debug, Clone)]
pub struct Record {
    /// The content; empty while the record is being removed.
    pub value: Bytes,
    /// The version, for [`Records::put`].
    pub version: RecordVersion,
}

impl From<RegisterValue> for Record {
    fn from(found: RegisterValue) -> Self {
        Self { value: found.value, version: RecordVersion { write: found.write, version: found.version } }
    }
}

/// The records of a collection as they were read last, so that those that have not changed are not read again.
#[derive(Debug, Default)]
pub struct RecordCache(BTreeMap<String, (String, Record)>);

impl Cluster {
    /// Returns a collection of records, such as `runs`.
    ///
    /// # Errors
    /// When the name is not a name.
    pub fn records(&self, collection: &str) -> Result<Records, StoreError> {
        names::check(collection)?;
        Ok(Records { cluster: self.clone(), collection: collection.to_owned() })
    }
}

impl Records {
    fn name(&self, name: &str) -> Result<String, StoreError> {
        names::check(name)?;
        Ok(names::record(&self.collection, name))
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When the coordinator does not answer, or the record is damaged.
    pub async fn get(&self, name: &str) -> Result<Option<Record>, StoreError> {
        let found = self.cluster.registers.read(&self.name(name)?, Deadline::new()).await?;
        Ok(found.map(Record::from))
    }

    /// Writes a record, if it has this version still, or does not exist for `None`. Returns the new version, and `None`
    /// if the record has another version. A write whose answer is lost is confirmed by reading.
    ///
    /// # Errors
    /// When the coordinator does not answer: the record may have been written then, or may yet be.
    pub async fn put(
        &self,
        name: &str,
        expected: Option<&RecordVersion>,
        value: &[u8],
    ) -> Result<Option<RecordVersion>, StoreError> {
        let name = self.name(name)?;
        if value.len() > registers::MAX_VALUE {
            let limit = registers::MAX_VALUE;
            return Err(StoreError::TooLarge { what: "a record", size: value.len(), limit });
        }
        let write = names::new_write()?;
        let expected = expected.map(|expected| (expected.write, expected.version.clone()));
        let written = self.cluster.registers.write_confirmed(&name, expected, write, value, Deadline::new()).await?;
        Ok(written.map(|version| RecordVersion { write, version }))
    }

    /// Deletes a record, whatever its version. Succeeds if it does not exist.
    ///
    /// # Errors
    /// When the coordinator does not answer.
    pub async fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.cluster.registers.delete(&self.name(name)?).await
    }

    /// Deletes a record if it has this version still. Returns whether it has.
    ///
    /// Stores have no conditional deletion: the record is replaced by an empty one first, which is deleted then. No
    /// other writer may replace an empty record.
    ///
    /// # Errors
    /// When the coordinator does not answer. The record may be empty then.
    pub async fn remove(&self, name: &str, version: &RecordVersion) -> Result<bool, StoreError> {
        if self.put(name, Some(version), b"").await?.is_none() {
            return Ok(false);
        }
        self.delete(name).await?;
        Ok(true)
    }

    /// Lists the names of the records in a folder, or of all for the empty text, in order.
    ///
    /// # Errors
    /// When the coordinator does not answer.
    pub async fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let all = names::records(&self.collection);
        let folder = if folder.is_empty() { all.clone() } else { format!("{}/", self.name(folder)?) };
        let entries = self.cluster.registers.list(&folder).await?;
        let name = |entry: registers::Entry| entry.name.strip_prefix(&all).map(str::to_owned);
        let mut names: Vec<String> = entries.into_iter().filter_map(name).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Reads all records, and returns them in the order of their names. The store needs one request for 1,000 records,
    /// and one more for each that has changed since the last call with this cache. etcd lists records with their
    /// content.
    ///
    /// # Errors
    /// When the coordinator does not answer. Damaged records are left out, with a warning.
    pub async fn read_all(&self, cache: &mut RecordCache) -> Result<Vec<(String, Record)>, StoreError> {
        let folder = names::records(&self.collection);
        let entries = self.cluster.registers.list(&folder).await?;
        let (mut known, mut changed) = (BTreeMap::new(), Vec::new());
        for entry in entries {
            let Some(name) = entry.name.strip_prefix(&folder).map(str::to_owned) else { continue };
            match (cache.0.remove(&name), entry.stamped) {
                (Some((tag, record)), _) if !tag.is_empty() && tag == entry.tag => {
                    known.insert(name, (tag, record));
                }
                (_, Some(found)) => {
                    known.insert(name, (entry.tag, found.into()));
                }
                (_, None) => changed.push((name, entry.name, entry.tag)),
            }
        }
        let reads = changed.into_iter().map(|(name, path, tag)| async move {
            (name, tag, self.cluster.registers.read(&path, Deadline::new()).await)
        });
        let read: Vec<_> = stream::iter(reads).buffer_unordered(MAX_PARALLEL).collect().await;
        for (name, tag, found) in read {
            match found {
                Ok(Some(found)) => {
                    known.insert(name, (tag, found.into()));
                }
                // Deleted since the listing.
                Ok(None) => {}
                Err(error @ StoreError::Damaged { .. }) => tracing::warn!(%error, "a record is left out of a list"),
                Err(error) => return Err(error),
            }
        }
        cache.0 = known;
        Ok(cache.0.iter().map(|(name, (_, record))| (name.clone(), record.clone())).collect())
    }

    /// Stores a content that is too large for the record `name`. Returns the name of the content, which the record is
    /// to have, and which is not used again.
    ///
    /// # Errors
    /// When the store does not answer, or the content is too large.
    pub async fn put_content(&self, name: &str, bytes: Bytes) -> Result<String, StoreError> {
        names::check(name)?;
        if bytes.len() > MAX_CONTENT {
            return Err(StoreError::TooLarge { what: "a content", size: bytes.len(), limit: MAX_CONTENT });
        }
        let content = format!("{name}/{}", names::new_write()?);
        let deadline = Deadline::for_size(bytes.len());
        self.cluster.objects.put(&names::content(&self.collection, &content), bytes, deadline).await?;
        Ok(content)
    }

    /// Reads a content of about this size, in bytes. Returns `None` if it does not exist.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn content(&self, content: &str, size: usize) -> Result<Option<Bytes>, StoreError> {
        names::check(content)?;
        let (name, size) = (names::content(&self.collection, content), size.min(MAX_CONTENT));
        let found = self.cluster.objects.get(&name, size, Deadline::for_size(size)).await?;
        Ok(found.map(|(bytes, _)| bytes))
    }

    /// Deletes the contents of the record `name`.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn delete_contents(&self, name: &str) -> Result<(), StoreError> {
        names::check(name)?;
        let objects = &self.cluster.objects;
        let listed = objects.list(&names::content(&self.collection, &format!("{name}/"))).await?;
        let names: Vec<String> = listed.into_iter().map(|listed| listed.name).collect();
        if names.is_empty() { Ok(()) } else { objects.delete_all(names).await }
    }
}
