//! Who may talk to the server over HTTP: by `Host`, by `Origin`, by token, ours or an issuer's.
//!
//! A web page that a person visits can send requests to servers on the person's machine. Its `Origin` gives it away; and
//! when it hides behind a name that resolves to this machine (DNS rebinding), the `Host` does.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::cors;
use crate::oauth::{METADATA_PATH, OAuth, Refusal};

/// Who is let in.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    /// Names (`example.org`, or with a port) that requests may be addressed to. Empty: this machine's own names.
    pub hosts: Vec<String>,
    /// Whether any `Host` will do: the server is meant to be reached from elsewhere, and no names are given.
    pub any_host: bool,
    /// Web pages that may send requests: `https://app.example.org`, `http://localhost:*`.
    pub origins: Vec<String>,
    /// Tokens, one of which every request must bear; none are needed when this is empty and there is no issuer.
    pub tokens: Tokens,
    /// Whose tokens are taken as well.
    pub oauth: Option<OAuth>,
}

/// Bearer tokens, kept as digests.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Vec<[u8; 32]>);

impl Tokens {
    /// The tokens in a file's text: one on each line; lines that begin with `#` are comments.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(lines.map(|token| Sha256::digest(token).into()).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A word for who bears `token`, if it is one of them. Takes as long whichever it is.
    fn owner(&self, token: &str) -> Option<String> {
        let digest = Sha256::digest(token);
        let found = self.0.iter().fold(false, |found, known| found | bool::from(known.ct_eq(digest.as_slice())));
        found.then(|| format!("{digest:x}"))
    }
}

impl Admission {
    /// Why a request to this address with these headers is refused, if it is.
    fn objection(&self, uri: &Uri, headers: &HeaderMap) -> Option<&'static str> {
        if !self.any_host && !host(uri, headers).is_some_and(|host| self.knows(host)) {
            return Some("this Host is not one of this server's names; --allow-host adds names");
        }
        match headers.get(ORIGIN).map(|value| value.to_str().unwrap_or("\u{fffd}")) {
            Some(origin) if self.is_own(origin, uri, headers) => None,
            Some(origin) if !self.origins.iter().any(|allowed| matches(allowed, origin)) => {
                Some("requests of this Origin are not allowed; --allow-origin allows them")
            }
            _ => None,
        }
    }

    /// Whether a page is this server's own: of the very address that the request names, which was checked.
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

    /// Who sends a request with these headers: `None` when nobody is asked.
    async fn bearer(&self, headers: &HeaderMap) -> Result<Option<String>, Refusal> {
        if self.tokens.is_empty() && self.oauth.is_none() {
            return Ok(None);
        }
        let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.split_once(' '));
        let token = match authorization {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => return Err(Refusal::Missing),
        };
        match (self.tokens.owner(token), &self.oauth) {
            (Some(owner), _) => Ok(Some(owner)),
            (None, Some(oauth)) => oauth.bearer(token).await.map(Some),
            (None, None) => Err(Refusal::Invalid("it is none of this server's")),
        }
    }
}

/// The name by which a request addresses the server. HTTP/2 has it in the address alone.
fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    match headers.get(HOST) {
        Some(host) => host.to_str().ok(),
        None => uri.authority().map(|authority| authority.as_str()),
    }
}

/// Whether `origin` is `allowed`, whose port may be `*`.
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

/// Who sent a request, in words that are the same for all requests of one person.
#[derive(Clone, PartialEq)]
pub(crate) struct Owner(pub(crate) String);

/// What stands before the server.
pub(crate) struct Gate {
    pub(crate) admission: Admission,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// Where the protocol is spoken.
    pub(crate) path: &'static str,
}

impl Gate {
    async fn admit(&self, mut request: Request, next: Next) -> Response {
        if request.uri().path().starts_with("/.well-known/") {
            // Whoever needs a token looks here for where to get one.
            return self.metadata(&request).unwrap_or_else(|| StatusCode::NOT_FOUND.into_response());
        }
        match self.admission.bearer(request.headers()).await {
            Ok(owner) => {
                if let Some(owner) = owner {
                    request.extensions_mut().insert(Owner(owner));
                }
                next.run(request).await
            }
            Err(Refusal::Unavailable) => {
                let headers = [(RETRY_AFTER, "5")];
                (StatusCode::SERVICE_UNAVAILABLE, headers, "tokens cannot be checked now; try again later")
                    .into_response()
            }
            Err(refusal) => {
                let challenge = match &self.admission.oauth {
                    Some(oauth) => oauth.challenge(&refusal, &self.address(&request), self.path),
                    None => HeaderValue::from_static("Bearer"),
                };
                let reason = match refusal {
                    Refusal::Invalid(reason) => format!("a valid bearer token is needed: {reason}"),
                    _ => "a valid bearer token is needed".into(),
                };
                (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, challenge)], reason).into_response()
            }
        }
    }

    /// What this server says of itself as a protected resource, to anybody who asks.
    fn metadata(&self, request: &Request) -> Option<Response> {
        let oauth = self.admission.oauth.as_ref()?;
        let of = request.uri().path().strip_prefix(METADATA_PATH)?;
        let asked = request.method() == Method::GET && (of.is_empty() || of == self.path);
        asked.then(|| oauth.metadata(&self.address(request), self.path))
    }

    /// This server's address, as its clients know it.
    fn address(&self, request: &Request) -> String {
        let known = self.admission.oauth.as_ref().and_then(OAuth::address);
        known.unwrap_or_else(|| {
            let host = host(request.uri(), request.headers()).unwrap_or("localhost");
            format!("{}://{host}", self.scheme)
        })
    }
}

