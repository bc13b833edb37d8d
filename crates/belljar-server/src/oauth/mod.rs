//! OAuth: this server as a protected resource, whose tokens another server, the issuer, hands out.
//!
//! A token is a JWT (RFC 9068). It must be signed by one of the issuer's keys, made out by that issuer for this very
//! audience, and be neither too old nor too young. A client that bears none is told where to get one: the answer 401
//! names the metadata of this resource (RFC 9728), and that names the issuer.

mod keys;
mod signatures;

use std::fmt;
use std::sync::Arc;

use axum::Json;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use reqwest::Url;
use serde::Deserialize;
use serde_json::json;

use keys::IssuerKeys;

/// Where clients look for the metadata of a resource: here, or here with the resource's own path behind it.
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// Longest token that is looked at, in bytes.
const MAX_TOKEN: usize = 16 << 10;
/// How far two clocks may disagree, in seconds.
const LEEWAY: u64 = 60;
/// Signatures that are taken: those that need no secret of ours.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
];

/// What a token must be, and where to get one. Cheap to clone.
#[derive(Clone)]
pub struct OAuth {
    issuer: Arc<str>,
    audience: Arc<str>,
    keys: Arc<IssuerKeys>,
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth").field("issuer", &self.issuer).field("audience", &self.audience).finish()
    }
}

/// Why an issuer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OAuthError {
    /// It is no address, or one that anybody on the way could answer for.
    #[error("the issuer `{0}` must be an https:// address without query and fragment (http:// on this machine only)")]
    Issuer(String),
    /// The audience is empty.
    #[error("the audience is empty: name what tokens for this server are made out for, usually its own address")]
    Audience,
    /// Nothing can be fetched.
    #[error("cannot prepare to fetch the issuer's keys: {0}")]
    Client(#[from] reqwest::Error),
}

/// Why a request is not let in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It bears no token.
    Missing,
    /// Its token is not good, for this reason.
    Invalid(&'static str),
    /// Whether it is good cannot be told.
    Unavailable,
}

/// What is read of a token's claims, beside those that are checked.
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    sub: String,
}

impl OAuth {
    /// For tokens that `issuer` makes out for `audience`. Its keys are fetched when the first token comes.
    ///
    /// # Errors
    /// When the issuer is no address that can be trusted.
    pub fn new(issuer: &str, audience: &str) -> Result<Self, OAuthError> {
        let address = Url::parse(issuer).ok().filter(|url| keys::is_safe(url) && url.query().is_none());
        let address = address.filter(|url| url.fragment().is_none());
        let address = address.ok_or_else(|| OAuthError::Issuer(issuer.to_owned()))?;
        if audience.is_empty() {
            return Err(OAuthError::Audience);
        }
        signatures::install();
        Ok(Self { issuer: issuer.into(), audience: audience.into(), keys: Arc::new(IssuerKeys::new(issuer, address)?) })
    }

    /// Who bears `token`: a word for it, which is the same for all tokens of one person.
    pub(crate) async fn bearer(&self, token: &str) -> Result<String, Refusal> {
        if token.len() > MAX_TOKEN {
            return Err(Refusal::Invalid("it is too long"));
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| Refusal::Invalid("it is no signed JWT"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(Refusal::Invalid("its signature is of a kind that is not taken"));
        }
        if header.crit.is_some() {
            // Whoever does not understand what is critical must refuse it; nothing is known here.
            return Err(Refusal::Invalid("its header asks for what is not supported"));
        }
        let key = self.keys.find(header.kid.as_deref(), header.alg).await.map_err(|error| {
            tracing::warn!(%error, "tokens cannot be checked");
            Refusal::Unavailable
        })?;
        let key = key.ok_or(Refusal::Invalid("it is signed with a key that is not the issuer's"))?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.set_audience(&[&self.audience]);
        validation.set_issuer(&[&self.issuer]);
        // Without `sub` all clients of the issuer would be one person, who can end one another's sessions (RFC 9068, 2.2).
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        match jsonwebtoken::decode::<Claims>(token, &key, &validation) {
            Ok(data) if data.claims.sub.is_empty() => Err(Refusal::Invalid("it does not say whose it is (sub)")),
            Ok(data) => Ok(data.claims.sub),
            Err(error) => Err(Refusal::Invalid(in_words(error.kind()))),
        }
    }

    /// The metadata of this resource, reached at `address` (`https://example.org`).
    pub(crate) fn metadata(&self, address: &str, path: &str) -> Response {
        Json(json!({
            "resource": self.resource(address, path),
            "authorization_servers": [&*self.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Belljar",
        }))
        .into_response()
    }

    /// What clients name when they ask the issuer for a token.
    fn resource(&self, address: &str, path: &str) -> String {
        // Issuers make tokens out for the address that a client names; so the audience is that address, mostly.
        if self.audience.contains("://") { self.audience.to_string() } else { format!("{address}{path}") }
    }

    /// The challenge in an answer 401.
    pub(crate) fn challenge(&self, refusal: &Refusal, address: &str, path: &str) -> HeaderValue {
        let metadata = format!("Bearer resource_metadata=\"{address}{METADATA_PATH}{path}\"");
        let text = match refusal {
            Refusal::Invalid(reason) => {
                format!("{metadata}, error=\"invalid_token\", error_description=\"{reason}\"")
            }
            Refusal::Missing | Refusal::Unavailable => metadata,
        };
        // The address is that of a request's own header, so it is fit for one.
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Bearer"))
    }

    /// This server's address as clients know it: that of the audience, where it is one.
    pub(crate) fn address(&self) -> Option<String> {
        let url = Url::parse(&self.audience).ok().filter(|url| url.has_host())?;
        Some(url.origin().ascii_serialization())
    }
}

fn in_words(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidIssuer => "it is another issuer's",
        ErrorKind::InvalidAudience => "it is made out for another audience",
        ErrorKind::InvalidSignature => "its signature is wrong",
        ErrorKind::MissingRequiredClaim(_) => "it lacks one of the claims exp, iss, aud and sub",
        _ => "it is not valid",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuers_that_anybody_could_speak_for_are_refused() {
        for issuer in
            ["http://issuer.example", "issuer.example", "ftp://x", "https://x.example/?a=b", "https://x/#a", ""]
        {
            assert!(OAuth::new(issuer, "a").is_err(), "{issuer}");
        }
        for issuer in ["https://issuer.example/tenant", "http://127.0.0.1:9000", "http://localhost:9000/"] {
            assert!(OAuth::new(issuer, "a").is_ok(), "{issuer}");
        }
        assert!(OAuth::new("https://issuer.example", "").is_err());
    }

    #[test]
    fn the_audience_says_under_which_address_the_server_is_known() {
        let known = |audience| OAuth::new("https://issuer.example", audience).unwrap().address();
        assert_eq!(known("https://mcp.example/mcp").as_deref(), Some("https://mcp.example"));
        assert_eq!(known("https://mcp.example:8443/mcp").as_deref(), Some("https://mcp.example:8443"));
        assert_eq!(known("belljar"), None);
        assert_eq!(known("urn:belljar:server"), None);
    }
}
