//! A replica: its lease, and what it finds out about the leases of others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::names;
use crate::protocol::{Lease, LeaseCommand, LeaseEvent, LeaseTimes, NodeId, NodeRecord, NodeState, Observer, Owner};
use crate::protocol::{Verdict, WriteId};
use crate::registers::{Answer, Registers, Version};

/// The time after which others may take the sessions of a replica over.
const LEASE_DURATION: Duration = Duration::from_secs(10);
/// The maximum length of an address.
const MAX_ADDRESS: usize = 300;
/// The number of findings about other replicas that are remembered.
const MAX_FINDINGS: usize = 10_000;

/// The options of a replica.
#[derive(Debug, Clone, Copy)]
pub struct ReplicaOptions {
    /// The time after which others may take its sessions over. All replicas of a cluster must have the same. 10 s
    /// unless it is set.
    pub lease: Duration,
}

impl Default for ReplicaOptions {
    fn default() -> Self {
        Self { lease: LEASE_DURATION }
    }
}

/// This process as a member of a cluster. Clones are the same member.
///
/// Dropping all clones stops the renewal: others take its sessions over when the lease has run out.
#[derive(Clone)]
pub struct Replica {
    pub(crate) shared: Arc<Shared>,
    /// Ends the renewal when the last clone is dropped.
    _renewal: Arc<Renewal>,
}

struct Renewal(JoinHandle<()>);

impl Drop for Renewal {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) struct Shared {
    pub(crate) cluster: Cluster,
    pub(crate) me: Owner,
    times: LeaseTimes,
    start: Instant,
    lease: Mutex<Lease>,
    /// The record of this replica in the store, or its lease of etcd.
    holding: tokio::sync::Mutex<Holding>,
    fenced: watch::Sender<bool>,
    observer: Mutex<Observer>,
    /// The last finding about each replica, and its time.
    findings: Mutex<HashMap<NodeId, (Finding, Instant)>>,
}

#[derive(Clone)]
enum Holding {
    Record(WriteId, Version),
    Lease(i64),
}

/// A finding about another replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    Alive,
    Gone,
}

impl Replica {
    /// Joins a cluster: obtains a lease, and renews it in the background. `address` is how other replicas reach this
    /// one.
    ///
    /// # Errors
    /// When the lease cannot be obtained.
    pub async fn join(cluster: &Cluster, address: &str, options: ReplicaOptions) -> Result<Self, StoreError> {
        if address.is_empty() || address.len() > MAX_ADDRESS || address.contains(char::is_control) {
            return Err(StoreError::Invalid(format!("{address:?} is not the address of a replica")));
        }
        if options.lease < Duration::from_millis(500) {
            return Err(StoreError::Invalid("a lease is shorter than half a second".to_owned()));
        }
        let node = NodeId(names::random()?);
        let times = LeaseTimes { length: options.lease };
        let start = Instant::now();
        let record = NodeRecord { write: names::new_write()?, state: NodeState::Alive, address: address.into() };
        let value = encode(&record)?;
        let (name, deadline) = (names::node(node), Deadline::within(times.hold()));
        let holding = match &cluster.registers {
            Registers::Etcd(etcd) => {
                let stamped = format!("{}\n{}", record.write, String::from_utf8_lossy(&value));
                Holding::Lease(etcd.join(node, &stamped.into(), options.lease).await?)
            }
            registers @ Registers::Bucket(_) => {
                let version = registers.write_confirmed(&name, None, record.write, &value, deadline).await?;
                let version = version.ok_or_else(|| StoreError::damaged(name, "another replica has the same ID"))?;
                Holding::Record(record.write, version)
            }
        };
        let shared = Arc::new(Shared {
            cluster: cluster.clone(),
            me: Owner { node, address: address.into() },
            times,
            start,
            lease: Mutex::new(Lease::new(times, Duration::ZERO)),
            holding: tokio::sync::Mutex::new(holding),
            fenced: watch::Sender::new(false),
            observer: Mutex::new(Observer::new(times)),
            findings: Mutex::default(),
        });
        shared.check()?;
        let task = tokio::spawn(renew(shared.clone()));
        Ok(Self { shared, _renewal: Arc::new(Renewal(task)) })
    }

