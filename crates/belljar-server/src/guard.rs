//! Who may talk to the server over HTTP: by `Host`, by `Origin`, by token.
//!
//! A web page that a person visits can send requests to servers on the person's machine. Its `Origin` gives it away; and
//! when it hides behind a name that resolves to this machine (DNS rebinding), the `Host` does.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Who is let in.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    /// Names (`example.org`, or with a port) that requests may be addressed to. Empty: this machine's own names.
    pub hosts: Vec<String>,
    /// Whether any `Host` will do: the server is meant to be reached from elsewhere, and no names are given.
    pub any_host: bool,
    /// Web pages that may send requests: `https://app.example.org`, `http://localhost:*`.
    pub origins: Vec<String>,
    /// Tokens, one of which every request must bear; none are needed when this is empty.
    pub tokens: Tokens,
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

    /// Whether `token` is one of them. Takes as long whichever it is.
    fn contain(&self, token: &str) -> bool {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.0.iter().fold(false, |found, known| found | bool::from(known.ct_eq(&digest)))
    }
}

impl Admission {
    /// Why a request with these headers is refused, if it is.
    fn objection(&self, headers: &HeaderMap) -> Option<&'static str> {
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"));
        if !self.any_host && !text(HOST).is_some_and(|host| self.knows(host)) {
            return Some("this Host is not one of this server's names; --allow-host adds names");
        }
        match text(ORIGIN) {
            Some(origin) if !self.origins.iter().any(|allowed| matches(allowed, origin)) => {
                Some("requests of this Origin are not allowed; --allow-origin allows them")
            }
            _ => None,
        }
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

    fn admits(&self, headers: &HeaderMap) -> bool {
        let bearer = || {
            let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
        };
        self.tokens.is_empty() || bearer().is_some_and(|token| self.tokens.contain(token))
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

/// Refuses requests before anything looks at them.
pub(crate) async fn guard(State(admission): State<Arc<Admission>>, request: Request, next: Next) -> Response {
    if let Some(objection) = admission.objection(request.headers()) {
        return (StatusCode::FORBIDDEN, objection).into_response();
    }
    if !admission.admits(request.headers()) {
        let headers = [(WWW_AUTHENTICATE, "Bearer")];
        return (StatusCode::UNAUTHORIZED, headers, "a valid bearer token is needed").into_response();
    }
    next.run(request).await
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
            assert_eq!(admission.objection(&headers(&[("host", host)])), None, "{host}");
        }
        for host in ["evil.example:3001", "localhost.evil.example", "127.0.0.1.nip.io:80", "", "[::2]"] {
            assert!(admission.objection(&headers(&[("host", host)])).is_some(), "{host}");
        }
        assert!(admission.objection(&HeaderMap::new()).is_some());
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
            let got = admission.objection(&headers(&[("host", "localhost"), ("origin", origin)]));
            assert_eq!(got.is_none(), good, "{origin}");
        }
    }

    #[test]
    fn one_of_the_tokens_must_be_borne() {
        let admission = Admission { tokens: Tokens::parse("# ours\nsecret\n\n other \n"), ..Admission::default() };
        for (header, good) in [
            ("Bearer secret", true),
            ("bearer other", true),
            ("Bearer # ours", false),
            ("Basic secret", false),
            ("secret", false),
        ] {
            let got = admission.admits(&HeaderMap::from_iter([(AUTHORIZATION, header.parse().unwrap())]));
            assert_eq!(got, good, "{header}");
        }
        assert!(!admission.admits(&HeaderMap::new()));
    }
}
