//! The check at start that the store and the coordinator keep the promises that sessions rely on.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use crate::cluster::Cluster;
use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::names;
use crate::protocol::{NodeId, WriteId};
use crate::registers::{Answer, Etcd, Registers, Version};

/// The oldest version of etcd: its gateway has the path `/v3`.
const OLDEST_ETCD: (u32, u32) = (3, 4);
/// The number of writers of which one may win, and how often that is tried.
const RACE: (usize, usize) = (6, 3);

/// The error of a probe.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ProbeError {
    /// A service does not keep a promise.
    #[error("{service} does not keep a promise that sessions rely on: {promise}: {reason}")]
    Broken {
        /// The store or the coordinator.
        service: &'static str,
        /// The promise.
        promise: &'static str,
        /// The finding.
        reason: String,
    },
    /// The members of etcd are too old, or cannot be asked for their version.
    #[error("etcd at {member} is not usable: {reason}")]
    Version {
        /// The member.
        member: String,
        /// The finding.
        reason: String,
    },
    /// The prefix is used with another store or another coordinator.
    #[error("{what} is used with {found}, and not with {expected}")]
    OtherCluster {
        /// The prefix in question.
        what: &'static str,
        /// The other end that it is used with.
        found: String,
        /// The other end that this replica has.
        expected: String,
    },
    /// An operation failed.
    #[error("failed to probe: {0}")]
    Store(#[from] StoreError),
}

impl ProbeError {
    /// Returns what the operator can do.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Broken { .. } => {
                "coordinate by etcd (etcd://HOST:2379), or use a store with atomic conditional writes"
            }
            Self::Version { .. } => "use etcd 3.4 or newer, and check the addresses of its members",
            Self::OtherCluster { .. } => "give all replicas the same store and coordinator, or use another prefix",
            Self::Store(error) => error.hint(),
        }
    }
}

fn broken(service: &'static str, promise: &'static str) -> impl Fn(&str) -> ProbeError {
    move |reason| ProbeError::Broken { service, promise, reason: reason.to_owned() }
}

impl Cluster {
    /// Checks that the store and the coordinator keep their promises: objects are read as they were written, listed and
    /// deleted; conditional writes create and update, and refuse what is stale, also when several replicas write at a
    /// time; leases of etcd run. Also checks that no replica uses the prefix with another coordinator.
    ///
    /// # Errors
    /// See [`ProbeError`]. A service that fails must not be used.
    pub async fn probe(&self) -> Result<(), ProbeError> {
        if let Registers::Etcd(etcd) = &self.registers {
            probe_versions(etcd).await?;
        }
        self.probe_objects().await?;
        self.probe_registers().await?;
        if let Registers::Etcd(etcd) = &self.registers {
            self.probe_lease(etcd).await?;
        }
        self.check_coordinator().await
    }

    async fn probe_objects(&self) -> Result<(), ProbeError> {
        let folder = format!("probe/{}/", names::new_write()?);
        let (first, second) = (format!("{folder}a"), format!("{folder}b"));
        let deadline = Deadline::new();
        let objects = &self.objects;
        let wrong = broken("the store", "an object is read as it was written last");
        for content in ["1", "22"] {
            objects.put(&first, Bytes::from(content), deadline).await?;
            let found = objects.get(&first, 0, deadline).await?.map(|(bytes, _)| bytes);
            if found.as_deref() != Some(content.as_bytes()) {
                return Err(wrong("an earlier content, or none, was read after a write"));
            }
        }
        if objects.get_range(&first, 1..2, deadline).await?.as_ref() != b"2" {
            return Err(broken("the store", "a range of an object is read")("other bytes were read"));
        }
        objects.put(&second, Bytes::from_static(b"3"), deadline).await?;
        let listed: BTreeSet<String> = objects.list(&folder).await?.into_iter().map(|listed| listed.name).collect();
        if listed != BTreeSet::from([first.clone(), second.clone()]) {
            return Err(broken("the store", "a listing has the objects that were written")(&format!("{listed:?}")));
        }
        objects.delete_all(vec![first.clone(), second]).await?;
        if objects.get(&first, 0, deadline).await?.is_some() {
            return Err(broken("the store", "an object that was deleted does not exist")("it was read"));
        }
        Ok(())
    }

