//! OAuth: this server as a protected resource. Another server, the issuer, issues the tokens.
//!
//! A token is a JWT (RFC 9068). It must be signed with one of the issuer's keys, name that issuer and the configured
//! audience, and be within its time of validity. A client without a token can find the issuer: the response 401 names
//! the metadata of this resource (RFC 9728), which names the issuer.

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
use serde_json::{Value, json};

use keys::IssuerKeys;

/// The path of a resource's metadata; clients may append the resource's own path.
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// The maximum length of a token, in bytes.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// The accepted difference between two clocks, in seconds.
const LEEWAY_SECS: u64 = 60;
/// The accepted signature algorithms: those with public keys.
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

/// The requirements for a token: its issuer, its audience and the issuer's keys. Cheap to clone.
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

/// The reason why an OAuth configuration was rejected.
#[derive(Debug, thiserror::Error)]
pub enum OAuthError {
    /// The issuer is not a URL, or one without TLS, for which an attacker on the network could answer.
    #[error("the issuer `{0}` must be an https:// address without query and fragment (http:// on this machine only)")]
    Issuer(String),
    /// The audience is empty.
    #[error("the audience is empty: it is the `aud` claim of tokens for this server, usually the server's address")]
    Audience,
    /// The HTTP client could not be created.
    #[error("failed to create an HTTP client for the issuer's keys: {0}")]
    Client(#[from] reqwest::Error),
}

/// The reason why a request was not authenticated.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AuthError {
    /// The request has no bearer token.
    Missing,
    /// The token is not valid, for this reason.
    Invalid(&'static str),
    /// The token is valid, but does not have the required scope.
    Scope,
    /// The token could not be checked.
    Unavailable,
}

/// The claims that are read in addition to those that `jsonwebtoken` validates.
#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    sub: String,
    /// The scopes: a text with spaces between them (RFC 9068), or a list, as some issuers write them. Values of other
    /// types are ignored: a token is valid without scopes.
    #[serde(default)]
    scope: Value,
    /// The scopes, by the name that other issuers use.
    #[serde(default)]
    scp: Value,
}

impl Claims {
    fn has_scope(&self, scope: &str) -> bool {
        [&self.scope, &self.scp].into_iter().any(|claim| match claim {
            Value::String(scopes) => scopes.split_ascii_whitespace().any(|given| given == scope),
            Value::Array(scopes) => scopes.iter().any(|given| given.as_str() == Some(scope)),
            _ => false,
        })
    }
}

impl OAuth {
    /// Requires tokens that `issuer` issued for `audience`. The issuer's keys are fetched when the first token
    /// arrives.
    ///
    /// # Errors
    /// Fails if the issuer is not a trustworthy address, or the audience is empty.
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

    /// Returns an identifier for the subject of `token`, which is the same in all tokens of one client.
    pub(crate) async fn bearer(&self, token: &str) -> Result<String, AuthError> {
        self.claims(token).await.map(|claims| self.identifier(&claims))
    }

    /// Does the same for a token that must have a scope.
    pub(crate) async fn bearer_with_scope(&self, token: &str, scope: &str) -> Result<String, AuthError> {
        let claims = self.claims(token).await?;
        if claims.has_scope(scope) { Ok(self.identifier(&claims)) } else { Err(AuthError::Scope) }
    }

    fn identifier(&self, claims: &Claims) -> String {
        format!("oauth:{} {}", self.issuer, claims.sub)
    }

