//! The stores and coordinators under test.

use std::sync::Arc;
use std::time::Duration;

use belljar_store::{Cluster, ClusterUrl, Facts, Replica, ReplicaOptions, SessionKey};
use belljar_testing::Capability;
use object_store::memory::InMemory;

use crate::etcd_cluster::EtcdCluster;
use crate::gcs_server::GcsServer;
use crate::s3_server::{self, S3Server};
use crate::services::{self, Service};
use crate::unreliable_link::UnreliableLink;

/// A kind of store and coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    S3,
    FaultyS3,
    Moto,
    /// moto behind a link that can fail.
    LinkedMoto,
    Gcs,
    Azurite,
    EtcdAndS3,
    /// etcd, each of whose members is behind a link that can fail, and an S3 server.
    LinkedEtcdAndS3,
    EtcdAndFiles,
}

/// The kinds of which each test of the suite runs.
pub(crate) const ALL: [Kind; 8] =
    [Kind::Memory, Kind::S3, Kind::FaultyS3, Kind::Moto, Kind::Gcs, Kind::Azurite, Kind::EtcdAndS3, Kind::EtcdAndFiles];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::S3 => "s3",
            Self::FaultyS3 => "faulty_s3",
            Self::Moto => "moto",
            Self::LinkedMoto => "linked_moto",
            Self::Gcs => "gcs",
            Self::Azurite => "azurite",
            Self::EtcdAndS3 => "etcd_and_s3",
            Self::LinkedEtcdAndS3 => "linked_etcd_and_s3",
            Self::EtcdAndFiles => "etcd_and_files",
        }
    }

    pub(crate) fn needs(self) -> &'static [Capability] {
        match self {
            Self::EtcdAndS3 | Self::LinkedEtcdAndS3 | Self::EtcdAndFiles => crate::ETCD,
            // Its packages take 360 MB.
            Self::Azurite => &[Capability::Node, Capability::Npm, Capability::LargeDownloads],
            Self::Memory | Self::S3 | Self::FaultyS3 | Self::Moto | Self::LinkedMoto | Self::Gcs => &[],
        }
    }

    fn has_s3(self) -> bool {
        matches!(self, Self::S3 | Self::FaultyS3 | Self::EtcdAndS3 | Self::LinkedEtcdAndS3)
    }

    fn has_etcd(self) -> bool {
        matches!(self, Self::EtcdAndS3 | Self::LinkedEtcdAndS3 | Self::EtcdAndFiles)
    }
}

/// A backend whose services run as long as it exists.
pub(crate) struct Backend {
    kind: Kind,
    memory: Arc<InMemory>,
    pub(crate) s3: Option<S3Server>,
    gcs: Option<GcsServer>,
    /// moto or Azurite.
    service: Option<Service>,
    pub(crate) etcd: Option<EtcdCluster>,
    /// The links to moto, or to the members of etcd.
    pub(crate) links: Vec<UnreliableLink>,
    /// The coordinator, if it is not reached at the addresses of `etcd`.
    url: Option<ClusterUrl>,
    directory: tempfile::TempDir,
    /// Drives the servers of this process and the links.
    _runtime: tokio::runtime::Runtime,
}

