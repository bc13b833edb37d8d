//! Registers: small values with conditional writes, in etcd or as objects of the store.
//!
//! A value begins with the ID of its write in a line of its own. So two values are never equal, and a writer whose
//! answer was lost finds out whether its write has happened. (An object's tag is often the hash of its content: without
//! the ID, a conditional write could mistake a later record for an earlier one of the same content.)

mod bucket;
pub(crate) mod etcd;
mod etcd_client;

use std::sync::Arc;
use std::time::SystemTime;

use bytes::{BufMut as _, Bytes, BytesMut};
use object_store::UpdateVersion;

use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::objects::Objects;
use crate::protocol::{NodeId, WriteId};
pub(crate) use bucket::Bucket;
pub(crate) use etcd::Etcd;

/// The maximum size of a value, in bytes. etcd's own limit for a request is 1.5 MiB.
pub(crate) const MAX_VALUE: usize = 512 << 10;
/// The length of the first line: the ID of the write.
const STAMP_LENGTH: usize = 33;

/// The version of a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Object(UpdateVersion),
    Revision(i64),
}

/// A register that was read.
#[derive(Clone, Debug)]
pub(crate) struct RegisterValue {
    pub(crate) write: WriteId,
    pub(crate) version: Version,
    pub(crate) value: Bytes,
}

/// A register in a listing.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// The time of the last write by the clock of the store; `None` from etcd.
    pub(crate) modified: Option<SystemTime>,
    /// Changes with each write.
    pub(crate) tag: String,
    /// The register itself, from etcd.
    pub(crate) stamped: Option<RegisterValue>,
}

/// The answer to one attempt of a conditional write.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The write has happened.
    Written(Version),
    /// The register has another version.
    Conflict,
    /// It is unknown whether the write has happened.
    Unknown(StoreError),
    /// The write has not happened, and will not.
    Refused(StoreError),
}

/// Registers of either kind.
#[derive(Clone)]
pub(crate) enum Registers {
    Bucket(Bucket),
    Etcd(Arc<Etcd>),
}

impl Registers {
    pub(crate) fn on_store(objects: Objects) -> Self {
        Self::Bucket(Bucket::new(objects))
    }

    /// Reads a register.
    pub(crate) async fn read(&self, name: &str, deadline: Deadline) -> Result<Option<RegisterValue>, StoreError> {
        match self {
            Self::Bucket(bucket) => bucket.read(name, deadline).await,
            Self::Etcd(etcd) => etcd.read(name, deadline).await,
        }
    }

    /// Sends one conditional write. Without a version, the register must not exist. `guard` is a replica whose lease
    /// must run; the store cannot check that.
    pub(crate) async fn write(
        &self,
        name: &str,
        version: Option<&Version>,
        write: WriteId,
        value: &[u8],
        guard: Option<NodeId>,
        deadline: Deadline,
    ) -> Answer {
        if value.len() > MAX_VALUE {
            return Answer::Refused(StoreError::TooLarge { what: "a record", size: value.len(), limit: MAX_VALUE });
        }
        let bytes = stamp(write, value);
        match self {
            Self::Bucket(bucket) => bucket.write(name, version, bytes, deadline).await,
            Self::Etcd(etcd) => etcd.write(name, version, &bytes, guard, deadline).await,
        }
    }

    /// Deletes a register, whatever its version.
    pub(crate) async fn delete(&self, name: &str) -> Result<(), StoreError> {
        match self {
            Self::Bucket(bucket) => bucket.delete(name).await,
            Self::Etcd(etcd) => etcd.delete(name).await,
        }
    }

    /// Lists the registers whose names begin with a folder, which ends with `/`.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<Entry>, StoreError> {
        match self {
            Self::Bucket(bucket) => bucket.list(folder).await,
            Self::Etcd(etcd) => etcd.list(folder).await,
        }
    }

    /// Writes a register until it is known whether the write has happened. Returns `None` if it has not, since the
    /// register has another version.
    pub(crate) async fn write_confirmed(
        &self,
        name: &str,
        expected: Option<(WriteId, Version)>,
        write: WriteId,
        value: &[u8],
        deadline: Deadline,
    ) -> Result<Option<Version>, StoreError> {
        let mut is_first = true;
        for attempt in 0.. {
            let version = expected.as_ref().map(|(_, version)| version);
            let error = match self.write(name, version, write, value, None, deadline).await {
                Answer::Written(version) => return Ok(Some(version)),
                Answer::Refused(error) if is_first => return Err(error),
                Answer::Conflict => None,
                Answer::Refused(error) | Answer::Unknown(error) => Some(error),
            };
            is_first = false;
            let found = self.read(name, deadline).await?;
            match found {
                Some(found) if found.write == write => return Ok(Some(found.version)),
                found if found.as_ref().map(|found| found.write) == expected.as_ref().map(|(write, _)| *write) => {
                    if !deadline.pause(attempt).await {
                        let reason = error.map_or_else(|| "conflicting answers".to_owned(), |error| error.to_string());
                        return Err(StoreError::unavailable(format!("write {name}"), reason));
                    }
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// Puts the ID of the write before a value.
fn stamp(write: WriteId, value: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(STAMP_LENGTH + value.len());
    bytes.put_slice(write.to_string().as_bytes());
    bytes.put_u8(b'\n');
    bytes.put_slice(value);
    bytes.freeze()
}

/// Takes a value apart.
fn unstamp(name: &str, mut bytes: Bytes, version: Version) -> Result<RegisterValue, StoreError> {
    let damaged = || StoreError::damaged(name, "it does not begin with the ID of a write");
    if bytes.len() < STAMP_LENGTH || bytes.len() > STAMP_LENGTH + MAX_VALUE || bytes[STAMP_LENGTH - 1] != b'\n' {
        return Err(damaged());
    }
    let line = bytes.split_to(STAMP_LENGTH);
    let write = std::str::from_utf8(&line[..STAMP_LENGTH - 1]).ok().and_then(WriteId::parse).ok_or_else(damaged)?;
    Ok(RegisterValue { write, version, value: bytes })
}
