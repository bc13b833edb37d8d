//! The probe at start: services that keep their promises are accepted, and others refused.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use belljar_store::{Cluster, ClusterUrl, OpenError, ProbeError, StoreUrl, Variables};
use belljar_testing::{Trial, trial};
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

use crate::backends::{Backend, Kind};
use crate::{ETCD, block_on};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("probing::broken_stores_are_refused", &[], broken_stores_are_refused),
        trial("probing::directories_do_not_coordinate", &[], directories_do_not_coordinate),
        trial("probing::a_store_has_one_coordinator", ETCD, a_store_has_one_coordinator),
        trial("probing::missing_credentials_are_refused", &[], missing_credentials_are_refused),
    ]
}

pub(crate) fn the_probe_accepts_it(backend: Backend) {
    block_on(async {
        for _ in 0..2 {
            backend.connect().probe().await.unwrap();
        }
        // The probe deletes what it writes, but for the identity of the store.
        assert!(backend.connect().sessions().list().await.unwrap().is_empty());
    });
}

/// A promise that a store breaks.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// Conditions of creations are ignored.
    Create,
    /// Conditions of updates are ignored.
    Update,
    /// Updates are not implemented.
    NoUpdate,
    /// The condition is checked some time before the write.
    CheckThenAct,
    /// Listings are empty.
    List,
}

#[derive(Debug)]
struct Liar(InMemory, Lie);

impl fmt::Display for Liar {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Liar")
    }
}

#[async_trait]
impl ObjectStore for Liar {
    async fn put_opts(&self, location: &Path, payload: PutPayload, mut opts: PutOptions) -> Result<PutResult> {
        match (self.1, &opts.mode) {
            (Lie::Create, PutMode::Create) | (Lie::Update, PutMode::Update(_)) => opts.mode = PutMode::Overwrite,
            (Lie::NoUpdate, PutMode::Update(_)) => {
                let (operation, implementer) = ("put_opts".to_owned(), "Liar".to_owned());
                return Err(object_store::Error::NotImplemented { operation, implementer });
            }
            (Lie::CheckThenAct, PutMode::Update(version)) => {
                let found = self.0.get_opts(location, GetOptions::default()).await?.meta.e_tag;
                if found == version.e_tag {
                    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
                    opts.mode = PutMode::Overwrite;
                }
            }
            _ => {}
        }
        self.0.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        match self.1 {
            Lie::List => Box::pin(futures_util::stream::empty()),
            _ => self.0.list(prefix),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

fn broken_stores_are_refused() {
    let cases = [
        (Lie::Create, "creates a record only if it does not exist"),
        (Lie::Update, "is refused if the record has another version"),
        (Lie::NoUpdate, "updates a record of the expected version"),
        (Lie::CheckThenAct, "of several conditional writes at a time, one is carried out"),
        (Lie::List, "a listing has the objects"),
    ];
    block_on(async {
        for (lie, expected) in cases {
            let store = Arc::new(Liar(InMemory::new(), lie));
            let cluster = Cluster::with_object_store(store, "x", &ClusterUrl::Store, &Variables::default()).unwrap();
            let error = cluster.probe().await.unwrap_err();
            assert!(matches!(error, ProbeError::Broken { .. }), "{lie:?}: {error}");
            assert!(error.to_string().contains(expected), "{lie:?}: {error}");
            assert!(error.hint().contains("etcd"));
        }
    });
}

fn directories_do_not_coordinate() {
    let url: StoreUrl = "file:///tmp".parse().unwrap();
    let error = Cluster::open(&url, &ClusterUrl::Store, &Variables::default()).unwrap_err();
    assert!(matches!(error, OpenError::Unsuitable(_)), "{error}");
    assert!(error.hint().contains("etcd"), "{}", error.hint());
}

fn a_store_has_one_coordinator() {
    let backend = Backend::new(Kind::EtcdAndS3);
    block_on(async {
        backend.connect().probe().await.unwrap();
        let server = backend.s3.as_ref().unwrap();
        let store = Cluster::open(&server.url("prefix"), &ClusterUrl::Store, &server.variables()).unwrap();
        let error = store.probe().await.unwrap_err();
        assert!(matches!(error, ProbeError::OtherCluster { .. }), "{error}");
        // Another store with the same keys of etcd.
        let url = backend.etcd.as_ref().unwrap().url("test");
        let other = Cluster::open(&server.url("other"), &url, &server.variables()).unwrap();
        let error = other.probe().await.unwrap_err();
        assert!(matches!(error, ProbeError::OtherCluster { .. }), "{error}");
    });
}

fn missing_credentials_are_refused() {
    let backend = Backend::new(Kind::S3);
    block_on(async {
        let server = backend.s3.as_ref().unwrap();
        let changed = server.variables().with("AWS_SECRET_ACCESS_KEY", "wrong");
        let cluster = Cluster::open(&server.url("prefix"), &ClusterUrl::Store, &changed).unwrap();
        let error = cluster.probe().await.unwrap_err();
        assert!(error.hint().contains("credentials"), "{error}: {}", error.hint());
    });
}
