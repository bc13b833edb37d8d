//! The rules by which requests are accepted: their `Host`, their `Origin`, and their tokens.

use axum::http::header::{AUTHORIZATION, HOST, ORIGIN};
use axum::http::{HeaderMap, Uri};

use super::tokens::Tokens;
use crate::metrics::Refusal;
use crate::oauth::{AuthError, OAuth};

/// The rules by which requests are accepted.
#[derive(Debug, Clone, Default)]
pub struct AccessPolicy {
    /// The names (`example.org`, or with a port) that a request's `Host` may contain. When empty, the names of the
    /// local machine are accepted.
    pub hosts: Vec<String>,
    /// Accepts any `Host`, for servers that other machines reach and whose names were not configured.
    pub any_host: bool,
    /// The origins whose web pages may send requests: `https://app.example.org`, `http://localhost:*`.
    pub origins: Vec<String>,
    /// The remedy that the answer to a request with another `Host` names.
    pub host_hint: Option<&'static str>,
    /// The remedy that the answer to a request with another `Origin` names.
    pub origin_hint: Option<&'static str>,
    /// The accepted bearer tokens. When this is empty and `oauth` is `None`, requests need no token.
    pub tokens: Tokens,
    /// The OAuth issuer whose tokens are accepted as well.
    pub oauth: Option<OAuth>,
    /// The access of operators to `/admin` and `/console`, if these are served.
    pub operators: Option<Operators>,
}

/// The access of operators. Their requests always need a token, which is not one of a user.
#[derive(Debug, Clone, Default)]
pub struct Operators {
    /// The accepted bearer tokens.
    pub tokens: Tokens,
    /// The scope with which a token of the OAuth issuer is one of an operator.
    pub scope: Option<String>,
}

impl AccessPolicy {
    /// Returns the reason to reject a request to this address with these headers, if one exists.
    pub(super) fn rejection_reason(&self, uri: &Uri, headers: &HeaderMap) -> Option<(Refusal, String)> {
        let with_hint = |reason: &str, hint: Option<&str>| match hint {
            Some(hint) => format!("{reason}; {hint}"),
            None => reason.to_owned(),
        };
        if !self.any_host && !host(uri, headers).is_some_and(|host| self.knows(host)) {
            let reason = "the Host header is not an allowed name of this server";
            return Some((Refusal::Host, with_hint(reason, self.host_hint)));
        }
        match headers.get(ORIGIN).map(|value| value.to_str().unwrap_or("\u{fffd}")) {
            Some(origin) if self.is_own(origin, uri, headers) => None,
            Some(origin) if !self.origins.iter().any(|allowed| matches(allowed, origin)) => {
                Some((Refusal::Origin, with_hint("requests from this Origin are not allowed", self.origin_hint)))
            }
            _ => None,
        }
    }

    /// Returns whether a page comes from this server itself: from the address in the request, which was checked
    /// before.
    fn is_own(&self, origin: &str, uri: &Uri, headers: &HeaderMap) -> bool {
        let page = origin.split_once("://").map(|(_, authority)| authority);
        !self.any_host && page.is_some() && page == host(uri, headers)
    }

    fn knows(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        if self.hosts.is_empty() {
            return ["localhost", "127.0.0.1", "[::1]"].iter().any(|own| name.eq_ignore_ascii_case(own));
        }
        self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host) || known.eq_ignore_ascii_case(name))
    }

    /// Returns the identifier of the client that sent these headers, or `None` when requests need no token.
    pub(super) async fn bearer(&self, headers: &HeaderMap) -> Result<Option<String>, AuthError> {
        if self.tokens.is_empty() && self.oauth.is_none() {
            return Ok(None);
        }
        let token = bearer_token(headers)?;
        match (self.tokens.owner(token), &self.oauth) {
            (Some(owner), _) => Ok(Some(owner)),
            (None, Some(oauth)) => oauth.bearer(token).await.map(Some),
            (None, None) => Err(AuthError::Invalid("it is not a token of this server")),
        }
    }

    /// Returns the identifier of the operator that sent these headers.
    pub(super) async fn operator(&self, operators: &Operators, headers: &HeaderMap) -> Result<String, AuthError> {
        let token = bearer_token(headers)?;
        match (operators.tokens.owner(token), &self.oauth, &operators.scope) {
            (Some(operator), _, _) => Ok(operator),
            (None, Some(oauth), Some(scope)) => oauth.bearer_with_scope(token, scope).await,
            (None, _, _) => Err(AuthError::Invalid("it is not a token of an operator")),
        }
    }
}

/// Returns the bearer token in these headers.
fn bearer_token(headers: &HeaderMap) -> Result<&str, AuthError> {
    let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.split_once(' '));
    match authorization {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(token.trim()),
        _ => Err(AuthError::Missing),
    }
}

/// Returns the name by which a request addresses the server. HTTP/2 has it in the address only.
pub(super) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    match headers.get(HOST) {
        Some(host) => host.to_str().ok(),
        None => uri.authority().map(|authority| authority.as_str()),
    }
}

/// Returns whether `origin` matches `allowed`, whose port may be `*`.
fn matches(allowed: &str, origin: &str) -> bool {
    match allowed.strip_suffix(":*") {
        Some(start) => match origin.get(..start.len()) {
            Some(same) if same.eq_ignore_ascii_case(start) => {
                let port = &origin[start.len()..];
                port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
            }
            _ => false,
        },
        None => allowed.eq_ignore_ascii_case(origin),
    }
}
