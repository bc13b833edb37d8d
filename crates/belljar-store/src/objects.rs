//! Objects of a store: reading, writing, listing and deleting, with time-outs and repetitions.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ClientOptions, Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, RetryConfig};
use object_store::{PutPayload, UpdateVersion};

use crate::address::{StoreKind, StoreUrl, Variables};
use crate::deadline::Deadline;
use crate::error::StoreError;

/// The number of requests at a time for one operation.
pub(crate) const MAX_PARALLEL: usize = 16;
/// The maximum size of an object that is read, in bytes.
const MAX_OBJECT: u64 = 4 << 30;
/// The time for a page of a listing.
const PAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The number of requests that were sent, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// Objects that were read.
    pub reads: u64,
    /// Objects that were written.
    pub writes: u64,
    /// Pages of listings.
    pub lists: u64,
    /// Deletions; a deletion of many objects counts as one.
    pub deletes: u64,
    /// Requests to etcd.
    pub etcd: u64,
}

impl Requests {
    /// Returns the number of all requests.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.reads + self.writes + self.lists + self.deletes + self.etcd
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    pub(crate) etcd: AtomicU64,
}

impl Counters {
    pub(crate) fn get(&self) -> Requests {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Requests {
            reads: read(&self.reads),
            writes: read(&self.writes),
            lists: read(&self.lists),
            deletes: read(&self.deletes),
            etcd: read(&self.etcd),
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// An object in a listing.
#[derive(Debug, Clone)]
pub(crate) struct ObjectEntry {
    /// The name, without the prefix of the store.
    pub(crate) name: String,
    /// The time of the last write, by the clock of the store.
    pub(crate) modified: SystemTime,
    /// Changes with the content.
    pub(crate) tag: String,
}

/// The answer to one attempt of a conditional write.
#[derive(Debug)]
pub(crate) enum Conditional {
    Written(UpdateVersion),
    Conflict,
    Unknown(String),
    Refused(String),
}

/// The objects under the prefix of a store.
#[derive(Clone)]
pub(crate) struct Objects {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    pub(crate) counters: Arc<Counters>,
}

impl Objects {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, prefix: &str) -> Result<Self, StoreError> {
        let prefix =
            Path::parse(prefix).map_err(|error| StoreError::Invalid(format!("the store's prefix: {error}")))?;
        Ok(Self { store, prefix, counters: Arc::default() })
    }

    /// Connects to a store. Sends no request.
    pub(crate) fn open(url: &StoreUrl, variables: &Variables) -> Result<Self, StoreError> {
        let failed = |error: Error| StoreError::Refused { operation: format!("open {url}"), reason: error.to_string() };
        Self::new(connect(url, variables).map_err(failed)?, &url.prefix())
    }

    fn path(&self, name: &str) -> Path {
        Path::from_iter(self.prefix.parts().chain(Path::from(name).parts()))
    }

    fn name(&self, path: &Path) -> Option<String> {
        let parts: Vec<_> = path.prefix_match(&self.prefix)?.map(|part| part.as_ref().to_owned()).collect();
        Some(parts.join("/"))
    }

    /// Sends a request until it succeeds, fails for good, or the time is over.
    async fn repeat<T, F: Future<Output = Result<T, Error>>>(
        &self,
        operation: &str,
        name: &str,
        size: usize,
        deadline: Deadline,
        request: impl Fn() -> F,
    ) -> Result<T, StoreError> {
        let operation = || format!("{operation} {name}");
        for attempt in 0.. {
            let reason = match tokio::time::timeout_at(deadline.for_request(size), request()).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(Error::NotFound { .. })) => return Err(StoreError::Missing { name: name.to_owned() }),
                Ok(Err(error)) if is_refusal(&error) => {
                    return Err(StoreError::Refused { operation: operation(), reason: describe(&error) });
                }
                Ok(Err(error)) => describe(&error),
                Err(_) => "no answer in time".to_owned(),
            };
            tracing::debug!(%reason, "failed to {}", operation());
            if !deadline.pause(attempt).await {
                return Err(StoreError::Unavailable { operation: operation(), reason });
            }
        }
        Err(StoreError::unavailable(operation(), "too many attempts"))
    }

