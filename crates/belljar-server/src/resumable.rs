//! Sessions of streamable HTTP's legacy era: rmcp's, with streams that can be resumed, and each bound to its owner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::common::server_side_http::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{RestoreOutcome, SessionId, SessionManager};

use crate::events::{Bounds, Events};

/// The sessions that are open.
///
/// rmcp's own manager keeps a few messages of each stream, and forgets an answer once it was sent, to whomever. Given an
/// event store it does better, but takes that for a wish to keep requests of the modern era alive whose client has gone;
/// there, hanging up is how a client cancels. So the store is used beneath, and not shown.
pub(crate) struct ResumableSessions {
    local: LocalSessionManager,
    events: Events,
    /// Who opened which session, where that is known.
    owners: Mutex<HashMap<String, String>>,
    idle: Duration,
    lives: Arc<Lives>,
}

/// What sessions do. rmcp's own clock runs on while a call does, and would end its session before the answer.
#[derive(Default)]
struct Lives(Mutex<HashMap<String, Life>>);

struct Life {
    /// When something last happened.
    used: Instant,
    /// Calls whose stream somebody reads.
    calls: usize,
}

impl Lives {
    /// Something happens in a session.
    fn touch(&self, session: &str) {
        self.change(session, |_| {});
    }

    fn change(&self, session: &str, change: impl FnOnce(&mut Life)) {
        if let Some(life) = self.all().get_mut(session) {
            life.used = Instant::now();
            change(life);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Life>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call under way.
struct Call {
    lives: Arc<Lives>,
    session: SessionId,
}

impl Call {
    fn begin(lives: &Arc<Lives>, session: &SessionId) -> Self {
        lives.change(session, |life| life.calls += 1);
        Self { lives: lives.clone(), session: session.clone() }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.lives.change(&self.session, |life| life.calls = life.calls.saturating_sub(1));
    }
}

impl ResumableSessions {
    /// Sessions end when nothing happens in them for `idle`.
    pub(crate) fn new(idle: Duration) -> Self {
        let events = Events::new(Bounds::default());
        let mut local = LocalSessionManager::default().with_event_store(Arc::new(events.clone()));
        local.session_config.keep_alive = None;
        Self { local, events, owners: Mutex::default(), idle, lives: Arc::default() }
    }

    /// Ends the sessions in which nothing happens, until nobody has them any more.
    pub(crate) async fn watch(sessions: Weak<Self>, idle: Duration) {
        let pause = (idle / 4).clamp(Duration::from_millis(50), Duration::from_secs(30));
        loop {
            tokio::time::sleep(pause).await;
            let Some(sessions) = sessions.upgrade() else { return };
            for session in sessions.expired() {
                if let Err(error) = sessions.close_session(&session).await {
                    tracing::debug!(%error, "an idle session does not end");
                }
            }
        }
    }

    fn expired(&self) -> Vec<SessionId> {
        let lives = self.lives.all();
        let expired = lives.iter().filter(|(_, life)| life.calls == 0 && life.used.elapsed() > self.idle);
        expired.map(|(session, _)| session.as_str().into()).collect()
    }

    /// How many are open.
    pub(crate) async fn count(&self) -> usize {
        self.local.sessions.read().await.len()
    }

    /// `owner` has opened a session.
    pub(crate) fn opened(&self, session: &str, owner: &str) {
        self.owners().insert(session.to_owned(), owner.to_owned());
    }

    /// Whether a session is `owner`'s, or nobody's in particular.
    pub(crate) fn is_of(&self, session: &str, owner: &str) -> bool {
        self.owners().get(session).is_none_or(|known| known == owner)
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionManager for ResumableSessions {
    type Error = <LocalSessionManager as SessionManager>::Error;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        let (id, transport) = self.local.create_session().await?;
        let life = Life { used: Instant::now(), calls: 0 };
        self.lives.all().insert(id.to_string(), life);
        Ok((id, transport))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.lives.touch(id);
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.owners().remove(&**id);
        self.lives.all().remove(&**id);
        let closed = self.local.close_session(id).await;
        self.events.forget(id);
        closed
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let call = Call::begin(&self.lives, id);
        let stream = self.local.create_stream(id, message).await?;
        // The call lasts as long as somebody reads.
        Ok(stream.map(move |message| {
            let _under_way = &call;
            message
        }))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.lives.touch(id);
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.lives.touch(id);
        self.local.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let call = Call::begin(&self.lives, id);
        // What is not known any more is an empty stream: an error would make clients ask again and again.
        Ok(match self.events.after(id, &last_event_id) {
            Some(stream) => stream
                .map(move |message| {
                    let _under_way = &call;
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