impl Backend {
    pub(crate) fn new(kind: Kind) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let s3 = kind.has_s3().then(|| runtime.block_on(S3Server::start()));
        if kind == Kind::FaultyS3 {
            s3.as_ref().unwrap().faults.set(30);
        }
        let service = match kind {
            Kind::Moto | Kind::LinkedMoto => Some(runtime.block_on(Service::moto())),
            Kind::Azurite => Some(runtime.block_on(Service::azurite())),
            _ => None,
        };
        let etcd = kind.has_etcd().then(|| runtime.block_on(EtcdCluster::start()));
        let linked = match (kind, &service, &etcd) {
            (Kind::LinkedMoto, Some(service), _) => vec![service.port],
            (Kind::LinkedEtcdAndS3, _, Some(etcd)) => etcd.client_ports(),
            _ => Vec::new(),
        };
        let links: Vec<_> = linked.into_iter().map(|port| runtime.block_on(UnreliableLink::to(port))).collect();
        let url = (kind == Kind::LinkedEtcdAndS3).then(|| {
            let members: Vec<_> = links.iter().map(|link| format!("127.0.0.1:{}", link.port())).collect();
            format!("etcd://{}/test", members.join(",")).parse().unwrap()
        });
        Self {
            kind,
            memory: Arc::new(InMemory::new()),
            s3,
            gcs: (kind == Kind::Gcs).then(|| runtime.block_on(GcsServer::start())),
            service,
            etcd,
            links,
            url,
            directory: tempfile::tempdir().unwrap(),
            _runtime: runtime,
        }
    }

    /// Sets the probabilities of all failures of the links, in thousandths.
    pub(crate) fn set_link_faults(&self, thousandths: u64) {
        self.links.iter().for_each(|link| link.set(thousandths));
    }

    /// Returns the number of answers that the links have lost.
    pub(crate) fn lost_answers(&self) -> u64 {
        self.links.iter().map(UnreliableLink::lost_answers).sum()
    }

    /// Connects to a cluster of etcd that the test has taken.
    pub(crate) fn reconnect_to(&mut self, url: ClusterUrl) {
        self.url = Some(url);
    }

    /// Returns a new connection, as another process has it.
    pub(crate) fn connect(&self) -> Cluster {
        let etcd = self.etcd.as_ref().map(|etcd| etcd.url("test"));
        let url = self.url.clone().or(etcd).unwrap_or(ClusterUrl::Store);
        match self.kind {
            Kind::Memory => Cluster::with_object_store(self.memory.clone(), "a/b", &url, &Default::default()).unwrap(),
            Kind::S3 | Kind::FaultyS3 | Kind::EtcdAndS3 | Kind::LinkedEtcdAndS3 => {
                let server = self.s3.as_ref().unwrap();
                Cluster::open(&server.url("prefix"), &url, &server.variables()).unwrap()
            }
            Kind::Moto | Kind::LinkedMoto => {
                let port = self.links.first().map_or(self.service.as_ref().unwrap().port, UnreliableLink::port);
                let variables = s3_server::pairs(&format!("http://127.0.0.1:{port}")).into_iter().collect();
                Cluster::open(&"s3://bucket/prefix".parse().unwrap(), &url, &variables).unwrap()
            }
            Kind::Gcs => {
                let variables = self.gcs.as_ref().unwrap().pairs().into_iter().collect();
                Cluster::open(&"gs://bucket/prefix".parse().unwrap(), &url, &variables).unwrap()
            }
            Kind::Azurite => {
                let variables = services::azurite_variables(self.service.as_ref().unwrap().port);
                let variables = variables.into_iter().collect();
                Cluster::open(&"az://container/prefix".parse().unwrap(), &url, &variables).unwrap()
            }
            Kind::EtcdAndFiles => {
                let store = format!("file://{}", self.directory.path().display());
                Cluster::open(&store.parse().unwrap(), &url, &Default::default()).unwrap()
            }
        }
    }

    /// Returns a replica with a connection of its own.
    pub(crate) async fn join(&self, address: &str) -> Replica {
        Replica::join(&self.connect(), address, ReplicaOptions::default()).await.unwrap()
    }

    /// Returns a replica whose lease is short.
    pub(crate) async fn join_briefly(&self, address: &str) -> Replica {
        Replica::join(&self.connect(), address, self.brief()).await.unwrap()
    }

    /// Returns a short lease with which failures of requests, and the pauses of a busy machine, are survived.
    pub(crate) fn brief(&self) -> ReplicaOptions {
        let seconds = if self.kind == Kind::FaultyS3 { 10 } else { 6 };
        ReplicaOptions { lease: Duration::from_secs(seconds) }
    }
}

/// Returns the key of a session.
pub(crate) fn key(id: &str) -> SessionKey {
    SessionKey::from_id(id)
}

pub(crate) fn facts(owner: &str) -> Facts {
    Facts { owner: Some(owner.to_owned()), last_used: 1_000, ..Facts::default() }
}
