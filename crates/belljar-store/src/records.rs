//! Small records that replicas share: runs, approvals, answers.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::names;
use crate::protocol::WriteId;
use crate::registers::{self, Registers, Version};

/// The time between two looks at a store, which has no notifications.
const POLL_INTERVAL: Duration = Duration::from_millis(700);

/// A collection of small records with conditional writes. A record has at most 512 KiB.
#[derive(Debug, Clone)]
pub struct Records {
    cluster: Cluster,
    folder: String,
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
    /// The content.
    pub value: Bytes,
    /// The version, for [`Records::put`].
    pub version: RecordVersion,
}

impl Cluster {
    /// Returns a collection of records, such as `runs`.
    ///
    /// # Errors
    /// When the name is not a name.
    pub fn records(&self, collection: &str) -> Result<Records, StoreError> {
        names::check(collection)?;
        Ok(Records { cluster: self.clone(), folder: format!("records/{collection}/") })
    }
}

impl Records {
    fn name(&self, name: &str) -> Result<String, StoreError> {
        names::check(name)?;
        Ok(format!("{}{name}", self.folder))
    }

    /// Reads a record.
    ///
    /// # Errors
    /// When the coordinator does not answer, or the record is damaged.
    pub async fn get(&self, name: &str) -> Result<Option<Record>, StoreError> {
        let found = self.cluster.registers.read(&self.name(name)?, Deadline::new()).await?;
        Ok(found.map(|found| Record {
            value: found.value,
            version: RecordVersion { write: found.write, version: found.version },
        }))
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

    /// Lists the names of the records in a folder, or of all for the empty text, in order.
    ///
    /// # Errors
    /// When the coordinator does not answer.
    pub async fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let entries = self.cluster.registers.list(&self.folder(folder)?).await?;
        let name = |entry: registers::Entry| entry.name.strip_prefix(&self.folder).map(str::to_owned);
        let mut names: Vec<String> = entries.into_iter().filter_map(name).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn folder(&self, folder: &str) -> Result<String, StoreError> {
        if folder.is_empty() {
            return Ok(self.folder.clone());
        }
        Ok(format!("{}/", self.name(folder)?))
    }

    /// Watches the records of a folder, or all for the empty text.
    ///
    /// etcd reports changes by itself. A store is listed every 0.7 s, so watch only while there is something to wait
    /// for: a run that waits and is awake here.
    ///
    /// # Errors
    /// When the name of the folder is not a name.
    pub fn watch(&self, folder: &str) -> Result<Watch, StoreError> {
        let folder = self.folder(folder)?;
        let (sender, changes) = watch::channel(0);
        let registers = self.cluster.registers.clone();
        let task = tokio::spawn(async move {
            match registers {
                Registers::Etcd(etcd) => etcd.watch(&folder, sender).await,
                registers @ Registers::Bucket(_) => poll(&registers, &folder, &sender).await,
            }
        });
        Ok(Watch { changes, task })
    }
}

/// A watch of records. Dropping it ends the watch.
#[derive(Debug)]
pub struct Watch {
    changes: watch::Receiver<u64>,
    task: JoinHandle<()>,
}

impl Watch {
    /// Waits until a record has been written or deleted since the last call, or may have been. Returns false if the
    /// watch has ended, with the runtime.
    pub async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn poll(registers: &Registers, folder: &str, changes: &watch::Sender<u64>) {
    let mut last: Option<BTreeMap<String, String>> = None;
    loop {
        match registers.list(folder).await {
            Ok(entries) => {
                let found = Some(entries.into_iter().map(|entry| (entry.name, entry.tag)).collect());
                if found != last {
                    last = found;
                    changes.send_modify(|count| *count += 1);
                }
            }
            Err(error) => tracing::debug!(%error, "failed to look for changes"),
        }
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = changes.closed() => return,
        }
    }
}
