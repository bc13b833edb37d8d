//! The settings of a replica, and the errors of joining a cluster.

use std::time::Duration;

use belljar_store::{ClusterUrl, StoreUrl, Variables};

/// The event that a call waits for before it is answered, if its session has changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// The store has the state: nothing that was answered is lost.
    #[default]
    Store,
    /// This machine has the state, which the store gets right after. A replica that ends in between loses it.
    Disk,
    /// The cell has ended: the store gets the state when the session sleeps or moves, or when its cell waits.
    Memory,
}

/// The settings of a replica.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// The store of the sessions' states.
    pub store: StoreUrl,
    /// The coordinator of the replicas.
    pub coordinator: ClusterUrl,
    /// The credentials.
    pub variables: Variables,
    /// The address at which other replicas reach this one, without a slash at its end: `http://10.0.0.7:3001`.
    pub address: String,
    /// The point at which calls are answered.
    pub durability: Durability,
    /// The time without use after which a session expires.
    pub session_timeout: Duration,
    /// The time for which the result of a run stays.
    pub run_ttl: Duration,
    /// The time for which a cell may wait. Its session does not expire meanwhile.
    pub max_wait: Duration,
}

/// The error of joining a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The URLs or the credentials cannot be used.
    #[error("{0}; {hint}", hint = .0.hint())]
    Open(#[from] belljar_store::OpenError),
    /// The services do not keep their promises.
    #[error("{0}; {hint}", hint = .0.hint())]
    Probe(#[from] belljar_store::ProbeError),
    /// The store or the coordinator cannot be used.
    #[error("{0}; {hint}", hint = .0.hint())]
    Store(#[from] belljar_store::StoreError),
    /// Threads or random numbers are missing.
    #[error("failed to join the cluster: {0}")]
    Io(#[from] std::io::Error),
    /// The shared key in the store has another length.
    #[error("the key of the cluster, records/keys/signer, is damaged: delete it, and the sessions that it has signed")]
    Key,
}
