//! Conversion of a transport's errors.

use rmcp::service::ClientInitializeError;
use rmcp::transport::DynamicTransportError;
#[cfg(feature = "http")]
use rmcp::transport::streamable_http_client::{AuthRequiredError, HttpStatusError, InsufficientScopeError};
use std::time::Duration;

use crate::error::McpError;
use crate::transport::{DisconnectReason, error_chain};

/// Returns the status of the response that caused an error, and the `Retry-After` of the response.
fn http_status(error: &(dyn std::error::Error + 'static)) -> (Option<u16>, Option<Duration>) {
    #[cfg(feature = "http")]
    for cause in error_chain::causes(error) {
        if let Some(error) = cause.downcast_ref::<HttpStatusError>() {
            return (Some(error.status), error.retry_after.as_deref().and_then(crate::transport::retry_after::parse));
        }
        if let Some(status) = cause.downcast_ref::<reqwest::Error>().and_then(reqwest::Error::status) {
            return (Some(status.as_u16()), None);
        }
    }
    // `rmcp` reports other statuses in the text of an unexpected response.
    let text = error.to_string();
    let status = text.split_once("HTTP ").and_then(|(_, rest)| rest.get(..3)?.parse().ok());
    (status.filter(|status| (400..600).contains(status)), None)
}

pub(super) fn diagnostics(reason: Option<String>) -> String {
    reason.map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// Converts an error of the initialization.
pub(super) async fn connect_error(
    label: &str,
    error: ClientInitializeError,
    disconnect_reason: &dyn DisconnectReason,
) -> McpError {
    let server = label.to_owned();
    match error {
        ClientInitializeError::TransportError { error, .. } => match transport_error(label, error) {
            McpError::Unreachable { reason, status, retry_after, .. } => {
                let reason = disconnect_reason.reason().await.unwrap_or(reason);
                McpError::Connect { server, reason, status, retry_after, source: None }
            }
            other => other,
        },
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            Box::pin(connect_error(label, *fallback, disconnect_reason)).await
        }
        ClientInitializeError::ConnectionClosed(at) => {
            let reason =
                disconnect_reason.reason().await.unwrap_or_else(|| format!("it closed the connection before the {at}"));
            McpError::connect(server, reason)
        }
        ClientInitializeError::JsonRpcError(data) => McpError::protocol(label, data),
        other => McpError::connect(server, error_chain::text(&other)),
    }
}

/// Converts a transport's error and its causes; a rejected authorization becomes [`McpError::Unauthorized`].
pub(super) fn transport_error(label: &str, error: DynamicTransportError) -> McpError {
    let server = label.to_owned();
    #[cfg(feature = "http")]
    for cause in error_chain::causes(&*error.error) {
        #[cfg(feature = "oauth")]
        if let Some(auth) = cause.downcast_ref::<rmcp::transport::AuthError>() {
            return McpError::unauthorized(server, error_chain::text(auth));
        }
        let (challenge, status) = if let Some(auth) = cause.downcast_ref::<AuthRequiredError>() {
            (&auth.www_authenticate_header, 401)
        } else if let Some(scope) = cause.downcast_ref::<InsufficientScopeError>() {
            (&scope.www_authenticate_header, 403)
        } else {
            continue;
        };
        return McpError::Unauthorized { server, reason: challenge.clone(), status: Some(status) };
    }
    let (status, retry_after) = http_status(&*error.error);
    McpError::Unreachable { server, reason: error_chain::text(&*error.error), status, retry_after }
}
