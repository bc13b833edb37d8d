//! Access control over HTTP: by `Host`, by `Origin`, and by token, either a configured one or one from an OAuth
//! issuer.
//!
//! A web page can send requests to servers on the machine of its visitor. The `Origin` header identifies such
//! requests. When the page uses a name that resolves to this machine (DNS rebinding), the `Host` header identifies
//! them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use belljar_sessions::{Cluster, Owner, TenantKey};
use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::cluster::{self, ForwardedRequest};
use crate::cors;
use crate::metrics::{Refusal, Refusals};
use crate::oauth::{AuthError, METADATA_PATH, OAuth};

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

/// Bearer tokens, stored as SHA-256 digests. Clones share them, so that a running server accepts those that replace
/// them.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Arc<RwLock<Vec<KnownToken>>>);

/// A token.
#[derive(Debug, Clone)]
struct KnownToken {
    digest: [u8; 32],
    /// The name of its owner in the quotas. Tokens of the same name share them.
    name: Option<Arc<str>>,
}

impl KnownToken {
    fn parse(line: &str) -> Self {
        let (token, name) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let name = name.trim();
        Self { digest: Sha256::digest(token).into(), name: (!name.is_empty()).then(|| name.into()) }
    }

    /// Returns an identifier for the bearer.
    fn owner(&self) -> String {
        let hex: String = self.digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("token:{hex}")
    }
}

impl Tokens {
    /// Parses the text of a file with one token on each line, which a name may follow; lines that begin with `#` are
    /// comments.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(Arc::new(RwLock::new(lines.map(KnownToken::parse).collect())))
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }

    /// Accepts the tokens of `other` from now on, and no longer those of before.
    pub fn replace_with(&self, other: &Self) {
        let tokens = other.0.read().clone();
        *self.0.write() = tokens;
    }

    /// Returns the names of tokens, by the identifiers of their bearers.
    pub fn names(&self) -> Vec<(String, Arc<str>)> {
        let tokens = self.0.read();
        tokens.iter().filter_map(|token| Some((token.owner(), token.name.clone()?))).collect()
    }

    /// Returns an identifier for the bearer of `token`, if it is one of these tokens. Takes the same time for each
    /// token.
    fn owner(&self, token: &str) -> Option<String> {
        let digest = Sha256::digest(token);
        let is_same = |known: &KnownToken| bool::from(known.digest.ct_eq(digest.as_slice()));
        let found = self.0.read().iter().fold(false, |found, known| found | is_same(known));
        found.then(|| format!("token:{digest:x}"))
    }
}

