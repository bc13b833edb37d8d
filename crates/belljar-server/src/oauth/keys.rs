//! The issuer's public keys: found through its metadata, cached for a while, and fetched again when a token names a
//! key that is not cached.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use reqwest::{Client, Url, redirect};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

/// The time after which cached keys are fetched again, so that keys revoked by the issuer stop working.
const JWKS_TTL: Duration = Duration::from_secs(15 * 60);
/// The time for which cached keys are used while the issuer is unreachable.
const MAX_STALE_AGE: Duration = Duration::from_secs(24 * 3600);
/// The minimum time between two requests to the issuer, whatever tokens arrive.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// The timeout of one request to the issuer.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum length of a response, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// The reason why the issuer's keys are unavailable.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum KeysError {
    /// The issuer is unreachable, or its response is not valid.
    #[error("failed to fetch {url}: {reason}")]
    Fetch {
        /// The requested address.
        url: String,
        /// The error, or the defect of the response.
        reason: String,
    },
    /// The metadata names another issuer than the configured one.
    #[error("the metadata at {url} names the issuer `{found}`, which is not exactly the configured one")]
    OtherIssuer {
        /// The address of the metadata.
        url: String,
        /// The issuer named by the metadata.
        found: String,
    },
    /// The keys are at an address without TLS, so that an attacker on the network could replace them.
    #[error("the issuer's keys are at `{0}`, which is not https://")]
    Unsafe(String),
}

/// Returns whether responses from this address are authentic: it uses TLS, or is on this machine.
pub(super) fn is_safe(url: &Url) -> bool {
    match url.scheme() {
        "https" => url.has_host(),
        "http" => is_loopback(url),
        _ => false,
    }
}

fn is_loopback(url: &Url) -> bool {
    url.host_str().is_some_and(|host| ["127.0.0.1", "[::1]", "localhost"].contains(&host))
}

/// One issuer's keys.
pub(super) struct IssuerKeys {
    issuer: String,
    address: Url,
    client: Client,
    /// The cached keys. The lock is held while keys are fetched, so that concurrent requests wait for the result.
    cached: Mutex<CachedKeys>,
}

#[derive(Default)]
struct CachedKeys {
    keys: Arc<Vec<Jwk>>,
    fetched: Option<Instant>,
    requested: Option<Instant>,
    failure: Option<KeysError>,
}

/// The fields that are read from the issuer's metadata (RFC 8414, OpenID Connect Discovery).
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

/// The issuer's set of keys (RFC 7517).
#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<serde_json::Value>,
}

impl IssuerKeys {
    pub(super) fn new(issuer: &str, address: Url) -> Result<Self, reqwest::Error> {
        let mut client = Client::builder().redirect(redirect::Policy::none()).timeout(FETCH_TIMEOUT);
        if is_loopback(&address) {
            // A proxy could not reach an issuer on this machine.
            client = client.no_proxy();
        }
        Ok(Self { issuer: issuer.to_owned(), address, client: client.build()?, cached: Mutex::default() })
    }

    /// Returns the key that a token names. For a token that does not name a key, returns the only key that fits.
    pub(super) async fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<Option<DecodingKey>, KeysError> {
        let keys = self.keys(JWKS_TTL).await?;
        if let Some(key) = choose(&keys, id, algorithm) {
            return Ok(Some(key));
        }
        // The issuer may have published a new key in the meantime.
        let keys = self.keys(Duration::ZERO).await?;
        Ok(choose(&keys, id, algorithm))
    }

    /// Returns the keys, fetched again when they are older than `age`, but not too often.
    async fn keys(&self, age: Duration) -> Result<Arc<Vec<Jwk>>, KeysError> {
        let mut cached = self.cached.lock().await;
        let young = |since: Option<Instant>, age| since.is_some_and(|since| since.elapsed() < age);
        if !young(cached.fetched, age) && !young(cached.requested, MIN_REFRESH_INTERVAL) {
            cached.requested = Some(Instant::now());
            match self.fetch().await {
                Ok(keys) => {
                    cached.keys = Arc::new(keys);
                    cached.fetched = Some(Instant::now());
                    cached.failure = None;
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to fetch the issuer's keys");
                    cached.failure = Some(error);
                }
            }
        }
        match &cached.failure {
            Some(error) if !young(cached.fetched, MAX_STALE_AGE) => Err(error.clone()),
            _ => Ok(cached.keys.clone()),
        }
    }