    /// Returns the ID of the replica: random, and another one each time that it joins.
    #[must_use]
    pub fn node(&self) -> NodeId {
        self.shared.me.node
    }

    /// Returns the address at which other replicas reach this one.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.shared.me.address
    }

    /// Returns the connection to the store and the coordinator that the replica has joined.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.shared.cluster
    }

    /// Returns the address of another replica, or `None` if its lease has ended.
    ///
    /// # Errors
    /// When the coordinator does not answer, or the record of the replica is damaged.
    pub async fn find(&self, node: NodeId) -> Result<Option<Arc<str>>, StoreError> {
        let deadline = Deadline::new();
        if self.shared.observe(node, deadline).await? == Finding::Gone {
            return Ok(None);
        }
        let name = names::node(node);
        let found = self.shared.cluster.registers.read(&name, deadline).await?;
        let record = found.map(|found| decode(&name, &found.value)).transpose()?;
        Ok(record.map(|record| record.address))
    }

    /// Checks that the lease of this replica runs, by its own clock. Sends no request.
    ///
    /// # Errors
    /// When the lease has run out, for good.
    pub fn check(&self) -> Result<(), StoreError> {
        self.shared.check()
    }

    /// Returns a receiver that becomes true when the lease has run out. The replica then owns no session any more, and
    /// all its operations fail: the process ends, or drops its sessions and joins again.
    #[must_use]
    pub fn fenced(&self) -> watch::Receiver<bool> {
        self.shared.fenced.subscribe()
    }

    /// Leaves the cluster: other replicas may take over at once what was not released. All operations fail from now on.
    ///
    /// # Errors
    /// When the coordinator does not answer. The lease then runs out by itself.
    pub async fn leave(&self) -> Result<(), StoreError> {
        self.shared.stop();
        let holding = self.shared.holding.lock().await.clone();
        match (&self.shared.cluster.registers, holding) {
            (Registers::Etcd(etcd), Holding::Lease(lease)) => etcd.revoke(lease).await,
            (registers, _) => registers.delete(&names::node(self.node())).await,
        }
    }
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Replica").field("node", &self.node()).field("address", &self.address()).finish()
    }
}

/// Renews the lease until it has run out.
async fn renew(shared: Arc<Shared>) {
    let mut event = LeaseEvent::Tick;
    loop {
        let (command, deadline) = {
            let mut lease = shared.lease.lock();
            (lease.on(event, shared.now()), shared.start + lease.deadline())
        };
        event = match command {
            LeaseCommand::WaitUntil(time) => {
                tokio::time::sleep_until((shared.start + time).into()).await;
                LeaseEvent::Tick
            }
            LeaseCommand::Renew => {
                let renewed = tokio::time::timeout_at(deadline.into(), shared.renew_once()).await;
                renewed.unwrap_or(LeaseEvent::Tick)
            }
            LeaseCommand::Stop => {
                shared.stop();
                tracing::error!(node = %shared.me.node, "the replica has lost its lease");
                return;
            }
        };
    }
}

