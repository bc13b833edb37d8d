//! Kernel sessions that a client over standard streams uses: its requests cannot be forwarded, so that this replica
//! takes the sessions over.

use std::time::Duration;

use belljar_sessions::{Place, SessionId, Sessions};
use rmcp::model::JsonObject;
use serde_json::Value;
use tokio::time::Instant;

use super::replica_client::ReplicaClient;

/// The time for which a request waits for a session that is active in another replica.
const MAX_WAIT: Duration = Duration::from_secs(25);
/// The interval between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// The session or run that a request is about.
#[derive(Debug, Clone)]
pub(crate) enum RequestSubject {
    /// A session.
    Session(SessionId),
    /// A run.
    Run(String),
}

impl RequestSubject {
    /// Returns what a call of a tool names.
    pub(crate) fn by_call(arguments: Option<&JsonObject>, state: Option<&str>) -> Option<Self> {
        if let Some((run, _)) = state.and_then(|state| state.split_once('.')) {
            return Some(Self::Run(run.to_owned()));
        }
        let text = |name| arguments.and_then(|arguments| arguments.get(name)).and_then(Value::as_str);
        match text("session_id").and_then(SessionId::parse) {
            Some(session) => Some(Self::Session(session)),
            None => text("run_id").map(|run| Self::Run(run.to_owned())),
        }
    }
}

/// Makes sessions active in this replica. Cheap to clone.
#[derive(Clone)]
pub(crate) struct SessionTakeover {
    sessions: Sessions,
    replica_client: ReplicaClient,
}

impl SessionTakeover {
    /// Returns the takeover of a replica, or `None` for a server that is not a replica.
    pub(crate) fn new(sessions: &Sessions) -> Option<Self> {
        let cluster = sessions.cluster()?.clone();
        match ReplicaClient::new(cluster) {
            Ok(replica_client) => Some(Self { sessions: sessions.clone(), replica_client }),
            Err(error) => {
                tracing::error!(%error, "sessions of other replicas cannot be used");
                None
            }
        }
    }

    /// Has what a request names be active here. Succeeds if it does not exist: the handler of the request reports that.
    ///
    /// # Errors
    /// Fails with the reason if the session stays in another replica, or the store cannot be used.
    pub(crate) async fn take_over(&self, subject: RequestSubject) -> Result<(), String> {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let session = match &subject {
                RequestSubject::Session(session) => session.clone(),
                // It may end while this waits: its result is here then.
                RequestSubject::Run(run) => match self.sessions.session_of_run(run).await {
                    Ok(Some(session)) => session,
                    Ok(None) => return Ok(()),
                    Err(error) => return Err(error.to_string()),
                },
            };
            let node = match self.sessions.locate(&session).await {
                Ok(Place::Here | Place::Nowhere) => return Ok(()),
                Ok(Place::Elsewhere(node)) => node,
                Err(error) => return Err(error.to_string()),
            };
            if Instant::now() >= deadline {
                return Err(format!("the session is active in another server ({}); try again later", node.address));
            }
            // Without an answer, it comes here once the lease of that replica has run out.
            if let Err(error) = self.replica_client.take_over(&node, &session).await {
                tracing::debug!(%error, "another replica does not give a session up");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}
