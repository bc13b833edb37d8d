//! What browsers ask before a web page may talk to the server (cross-origin resource sharing).
//!
//! Which pages may is [`Admission`](crate::Admission)'s business; here is what the allowed ones are told.

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};

/// Headers of answers that a page's script may read.
const EXPOSED: &str = "mcp-session-id, mcp-protocol-version, www-authenticate";
/// Headers that a page may send when its browser does not say which it would.
const USUAL: &str = "accept, authorization, content-type, last-event-id, mcp-protocol-version, mcp-session-id";
/// Longest list of headers that is allowed as it was asked, in bytes.
const MAX_HEADERS: usize = 2048;

/// Whether a request is a browser's question and not the page's own.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to such a question of a page that is allowed.
pub(crate) fn preflight(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    // The protocol's headers carry names of tools and arguments; so there is no list of them all.
    let wanted = asked.get(ACCESS_CONTROL_REQUEST_HEADERS).filter(|names| names.len() <= MAX_HEADERS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.cloned().unwrap_or(HeaderValue::from_static(USUAL)));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    // So a browser asks whether a page on the internet may reach a server on its own machine.
    if asked.contains_key("access-control-request-private-network") {
        headers.insert("access-control-allow-private-network", HeaderValue::from_static("true"));
    }
    response
}

/// Lets the page of an allowed origin read an answer.
pub(crate) fn allow(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.append(VARY, HeaderValue::from_static("origin"));
}
