//! The issuer's public keys: found by its metadata, kept for a while, fetched anew when a token names one that is not
//! among them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use reqwest::{Client, Url, redirect};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

/// Keys that were fetched are looked at again after so long: those that the issuer took back end.
const FRESH: Duration = Duration::from_secs(15 * 60);
/// While the issuer cannot be reached, its keys hold for so long.
const STALE: Duration = Duration::from_secs(24 * 3600);
/// The issuer is asked no more often than this, whatever tokens come.
const PAUSE: Duration = Duration::from_secs(5);
/// How long one answer of the issuer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer that is read, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// Why the issuer's keys cannot be had.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum KeysError {
    /// It cannot be reached, or does not answer as it should.
    #[error("{url}: {reason}")]
    Fetch {
        /// What was asked for.
        url: String,
        /// What happened.
        reason: String,
    },
    /// Its metadata is that of another.
    #[error("{url} says that its issuer is `{found}`; --oauth-issuer must be exactly that")]
    OtherIssuer {
        /// Where the metadata is.
        url: String,
        /// The issuer that it names.
        found: String,
    },
    /// Its keys are where anybody on the way could change them.
    #[error("the issuer's keys are at `{0}`, which is not https://")]
    Unsafe(String),
}

/// Whether what comes from there is what was sent: over TLS, or from this machine.
pub(super) fn is_safe(url: &Url) -> bool {
    match url.scheme() {
        "https" => url.has_host(),
        "http" => is_here(url),
        _ => false,
    }
}

fn is_here(url: &Url) -> bool {
    url.host_str().is_some_and(|host| ["127.0.0.1", "[::1]", "localhost"].contains(&host))
}

/// One issuer's keys.
pub(super) struct IssuerKeys {
    issuer: String,
    address: Url,
    client: Client,
    /// Held while keys are fetched: who comes meanwhile waits for them.
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    keys: Arc<Vec<Jwk>>,
    fetched: Option<Instant>,
    asked: Option<Instant>,
    failure: Option<KeysError>,
}

/// What is read of the issuer's metadata (RFC 8414, OpenID Connect Discovery).
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

/// The issuer's keys (RFC 7517).
#[derive(Deserialize)]
struct Published {
    keys: Vec<serde_json::Value>,
}

impl IssuerKeys {
    pub(super) fn new(issuer: &str, address: Url) -> Result<Self, reqwest::Error> {
        let mut client = Client::builder().redirect(redirect::Policy::none()).timeout(PATIENCE);
        if is_here(&address) {
            // No proxy can reach an issuer on this machine.
            client = client.no_proxy();
        }
        Ok(Self { issuer: issuer.to_owned(), address, client: client.build()?, known: Mutex::default() })
    }

    /// The key that a token names, or the only one that it can be signed with when it names none.
    pub(super) async fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<Option<DecodingKey>, KeysError> {
        let keys = self.keys(FRESH).await?;
        if let Some(key) = choose(&keys, id, algorithm) {
            return Ok(Some(key));
        }
        // The issuer may have a new one by now.
        let keys = self.keys(Duration::ZERO).await?;
        Ok(choose(&keys, id, algorithm))
    }

    /// The keys, fetched anew when they are older than `age`; but not too often.
    async fn keys(&self, age: Duration) -> Result<Arc<Vec<Jwk>>, KeysError> {
        let mut known = self.known.lock().await;
        let young = |since: Option<Instant>, age| since.is_some_and(|since| since.elapsed() < age);
        if !young(known.fetched, age) && !young(known.asked, PAUSE) {
            known.asked = Some(Instant::now());
            match self.fetch().await {
                Ok(keys) => {
                    known.keys = Arc::new(keys);
                    known.fetched = Some(Instant::now());
                    known.failure = None;
                }
                Err(error) => {
                    tracing::warn!(%error, "the issuer's keys cannot be fetched");
                    known.failure = Some(error);
                }
            }
        }
        match &known.failure {
            Some(error) if !young(known.fetched, STALE) => Err(error.clone()),
            _ => Ok(known.keys.clone()),
        }
    }

    async fn fetch(&self) -> Result<Vec<Jwk>, KeysError> {
        let metadata = self.metadata().await?;
        let url =
            Url::parse(&metadata.jwks_uri).ok().filter(|url| is_safe(url) && (!is_here(url) || is_here(&self.address)));
        let url = url.ok_or(KeysError::Unsafe(metadata.jwks_uri))?;
        let Published { keys } = self.get(url).await?;
        // Keys of kinds that are not known here are no reason to refuse the others.
        Ok(keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect())
    }

    async fn metadata(&self) -> Result<Metadata, KeysError> {
        let path = self.address.path().trim_end_matches('/').to_owned();
        let at = |path: String| {
            let mut url = self.address.clone();
            url.set_path(&path);
            url
        };
        let places = [
            at(format!("/.well-known/oauth-authorization-server{path}")),
            at(format!("{path}/.well-known/openid-configuration")),
            at(format!("/.well-known/openid-configuration{path}")),
        ];
        let mut failure = None;
        for url in places {
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
            return Err(failed(format!("it answers {}", response.status())));
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| failed(error.without_url().to_string()))? {
            if body.len() + piece.len() > MAX_ANSWER {
                return Err(failed("its answer is too long".into()));
            }
            body.extend_from_slice(&piece);
        }
        serde_json::from_slice(&body).map_err(|error| failed(format!("its answer is not what it should be: {error}")))
    }
}

/// The key with this id that fits the algorithm; without an id, the only one that fits.
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
    if common.key_algorithm.as_ref().is_some_and(|said| named(said) != Some(algorithm)) {
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
        // A secret that is published is none.
        _ => false,
    }
}

fn named(algorithm: &KeyAlgorithm) -> Option<Algorithm> {
    algorithm.to_string().parse().ok()
}
