//! The causes of a transport's error, and their text.

use std::error::Error;

#[cfg(feature = "http")]
use rmcp::transport::streamable_http_client::StreamableHttpError;

#[cfg(feature = "http")]
use super::redaction;

/// Returns an error and its causes.
pub(crate) fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error: &&'a (dyn Error + 'static)| {
        // This error displays its cause but does not return it from `source()`, which hides further causes such as
        // "connection refused".
        #[cfg(feature = "http")]
        match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
            Some(StreamableHttpError::Client(cause)) => return Some(cause),
            Some(StreamableHttpError::HttpStatus(cause)) => return Some(cause),
            _ => {}
        }
        error.source()
    })
}

/// Formats an error with its causes. A cause whose text another error repeats is not printed twice, and URLs are
/// printed without their secrets.
pub(crate) fn text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error).skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    #[cfg(feature = "http")]
    let text = redaction::urls_in(&text);
    text
}
