//! The errors of the code-execution protocol: a status, and a JSON object with a field `detail`.

use axum::Json;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use belljar_core::files::FileError;
use belljar_sessions::{RefusalDetails, SessionError, WorkRefusal};
use serde_json::json;

/// The maximum number of bytes of an error's text.
const MAX_DETAIL: usize = 64 << 10;

/// The seconds after which a client may repeat a request that the server had no capacity for.
const RETRY_SECONDS: &str = "5";

/// The reason why a request was not carried out.
#[derive(Debug)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) detail: String,
    /// The details of a refusal by a quota or for lack of memory.
    refusal: Option<Box<RefusalDetails>>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into(), refusal: None }
    }

    /// Creates the error of a request that does not have the protocol's form.
    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    pub(super) fn internal(error: &dyn std::error::Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        let detail = error.to_string();
        let mut refusal = None;
        let status = match error {
            SessionError::Refused(refused) => {
                refusal = Some(Box::new(refused.details()));
                match refused {
                    WorkRefusal::Quota(_) => StatusCode::TOO_MANY_REQUESTS,
                    WorkRefusal::Overloaded { .. } | WorkRefusal::QueueTimeout { .. } => {
                        StatusCode::SERVICE_UNAVAILABLE
                    }
                }
            }
            // The text for models names arguments of the session tools.
            SessionError::Expired { .. } => {
                return Self::new(StatusCode::NOT_FOUND, "the session does not exist, or has expired");
            }
            SessionError::Gone => StatusCode::NOT_FOUND,
            SessionError::TooMany(_) | SessionError::Audit(_) | SessionError::Busy(_) | SessionError::Queue { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            SessionError::File(FileError::Missing(_)) => StatusCode::NOT_FOUND,
            SessionError::File(FileError::Full(_) | FileError::TooLong { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            SessionError::File(FileError::Name(_) | FileError::Other { .. }) => StatusCode::BAD_REQUEST,
            SessionError::Kernel(_)
            | SessionError::Folder(_)
            | SessionError::Store(_)
            | SessionError::Unrestorable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, detail, refusal }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let retry_after = self.refusal.as_ref().and_then(|refusal| refusal.retry_after);
        let mut body = json!({ "detail": self.detail });
        if let Some(refusal) = self.refusal {
            body["refusal"] = json!(refusal);
        }
        let mut response = (self.status, Json(body)).into_response();
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        } else if self.status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
        }
        response
    }
}

/// Gives errors of the layers below, which are text, the form of this protocol's errors.
pub(crate) async fn describe_errors(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_of_protocol = path == "/sessions" || path.starts_with("/sessions/");
    let response = next.run(request).await;
    let status = response.status();
    let is_text = response.headers().get(CONTENT_TYPE).is_none_or(|given| given.as_bytes().starts_with(b"text/plain"));
    if !is_of_protocol || !is_text || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = to_bytes(body, MAX_DETAIL).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let detail = if text.is_empty() { status.canonical_reason().unwrap_or_default().into() } else { text };
    let mut described = ApiError::new(status, detail).into_response();
    for (name, value) in &parts.headers {
        if !described.headers().contains_key(name) && name != axum::http::header::CONTENT_LENGTH {
            described.headers_mut().append(name, value.clone());
        }
    }
    described
}
