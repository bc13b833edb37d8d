//! The connection to a store and a coordinator.

use std::sync::Arc;

use object_store::ObjectStore;

use crate::address::{ClusterUrl, StoreKind, StoreUrl, Variables};
use crate::error::StoreError;
use crate::objects::{Objects, Requests};
use crate::registers::{Etcd, Registers};

/// The error of opening a store or a coordinator.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The combination promises less than sessions need.
    #[error("{0} has no conditional updates, so that it cannot coordinate replicas")]
    Unsuitable(String),
    /// The URLs, the credentials or the files that they name are not usable.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl OpenError {
    /// Returns what the operator can do.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unsuitable(_) => "coordinate by etcd (etcd://HOST:2379), or use object storage",
            Self::Store(error) => error.hint(),
        }
    }
}

/// A store and its coordinator. Clones share the connections.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) objects: Objects,
    pub(crate) registers: Registers,
    /// The store's URL.
    store: Arc<str>,
}

impl Cluster {
    /// Connects to a store and a coordinator. Sends no request: see [`Cluster::probe`].
    ///
    /// # Errors
    /// When the credentials or files are not usable, or the store cannot coordinate and is asked to.
    pub fn open(store: &StoreUrl, cluster: &ClusterUrl, variables: &Variables) -> Result<Self, OpenError> {
        if store.kind() == StoreKind::File && *cluster == ClusterUrl::Store {
            return Err(OpenError::Unsuitable(store.to_string()));
        }
        let objects = Objects::open(store, variables)?;
        Ok(Self::new(objects, cluster, variables, &store.to_string())?)
    }

    /// Uses an object store that the caller has made, under a prefix. This is for tests and for other kinds of stores.
    ///
    /// # Errors
    /// When the prefix or the coordinator's files are not usable.
    pub fn with_object_store(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        cluster: &ClusterUrl,
        variables: &Variables,
    ) -> Result<Self, OpenError> {
        let name = format!("{store}/{prefix}");
        Ok(Self::new(Objects::new(store, prefix)?, cluster, variables, &name)?)
    }

    fn new(objects: Objects, cluster: &ClusterUrl, variables: &Variables, name: &str) -> Result<Self, StoreError> {
        let registers = match cluster {
            ClusterUrl::Store => Registers::on_store(objects.clone()),
            ClusterUrl::Etcd(url) => Registers::Etcd(Arc::new(Etcd::open(url, variables, objects.counters.clone())?)),
        };
        Ok(Self { objects, registers, store: name.into() })
    }

    /// Returns the number of requests that were sent by this connection and its clones.
    #[must_use]
    pub fn requests(&self) -> Requests {
        self.objects.counters.get()
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let coordinator = match &self.registers {
            Registers::Bucket(_) => "store",
            Registers::Etcd(_) => "etcd",
        };
        formatter.debug_struct("Cluster").field("store", &self.store).field("coordinator", &coordinator).finish()
    }
}
