//! An S3 server in this process, with atomic conditional writes and failures on demand.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use belljar_store::{StoreUrl, Variables};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use s3s::auth::SimpleAuth;
use s3s::dto::*;
use s3s::service::S3ServiceBuilder;
use s3s::{Body, S3, S3Request, S3Response, S3Result, s3_error};
use tokio::net::TcpListener;

const BUCKET: &str = "bucket";
const KEY: (&str, &str) = ("AKIDTEST", "secret");
/// The number of objects on a page of a listing.
const PAGE: usize = 1000;

/// The failures of a server: probabilities in thousandths.
#[derive(Default)]
pub(crate) struct Faults {
    /// Requests that are answered by 503.
    pub(crate) unavailable: AtomicU64,
    /// Requests whose connection is cut before they are carried out.
    pub(crate) cut: AtomicU64,
    /// Requests whose connection is cut after they were carried out.
    pub(crate) lost: AtomicU64,
    /// Requests that are late by up to two seconds.
    pub(crate) late: AtomicU64,
    /// The number of requests.
    pub(crate) requests: AtomicU64,
    /// The number of writes to records of sessions that succeeded, and of those that delete a session.
    pub(crate) commits: AtomicU64,
    pub(crate) deletions: AtomicU64,
    /// The number of writes of sessions' states that succeeded.
    pub(crate) blobs: AtomicU64,
    /// The number of reads of records of sessions.
    pub(crate) record_reads: AtomicU64,
    state: AtomicU64,
}

impl Faults {
    fn random(&self) -> u64 {
        let state = self.state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^ (mixed >> 29)
    }

    fn happens(&self, probability: &AtomicU64) -> bool {
        self.random() % 1000 < probability.load(Ordering::Relaxed)
    }

    /// Sets all probabilities.
    #[allow(dead_code, reason = "the benchmarks have no failures")]
    pub(crate) fn set(&self, thousandths: u64) {
        for fault in [&self.unavailable, &self.cut, &self.lost, &self.late] {
            fault.store(thousandths, Ordering::Relaxed);
        }
    }
}

struct Object {
    bytes: Bytes,
    tag: String,
    modified: SystemTime,
}

/// The objects. One lock for all makes a condition and its write one step.
#[derive(Default)]
struct Backend {
    objects: Arc<Mutex<BTreeMap<String, Object>>>,
    tags: AtomicU64,
}

/// A running server. Dropping it stops it.
pub(crate) struct S3Server {
    pub(crate) faults: Arc<Faults>,
    objects: Arc<Mutex<BTreeMap<String, Object>>>,
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl S3Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let faults = Arc::new(Faults::default());
        let backend = Backend::default();
        let objects = backend.objects.clone();
        let mut builder = S3ServiceBuilder::new(backend);
        builder.set_auth(SimpleAuth::from_single(KEY.0, KEY.1));
        let service = builder.build();
        let found = faults.clone();
        let task = tokio::spawn(async move {
            loop {
                let Ok((socket, _)) = listener.accept().await else { continue };
                socket.set_nodelay(true).unwrap();
                let (service, faults) = (service.clone(), found.clone());
                let handler = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    let (service, faults) = (service.clone(), faults.clone());
                    async move { handle(&service, &faults, request).await }
                });
                tokio::spawn(async move {
                    // A connection that is cut is an error here.
                    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), handler).await;
                });
            }
        });
        Self { faults, objects, address, task }
    }

    pub(crate) fn url(&self, prefix: &str) -> StoreUrl {
        format!("s3://{BUCKET}/{prefix}").parse().unwrap()
    }

    pub(crate) fn variables(&self) -> Variables {
        self.pairs().into_iter().collect()
    }

    /// Returns the names of the objects whose names contain a text.
    #[allow(dead_code, reason = "the tests of the program use it")]
    pub(crate) fn names(&self, text: &str) -> Vec<String> {
        self.objects.lock().unwrap().keys().filter(|name| name.contains(text)).cloned().collect()
    }

    /// Returns the names and values of the variables.
    pub(crate) fn pairs(&self) -> Vec<(String, String)> {
        pairs(&format!("http://{}", self.address))
    }
}

