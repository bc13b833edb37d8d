//! Registers as objects of the store, with its conditional writes.

use bytes::Bytes;

use super::{Answer, Entry, RegisterValue, Version, unstamp};
use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::objects::{Conditional, ObjectEntry, Objects};

/// Registers as objects of a store.
#[derive(Clone)]
pub(crate) struct Bucket {
    objects: Objects,
}

impl Bucket {
    pub(super) fn new(objects: Objects) -> Self {
        Self { objects }
    }

    pub(super) async fn read(&self, name: &str, deadline: Deadline) -> Result<Option<RegisterValue>, StoreError> {
        let Some((bytes, version)) = self.objects.get(name, 0, deadline).await? else { return Ok(None) };
        unstamp(name, bytes, Version::Object(version)).map(Some)
    }

    pub(super) async fn write(
        &self,
        name: &str,
        version: Option<&Version>,
        bytes: Bytes,
        deadline: Deadline,
    ) -> Answer {
        let operation = || format!("write {name}");
        let version = match version {
            None => None,
            Some(Version::Object(version)) => Some(version.clone()),
            Some(Version::Revision(_)) => {
                return Answer::Refused(StoreError::Invalid("a version of etcd for an object".to_owned()));
            }
        };
        match self.objects.put_if(name, version, bytes, deadline).await {
            Conditional::Written(version) if version.e_tag.is_some() || version.version.is_some() => {
                Answer::Written(Version::Object(version))
            }
            Conditional::Written(_) => {
                let reason = "the store returns neither a tag nor a version".to_owned();
                Answer::Unknown(StoreError::Refused { operation: operation(), reason })
            }
            Conditional::Conflict => Answer::Conflict,
            Conditional::Unknown(reason) => Answer::Unknown(StoreError::unavailable(operation(), reason)),
            Conditional::Refused(reason) => Answer::Refused(StoreError::Refused { operation: operation(), reason }),
        }
    }

    pub(super) async fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.objects.delete(name, Deadline::new()).await
    }

    pub(super) async fn list(&self, folder: &str) -> Result<Vec<Entry>, StoreError> {
        let found = self.objects.list(folder).await?;
        let entry = |listed: ObjectEntry| Entry {
            name: listed.name,
            modified: Some(listed.modified),
            tag: listed.tag,
            stamped: None,
        };
        Ok(found.into_iter().map(entry).collect())
    }
}
