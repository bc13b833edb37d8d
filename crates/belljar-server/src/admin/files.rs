//! The files of a session: listed, and downloaded in parts.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use belljar_core::files::{FileError, check_path};
use belljar_sessions::{SessionError, mime_of};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Admin;
use super::error::AdminError;
use crate::file_download;

/// A file.
#[derive(Debug, Serialize, JsonSchema)]
struct FileView {
    /// The path in the session's directory
    path: String,
    /// The size in bytes
    size: u64,
    /// The MIME type, by the name
    mime: String,
}

/// The files of a session.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Files {
    files: Vec<FileView>,
}

/// Answers `GET /sessions/{handle}/files`.
pub(super) async fn list(State(admin): State<Admin>, Path(handle): Path<String>) -> Result<Json<Files>, AdminError> {
    let (tools, id) = admin.open_idle(&handle).await?;
    let files = tools.sessions.list(&id).await?.into_iter();
    let file =
        |file: belljar_core::files::FileInfo| FileView { mime: mime_of(&file.path), path: file.path, size: file.size };
    Ok(Json(Files { files: files.map(file).collect() }))
}

#[derive(Debug, Deserialize)]
pub(super) struct PathQuery {
    path: String,
}

/// Answers `GET /sessions/{handle}/files/content`.
pub(super) async fn read(
    State(admin): State<Admin>,
    Path(handle): Path<String>,
    query: Result<Query<PathQuery>, QueryRejection>,
) -> Result<Response, AdminError> {
    let Query(PathQuery { path }) = query?;
    check_path(&path).map_err(SessionError::File)?;
    let (tools, session) = admin.open_idle(&handle).await?;
    let sessions = tools.sessions;
    let listed = sessions.list(&session).await?;
    let missing = || SessionError::File(FileError::Missing(path.clone()));
    let size = listed.iter().find(|file| file.path == path).map(|file| file.size).ok_or_else(missing)?;
    Ok(file_download::download(sessions, session, path, size, "application/octet-stream").await?)
}
