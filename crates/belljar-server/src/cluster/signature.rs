//! The signature of requests between replicas. It covers all that the receiver uses of a request, and the identity of
//! the client, which the sender has authenticated. The key is derived from the cluster's store.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belljar_sessions::{Cluster, Owner};
use sha2::{Digest as _, Sha256};

use crate::http::SESSION_ID_HEADER;

/// The time and the signature of a request.
const SIGNATURE: HeaderName = HeaderName::from_static("belljar-signature");
/// The client's identity, in base64; absent without authentication.
const PRINCIPAL: HeaderName = HeaderName::from_static("belljar-principal");
/// The SHA-256 of the body.
const BODY_DIGEST: HeaderName = HeaderName::from_static("belljar-body-sha256");
/// The maximum difference between the clocks of two replicas, which includes the time on the way.
const MAX_SKEW: Duration = Duration::from_secs(120);

/// The headers that clients may not send: those of this module.
pub(super) const RESERVED: [HeaderName; 3] = [SIGNATURE, PRINCIPAL, BODY_DIGEST];

/// A request that another replica has forwarded, and which is not forwarded again.
#[derive(Debug, Clone)]
pub(crate) struct ForwardedRequest {
    /// The client.
    pub(crate) owner: Option<Owner>,
    body_digest: HeaderValue,
}

/// Signs a request to another replica.
///
/// # Errors
/// Fails if a value cannot be a header.
pub(super) fn sign(
    cluster: &Cluster,
    method: &Method,
    path: &str,
    headers: &mut HeaderMap,
    owner: Option<&Owner>,
    body: &[u8],
) -> Result<(), axum::http::Error> {
    for reserved in RESERVED {
        headers.remove(reserved);
    }
    headers.insert(BODY_DIGEST, HeaderValue::try_from(URL_SAFE_NO_PAD.encode(Sha256::digest(body)))?);
    if let Some(owner) = owner {
        headers.insert(PRINCIPAL, HeaderValue::try_from(URL_SAFE_NO_PAD.encode(&**owner))?);
    }
    let time = now().as_millis().to_string();
    let signature = cluster.sign(signed_text(&time, method, path, headers).as_bytes());
    headers.insert(SIGNATURE, HeaderValue::try_from(format!("{time} {}", URL_SAFE_NO_PAD.encode(signature)))?);
    Ok(())
}

/// Returns the request as another replica has passed it on, or `None` if a client has sent it.
///
/// # Errors
/// Fails if the signature is wrong, with the reason.
pub(crate) fn verify(
    cluster: &Cluster,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<Option<ForwardedRequest>, &'static str> {
    let Some(signature) = headers.get(SIGNATURE) else { return Ok(None) };
    let invalid = "the signature of another replica is invalid";
    let (time, signature) = signature.to_str().ok().and_then(|value| value.split_once(' ')).ok_or(invalid)?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| invalid)?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    if !cluster.is_signed(signed_text(time, method, path, headers).as_bytes(), &signature) {
        return Err(invalid);
    }
    let sent = Duration::from_millis(time.parse().map_err(|_| invalid)?);
    if now().abs_diff(sent) > MAX_SKEW {
        return Err("the request of another replica is too old, or the clocks of the two differ by minutes");
    }
    let owner = match headers.get(PRINCIPAL) {
        None => None,
        Some(owner) => {
            let bytes = URL_SAFE_NO_PAD.decode(owner.as_bytes()).map_err(|_| invalid)?;
            Some(Owner::from(String::from_utf8(bytes).map_err(|_| invalid)?))
        }
    };
    let body_digest = headers.get(BODY_DIGEST).cloned().ok_or(invalid)?;
    Ok(Some(ForwardedRequest { owner, body_digest }))
}

/// Returns whether the body of a request that was forwarded is the signed one.
pub(crate) fn check_body(forwarded: &ForwardedRequest, body: &[u8]) -> bool {
    forwarded.body_digest.as_bytes() == URL_SAFE_NO_PAD.encode(Sha256::digest(body)).as_bytes()
}

/// Returns the text that is signed. No value can contain a line break.
fn signed_text(time: &str, method: &Method, path: &str, headers: &HeaderMap) -> String {
    let header = |name: &HeaderName| {
        let value = headers.get(name).map_or(&b"-"[..], HeaderValue::as_bytes);
        String::from_utf8_lossy(value).into_owned()
    };
    let session = HeaderName::from_static(SESSION_ID_HEADER);
    let (owner, session, body) = (header(&PRINCIPAL), header(&session), header(&BODY_DIGEST));
    format!("belljar 1\n{time}\n{method}\n{path}\n{owner}\n{session}\n{body}")
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
