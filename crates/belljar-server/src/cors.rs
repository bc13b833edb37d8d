//! Cross-origin resource sharing: the headers by which a browser lets a web page talk to the server.
//!
//! [`AccessPolicy`](crate::AccessPolicy) decides which origins are allowed; this module writes the headers for those.
//!
//! tower-http's `CorsLayer` is not used. It lets requests of other origins pass, without headers for the browser, while
//! the guard refuses them: the layer would decide about each origin a second time.

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};

/// The response headers that a page's script may read.
const EXPOSED: &str = "mcp-session-id, mcp-protocol-version, www-authenticate";
/// The request headers that a page may send when the preflight request does not name any.
const USUAL: &str = "accept, authorization, content-type, last-event-id, mcp-protocol-version, mcp-session-id";
/// The maximum length of a list of request headers that is allowed as requested, in bytes.
const MAX_HEADERS: usize = 2048;

/// Returns whether a request is a preflight request, which the browser sends before the page's own.
pub(crate) fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Returns the response to a preflight request from an allowed origin.
pub(crate) fn preflight(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST, DELETE"));
    // The protocol's headers contain names of tools and arguments, so that a complete list is impossible.
    let wanted = asked.get(ACCESS_CONTROL_REQUEST_HEADERS).filter(|names| names.len() <= MAX_HEADERS);
    headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, wanted.cloned().unwrap_or(HeaderValue::from_static(USUAL)));
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    // A browser sends this header when a page from the internet wants to reach a server on the browser's own machine.
    if asked.contains_key("access-control-request-private-network") {
        headers.insert("access-control-allow-private-network", HeaderValue::from_static("true"));
    }
    response
}

/// Adds the headers by which a page of the allowed `origin` may read a response.
pub(crate) fn allow(response: &mut Response, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.append(VARY, HeaderValue::from_static("origin"));
}
