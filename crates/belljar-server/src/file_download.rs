//! The download of a session's file over HTTP, in parts.

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use belljar_core::files::Range;
use belljar_sessions::{FileAddress, SessionError, SessionId, Sessions};

/// The number of bytes that one part of a file has in memory.
const PART_BYTES: u64 = 4 << 20;

/// Returns a response with the file `path`, which had `size` bytes when it was listed. A browser never shows it as a
/// page of this server, whatever its type.
///
/// # Errors
/// Fails if the file's beginning cannot be read.
pub(crate) async fn download(
    sessions: Sessions,
    session: SessionId,
    path: String,
    size: u64,
    content_type: &str,
) -> Result<Response, SessionError> {
    let address = FileAddress { session, path, range: Range { offset: 0, length: Some(PART_BYTES) } };
    // The first part is read before the answer begins, so that its error has a status.
    let first = sessions.begin_download(address.clone(), size).await?;
    let reading = Reading { sessions, address, size, first: Some(first) };
    let body = Body::from_stream(futures::stream::try_unfold(reading, Reading::next));
    let headers = [
        (CONTENT_TYPE, content_type),
        (CONTENT_DISPOSITION, "attachment"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"),
    ];
    Ok((headers, body).into_response())
}

/// A file that is being sent.
struct Reading {
    sessions: Sessions,
    /// The address of the next part.
    address: FileAddress,
    /// The file's size when it was listed. A part may be shorter than its range if the file has changed.
    size: u64,
    /// The first part, until it is sent.
    first: Option<Vec<u8>>,
}

impl Reading {
    /// Returns the next part, or `None` at the end of the file.
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, SessionError> {
        let part = match self.first.take() {
            Some(first) => first,
            None if self.address.range.offset < self.size => {
                self.sessions.continue_download(self.address.clone()).await?
            }
            None => return Ok(None),
        };
        self.address.range.offset += PART_BYTES;
        Ok(Some((part.into(), self)))
    }
}