    async fn fetch(&self) -> Result<Vec<Jwk>, KeysError> {
        let metadata = self.metadata().await?;
        let url = Url::parse(&metadata.jwks_uri)
            .ok()
            .filter(|url| is_safe(url) && (!is_loopback(url) || is_loopback(&self.address)));
        let url = url.ok_or(KeysError::Unsafe(metadata.jwks_uri))?;
        let JwkSet { keys } = self.get(url).await?;
        // Keys of unknown types are skipped; the other keys remain usable.
        Ok(keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect())
    }

    async fn metadata(&self) -> Result<Metadata, KeysError> {
        let path = self.address.path().trim_end_matches('/').to_owned();
        let at = |path: String| {
            let mut url = self.address.clone();
            url.set_path(&path);
            url
        };
        let candidates = [
            at(format!("/.well-known/oauth-authorization-server{path}")),
            at(format!("{path}/.well-known/openid-configuration")),
            at(format!("/.well-known/openid-configuration{path}")),
        ];
        let mut failure = None;
        for url in candidates {
            match self.get::<Metadata>(url.clone()).await {
                Ok(metadata) if metadata.issuer == self.issuer => return Ok(metadata),
                Ok(metadata) => {
                    failure = Some(KeysError::OtherIssuer { url: url.into(), found: metadata.issuer });
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or(KeysError::Unsafe(self.issuer.clone())))
    }

    async fn get<T: DeserializeOwned>(&self, url: Url) -> Result<T, KeysError> {
        let failed = |reason: String| KeysError::Fetch { url: url.to_string(), reason };
        let response = self.client.get(url.clone()).header("accept", "application/json").send().await;
        let mut response = response.map_err(|error| failed(error.without_url().to_string()))?;
        if !response.status().is_success() {
            return Err(failed(format!("HTTP status {}", response.status())));
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| failed(error.without_url().to_string()))? {
            if body.len() + piece.len() > MAX_RESPONSE_BYTES {
                return Err(failed(format!("the response is longer than {MAX_RESPONSE_BYTES} bytes")));
            }
            body.extend_from_slice(&piece);
        }
        serde_json::from_slice(&body).map_err(|error| failed(format!("failed to parse the response: {error}")))
    }
}

/// Returns the key with this ID that fits the algorithm; without an ID, the only key that fits.
fn choose(keys: &[Jwk], id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
    let mut fitting = keys.iter().filter(|key| fits(key, algorithm)).filter(|key| match id {
        Some(id) => key.common.key_id.as_deref() == Some(id),
        None => true,
    });
    let key = fitting.next()?;
    if id.is_none() && fitting.next().is_some() {
        return None;
    }
    DecodingKey::from_jwk(key).ok()
}

fn fits(key: &Jwk, algorithm: Algorithm) -> bool {
    let common = &key.common;
    if common.public_key_use.as_ref().is_some_and(|usage| *usage != PublicKeyUse::Signature) {
        return false;
    }
    if common.key_algorithm.as_ref().is_some_and(|name| named(name) != Some(algorithm)) {
        return false;
    }
    match &key.algorithm {
        AlgorithmParameters::RSA(_) => !matches!(algorithm, Algorithm::ES256 | Algorithm::ES384 | Algorithm::EdDSA),
        AlgorithmParameters::EllipticCurve(parameters) => matches!(
            (&parameters.curve, algorithm),
            (EllipticCurve::P256, Algorithm::ES256) | (EllipticCurve::P384, Algorithm::ES384)
        ),
        AlgorithmParameters::OctetKeyPair(parameters) => {
            parameters.curve == EllipticCurve::Ed25519 && algorithm == Algorithm::EdDSA
        }
        // Symmetric keys must not be published, so that such a key is never used.
        _ => false,
    }
}

fn named(algorithm: &KeyAlgorithm) -> Option<Algorithm> {
    algorithm.to_string().parse().ok()
}
