//! The headers of requests: their names and values, and those of a run.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
#[cfg(feature = "http")]
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, JsonRpcMessage};

use crate::error::ConfigError;

/// Parses a header. Values may be secret and are marked as sensitive, which keeps them out of logs.
///
/// # Errors
///
/// Returns [`ConfigError`] if HTTP does not allow the name or value, or if the name is reserved for the protocol.
pub(crate) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), ConfigError> {
    let header =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_| ConfigError::HeaderName { name: name.to_owned() })?;
    check_name(&header)?;
    let mut value = HeaderValue::from_str(value).map_err(|_| ConfigError::HeaderValue { name: name.to_owned() })?;
    value.set_sensitive(true);
    Ok((header, value))
}

/// Rejects names that are reserved for the protocol.
pub(crate) fn check_name(name: &HeaderName) -> Result<(), ConfigError> {
    let own = name.as_str();
    let reserved = ["accept", "content-type", "content-length", "host", "last-event-id"].contains(&own);
    if reserved || own.starts_with("mcp-") {
        return Err(ConfigError::ReservedHeader { name: own.to_owned() });
    }
    Ok(())
}

/// The headers of one run.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only HTTP sends headers"))]
pub(crate) struct RunHeaders(pub(crate) HeaderMap);

/// The headers of a run as an extension of a request, which `rmcp` passes through. They are not part of the message.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "http"), allow(dead_code, reason = "only HTTP sends headers"))]
pub(crate) struct RunHeadersExtension(pub(crate) Arc<RunHeaders>);

/// Returns the headers of a message's run.
#[cfg(feature = "http")]
pub(crate) fn run_headers(message: &ClientJsonRpcMessage) -> Option<Arc<RunHeaders>> {
    match message {
        JsonRpcMessage::Request(request) => {
            request.request.extensions().get::<RunHeadersExtension>().map(|headers| headers.0.clone())
        }
        _ => None,
    }
}
