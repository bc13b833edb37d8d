//! Sessions of streamable HTTP's legacy era: rmcp's, with streams that can be resumed, and each bound to its owner.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
}

impl ResumableSessions {
    /// Sessions end when nothing happens in them for `idle`.
    pub(crate) fn new(idle: Duration) -> Self {
        let events = Events::new(Bounds::default());
        let mut local = LocalSessionManager::default().with_event_store(Arc::new(events.clone()));
        local.session_config.keep_alive = Some(idle);
        Self { local, events, owners: Mutex::default() }
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
        self.local.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.owners().remove(&**id);
        let closed = self.local.close_session(id).await;
        self.events.forget(id);
        closed
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.create_stream(id, message).await
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.local.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        // What is not known any more is an empty stream: an error would make clients ask again and again.
        Ok(match self.events.after(id, &last_event_id) {
            Some(stream) => stream.left_stream(),
            None => futures::stream::empty().right_stream(),
        })
    }

    async fn restore_session(&self, _: SessionId) -> Result<RestoreOutcome<Self::Transport>, Self::Error> {
        Ok(RestoreOutcome::NotSupported)
    }
}