    async fn claims(&self, token: &str) -> Result<Claims, AuthError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(AuthError::Invalid("it is too long"));
        }
        let header = jsonwebtoken::decode_header(token).map_err(|_| AuthError::Invalid("it is not a signed JWT"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(AuthError::Invalid("its signature algorithm is not accepted"));
        }
        if header.crit.is_some() {
            // A recipient must reject critical header parameters that it does not support; none are supported here.
            return Err(AuthError::Invalid("its header has critical parameters that are not supported"));
        }
        let key = self.keys.find(header.kid.as_deref(), header.alg).await.map_err(|error| {
            tracing::warn!(%error, "failed to check a token");
            AuthError::Unavailable
        })?;
        let key = key.ok_or(AuthError::Invalid("it is signed with a key that is not the issuer's"))?;
        let mut validation = Validation::new(header.alg);
        validation.leeway = LEEWAY_SECS;
        validation.validate_nbf = true;
        validation.set_audience(&[&self.audience]);
        validation.set_issuer(&[&self.issuer]);
        // Without `sub`, all clients of the issuer would have the same identity and could close one another's
        // sessions (RFC 9068, section 2.2).
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        match jsonwebtoken::decode::<Claims>(token, &key, &validation) {
            Ok(data) if data.claims.sub.is_empty() => Err(AuthError::Invalid("its claim sub is empty")),
            Ok(data) => Ok(data.claims),
            Err(error) => Err(AuthError::Invalid(describe_error(error.kind()))),
        }
    }

    /// Returns the metadata of this resource, which is reached at `address` (`https://example.org`).
    pub(crate) fn metadata(&self, address: &str, path: &str) -> Response {
        Json(json!({
            "resource": self.resource(address, path),
            "authorization_servers": [&*self.issuer],
            "bearer_methods_supported": ["header"],
            "resource_name": "Belljar",
        }))
        .into_response()
    }

    /// Returns the resource identifier that clients send when they request a token from the issuer.
    fn resource(&self, address: &str, path: &str) -> String {
        // Issuers put the resource identifier that a client names into the token as its audience; so an audience that
        // is an address is that identifier.
        if self.audience.contains("://") { self.audience.to_string() } else { format!("{address}{path}") }
    }

    /// Returns the challenge for a response 401.
    pub(crate) fn challenge(&self, error: &AuthError, address: &str, path: &str) -> HeaderValue {
        let metadata = format!("Bearer resource_metadata=\"{address}{METADATA_PATH}{path}\"");
        let text = match error {
            AuthError::Invalid(reason) => {
                format!("{metadata}, error=\"invalid_token\", error_description=\"{reason}\"")
            }
            AuthError::Missing | AuthError::Scope | AuthError::Unavailable => metadata,
        };
        // The address comes from a request header, so that it is a valid header value.
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Bearer"))
    }

    /// Returns this server's address as clients know it, if the audience is an address.
    pub(crate) fn address(&self) -> Option<String> {
        let url = Url::parse(&self.audience).ok().filter(|url| url.has_host())?;
        Some(url.origin().ascii_serialization())
    }
}

fn describe_error(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ExpiredSignature => "it has expired",
        ErrorKind::ImmatureSignature => "it is not valid yet",
        ErrorKind::InvalidIssuer => "it is from another issuer",
        ErrorKind::InvalidAudience => "it is for another audience",
        ErrorKind::InvalidSignature => "its signature is not valid",
        ErrorKind::MissingRequiredClaim(_) => "it lacks one of the claims exp, iss, aud and sub",
        _ => "it is not valid",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuers_without_tls_are_rejected() {
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
    fn scopes_are_a_text_or_a_list_and_other_types_are_ignored() {
        let claims = |scopes: Value| {
            let mut claims = json!({ "sub": "alice" });
            claims.as_object_mut().unwrap().extend(scopes.as_object().unwrap().clone());
            serde_json::from_value::<Claims>(claims).unwrap()
        };
        for scopes in [
            json!({ "scope": "openid belljar:admin" }),
            json!({ "scope": ["openid", "belljar:admin"] }),
            json!({ "scp": "belljar:admin" }),
            json!({ "scope": null, "scp": [1, "belljar:admin"] }),
            json!({ "scope": "openid", "scp": ["belljar:admin"] }),
        ] {
            assert!(claims(scopes.clone()).has_scope("belljar:admin"), "{scopes}");
        }
        for scopes in [
            json!({}),
            json!({ "scope": null }),
            json!({ "scope": 7, "scp": { "belljar:admin": true } }),
            json!({ "scope": "belljar:administrator" }),
            json!({ "scope": ["openid belljar:admin"] }),
        ] {
            assert!(!claims(scopes.clone()).has_scope("belljar:admin"), "{scopes}");
        }
    }

    #[test]
    fn an_audience_that_is_an_address_is_the_servers_address() {
        let address = |audience| OAuth::new("https://issuer.example", audience).unwrap().address();
        assert_eq!(address("https://mcp.example/mcp").as_deref(), Some("https://mcp.example"));
        assert_eq!(address("https://mcp.example:8443/mcp").as_deref(), Some("https://mcp.example:8443"));
        assert_eq!(address("belljar"), None);
        assert_eq!(address("urn:belljar:server"), None);
    }
}
