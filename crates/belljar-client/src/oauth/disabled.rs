//! The types of authorization without the feature `oauth`: a server does not have a source of tokens.

use rmcp::transport::streamable_http_client::StreamableHttpError;
use tokio_util::sync::CancellationToken;

/// The source of a connection's tokens, of which none exists.
pub(crate) enum Authorizer {}

/// The error of a source of tokens, of which none exists.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthError {}

impl From<AuthError> for StreamableHttpError<reqwest::Error> {
    fn from(error: AuthError) -> Self {
        match error {}
    }
}

/// The tokens of a request: none.
pub(crate) struct RequestTokens;

impl RequestTokens {
    #[expect(clippy::unused_async, reason = "the same signature as with the feature `oauth`")]
    pub(crate) async fn new(_: Option<&Authorizer>, _closed: &CancellationToken) -> Result<Self, AuthError> {
        Ok(Self)
    }

    #[expect(clippy::unused_self, reason = "the same signature as with the feature `oauth`")]
    pub(crate) fn current(&self) -> Option<String> {
        None
    }

    #[expect(clippy::unused_async, reason = "the same signature as with the feature `oauth`")]
    pub(crate) async fn renew(&mut self, _challenge: &str) -> Result<bool, AuthError> {
        Ok(false)
    }
}
