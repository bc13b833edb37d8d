//! Files of a session over HTTP: listed, read in parts, and written.

use axum::Json;
use axum::body::Bytes;
use axum::extract::multipart::{Multipart, MultipartError};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use belljar_core::files::{FileError, check_path, truncate_for_message};
use belljar_sessions::{MAX_UPLOAD, SessionError, mime_of};
use serde::{Deserialize, Serialize};

use super::CodeExecution;
use super::error::ApiError;
use crate::file_download;

/// The maximum number of fields in a form.
const MAX_FIELDS: usize = 16;

/// Returns the path inside of the session that a client's path names, relative to the session's directory. It is empty
/// for the directory itself.
pub(super) fn resolve(path: &str) -> Result<String, ApiError> {
    let outside = || {
        let path = truncate_for_message(path);
        ApiError::new(StatusCode::FORBIDDEN, format!("`{path}` is outside of the session's directory"))
    };
    if path.starts_with('/') {
        return Err(outside());
    }
    let mut names = Vec::new();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop().ok_or_else(outside)?),
            name => names.push(name),
        }
    }
    Ok(names.join("/"))
}

/// Returns the path of a file that a client's path names.
pub(super) fn resolve_file(path: &str) -> Result<String, ApiError> {
    let resolved = resolve(path)?;
    if resolved.is_empty() {
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "the path is a directory, not a file"));
    }
    check_path(&resolved).map_err(|error| ApiError::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    Ok(resolved)
}

/// Returns whether a path is in a directory, whose path is empty for the session's own.
pub(super) fn is_in(path: &str, directory: &str) -> bool {
    directory.is_empty() || path.strip_prefix(directory).is_some_and(|rest| rest.starts_with('/'))
}

#[derive(Debug, Deserialize)]
pub(super) struct PathQuery {
    path: Option<String>,
}

#[derive(Debug, Serialize)]
struct FileList {
    files: Vec<FileMetadata>,
}

#[derive(Debug, Serialize)]
struct FileMetadata {
    path: String,
    size_bytes: u64,
    mime_type: String,
}

/// Answers `GET /sessions/ID/files/list`: the files in a directory and in those below it.
pub(super) async fn list(
    State(state): State<CodeExecution>,
    Path(id): Path<String>,
    Query(query): Query<PathQuery>,
) -> Result<impl IntoResponse, ApiError> {
    let directory = resolve(query.path.as_deref().unwrap_or("."))?;
    let (sessions, id) = state.find(&id)?;
    let listed = sessions.list(&id).await?.into_iter();
    let files: Vec<FileMetadata> = listed
        .filter(|file| is_in(&file.path, &directory) || file.path == directory)
        .map(|file| FileMetadata { mime_type: mime_of(&file.path), path: file.path, size_bytes: file.size })
        .collect();
    if files.is_empty() && !directory.is_empty() {
        let directory = truncate_for_message(&directory);
        return Err(ApiError::new(StatusCode::NOT_FOUND, format!("the session has no files in `{directory}`")));
    }
    Ok(Json(FileList { files }))
}

/// Answers `GET /sessions/ID/files` with a file's bytes.
pub(super) async fn read(
    State(state): State<CodeExecution>,
    Path(id): Path<String>,
    Query(query): Query<PathQuery>,
) -> Result<Response, ApiError> {
    let path = query.path.ok_or_else(|| ApiError::malformed("path: it is missing"))?;
    let path = resolve_file(&path)?;
    let (sessions, session) = state.find(&id)?;
    let listed = sessions.list(&session).await?;
    let Some(file) = listed.iter().find(|file| file.path == path) else {
        return Err(if listed.iter().any(|file| is_in(&file.path, &path)) {
            ApiError::new(StatusCode::BAD_REQUEST, format!("`{path}` is a directory, not a file"))
        } else {
            SessionError::from(FileError::Missing(path)).into()
        });
    };
    let (mime, size) = (mime_of(&path), file.size);
    Ok(file_download::download(sessions, session, path, size, &mime).await?)
}

