//! The headers of a run's identity, as the transport of its session sends them.

use std::sync::Arc;

use http::HeaderMap;
use parking_lot::Mutex;

/// The headers of the identity whose session a transport carries, for [`Connector::connect_as`]. A later run of the
/// same identity may bring newer ones, such as a renewed token.
///
/// ```
/// # use belljar_mcp_client::transport::IdentityHeaders;
/// fn token(headers: &IdentityHeaders) -> Option<http::HeaderValue> {
///     headers.current().get(http::header::AUTHORIZATION).cloned()
/// }
/// ```
///
/// [`Connector::connect_as`]: super::Connector::connect_as
pub struct IdentityHeaders(Mutex<Arc<HeaderMap>>);

impl IdentityHeaders {
    pub(crate) fn new(headers: Arc<HeaderMap>) -> Self {
        Self(Mutex::new(headers))
    }

    /// Returns the headers to send with the next request.
    ///
    /// ```
    /// # use belljar_mcp_client::transport::IdentityHeaders;
    /// fn count(headers: &IdentityHeaders) -> usize {
    ///     headers.current().len()
    /// }
    /// ```
    pub fn current(&self) -> Arc<HeaderMap> {
        self.0.lock().clone()
    }

    pub(crate) fn set(&self, headers: Arc<HeaderMap>) {
        *self.0.lock() = headers;
    }
}

impl std::fmt::Debug for IdentityHeaders {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("IdentityHeaders").field(&self.current().keys()).finish()
    }
}