/// Returns the variables with which an S3 server at this address is used.
pub(crate) fn pairs(endpoint: &str) -> Vec<(String, String)> {
    let pairs = [
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", KEY.0),
        ("AWS_SECRET_ACCESS_KEY", KEY.1),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

async fn handle(
    service: &s3s::service::S3Service,
    faults: &Faults,
    request: hyper::Request<hyper::body::Incoming>,
) -> Result<hyper::Response<Body>, std::io::Error> {
    faults.requests.fetch_add(1, Ordering::Relaxed);
    let cut = || std::io::Error::other("cut");
    // The request is received first: a late one is carried out even if its client has left.
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| cut())?.to_bytes();
    if faults.happens(&faults.unavailable) {
        let response = hyper::Response::builder().status(503).body(Body::from("SlowDown".to_owned()));
        return Ok(response.unwrap());
    }
    if faults.happens(&faults.cut) {
        return Err(cut());
    }
    if faults.happens(&faults.late) {
        tokio::time::sleep(Duration::from_millis(faults.random() % 2000)).await;
    }
    let is_for = |method: hyper::Method, folder: &str| parts.method == method && parts.uri.path().contains(folder);
    let (is_commit, is_blob) = (is_for(hyper::Method::PUT, "/sessions/"), is_for(hyper::Method::PUT, "/state/"));
    let is_record_read = is_for(hyper::Method::GET, "/sessions/");
    let status = br#""is":"deleted""#;
    let is_deletion = is_commit && body.windows(status.len()).any(|part| part == status);
    let response = service.call(hyper::Request::from_parts(parts, Body::from(body))).await;
    let has_succeeded = response.as_ref().is_ok_and(|response| response.status().is_success());
    let counts = [
        (is_commit, &faults.commits),
        (is_deletion, &faults.deletions),
        (is_blob, &faults.blobs),
        (is_record_read, &faults.record_reads),
    ];
    for (_, counter) in counts.into_iter().filter(|(is_counted, _)| *is_counted && has_succeeded) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
    if faults.happens(&faults.lost) {
        return Err(cut());
    }
    response.map_err(|error| std::io::Error::other(format!("{error:?}")))
}

fn is_met(condition: &ETagCondition, found: Option<&Object>) -> bool {
    match (condition, found) {
        (_, None) => false,
        (ETagCondition::Any, Some(_)) => true,
        (ETagCondition::ETag(tag), Some(object)) => tag.value() == object.tag,
    }
}

#[async_trait::async_trait]
impl S3 for Backend {
    async fn put_object(&self, request: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let input = request.input;
        let bytes = match input.body {
            None => Bytes::new(),
            Some(body) => http_body_util::BodyExt::collect(Body::from(body))
                .await
                .map_err(|_| s3_error!(IncompleteBody))?
                .to_bytes(),
        };
        let mut objects = self.objects.lock().unwrap();
        let found = objects.get(&input.key);
        if input.if_match.is_some() && found.is_none() {
            return Err(s3_error!(NoSuchKey));
        }
        let is_stale = input.if_match.is_some_and(|condition| !is_met(&condition, found));
        if is_stale || input.if_none_match.is_some_and(|condition| is_met(&condition, found)) {
            return Err(s3_error!(PreconditionFailed));
        }
        let tag = format!("tag-{}", self.tags.fetch_add(1, Ordering::Relaxed));
        objects.insert(input.key, Object { bytes, tag: tag.clone(), modified: SystemTime::now() });
        Ok(S3Response::new(PutObjectOutput { e_tag: Some(ETag::Strong(tag)), ..Default::default() }))
    }

    async fn get_object(&self, request: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let objects = self.objects.lock().unwrap();
        let object = objects.get(&input.key).ok_or_else(|| s3_error!(NoSuchKey))?;
        let size = object.bytes.len() as u64;
        let (bytes, content_range) = match &input.range {
            None => (object.bytes.clone(), None),
            Some(range) => {
                let range = range.check(size).map_err(|_| s3_error!(InvalidRange))?;
                let text = format!("bytes {}-{}/{size}", range.start, range.end - 1);
                let (start, end) = (usize::try_from(range.start).unwrap(), usize::try_from(range.end).unwrap());
                (object.bytes.slice(start..end), Some(text))
            }
        };
        Ok(S3Response::new(GetObjectOutput {
            content_length: Some(i64::try_from(bytes.len()).unwrap()),
            body: Some(StreamingBlob::from(Body::from(bytes))),
            content_range,
            e_tag: Some(ETag::Strong(object.tag.clone())),
            last_modified: Some(object.modified.into()),
            ..Default::default()
        }))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let objects = self.objects.lock().unwrap();
        let prefix = input.prefix.clone().unwrap_or_default();
        let after = input.continuation_token.or(input.start_after);
        let start = after.map_or(Bound::Included(prefix.clone()), Bound::Excluded);
        let found = objects.range((start, Bound::Unbounded)).skip_while(|(key, _)| **key < prefix);
        let mut found: Vec<_> = found.take_while(|(key, _)| key.starts_with(&prefix)).take(PAGE + 1).collect();
        let is_truncated = found.len() > PAGE;
        found.truncate(PAGE);
        let contents = found.iter().map(|(key, object)| s3s::dto::Object {
            key: Some((*key).clone()),
            e_tag: Some(ETag::Strong(object.tag.clone())),
            size: Some(i64::try_from(object.bytes.len()).unwrap()),
            last_modified: Some(object.modified.into()),
            ..Default::default()
        });
        Ok(S3Response::new(ListObjectsV2Output {
            contents: Some(contents.collect()),
            is_truncated: Some(is_truncated),
            next_continuation_token: is_truncated.then(|| found.last().map(|(key, _)| (*key).clone())).flatten(),
            name: Some(input.bucket),
            prefix: Some(prefix),
            ..Default::default()
        }))
    }

    async fn delete_object(&self, request: S3Request<DeleteObjectInput>) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.objects.lock().unwrap().remove(&request.input.key);
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let mut objects = self.objects.lock().unwrap();
        let deleted = request.input.delete.objects.into_iter().map(|object| {
            objects.remove(&object.key);
            DeletedObject { key: Some(object.key), ..Default::default() }
        });
        Ok(S3Response::new(DeleteObjectsOutput { deleted: Some(deleted.collect()), ..Default::default() }))
    }
}
