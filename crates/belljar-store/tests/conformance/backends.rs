//! The stores and coordinators under test.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use belljar_store::{Cluster, ClusterUrl, Facts, Replica, ReplicaOptions, SessionKey};
use belljar_testing::{Capability, free_port, install};
use object_store::memory::InMemory;

use crate::etcd_cluster::EtcdCluster;
use crate::s3_server::{self, S3Server};

/// A kind of store and coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Memory,
    S3,
    FaultyS3,
    Moto,
    EtcdAndS3,
    EtcdAndFiles,
}

pub(crate) const ALL: [Kind; 6] =
    [Kind::Memory, Kind::S3, Kind::FaultyS3, Kind::Moto, Kind::EtcdAndS3, Kind::EtcdAndFiles];

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::S3 => "s3",
            Self::FaultyS3 => "faulty_s3",
            Self::Moto => "moto",
            Self::EtcdAndS3 => "etcd_and_s3",
            Self::EtcdAndFiles => "etcd_and_files",
        }
    }

    pub(crate) fn needs(self) -> &'static [Capability] {
        match self {
            Self::EtcdAndS3 | Self::EtcdAndFiles => crate::ETCD,
            Self::Memory | Self::S3 | Self::FaultyS3 | Self::Moto => &[],
        }
    }
}

/// A backend whose services run as long as it exists.
pub(crate) struct Backend {
    kind: Kind,
    memory: Arc<InMemory>,
    pub(crate) s3: Option<S3Server>,
    moto: Option<Moto>,
    pub(crate) etcd: Option<EtcdCluster>,
    /// The coordinator, if the test has the cluster.
    url: Option<ClusterUrl>,
    directory: tempfile::TempDir,
    /// Drives the S3 server.
    _runtime: tokio::runtime::Runtime,
}

impl Backend {
    pub(crate) fn new(kind: Kind) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let s3 =
            matches!(kind, Kind::S3 | Kind::FaultyS3 | Kind::EtcdAndS3).then(|| runtime.block_on(S3Server::start()));
        if kind == Kind::FaultyS3 {
            s3.as_ref().unwrap().faults.set(30);
        }
        let has_etcd = matches!(kind, Kind::EtcdAndS3 | Kind::EtcdAndFiles);
        Self {
            kind,
            memory: Arc::new(InMemory::new()),
            s3,
            moto: (kind == Kind::Moto).then(|| runtime.block_on(Moto::start())),
            etcd: has_etcd.then(|| runtime.block_on(EtcdCluster::start())),
            url: None,
            directory: tempfile::tempdir().unwrap(),
            _runtime: runtime,
        }
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
            Kind::S3 | Kind::FaultyS3 | Kind::EtcdAndS3 => {
                let server = self.s3.as_ref().unwrap();
                Cluster::open(&server.url("prefix"), &url, &server.variables()).unwrap()
            }
            Kind::Moto => {
                let moto = self.moto.as_ref().unwrap();
                let variables = s3_server::pairs(&moto.endpoint()).into_iter().collect();
                Cluster::open(&"s3://bucket/prefix".parse().unwrap(), &url, &variables).unwrap()
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

/// The S3 server of moto, in a process.
struct Moto {
    process: Child,
    port: u16,
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Moto {
    async fn start() -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let programs = install::pip(root, "moto", &["moto[server]==5.2.5"]);
        let port = free_port();
        let mut command = Command::new(programs.join("moto_server"));
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let moto = Self { process, port };
        let client = reqwest::Client::new();
        for _ in 0..900 {
            let created = client.put(format!("{}/bucket", moto.endpoint())).send().await;
            if created.is_ok_and(|answer| answer.status().is_success()) {
                return moto;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("moto has not started");
    }

    fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