impl Shared {
    /// Returns the time since this replica has joined.
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.lease.lock().is_valid(self.now()) {
            return Ok(());
        }
        self.stop();
        Err(StoreError::Fenced { node: self.me.node })
    }

    /// Makes all operations fail from now on.
    pub(crate) fn stop(&self) {
        self.lease.lock().on(LeaseEvent::Revoked, self.now());
        self.fenced.send_if_modified(|fenced| !std::mem::replace(fenced, true));
    }

    /// Sends one renewal.
    async fn renew_once(&self) -> LeaseEvent {
        let limit = self.times.length / 4;
        let sent = self.now();
        let mut holding = self.holding.lock().await;
        let (write, version) = match (&self.cluster.registers, &*holding) {
            (Registers::Etcd(etcd), Holding::Lease(lease)) => {
                return match etcd.renew(*lease, limit / 2).await {
                    Some(true) => LeaseEvent::Renewed { sent },
                    Some(false) => LeaseEvent::Revoked,
                    None => LeaseEvent::Failed,
                };
            }
            (_, Holding::Record(write, version)) => (*write, version.clone()),
            (Registers::Bucket(_), Holding::Lease(_)) => return LeaseEvent::Failed,
        };
        let name = names::node(self.me.node);
        let registers = &self.cluster.registers;
        let Ok(new) = names::new_write() else { return LeaseEvent::Failed };
        let record = NodeRecord { write: new, state: NodeState::Alive, address: self.me.address.clone() };
        let Ok(value) = encode(&record) else { return LeaseEvent::Failed };
        let deadline = Deadline::within(limit);
        if let Answer::Written(version) = registers.write(&name, Some(&version), new, &value, None, deadline).await {
            *holding = Holding::Record(new, version);
            return LeaseEvent::Renewed { sent };
        }
        // The write may have happened; or an earlier one, which was late; or another replica has ended the lease.
        match registers.read(&name, Deadline::within(limit)).await {
            Err(_) => LeaseEvent::Failed,
            Ok(Some(found)) if decode(&name, &found.value).is_ok_and(|record| record.state == NodeState::Alive) => {
                let is_new = found.write == new && found.write != write;
                *holding = Holding::Record(found.write, found.version);
                if is_new { LeaseEvent::Renewed { sent } } else { LeaseEvent::Failed }
            }
            Ok(_) => LeaseEvent::Revoked,
        }
    }

    /// Determines whether the lease of another replica runs. Ends the lease if it has run out. Asks the coordinator
    /// again after a twentieth of a lease at the earliest.
    pub(crate) async fn observe(&self, node: NodeId, deadline: Deadline) -> Result<Finding, StoreError> {
        match self.findings.lock().get(&node) {
            Some((Finding::Gone, _)) => return Ok(Finding::Gone),
            Some((Finding::Alive, time)) if time.elapsed() < self.times.retry() => return Ok(Finding::Alive),
            _ => {}
        }
        let finding = self.observe_now(node, deadline).await?;
        let mut findings = self.findings.lock();
        if findings.len() >= MAX_FINDINGS {
            findings.clear();
        }
        findings.insert(node, (finding, Instant::now()));
        Ok(finding)
    }

    async fn observe_now(&self, node: NodeId, deadline: Deadline) -> Result<Finding, StoreError> {
        let name = names::node(node);
        let registers = &self.cluster.registers;
        let sent = self.now();
        let found = registers.read(&name, deadline).await?;
        if let Registers::Etcd(_) = registers {
            // etcd deletes the record with its lease.
            return Ok(if found.is_some() { Finding::Alive } else { Finding::Gone });
        }
        let record = found.as_ref().map(|found| decode(&name, &found.value)).transpose()?;
        let verdict = self.observer.lock().observe(node, record.as_ref(), sent, self.now());
        match (verdict, record, found) {
            (Verdict::Gone, ..) => Ok(Finding::Gone),
            (Verdict::Expired(expected), Some(record), Some(found)) if found.write == expected => {
                let record = NodeRecord { write: names::new_write()?, state: NodeState::Fenced, ..record };
                let expected = Some((expected, found.version));
                let value = encode(&record)?;
                let ended = registers.write_confirmed(&name, expected, record.write, &value, deadline).await?;
                Ok(if ended.is_some() { Finding::Gone } else { Finding::Alive })
            }
            _ => Ok(Finding::Alive),
        }
    }

    /// Returns the time between two questions about the same replica.
    pub(crate) fn question_interval(&self) -> Duration {
        self.times.retry()
    }
}

fn encode(record: &NodeRecord) -> Result<Vec<u8>, StoreError> {
    serde_json::to_vec(record).map_err(|error| StoreError::damaged("the record of a replica", error))
}

fn decode(name: &str, value: &[u8]) -> Result<NodeRecord, StoreError> {
    serde_json::from_slice(value).map_err(|error| StoreError::damaged(name, error))
}
