//! The errors of the admin API: a status, and a JSON object with a field `detail`.

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use belljar_core::files::FileError;
use belljar_sessions::SessionError;
use schemars::JsonSchema;
use serde::Serialize;

/// The reason why a request was not carried out.
#[derive(Debug)]
pub(super) struct AdminError {
    status: StatusCode,
    detail: String,
}

/// The body of an error.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Problem {
    /// The reason
    detail: String,
}

impl AdminError {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    pub(super) fn unknown_session() -> Self {
        Self::new(StatusCode::NOT_FOUND, "no session has this handle")
    }

    pub(super) fn unknown_cell() -> Self {
        Self::new(StatusCode::NOT_FOUND, "the session has no record of this cell")
    }

    pub(super) fn ended() -> Self {
        Self::new(StatusCode::CONFLICT, "the session has ended")
    }

    pub(super) fn runs_once() -> Self {
        Self::new(StatusCode::CONFLICT, "the code runs once, without a session: it can be interrupted only")
    }

    pub(super) fn runs_feeds() -> Self {
        let detail = "a client of Monty's protocol runs the feeds of this session: they can be interrupted only";
        Self::new(StatusCode::CONFLICT, detail)
    }

    pub(super) fn elsewhere() -> Self {
        Self::new(StatusCode::CONFLICT, "the session is in use in another replica")
    }

    pub(super) fn busy() -> Self {
        Self::new(StatusCode::CONFLICT, "the session runs a cell: wait for its end, or interrupt it")
    }

    pub(super) fn internal(error: &dyn std::error::Error) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
    }
}

impl From<SessionError> for AdminError {
    fn from(error: SessionError) -> Self {
        let detail = error.to_string();
        let status = match error {
            // Its text names the ID.
            SessionError::Expired { .. } => return Self::unknown_session(),
            SessionError::Gone => return Self::ended(),
            SessionError::TooMany(_)
            | SessionError::Busy(_)
            | SessionError::Queue { .. }
            | SessionError::Refused(_)
            | SessionError::Audit(_) => StatusCode::SERVICE_UNAVAILABLE,
            SessionError::File(FileError::Missing(_)) => StatusCode::NOT_FOUND,
            SessionError::File(FileError::Name(_) | FileError::Other { .. }) => StatusCode::BAD_REQUEST,
            SessionError::File(FileError::Full(_) | FileError::TooLong { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            SessionError::Kernel(_) => StatusCode::BAD_GATEWAY,
            SessionError::Folder(_) | SessionError::Store(_) | SessionError::Unrestorable(_) => {
                StatusCode::INTERNAL_SERVER_ERROR
            }
        };
        Self { status, detail }
    }
}

impl From<JsonRejection> for AdminError {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for AdminError {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        (self.status, Json(Problem { detail: self.detail })).into_response()
    }
}
