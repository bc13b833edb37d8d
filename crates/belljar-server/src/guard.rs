//! Access control over HTTP: by `Host`, by `Origin`, and by token, either a configured one or one from an OAuth
//! issuer.
//!
//! A web page can send requests to servers on the machine of its visitor. The `Origin` header identifies such
//! requests. When the page uses a name that resolves to this machine (DNS rebinding), the `Host` header identifies
//! them.
//!
//! | file | subject |
//! | --- | --- |
//! | `policy` | which requests are accepted |
//! | `tokens` | the tokens that a server was configured with |

mod policy;
mod tokens;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{HOST, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use belljar_sessions::{Cluster, Owner, TenantKey};

use crate::cluster::{self, ForwardedRequest};
use crate::cors;
use crate::metrics::{Refusal, Refusals};
use crate::oauth::{AuthError, METADATA_PATH, OAuth};
use policy::host;
pub use policy::{AccessPolicy, Operators};
pub use tokens::Tokens;

/// Returns whether a path is that of a file of the console. These are public: they contain no data.
fn is_console(path: &str) -> bool {
    path == "/console" || path.starts_with("/console/")
}

/// Returns whether a path is one of operators.
fn is_admin(path: &str) -> bool {
    path == "/admin" || path.starts_with("/admin/")
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
mod tests;