    /// Writes an object, or replaces it.
    pub(crate) async fn put(&self, name: &str, bytes: Bytes, deadline: Deadline) -> Result<(), StoreError> {
        let path = self.path(name);
        let request = || {
            count(&self.counters.writes);
            self.store.put(&path, PutPayload::from_bytes(bytes.clone()))
        };
        self.repeat("write", name, bytes.len(), deadline, request).await.map(drop)
    }

    /// Sends one conditional write: of a new object without a version, and of one with this version otherwise.
    pub(crate) async fn put_if(
        &self,
        name: &str,
        version: Option<UpdateVersion>,
        bytes: Bytes,
        deadline: Deadline,
    ) -> Conditional {
        count(&self.counters.writes);
        let path = self.path(name);
        let mode = version.map_or(PutMode::Create, PutMode::Update);
        let limit = deadline.for_request(bytes.len());
        let request = self.store.put_opts(&path, PutPayload::from_bytes(bytes), PutOptions::from(mode));
        match tokio::time::timeout_at(limit, request).await {
            Ok(Ok(result)) => Conditional::Written(result.into()),
            Ok(Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotFound { .. })) => {
                Conditional::Conflict
            }
            Ok(Err(error)) if is_refusal(&error) => Conditional::Refused(describe(&error)),
            Ok(Err(error)) => Conditional::Unknown(describe(&error)),
            Err(_) => Conditional::Unknown("no answer in time".to_owned()),
        }
    }

    /// Reads an object of about this size, with its version. Returns `None` if it does not exist.
    pub(crate) async fn get(
        &self,
        name: &str,
        size: usize,
        deadline: Deadline,
    ) -> Result<Option<(Bytes, UpdateVersion)>, StoreError> {
        let path = self.path(name);
        let request = || async {
            count(&self.counters.reads);
            let result = self.store.get(&path).await?;
            if result.meta.size > MAX_OBJECT {
                return Err(too_large(result.meta.size));
            }
            let version = UpdateVersion { e_tag: result.meta.e_tag.clone(), version: result.meta.version.clone() };
            Ok((result.bytes().await?, version))
        };
        match self.repeat("read", name, size, deadline, request).await {
            Ok(found) => Ok(Some(found)),
            Err(StoreError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads a part of an object.
    pub(crate) async fn get_range(
        &self,
        name: &str,
        range: Range<u64>,
        deadline: Deadline,
    ) -> Result<Bytes, StoreError> {
        let path = self.path(name);
        let size = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let request = || {
            count(&self.counters.reads);
            self.store.get_range(&path, range.clone())
        };
        self.repeat("read", name, size, deadline, request).await
    }

    /// Deletes an object. Succeeds if it does not exist.
    pub(crate) async fn delete(&self, name: &str, deadline: Deadline) -> Result<(), StoreError> {
        let path = self.path(name);
        let request = || {
            count(&self.counters.deletes);
            self.store.delete(&path)
        };
        match self.repeat("delete", name, 0, deadline, request).await {
            Err(StoreError::Missing { .. }) => Ok(()),
            other => other,
        }
    }

    /// Deletes objects, with as few requests as the store allows. Succeeds if they do not exist.
    pub(crate) async fn delete_all(&self, names: Vec<String>) -> Result<(), StoreError> {
        if let [name] = names.as_slice() {
            return self.delete(name, Deadline::new()).await;
        }
        let paths: Vec<Path> = names.iter().map(|name| self.path(name)).collect();
        self.counters.deletes.fetch_add(paths.len().div_ceil(1000) as u64, Ordering::Relaxed);
        let stream = stream::iter(paths.into_iter().map(Ok)).boxed();
        let delete = self.store.delete_stream(stream).for_each(|result| async {
            match result {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => tracing::debug!(error = describe(&error), "failed to delete an object"),
            }
        });
        let limit = Deadline::new().for_request(names.len() << 10);
        tokio::time::timeout_at(limit, delete).await.map_err(|_| StoreError::unavailable("delete objects", "no answer"))
    }

    /// Lists the objects whose names begin with a folder, in no particular order.
    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<ObjectEntry>, StoreError> {
        let path = self.path(folder);
        let mut attempt = 0;
        loop {
            let reason = match self.list_once(&path).await {
                Ok(found) => return Ok(found),
                Err(Some(error)) if is_refusal(&error) => {
                    let operation = format!("list {folder}");
                    return Err(StoreError::Refused { operation, reason: describe(&error) });
                }
                Err(Some(error)) => describe(&error),
                Err(None) => "no answer in time".to_owned(),
            };
            if attempt >= 4 || !Deadline::new().pause(attempt).await {
                return Err(StoreError::unavailable(format!("list {folder}"), reason));
            }
            attempt += 1;
        }
    }

    /// Lists once. The time-out is for each page: a listing of a million objects has a thousand.
    async fn list_once(&self, path: &Path) -> Result<Vec<ObjectEntry>, Option<Error>> {
        count(&self.counters.lists);
        let mut found = Vec::new();
        let mut stream = self.store.list(Some(path));
        while let Some(meta) = tokio::time::timeout(PAGE_TIMEOUT, stream.try_next()).await.map_err(|_| None)?? {
            if let Some(name) = self.name(&meta.location) {
                let tag = meta.e_tag.unwrap_or_default();
                found.push(ObjectEntry { name, modified: meta.last_modified.into(), tag });
            }
            if found.len().is_multiple_of(1000) {
                count(&self.counters.lists);
            }
        }
        Ok(found)
    }
}

fn connect(url: &StoreUrl, variables: &Variables) -> Result<Arc<dyn ObjectStore>, Error> {
    // A request that is repeated below this crate could hide that its first attempt has succeeded.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    // Requests have time-outs by their sizes.
    let client = ClientOptions::new().with_timeout_disabled().with_connect_timeout(Duration::from_secs(3));
    let address = url.url.as_str();
    macro_rules! build {
        ($builder:ty) => {{
            let mut builder = <$builder>::new().with_client_options(client).with_retry(retry).with_url(address);
            for (name, value) in &variables.0 {
                if let Ok(key) = name.to_ascii_lowercase().parse() {
                    builder = builder.with_config(key, value);
                }
            }
            Ok(Arc::new(builder.build()?))
        }};
    }
    match url.kind {
        StoreKind::S3 => build!(AmazonS3Builder),
        StoreKind::Gcs => build!(GoogleCloudStorageBuilder),
        StoreKind::Azure => build!(MicrosoftAzureBuilder),
        StoreKind::Memory => Ok(Arc::new(InMemory::new())),
        StoreKind::File => {
            let generic = |error: String| Error::Generic { store: "LocalFileSystem", source: error.into() };
            let path = url.url.to_file_path().map_err(|()| generic("the URL is not a path".to_owned()))?;
            Ok(Arc::new(LocalFileSystem::new_with_prefix(path)?.with_fsync(true)))
        }
    }
}

/// Returns whether an error will not pass.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::PermissionDenied { .. }
            | Error::Unauthenticated { .. }
            | Error::NotSupported { .. }
            | Error::NotImplemented { .. }
            | Error::InvalidPath { .. }
            | Error::UnknownConfigurationKey { .. }
    )
}

fn too_large(size: u64) -> Error {
    Error::NotSupported { source: format!("an object of {size} bytes").into() }
}

/// Returns an error with its causes, in one line of bounded length.
pub(crate) fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(600).collect()
}
