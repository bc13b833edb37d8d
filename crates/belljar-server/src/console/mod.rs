//! The files of the console: a page without a build step and without data. Its scripts request the data by the admin
//! API, with the operator's token.

use axum::Router;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_DNS_PREFETCH_CONTROL, X_FRAME_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// The policy of the page: only the server's own scripts and styles, no text that becomes HTML or a script, and no
/// requests to others. Frames are those of `admin::frames`.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; \
    connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";
const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// The files: name, type, content.
const FILES: &[(&str, &str, &str)] = &[
    ("main.js", SCRIPT, include_str!("assets/main.js")),
    ("dom.js", SCRIPT, include_str!("assets/dom.js")),
    ("api.js", SCRIPT, include_str!("assets/api.js")),
    ("ansi.js", SCRIPT, include_str!("assets/ansi.js")),
    ("format.js", SCRIPT, include_str!("assets/format.js")),
    ("highlight.js", SCRIPT, include_str!("assets/highlight.js")),
    ("keys.js", SCRIPT, include_str!("assets/keys.js")),
    ("login.js", SCRIPT, include_str!("assets/login.js")),
    ("session-list.js", SCRIPT, include_str!("assets/session-list.js")),
    ("session-view.js", SCRIPT, include_str!("assets/session-view.js")),
    ("cell.js", SCRIPT, include_str!("assets/cell.js")),
    ("outputs.js", SCRIPT, include_str!("assets/outputs.js")),
    ("table.js", SCRIPT, include_str!("assets/table.js")),
    ("frames.js", SCRIPT, include_str!("assets/frames.js")),
    ("calls.js", SCRIPT, include_str!("assets/calls.js")),
    ("decisions.js", SCRIPT, include_str!("assets/decisions.js")),
    ("panels.js", SCRIPT, include_str!("assets/panels.js")),
    ("timeline.js", SCRIPT, include_str!("assets/timeline.js")),
    ("style.css", STYLE, include_str!("assets/style.css")),
    ("icon.svg", SVG, include_str!("assets/icon.svg")),
];

/// Returns the routes of the files.
pub(crate) fn routes() -> Router {
    Router::new()
        .route("/console", get(async || file(HTML, include_str!("assets/index.html"))))
        .route("/console/{file}", get(asset))
}

async fn asset(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(file, _, _)| *file == name) {
        Some((_, kind, content)) => file(kind, content),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

fn file(kind: &'static str, content: &'static str) -> Response {
    let headers: [(HeaderName, &str); 10] = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (X_DNS_PREFETCH_CONTROL, "off"),
        (REFERRER_POLICY, "no-referrer"),
        (PERMISSIONS_POLICY, "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
    ];
    (headers, content).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_small() {
        let bytes: usize = FILES.iter().map(|(_, _, content)| content.len()).sum();
        let bytes = bytes + include_str!("assets/index.html").len();
        eprintln!("bytes of the console in {} files: {bytes}", FILES.len() + 1);
        assert!(bytes <= 300_000, "{bytes} bytes");
    }

    #[test]
    fn scripts_make_no_html_of_text() {
        for (name, kind, content) in FILES.iter().filter(|(_, kind, _)| *kind == SCRIPT) {
            for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!content.contains(forbidden), "{name} ({kind}) contains {forbidden}");
            }
        }
    }
}