#[derive(Debug, Serialize)]
struct UploadResult {
    path: String,
    size_bytes: usize,
}

/// Answers `POST /sessions/ID/files`, whose body is a form with the fields `file` and `path`.
pub(super) async fn write(
    State(state): State<CodeExecution>,
    Path(id): Path<String>,
    form: Multipart,
) -> Result<impl IntoResponse, ApiError> {
    let Form { bytes, path } = Form::parse(form).await?;
    let path = resolve_file(&path)?;
    if bytes.len() > MAX_UPLOAD {
        let reason = format!("the file has {} bytes; the maximum is {MAX_UPLOAD}", bytes.len());
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, reason));
    }
    let (sessions, id) = state.find(&id)?;
    let written = sessions.write(&id, path, bytes.into()).await?;
    let result = UploadResult { size_bytes: usize::try_from(written.size).unwrap_or(usize::MAX), path: written.path };
    Ok((StatusCode::CREATED, Json(result)))
}

/// A form with a file.
struct Form {
    bytes: Bytes,
    /// The path as the client has written it.
    path: String,
}

impl Form {
    async fn parse(mut form: Multipart) -> Result<Self, ApiError> {
        let (mut file, mut path, mut file_name) = (None, None, None);
        for _ in 0..MAX_FIELDS {
            let Some(field) = form.next_field().await? else { break };
            match field.name() {
                Some("file") => {
                    file_name = field.file_name().map(last_name);
                    file = Some(field.bytes().await?);
                }
                Some("path") => path = Some(field.text().await?),
                _ => {}
            }
        }
        let bytes = file.ok_or_else(|| ApiError::malformed("file: the form has no field of this name"))?;
        let path = path.filter(|path| !path.is_empty()).or(file_name);
        let path = path.ok_or_else(|| ApiError::malformed("path: neither the form nor its file has a name"))?;
        Ok(Self { bytes, path })
    }
}

/// Returns the last name of an uploaded file's path: clients may send the path on their own machine.
fn last_name(path: &str) -> String {
    path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned()
}

impl From<MultipartError> for ApiError {
    fn from(error: MultipartError) -> Self {
        Self::new(error.status(), error.body_text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_inside_of_the_session() {
        for (path, resolved) in [
            ("a.txt", "a.txt"),
            ("./a.txt", "a.txt"),
            ("plots//one.png", "plots/one.png"),
            ("plots/../a.txt", "a.txt"),
            ("a/./b/", "a/b"),
        ] {
            assert_eq!(resolve_file(path).unwrap(), resolved, "{path}");
        }
        for root in ["", ".", "./", "a/.."] {
            assert_eq!(resolve(root).unwrap(), "", "{root}");
            assert_eq!(resolve_file(root).unwrap_err().status, StatusCode::BAD_REQUEST, "{root}");
        }
    }

    #[test]
    fn paths_out_of_the_session_are_forbidden() {
        for path in ["..", "../x", "../../etc/passwd", "a/../../x", "/etc/passwd", "/", "//x", "./../x"] {
            assert_eq!(resolve_file(path).unwrap_err().status, StatusCode::FORBIDDEN, "{path}");
        }
    }

    #[test]
    fn names_that_no_file_of_a_session_has_are_refused() {
        let long = "a/".repeat(600) + "a";
        for path in [".hidden", "a/.git/config", "..\\x", "a\\b", "a\0b", "a\nb", "...", &"x".repeat(300), &long] {
            assert_eq!(resolve_file(path).unwrap_err().status, StatusCode::BAD_REQUEST, "{path}");
        }
    }

    #[test]
    fn directories_contain_the_files_below_them() {
        assert!(is_in("a.txt", "") && is_in("plots/one.png", "") && is_in("plots/more/one.png", "plots"));
        assert!(!is_in("plots2/one.png", "plots") && !is_in("plots", "plots"));
    }
}
