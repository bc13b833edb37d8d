//! Sessions of streamable HTTP's legacy era: rmcp's sessions, with streams that can be resumed, each bound to its
//! owner.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use parking_lot::{Mutex, MutexGuard};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::common::server_side_http::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{RestoreOutcome, SessionId, SessionManager};

use crate::events::{EventStoreLimits, InMemoryEventStore};
use crate::metrics::{McpSessionDurations, McpSessionRecord, McpTransport};
use crate::task_transport::TaskTransport;

/// The open sessions.
///
/// rmcp's own manager keeps a few messages of each stream, and drops a response once it was sent to any connection.
/// With an event store it can replay responses, but it then also keeps requests of the modern era alive after their
/// client disconnected, although disconnecting is how such a client cancels. So the store is passed to the manager of
/// the legacy sessions alone, and this type does not report that it has one.
pub(crate) struct ResumableSessions {
    local: LocalSessionManager,
    events: InMemoryEventStore,
    /// The owner of each session that an authenticated client opened.
    owners: Mutex<HashMap<String, String>>,
    idle: Duration,
    durations: McpSessionDurations,
    activity: Arc<SessionActivity>,
}

/// The activity of sessions. rmcp's own idle timer also runs during a call, and would close the session before the
/// response.
#[derive(Default)]
struct SessionActivity(Mutex<HashMap<String, Activity>>);

struct Activity {
    /// The time of the last activity.
    used: Instant,
    /// The number of calls whose stream has a reader.
    calls: usize,
    _record: McpSessionRecord,
}

impl SessionActivity {
    /// Records activity in a session.
    fn touch(&self, session: &str) {
        self.change(session, |_| {});
    }

    fn change(&self, session: &str, change: impl FnOnce(&mut Activity)) {
        if let Some(activity) = self.lock().get_mut(session) {
            activity.used = Instant::now();
            change(activity);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Activity>> {
        self.0.lock()
    }
}

/// A call in flight, counted until this is dropped.
struct InFlightGuard {
    activity: Arc<SessionActivity>,
    session: SessionId,
}

impl InFlightGuard {
    fn begin(activity: &Arc<SessionActivity>, session: &SessionId) -> Self {
        activity.change(session, |activity| activity.calls += 1);
        Self { activity: activity.clone(), session: session.clone() }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.activity.change(&self.session, |activity| activity.calls = activity.calls.saturating_sub(1));
    }
}

impl ResumableSessions {
    /// Creates a manager that closes sessions after `idle` without activity, and adds to `durations`.
    pub(crate) fn new(idle: Duration, durations: McpSessionDurations) -> Self {
        let events = InMemoryEventStore::new(EventStoreLimits::default());
        let mut local = LocalSessionManager::default().with_event_store(Arc::new(events.clone()));
        local.session_config.keep_alive = None;
        Self { local, events, owners: Mutex::default(), idle, durations, activity: Arc::default() }
    }

    /// Closes idle sessions periodically, until `sessions` is dropped.
    pub(crate) async fn watch(sessions: Weak<Self>, idle: Duration) {
        let pause = (idle / 4).clamp(Duration::from_millis(50), Duration::from_secs(30));
        loop {
            tokio::time::sleep(pause).await;
            let Some(sessions) = sessions.upgrade() else { return };
            for session in sessions.expired() {
                // The error contains the session's ID, which must not be logged.
                if sessions.close_session(&session).await.is_err() {
                    tracing::debug!("failed to close an idle session");
                }
            }
        }
    }

    fn expired(&self) -> Vec<SessionId> {
        let activity = self.activity.lock();
        let expired =
            activity.iter().filter(|(_, activity)| activity.calls == 0 && activity.used.elapsed() > self.idle);
        expired.map(|(session, _)| session.as_str().into()).collect()
    }

    /// Returns the number of open sessions.
    pub(crate) async fn count(&self) -> usize {
        self.local.sessions.read().await.len()
    }

    /// Records `owner` as the owner of a session.
    pub(crate) fn set_owner(&self, session: &str, owner: &str) {
        self.owners().insert(session.to_owned(), owner.to_owned());
    }

    /// Returns whether `owner` owns a session, or the session has no recorded owner.
    pub(crate) fn is_owned_by(&self, session: &str, owner: &str) -> bool {
        self.owners().get(session).is_none_or(|known| known == owner)
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.owners.lock()
    }
}

impl SessionManager for ResumableSessions {
    type Error = <LocalSessionManager as SessionManager>::Error;
    type Transport = TaskTransport<<LocalSessionManager as SessionManager>::Transport>;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, transport) = self.local.create_session().await?;
        let record = self.durations.begin(McpTransport::Tcp);
        let activity = Activity { used: Instant::now(), calls: 0, _record: record };
        self.activity.lock().insert(id.to_string(), activity);
        Ok((id, TaskTransport(transport)))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.activity.touch(id);
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.owners().remove(&**id);
        self.activity.lock().remove(&**id);
        let closed = self.local.close_session(id).await;
        self.events.remove_session(id);
        closed
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let call = InFlightGuard::begin(&self.activity, id);
        let stream = self.local.create_stream(id, message).await?;
        let (events, session) = (self.events.clone(), id.clone());
        let mut is_recorded = false;
        // The call counts as in flight for as long as its stream has a reader.
        Ok(stream.map(move |message| {
            let _in_flight = &call;
            // The client learns the stream's name by its first event.
            if let (false, Some(event)) = (is_recorded, &message.event_id) {
                events.set_session(event, &session);
                is_recorded = true;
            }
            message
        }))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.activity.touch(id);
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.activity.touch(id);
        self.local.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let call = InFlightGuard::begin(&self.activity, id);
        // An unknown event gives an empty stream: after an error clients would repeat the request endlessly.
        Ok(match self.events.replay_after(id, &last_event_id) {
            Some(stream) => stream
                .map(move |message| {
                    let _in_flight = &call;
                    message
                })
                .left_stream(),
            None => futures::stream::empty().right_stream(),
        })
    }

    async fn restore_session(&self, _: SessionId) -> Result<RestoreOutcome<Self::Transport>, Self::Error> {
        Ok(RestoreOutcome::NotSupported)
    }
}
