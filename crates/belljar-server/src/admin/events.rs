//! Streams of events: of all sessions without output, or of one with output.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use belljar_sessions::{SessionChange, SessionEvent};
use futures::stream;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use super::Admin;
use super::error::AdminError;
use super::views::stream_name;

/// The interval of the comments that keep a stream alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The data of an event, whose name is the same as `change`.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct EventView {
    /// created, ended, queued, began, output, displayed, called, asked, completed; or lagged: the reader was too slow,
    /// and must request the state again
    change: &'static str,
    /// The session
    #[serde(skip_serializing_if = "String::is_empty")]
    session: String,
    /// The number of the cell
    #[serde(skip_serializing_if = "Option::is_none")]
    cell: Option<u64>,
    /// stdout or stderr, of output
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<&'static str>,
    /// The text of output
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The number of bytes that the cell has written with this text: readers that have a cell's state find out by its
    /// field `written` whether they have the text already, or have missed some
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<u64>,
}

impl EventView {
    fn new(event: SessionEvent) -> Self {
        let change = event.change.name();
        let (stream, text, end) = match event.change {
            SessionChange::Output { stream, text, end } => {
                (Some(stream_name(stream)), Some(text.to_string()), Some(end))
            }
            _ => (None, None, None),
        };
        Self { change, session: event.session.as_str().to_owned(), cell: event.cell, stream, text, end }
    }

    fn lagged() -> Self {
        Self { change: "lagged", session: String::new(), cell: None, stream: None, text: None, end: None }
    }
}

/// Answers `GET /events`.
pub(super) async fn all_events(State(admin): State<Admin>) -> Result<Response, AdminError> {
    let history = admin.sessions().history().ok_or_else(AdminError::unknown_session)?;
    let events = history.subscribe();
    answer(&admin, events)
}

/// Answers `GET /sessions/{handle}/events`.
pub(super) async fn session_events(
    State(admin): State<Admin>,
    Path(handle): Path<String>,
) -> Result<Response, AdminError> {
    let found = admin.find(&handle)?;
    let history = admin.sessions().history().ok_or_else(AdminError::unknown_session)?;
    let events = history.follow(&found.id, found.owner.as_ref()).subscribe();
    answer(&admin, events)
}

/// The state of a stream.
struct Following {
    events: Receiver<SessionEvent>,
    ending: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

fn answer(admin: &Admin, events: Receiver<SessionEvent>) -> Result<Response, AdminError> {
    let permit = admin.streams.clone().try_acquire_owned();
    let permit =
        permit.map_err(|_| AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "too many streams of events are open"))?;
    let following = Following { events, ending: admin.ending.clone(), _permit: permit };
    let events = stream::unfold(following, |mut following| async move {
        let received = tokio::select! {
            received = following.events.recv() => received,
            () = following.ending.cancelled() => return None,
        };
        let view = match received {
            Ok(event) => EventView::new(event),
            Err(RecvError::Lagged(_)) => EventView::lagged(),
            Err(RecvError::Closed) => return None,
        };
        let data = serde_json::to_string(&view).unwrap_or_default();
        Some((Ok::<_, Infallible>(Event::default().event(view.change).data(data)), following))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL)).into_response())
}