    async fn probe_registers(&self) -> Result<(), ProbeError> {
        let name = format!("probe/{}/register", names::new_write()?);
        let service = self.coordinator_name();
        let create = broken(service, "a conditional write creates a record only if it does not exist");
        let first = self.expect_written(&name, None, &create).await?;
        match self.write_probe(&name, None).await? {
            Answer::Conflict => {}
            other => return Err(create(&format!("the second creation was answered by {}", describe(&other)))),
        }
        let update = broken(service, "a conditional write updates a record of the expected version");
        let second = self.expect_written(&name, Some(&first), &update).await?;
        let stale = broken(service, "a conditional write is refused if the record has another version");
        match self.write_probe(&name, Some(&first)).await? {
            Answer::Conflict => {}
            other => return Err(stale(&format!("a stale write was answered by {}", describe(&other)))),
        }
        self.probe_race(&name, second, service).await?;
        let listed = self.registers.list(name.trim_end_matches("register")).await?;
        if !listed.iter().any(|entry| entry.name == name) {
            return Err(broken(service, "a listing has the records that were written")("the record is not in it"));
        }
        self.registers.delete(&name).await?;
        if self.registers.read(&name, Deadline::new()).await?.is_some() {
            return Err(broken(service, "a record that was deleted does not exist")("it was read"));
        }
        Ok(())
    }

    /// Writes from several tasks at a time, of which one must win.
    async fn probe_race(&self, name: &str, mut version: Version, service: &'static str) -> Result<(), ProbeError> {
        let atomic = broken(service, "of several conditional writes at a time, one is carried out");
        for _ in 0..RACE.1 {
            let writes = (0..RACE.0).map(|_| self.write_probe(name, Some(&version)));
            let answers = join_all(writes).await.into_iter().collect::<Result<Vec<_>, _>>()?;
            let mut won: Vec<Version> = Vec::new();
            for answer in answers {
                match answer {
                    Answer::Written(version) => won.push(version),
                    Answer::Conflict => {}
                    Answer::Unknown(error) | Answer::Refused(error) => return Err(error.into()),
                }
            }
            let found = self.registers.read(name, Deadline::new()).await?;
            match (won.as_slice(), found) {
                ([winner], Some(found)) if found.version == *winner => version = found.version,
                (won, _) => return Err(atomic(&format!("{} of {} were", won.len(), RACE.0))),
            }
        }
        Ok(())
    }

    /// Sends one conditional write, and again if the service does not answer and certainly has not carried it out.
    async fn write_probe(&self, name: &str, version: Option<&Version>) -> Result<Answer, StoreError> {
        let deadline = Deadline::new();
        let write = names::new_write()?;
        for attempt in 0.. {
            let answer = self.registers.write(name, version, write, b"probe", None, deadline).await;
            let Answer::Unknown(error) = answer else { return Ok(answer) };
            match self.registers.read(name, deadline).await? {
                Some(found) if found.write == write => return Ok(Answer::Written(found.version)),
                _ if !deadline.pause(attempt).await => return Err(error),
                _ => {}
            }
        }
        Ok(Answer::Conflict)
    }

    async fn expect_written(
        &self,
        name: &str,
        version: Option<&Version>,
        broken: &impl Fn(&str) -> ProbeError,
    ) -> Result<Version, ProbeError> {
        match self.write_probe(name, version).await? {
            Answer::Written(written) => {
                let found = self.registers.read(name, Deadline::new()).await?;
                match found {
                    Some(found) if found.version == written => Ok(written),
                    Some(_) => Err(broken("another version was read after the write")),
                    None => Err(broken("the record was not found after the write")),
                }
            }
            // The first write: more likely, a permission is missing.
            Answer::Refused(error) if version.is_none() => Err(error.into()),
            Answer::Refused(error) => Err(broken(&error.to_string())),
            answer => Err(broken(&format!("it was answered by {}", describe(&answer)))),
        }
    }

