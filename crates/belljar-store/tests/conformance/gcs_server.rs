//! A server of the part of Google Cloud Storage's XML API that stores use, in this process, after its documentation:
//! the preconditions of writes are generations of objects. The emulators in registries of packages lack writes by this
//! API, or their preconditions.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use percent_encoding::percent_decode_str;
use s3s::dto::{Timestamp, TimestampFormat};
use tokio::net::TcpListener;

const TOKEN: &str = "secret";
/// The number of objects on a page of a listing.
const PAGE: usize = 1000;

struct Object {
    bytes: Bytes,
    generation: u64,
    modified: SystemTime,
}

/// The objects of the bucket `bucket`. One lock makes a precondition and its write one step.
#[derive(Default)]
struct Bucket {
    objects: BTreeMap<String, Object>,
    /// The generation that was given last. That of an object that does not exist is 0.
    generation: u64,
}

/// A running server. Dropping it stops it.
pub(crate) struct GcsServer {
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for GcsServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl GcsServer {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let bucket = Arc::new(Mutex::new(Bucket::default()));
        let task = tokio::spawn(async move {
            loop {
                let Ok((socket, _)) = listener.accept().await else { continue };
                let bucket = bucket.clone();
                let handler = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    let bucket = bucket.clone();
                    async move {
                        let (parts, body) = request.into_parts();
                        let response = match body.collect().await {
                            Ok(body) => answer(&mut bucket.lock().unwrap(), &parts, body.to_bytes()),
                            Err(_) => status(StatusCode::BAD_REQUEST),
                        };
                        Ok::<_, Infallible>(response)
                    }
                });
                tokio::spawn(async move {
                    // A connection that a client cuts is an error here.
                    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), handler).await;
                });
            }
        });
        Self { port, task }
    }

    /// Returns the names and values of the variables with which the server is used.
    pub(crate) fn pairs(&self) -> Vec<(String, String)> {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let pairs = [("GOOGLE_BASE_URL", &*endpoint), ("GOOGLE_BEARER_TOKEN", TOKEN), ("GOOGLE_ALLOW_HTTP", "true")];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::default()).unwrap()
}

fn answer(bucket: &mut Bucket, request: &Parts, body: Bytes) -> Response<Full<Bytes>> {
    let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
    if header("authorization").and_then(|value| value.strip_prefix("Bearer ")) != Some(TOKEN) {
        return status(StatusCode::UNAUTHORIZED);
    }
    let path = request.uri.path();
    let Some(name) = path.strip_prefix("/bucket/") else {
        return match (request.method.as_str(), path) {
            ("GET", "/bucket") => list(bucket, request.uri.query().unwrap_or_default()),
            _ => status(StatusCode::NOT_FOUND),
        };
    };
    let name = percent_decode_str(name).decode_utf8().unwrap().into_owned();
    let found = bucket.objects.get(&name);
    match request.method.as_str() {
        "PUT" => {
            let generation = found.map_or(0, |object| object.generation).to_string();
            if header("x-goog-if-generation-match").is_some_and(|expected| expected != generation) {
                return status(StatusCode::PRECONDITION_FAILED);
            }
            bucket.generation += 1;
            let object = Object { bytes: body, generation: bucket.generation, modified: SystemTime::now() };
            let response = with_version(&object).body(Full::default()).unwrap();
            bucket.objects.insert(name, object);
            response
        }
        "GET" => found.map_or_else(|| status(StatusCode::NOT_FOUND), |object| read(object, header("range"))),
        "DELETE" if bucket.objects.remove(&name).is_some() => status(StatusCode::NO_CONTENT),
        "DELETE" => status(StatusCode::NOT_FOUND),
        _ => status(StatusCode::METHOD_NOT_ALLOWED),
    }
}

/// Returns the beginning of a response about an object.
fn with_version(object: &Object) -> hyper::http::response::Builder {
    let date = format(object.modified, TimestampFormat::HttpDate);
    let builder = Response::builder().header("x-goog-generation", object.generation.to_string());
    builder.header("etag", tag(object)).header("last-modified", date)
}

/// Returns a tag, which is the same for equal contents, as that of the service is.
fn tag(object: &Object) -> String {
    format!("\"{}\"", belljar_store::Digest::from_content(&object.bytes))
}

fn read(object: &Object, range: Option<&str>) -> Response<Full<Bytes>> {
    let response = with_version(object);
    let Some(range) = range else { return response.body(Full::new(object.bytes.clone())).unwrap() };
    let bounds = range.strip_prefix("bytes=").and_then(|range| range.split_once('-'));
    let parse = |(start, end): (&str, &str)| Some((start.parse::<usize>().ok()?, end.parse::<usize>().ok()?));
    let size = object.bytes.len();
    match bounds.and_then(parse) {
        Some((start, end)) if start <= end && start < size => {
            let end = end.min(size - 1);
            let response = response.status(StatusCode::PARTIAL_CONTENT);
            let response = response.header("content-range", format!("bytes {start}-{end}/{size}"));
            response.body(Full::new(object.bytes.slice(start..=end))).unwrap()
        }
        _ => status(StatusCode::RANGE_NOT_SATISFIABLE),
    }
}

/// Returns a page of a listing. Names of objects need no escapes in XML.
fn list(bucket: &Bucket, query: &str) -> Response<Full<Bytes>> {
    let query: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
    let prefix = query.get("prefix").cloned().unwrap_or_default();
    let start = query.get("continuation-token").cloned().map_or(Bound::Included(prefix.clone()), Bound::Excluded);
    let found = bucket.objects.range((start, Bound::Unbounded)).take_while(|(name, _)| name.starts_with(&prefix));
    let mut found: Vec<_> = found.take(PAGE + 1).collect();
    let has_more = found.len() > PAGE;
    found.truncate(PAGE);
    let mut text = "<?xml version='1.0' encoding='UTF-8'?><ListBucketResult>".to_owned();
    for (name, object) in &found {
        let modified = format(object.modified, TimestampFormat::DateTime);
        let (size, tag) = (object.bytes.len(), tag(object));
        text.push_str(&format!("<Contents><Key>{name}</Key><Size>{size}</Size><ETag>{tag}</ETag>"));
        text.push_str(&format!("<LastModified>{modified}</LastModified></Contents>"));
    }
    if let (true, Some((last, _))) = (has_more, found.last()) {
        text.push_str(&format!("<NextContinuationToken>{last}</NextContinuationToken>"));
    }
    text.push_str("</ListBucketResult>");
    Response::new(Full::new(text.into()))
}

fn format(time: SystemTime, format: TimestampFormat) -> String {
    let mut text = Vec::new();
    Timestamp::from(time).format(format, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}
