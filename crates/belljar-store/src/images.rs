//! Images by their content: written once, read by replicas that lack them, and collected when no session needs them.
//!
//! The record of an image names its object, whose name is never used again. Collection has two phases, so that a
//! replica that begins to use an image and the collector cannot miss each other:
//!
//! ```text
//!  (none) ──put──▶ live ──not referred to──▶ marked ──a grace later, still not──▶ deleting ──▶ object deleted
//!                   ▲                          │                                     │
//!                   └────────put, get──────────┘                                     └──put: a new object──▶ live
//! ```

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::cluster::Cluster;
use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::names::{self, Digest};
use crate::protocol::WriteId;
use crate::registers::{RegisterValue, Version};

/// The maximum size of an image, in bytes.
const MAX_IMAGE: usize = 1 << 30;
/// The number of conditional writes that are tried.
const MAX_RACES: usize = 8;

/// The record of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ImageRecord {
    /// The object.
    pub(crate) object: String,
    pub(crate) size: usize,
    pub(crate) state: ImageState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ImageState {
    Live,
    /// A collector has found no reference, at this time in milliseconds since 1970.
    Marked(u64),
    /// The object is deleted. Only a new object makes the image live again.
    Deleting,
}

/// The images of a cluster.
#[derive(Debug, Clone)]
pub struct Images {
    cluster: Cluster,
}

impl Cluster {
    /// Returns the images of the store, which all replicas share.
    #[must_use]
    pub fn images(&self) -> Images {
        Images { cluster: self.clone() }
    }
}

impl Images {
    /// Stores an image, unless it is there. Call this, or [`Images::get`], before a commit that refers to it.
    ///
    /// # Errors
    /// When the store does not answer, or the bytes have another SHA-256.
    pub async fn put(&self, digest: Digest, bytes: Bytes) -> Result<(), StoreError> {
        if bytes.len() > MAX_IMAGE {
            return Err(StoreError::TooLarge { what: "an image", size: bytes.len(), limit: MAX_IMAGE });
        }
        if Digest::from_content(&bytes) != digest {
            return Err(StoreError::Invalid(format!("the image is not the one with the SHA-256 {digest}")));
        }
        let deadline = Deadline::for_size(bytes.len());
        let mut object = None;
        for _ in 0..MAX_RACES {
            let found = self.find(&digest, deadline).await?;
            let expected = match found {
                Some((ImageRecord { state: ImageState::Live, .. }, ..)) => return Ok(()),
                Some((record @ ImageRecord { state: ImageState::Marked(_), .. }, write, version)) => {
                    let live = ImageRecord { state: ImageState::Live, ..record };
                    if self.write(&digest, Some((write, version)), &live, deadline).await? {
                        return Ok(());
                    }
                    continue;
                }
                Some((_, write, version)) => Some((write, version)),
                None => None,
            };
            let object = match &object {
                Some(object) => object,
                None => {
                    let name = names::image(&digest, names::new_write()?);
                    self.cluster.objects.put(&name, bytes.clone(), deadline).await?;
                    &*object.insert(name)
                }
            };
            let live = ImageRecord { object: object.clone(), size: bytes.len(), state: ImageState::Live };
            if self.write(&digest, expected, &live, deadline).await? {
                return Ok(());
            }
        }
        Err(StoreError::unavailable(format!("store the image {digest}"), "other replicas write its record"))
    }

    /// Reads an image, and checks its SHA-256. Returns `None` if it is not in the store.
    ///
    /// # Errors
    /// When the store does not answer, or the image is damaged.
    pub async fn get(&self, digest: Digest) -> Result<Option<Bytes>, StoreError> {
        let Some(record) = self.use_image(&digest).await? else { return Ok(None) };
        let deadline = Deadline::for_size(record.size);
        let Some((bytes, _)) = self.cluster.objects.get(&record.object, record.size, deadline).await? else {
            return Ok(None);
        };
        if Digest::from_content(&bytes) != digest {
            return Err(StoreError::damaged(record.object, "its SHA-256 is another"));
        }
        Ok(Some(bytes))
    }

    /// Returns whether an image is in the store, and saves it from being collected soon.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn contains(&self, digest: Digest) -> Result<bool, StoreError> {
        Ok(self.use_image(&digest).await?.is_some())
    }

    /// Returns the record of a live image. Removes the mark of a collector.
    async fn use_image(&self, digest: &Digest) -> Result<Option<ImageRecord>, StoreError> {
        let deadline = Deadline::new();
        for _ in 0..MAX_RACES {
            let Some((record, write, version)) = self.find(digest, deadline).await? else { return Ok(None) };
            match record.state {
                ImageState::Live => return Ok(Some(record)),
                ImageState::Deleting => return Ok(None),
                ImageState::Marked(_) => {
                    let live = ImageRecord { state: ImageState::Live, ..record };
                    if self.write(digest, Some((write, version)), &live, deadline).await? {
                        return Ok(Some(live));
                    }
                }
            }
        }
        Err(StoreError::unavailable(format!("use the image {digest}"), "other replicas write its record"))
    }

    async fn find(
        &self,
        digest: &Digest,
        deadline: Deadline,
    ) -> Result<Option<(ImageRecord, WriteId, Version)>, StoreError> {
        let name = names::shared(digest);
        let found = self.cluster.registers.read(&name, deadline).await?;
        found.map(|found| Ok((decode(&name, &found)?, found.write, found.version))).transpose()
    }

    /// Writes the record of an image. Returns false if it has changed.
    pub(crate) async fn write(
        &self,
        digest: &Digest,
        expected: Option<(WriteId, Version)>,
        record: &ImageRecord,
        deadline: Deadline,
    ) -> Result<bool, StoreError> {
        let name = names::shared(digest);
        let value = serde_json::to_vec(record).map_err(|error| StoreError::damaged(&name, error))?;
        let write = names::new_write()?;
        let written = self.cluster.registers.write_confirmed(&name, expected, write, &value, deadline).await?;
        Ok(written.is_some())
    }
}

pub(crate) fn decode(name: &str, found: &RegisterValue) -> Result<ImageRecord, StoreError> {
    let record: ImageRecord = serde_json::from_slice(&found.value).map_err(|error| StoreError::damaged(name, error))?;
    if !record.object.starts_with(names::IMAGES) || record.size > MAX_IMAGE {
        return Err(StoreError::damaged(name, "it names no image"));
    }
    Ok(record)
}