    async fn probe_lease(&self, etcd: &Etcd) -> Result<(), ProbeError> {
        let broken = broken("etcd", "a key exists as long as its lease");
        let node = NodeId(names::random()?);
        let stamped = Bytes::from(format!("{}\n{{}}", WriteId(node.0)));
        let lease = etcd.join(node, &stamped, Duration::from_secs(5)).await?;
        if etcd.renew(lease, Duration::from_secs(2)).await == Some(false) {
            return Err(broken("a new lease has ended"));
        }
        let name = names::node(node);
        if self.registers.read(&name, Deadline::new()).await?.is_none() {
            return Err(broken("the key of a new lease does not exist"));
        }
        etcd.revoke(lease).await?;
        if self.registers.read(&name, Deadline::new()).await?.is_some() {
            return Err(broken("the key exists after its lease was revoked"));
        }
        Ok(())
    }

    fn coordinator_name(&self) -> &'static str {
        match self.registers {
            Registers::Bucket(_) => "the store",
            Registers::Etcd(_) => "etcd",
        }
    }

    /// Checks that the store is used with this coordinator, and the coordinator with this store. Two groups of replicas
    /// with one store and two coordinators would both own its sessions.
    async fn check_coordinator(&self) -> Result<(), ProbeError> {
        let coordinator = match &self.registers {
            Registers::Bucket(_) => "store".to_owned(),
            Registers::Etcd(etcd) => etcd.identity().await?,
        };
        let store = Registers::on_store(self.objects.clone());
        // A directory has no conditional update, but this is a creation.
        agree(&store, "the prefix of the store", &coordinator).await?;
        if let Registers::Etcd(_) = self.registers {
            // The store's own ID: its URL may be written in several ways.
            let identity = create_once(&store, names::IDENTITY, &names::new_write()?.to_string()).await?;
            agree(&self.registers, "the prefix of etcd", &format!("store {identity}")).await?;
        }
        Ok(())
    }
}

/// Writes a text into the record `coordinator` unless it exists, and compares.
async fn agree(registers: &Registers, what: &'static str, text: &str) -> Result<(), ProbeError> {
    let found = create_once(registers, names::COORDINATOR, text).await?;
    if found == text { Ok(()) } else { Err(ProbeError::OtherCluster { what, found, expected: text.to_owned() }) }
}

/// Returns the text of a record. Creates it with this text if it does not exist.
async fn create_once(registers: &Registers, name: &str, text: &str) -> Result<String, StoreError> {
    let deadline = Deadline::new();
    if registers.read(name, deadline).await?.is_none() {
        registers.write_confirmed(name, None, names::new_write()?, text.as_bytes(), deadline).await?;
    }
    let found = registers.read(name, deadline).await?.ok_or_else(|| StoreError::Missing { name: name.to_owned() })?;
    Ok(String::from_utf8_lossy(&found.value).into_owned())
}

async fn probe_versions(etcd: &Etcd) -> Result<(), ProbeError> {
    let mut reason = None;
    let mut answered = 0;
    for (member, version) in etcd.versions().await {
        match version {
            Ok(version) if parse_version(&version).is_some_and(|version| version >= OLDEST_ETCD) => answered += 1,
            Ok(version) => return Err(ProbeError::Version { member, reason: format!("its version is {version}") }),
            // A member may be down.
            Err(error) => reason = Some((member, error)),
        }
    }
    match reason {
        Some((member, reason)) if answered == 0 => Err(ProbeError::Version { member, reason }),
        _ => Ok(()),
    }
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn describe(answer: &Answer) -> String {
    match answer {
        Answer::Written(_) => "success".to_owned(),
        Answer::Conflict => "a conflict".to_owned(),
        Answer::Unknown(error) | Answer::Refused(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_etcd_are_compared_as_numbers() {
        assert!(parse_version("3.10.1").unwrap() >= OLDEST_ETCD);
        assert!(parse_version("3.3.25").unwrap() < OLDEST_ETCD);
        assert_eq!(parse_version("three"), None);
    }
}