impl AccessPolicy {
    /// Returns the reason to reject a request to this address with these headers, if one exists.
    fn rejection_reason(&self, uri: &Uri, headers: &HeaderMap) -> Option<(Refusal, String)> {
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
    async fn bearer(&self, headers: &HeaderMap) -> Result<Option<String>, AuthError> {
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
    async fn operator(&self, operators: &Operators, headers: &HeaderMap) -> Result<String, AuthError> {
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

/// Returns whether a path is that of a file of the console. These are public: they contain no data.
fn is_console(path: &str) -> bool {
    path == "/console" || path.starts_with("/console/")
}

/// Returns whether a path is one of operators.
fn is_admin(path: &str) -> bool {
    path == "/admin" || path.starts_with("/admin/")
}

/// Returns the name by which a request addresses the server. HTTP/2 has it in the address only.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
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

/// An authenticated client: an identifier that is the same in all of its requests.
#[derive(Clone, PartialEq)]
pub(crate) struct Principal(pub(crate) Owner);

tokio::task_local! {
    /// The authenticated client of the request that the task handles; `None` without authentication.
    static PRINCIPAL: Option<Principal>;
    /// The number of the connection of the request that the task handles.
    static CONNECTION: Option<u64>;
}

/// The number of a connection, in the extensions of its requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionNumber(pub(crate) u64);

/// Returns what identifies the client with this owner, of the request that this task handles, for quotas: its owner,
/// else its connection.
pub(crate) fn tenant_key(owner: Option<&Owner>) -> TenantKey<'_> {
    let connection = CONNECTION.try_with(|number| *number).ok().flatten();
    match (owner, connection) {
        (Some(owner), _) => TenantKey::Owner(owner),
        (None, Some(number)) => TenantKey::Connection(number),
        (None, None) => TenantKey::Local,
    }
}

/// Returns the authenticated client of the request that this task handles, or `None` without authentication.
///
/// # Errors
/// Fails if the task does not handle an authenticated request: the client is unknown then.
pub(crate) fn current_owner() -> std::io::Result<Option<Owner>> {
    let owner = PRINCIPAL.try_with(|principal| principal.as_ref().map(|Principal(owner)| owner.clone()));
    owner.map_err(std::io::Error::other)
}

/// The state of the access-control middleware.
pub(crate) struct AccessControl {
    pub(crate) policy: AccessPolicy,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// The path of the MCP endpoint.
    pub(crate) path: &'static str,
    pub(crate) refusals: Refusals,
    /// The cluster, if this server is a replica of one.
    pub(crate) cluster: Option<Arc<Cluster>>,
}

impl AccessControl {
    /// Handles a request that another replica has forwarded. That replica has checked it and authenticated its client.
    async fn trust(&self, mut request: Request, passed_on: ForwardedRequest, next: Next) -> Response {
        let principal = passed_on.owner.clone().map(Principal);
        if let Some(principal) = principal.clone() {
            request.extensions_mut().insert(principal);
        }
        request.extensions_mut().insert(passed_on);
        PRINCIPAL.scope(principal, next.run(request)).await
    }

    async fn authenticate(&self, mut request: Request, next: Next) -> Response {
        if request.uri().path().starts_with("/.well-known/") {
            // Clients without a token read this metadata to find the issuer.
            return self.metadata(&request).unwrap_or_else(|| StatusCode::NOT_FOUND.into_response());
        }
        let bearer = match &self.policy.operators {
            Some(_) if is_console(request.uri().path()) => return next.run(request).await,
            Some(operators) if is_admin(request.uri().path()) => {
                self.policy.operator(operators, request.headers()).await.map(Some)
            }
            _ => self.policy.bearer(request.headers()).await,
        };
        match bearer {
            Ok(owner) => {
                let principal = owner.map(|owner| Principal(owner.into()));
                if let Some(principal) = principal.clone() {
                    request.extensions_mut().insert(principal);
                }
                let connection = request.extensions().get::<ConnectionNumber>().map(|ConnectionNumber(number)| *number);
                CONNECTION.scope(connection, PRINCIPAL.scope(principal, next.run(request))).await
            }
            Err(AuthError::Unavailable) => {
                self.refusals.count(Refusal::TokenUnchecked);
                let headers = [(RETRY_AFTER, "5")];
                (StatusCode::SERVICE_UNAVAILABLE, headers, "failed to check the token; try again later").into_response()
            }
            Err(AuthError::Scope) => {
                self.refusals.count(Refusal::Token);
                let challenge = [(WWW_AUTHENTICATE, "Bearer error=\"insufficient_scope\"")];
                (StatusCode::FORBIDDEN, challenge, "the token does not have the scope of operators").into_response()
            }
            Err(refusal) => {
                self.refusals.count(Refusal::Token);
                let challenge = match &self.policy.oauth {
                    Some(oauth) => oauth.challenge(&refusal, &self.address(&request), self.path),
                    None => HeaderValue::from_static("Bearer"),
                };
                let reason = match refusal {
                    AuthError::Invalid(reason) => format!("a valid bearer token is required: {reason}"),
                    _ => "a valid bearer token is required".into(),
                };
                (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, challenge)], reason).into_response()
            }
        }
    }

    /// Returns this server's metadata as a protected resource, which is public.
    fn metadata(&self, request: &Request) -> Option<Response> {
        let oauth = self.policy.oauth.as_ref()?;
        let resource = request.uri().path().strip_prefix(METADATA_PATH)?;
        let is_requested = request.method() == Method::GET && (resource.is_empty() || resource == self.path);
        is_requested.then(|| oauth.metadata(&self.address(request), self.path))
    }

    /// Returns this server's address, as its clients know it.
    fn address(&self, request: &Request) -> String {
        let known = self.policy.oauth.as_ref().and_then(OAuth::address);
        known.unwrap_or_else(|| {
            let host = host(request.uri(), request.headers()).unwrap_or("localhost");
            format!("{}://{host}", self.scheme)
        })
    }
}

/// Returns whether a request names more than one host. Servers must refuse such requests (RFC 9112, section 3.2, and
/// RFC 9113, section 8.3.1): what is in front of this server may have checked another name than the first.
fn has_ambiguous_host(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (first, second) = (hosts.next(), hosts.next());
    let differs = |host: &HeaderValue| {
        let authority = uri.authority().map(|authority| authority.as_str().as_bytes());
        authority.is_some_and(|authority| !authority.eq_ignore_ascii_case(host.as_bytes()))
    };
    second.is_some() || first.is_some_and(differs)
}

/// Rejects requests that the policy does not accept, before any other handler sees them.
pub(crate) async fn guard(State(access_control): State<Arc<AccessControl>>, request: Request, next: Next) -> Response {
    if let Some(cluster) = &access_control.cluster {
        match cluster::verify(cluster, request.method(), request.uri(), request.headers()) {
            Ok(None) => {}
            // The other replica has authenticated a user: it may have no operators.
            Ok(Some(_)) if is_admin(request.uri().path()) => {}
            Ok(Some(passed_on)) => return access_control.trust(request, passed_on, next).await,
            Err(reason) => {
                access_control.refusals.count(Refusal::Token);
                return (StatusCode::FORBIDDEN, reason).into_response();
            }
        }
    }
    if has_ambiguous_host(request.uri(), request.headers()) {
        access_control.refusals.count(Refusal::Host);
        return (StatusCode::BAD_REQUEST, "the request names more than one host").into_response();
    }
    if let Some((refusal, reason)) = access_control.policy.rejection_reason(request.uri(), request.headers()) {
        access_control.refusals.count(refusal);
        return (StatusCode::FORBIDDEN, reason).into_response();
    }
    let origin = request.headers().get(ORIGIN).cloned();
    let mut response = if origin.is_some() && cors::is_preflight(request.method(), request.headers()) {
        // Browsers send preflight requests without a token.
        cors::preflight(request.headers())
    } else {
        access_control.authenticate(request, next).await
    };
    if let Some(origin) = origin {
        cors::allow(&mut response, origin);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_names_of_the_local_machine_are_accepted_as_host() {
        let policy = AccessPolicy::default();
        for host in ["localhost:3001", "127.0.0.1", "[::1]:80", "LOCALHOST"] {
            assert_eq!(policy.rejection_reason(&Uri::from_static("/mcp"), &headers(&[("host", host)])), None, "{host}");
        }
        for host in ["evil.example:3001", "localhost.evil.example", "127.0.0.1.nip.io:80", "", "[::2]"] {
            assert!(
                policy.rejection_reason(&Uri::from_static("/mcp"), &headers(&[("host", host)])).is_some(),
                "{host}"
            );
        }
        assert!(policy.rejection_reason(&Uri::from_static("/mcp"), &HeaderMap::new()).is_some());
        // HTTP/2 puts the name into the address.
        assert_eq!(policy.rejection_reason(&Uri::from_static("https://localhost:3001/mcp"), &HeaderMap::new()), None);
        assert!(policy.rejection_reason(&Uri::from_static("https://evil.example/mcp"), &HeaderMap::new()).is_some());
    }

    #[test]
    fn requests_with_several_hosts_are_ambiguous() {
        let path = Uri::from_static("/mcp");
        assert!(!has_ambiguous_host(&path, &headers(&[("host", "localhost")])));
        assert!(!has_ambiguous_host(&Uri::from_static("https://localhost/mcp"), &HeaderMap::new()));
        assert!(!has_ambiguous_host(&Uri::from_static("https://localhost/mcp"), &headers(&[("host", "LOCALHOST")])));
        assert!(has_ambiguous_host(&Uri::from_static("https://evil.example/mcp"), &headers(&[("host", "localhost")])));
        let mut twice = headers(&[("host", "localhost")]);
        twice.append(HOST, HeaderValue::from_static("localhost"));
        assert!(has_ambiguous_host(&path, &twice));
    }

    #[test]
    fn only_allowed_origins_are_accepted() {
        let origins = vec!["http://localhost:*".into(), "https://app.example".into()];
        let policy = AccessPolicy { origins, ..AccessPolicy::default() };
        for (origin, good) in [
            ("http://localhost:5173", true),
            ("http://localhost", true),
            ("https://app.example", true),
            ("http://localhost.evil.example", false),
            ("http://localhost:80.evil.example", false),
            ("https://app.example:444", false),
            ("null", false),
        ] {
            let got = policy
                .rejection_reason(&Uri::from_static("/mcp"), &headers(&[("host", "localhost"), ("origin", origin)]));
            assert_eq!(got.is_none(), good, "{origin}");
        }
    }

    #[test]
    fn pages_of_the_server_itself_are_accepted() {
        let is_accepted = |policy: &AccessPolicy, host, origin| {
            policy
                .rejection_reason(&Uri::from_static("/mcp"), &headers(&[("host", host), ("origin", origin)]))
                .is_none()
        };
        let policy = AccessPolicy::default();
        assert!(is_accepted(&policy, "127.0.0.1:3001", "http://127.0.0.1:3001"));
        assert!(!is_accepted(&policy, "127.0.0.1:3001", "http://127.0.0.1:3002"));
        assert!(!is_accepted(&policy, "evil.example", "http://evil.example"));
        // When any name is accepted, an attacker's name that resolves to this machine is not the server's own.
        let policy = AccessPolicy { any_host: true, ..AccessPolicy::default() };
        assert!(!is_accepted(&policy, "evil.example", "http://evil.example"));
    }

    #[tokio::test]
    async fn requests_need_one_of_the_tokens() {
        let policy =
            AccessPolicy { tokens: Tokens::parse("# comment\nsecret\n\n other \n"), ..AccessPolicy::default() };
        for (header, good) in [
            ("Bearer secret", true),
            ("bearer other", true),
            ("Bearer # comment", false),
            ("Basic secret", false),
            ("secret", false),
        ] {
            let got = policy.bearer(&HeaderMap::from_iter([(AUTHORIZATION, header.parse().unwrap())])).await;
            assert_eq!(got.is_ok(), good, "{header}");
        }
        assert_eq!(policy.bearer(&HeaderMap::new()).await, Err(AuthError::Missing));
        assert_eq!(AccessPolicy::default().bearer(&HeaderMap::new()).await, Ok(None));
    }
}