/// Refuses requests before anything looks at them.
pub(crate) async fn guard(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    if let Some(objection) = gate.admission.objection(request.uri(), request.headers()) {
        return (StatusCode::FORBIDDEN, objection).into_response();
    }
    let origin = request.headers().get(ORIGIN).cloned();
    let mut response = if origin.is_some() && cors::is_preflight(request.method(), request.headers()) {
        // Browsers ask without a token.
        cors::preflight(request.headers())
    } else {
        gate.admit(request, next).await
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
    fn only_this_machines_names_are_taken_for_hosts() {
        let admission = Admission::default();
        for host in ["localhost:3001", "127.0.0.1", "[::1]:80", "LOCALHOST"] {
            assert_eq!(admission.objection(&Uri::from_static("/mcp"), &headers(&[("host", host)])), None, "{host}");
        }
        for host in ["evil.example:3001", "localhost.evil.example", "127.0.0.1.nip.io:80", "", "[::2]"] {
            assert!(admission.objection(&Uri::from_static("/mcp"), &headers(&[("host", host)])).is_some(), "{host}");
        }
        assert!(admission.objection(&Uri::from_static("/mcp"), &HeaderMap::new()).is_some());
        // As HTTP/2 has it.
        assert_eq!(admission.objection(&Uri::from_static("https://localhost:3001/mcp"), &HeaderMap::new()), None);
        assert!(admission.objection(&Uri::from_static("https://evil.example/mcp"), &HeaderMap::new()).is_some());
    }

    #[test]
    fn web_pages_are_refused_unless_they_are_named() {
        let origins = vec!["http://localhost:*".into(), "https://app.example".into()];
        let admission = Admission { origins, ..Admission::default() };
        for (origin, good) in [
            ("http://localhost:5173", true),
            ("http://localhost", true),
            ("https://app.example", true),
            ("http://localhost.evil.example", false),
            ("http://localhost:80.evil.example", false),
            ("https://app.example:444", false),
            ("null", false),
        ] {
            let got =
                admission.objection(&Uri::from_static("/mcp"), &headers(&[("host", "localhost"), ("origin", origin)]));
            assert_eq!(got.is_none(), good, "{origin}");
        }
    }

    #[test]
    fn a_page_of_this_very_server_is_no_other() {
        let asked = |admission: &Admission, host, origin| {
            admission.objection(&Uri::from_static("/mcp"), &headers(&[("host", host), ("origin", origin)])).is_none()
        };
        let admission = Admission::default();
        assert!(asked(&admission, "127.0.0.1:3001", "http://127.0.0.1:3001"));
        assert!(!asked(&admission, "127.0.0.1:3001", "http://127.0.0.1:3002"));
        assert!(!asked(&admission, "evil.example", "http://evil.example"));
        // Where any name will do, a name that was made to resolve to this machine would.
        let admission = Admission { any_host: true, ..Admission::default() };
        assert!(!asked(&admission, "evil.example", "http://evil.example"));
    }

    #[tokio::test]
    async fn one_of_the_tokens_must_be_borne() {
        let admission = Admission { tokens: Tokens::parse("# ours\nsecret\n\n other \n"), ..Admission::default() };
        for (header, good) in [
            ("Bearer secret", true),
            ("bearer other", true),
            ("Bearer # ours", false),
            ("Basic secret", false),
            ("secret", false),
        ] {
            let got = admission.bearer(&HeaderMap::from_iter([(AUTHORIZATION, header.parse().unwrap())])).await;
            assert_eq!(got.is_ok(), good, "{header}");
        }
        assert_eq!(admission.bearer(&HeaderMap::new()).await, Err(Refusal::Missing));
        assert_eq!(Admission::default().bearer(&HeaderMap::new()).await, Ok(None));
    }
}
