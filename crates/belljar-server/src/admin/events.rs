//! Streams of events: of all sessions without output, of one with output, or of both.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use belljar_sessions::{SessionChange, SessionEvent, SessionHandle};
use futures::stream;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
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
    /// created, ended, queued, began, output, displayed, called (also for connections and installed packages), asked,
    /// completed; or lagged: the reader was too slow, and must request the state again
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

/// The session of which a stream of all sessions has the output.
#[derive(Debug, Deserialize)]
pub(super) struct EventsQuery {
    session: Option<String>,
}

/// Answers `GET /events`.
pub(super) async fn all_events(
    State(admin): State<Admin>,
    query: Result<Query<EventsQuery>, QueryRejection>,
) -> Result<Response, AdminError> {
    let Query(EventsQuery { session }) = query?;
    let history = admin.sessions().history().ok_or_else(AdminError::unknown_session)?;
    let all = history.subscribe();
    match session {
        None => answer(&admin, all, None),
        Some(handle) => {
            let (session, events) = follow(&admin, &handle)?;
            answer(&admin, events, Some(Others { session, events: all }))
        }
    }
}

/// Answers `GET /sessions/{handle}/events`.
pub(super) async fn session_events(
    State(admin): State<Admin>,
    Path(handle): Path<String>,
) -> Result<Response, AdminError> {
    let (_, events) = follow(&admin, &handle)?;
    answer(&admin, events, None)
}

/// Returns the handle of a session, and its events from now on.
fn follow(admin: &Admin, handle: &str) -> Result<(SessionHandle, Receiver<SessionEvent>), AdminError> {
    let found = admin.find(handle)?;
    let history = admin.sessions().history().ok_or_else(AdminError::unknown_session)?;
    Ok((found.handle, history.follow(&found.id, found.owner.as_ref()).subscribe()))
}

/// The state of a stream.
struct Following {
    events: Receiver<SessionEvent>,
    /// The other sessions, if the stream has them in addition.
    others: Option<Others>,
    ending: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

/// The events of all sessions, of which those of one are left out.
struct Others {
    session: SessionHandle,
    events: Receiver<SessionEvent>,
}

impl Following {
    async fn next(&mut self) -> Result<SessionEvent, RecvError> {
        let Some(others) = &mut self.others else { return self.events.recv().await };
        loop {
            tokio::select! {
                received = self.events.recv() => return received,
                received = others.events.recv() => match received {
                    Ok(event) if event.session == others.session => {}
                    received => return received,
                },
            }
        }
    }
}

fn answer(admin: &Admin, events: Receiver<SessionEvent>, others: Option<Others>) -> Result<Response, AdminError> {
    let permit = admin.streams.clone().try_acquire_owned();
    let permit =
        permit.map_err(|_| AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "too many streams of events are open"))?;
    let following = Following { events, others, ending: admin.ending.clone(), _permit: permit };
    let events = stream::unfold(following, |mut following| async move {
        let ending = following.ending.clone();
        let received = tokio::select! {
            received = following.next() => received,
            () = ending.cancelled() => return None,
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
