//! HTML of code in frames of the console: behind an address that works once, without scripts and without requests.
//!
//! A frame is requested without a token, so that its address is a secret: an operator gets it from the API. The
//! document has an opaque origin (`sandbox`) and a policy under which nothing is loaded. Elements that could still
//! reach out, such as `<link rel=preconnect>`, are text there.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_DNS_PREFETCH_CONTROL,
};
use axum::http::{StatusCode, header::HeaderName};
use axum::response::{IntoResponse, Response};
use belljar_core::Output;
use parking_lot::Mutex;
use regex::Regex;
use schemars::JsonSchema;
use serde::Serialize;

use super::Admin;
use super::error::AdminError;

/// The time for which an address works.
const TICKET_TTL: Duration = Duration::from_secs(60);
/// The maximum number of addresses that work at a time, and of bytes of the HTML behind them.
const MAX_TICKETS: usize = 1000;
const MAX_BYTES: usize = 32 << 20;
/// The policy of a frame.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; \
    base-uri 'none'; frame-ancestors 'self'; sandbox";
/// The style of a frame, before that of the code.
const STYLE: &str = "html{color-scheme:light dark}body{margin:0;font:13px/1.5 system-ui,sans-serif;overflow:auto}\
    table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
    th,td{padding:3px 10px;border-bottom:1px solid #8884;text-align:right;white-space:nowrap}\
    th{font-weight:600}a{pointer-events:none;color:inherit}img,svg{max-width:100%}";

/// The beginnings of tags that would load or lead to something else. A tag of such a name begins with exactly these
/// characters, in any case of the letters.
static REACHING_OUT: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new("(?i)<(/?(?:script|link|meta|base|iframe|frame|frameset|object|embed|applet|form|portal|video|audio|source|track|fencedframe))")
        .ok()
});

/// The HTML behind addresses that were not requested yet.
#[derive(Default)]
pub(super) struct Frames(Mutex<HashMap<String, (Instant, String)>>);

/// The address of a frame.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Frame {
    /// The path, which works once, for a minute
    path: String,
}

/// Answers `POST /sessions/{handle}/cells/{number}/outputs/{output}/frame`.
pub(super) async fn create(
    State(admin): State<Admin>,
    Path((handle, number, output)): Path<(String, u64, usize)>,
) -> Result<Json<Frame>, AdminError> {
    let found = admin.find(&handle)?;
    let history = admin.sessions().history().and_then(|history| history.find(&found.id));
    let cell = history.and_then(|history| history.cell(number)).ok_or_else(AdminError::unknown_cell)?;
    let outputs = cell.snapshot().outputs;
    let html = match outputs.get(output) {
        Some(Output::Display(bundle) | Output::ExecuteResult(bundle)) => bundle.get("text/html"),
        _ => None,
    };
    let html = html.and_then(serde_json::Value::as_str);
    let html = html.ok_or_else(|| AdminError::new(StatusCode::NOT_FOUND, "the output has no HTML"))?;
    let mut random = [0; 16];
    getrandom::fill(&mut random)
        .map_err(|error| AdminError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let mut ticket = String::new();
    for byte in random {
        // Writing to a string does not fail.
        let _ = write!(ticket, "{byte:02x}");
    }
    admin.frames.insert(ticket.clone(), html.to_owned());
    let path = format!("/console/frame/{ticket}");
    let frames = admin.frames.clone();
    tokio::spawn(async move {
        tokio::time::sleep(TICKET_TTL).await;
        frames.take(&ticket);
    });
    Ok(Json(Frame { path }))
}

impl Frames {
    fn insert(&self, ticket: String, html: String) {
        let mut frames = self.0.lock();
        frames.retain(|_, (created, _)| created.elapsed() < TICKET_TTL);
        let mut bytes: usize = html.len() + frames.values().map(|(_, html)| html.len()).sum::<usize>();
        while (frames.len() >= MAX_TICKETS || bytes > MAX_BYTES)
            && let Some(oldest) =
                frames.iter().min_by_key(|(_, (created, _))| *created).map(|(ticket, _)| ticket.clone())
        {
            bytes -= frames.remove(&oldest).map_or(0, |(_, html)| html.len());
        }
        frames.insert(ticket, (Instant::now(), html));
    }

    fn take(&self, ticket: &str) -> Option<String> {
        let (created, html) = self.0.lock().remove(ticket)?;
        (created.elapsed() < TICKET_TTL).then_some(html)
    }
}

/// Answers `GET /console/frame/{ticket}`.
pub(super) async fn show(State(admin): State<Admin>, Path(ticket): Path<String>) -> Response {
    let html = admin.frames.take(&ticket).unwrap_or_else(|| "<p>This frame has expired.</p>".into());
    let page = format!("<!doctype html><meta charset=\"utf-8\"><style>{STYLE}</style>{}", without_reach(&html));
    let headers: [(HeaderName, &str); 5] = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_DNS_PREFETCH_CONTROL, "off"),
        (REFERRER_POLICY, "no-referrer"),
    ];
    (headers, page).into_response()
}

/// Returns HTML whose elements that could reach out are text.
fn without_reach(html: &str) -> String {
    match &*REACHING_OUT {
        Some(tags) => tags.replace_all(html, "&lt;$1").into_owned(),
        None => html.replace('<', "&lt;"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_that_reach_out_become_text() {
        for (html, shown) in [
            ("<b>1 < 2</b>", "<b>1 < 2</b>"),
            ("<LINK rel=preconnect href=//x>", "&lt;LINK rel=preconnect href=//x>"),
            ("<<meta http-equiv=refresh>", "<&lt;meta http-equiv=refresh>"),
            ("<script>1</script>", "&lt;script>1&lt;/script>"),
            ("<linker>", "&lt;linker>"),
            ("<table><tr><td>", "<table><tr><td>"),
        ] {
            assert_eq!(without_reach(html), shown);
        }
    }

    #[test]
    fn addresses_work_once() {
        let frames = Frames::default();
        (0..MAX_TICKETS + 5).for_each(|number| frames.insert(number.to_string(), "x".into()));
        assert_eq!(frames.0.lock().len(), MAX_TICKETS);
        let last = (MAX_TICKETS + 4).to_string();
        assert_eq!(frames.take(&last).as_deref(), Some("x"));
        assert_eq!(frames.take(&last), None);
    }

    #[test]
    fn bytes_behind_addresses_are_bounded() {
        let frames = Frames::default();
        let megabyte = "x".repeat(1 << 20);
        (0..40).for_each(|number| frames.insert(number.to_string(), megabyte.clone()));
        let bytes: usize = frames.0.lock().values().map(|(_, html)| html.len()).sum();
        assert_eq!(bytes, MAX_BYTES);
        assert!(frames.take("7").is_none() && frames.take("8").is_some() && frames.take("39").is_some());
    }
}
