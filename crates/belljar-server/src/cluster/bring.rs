//! Kernel sessions that a client over standard streams uses: its requests cannot be passed on, so that they come here.

use std::time::Duration;

use belljar_sessions::{Place, SessionId, Sessions};
use rmcp::model::JsonObject;
use serde_json::Value;
use tokio::time::Instant;

use super::pass::Passer;

/// The time for which a request waits for a session that is active in another replica.
const MAX_WAIT: Duration = Duration::from_secs(25);
/// The interval between two attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// A session or a run, as a request names it.
#[derive(Debug, Clone)]
pub(crate) enum Named {
    /// A session.
    Session(SessionId),
    /// A run.
    Run(String),
}

impl Named {
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

/// Brings sessions to this replica. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Bringer {
    sessions: Sessions,
    passer: Passer,
}

impl Bringer {
    /// Returns the bringer of a replica, or `None` for a server that is no replica.
    pub(crate) fn new(sessions: &Sessions) -> Option<Self> {
        let cluster = sessions.cluster()?.clone();
        match Passer::new(cluster) {
            Ok(passer) => Some(Self { sessions: sessions.clone(), passer }),
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
    pub(crate) async fn bring(&self, named: Named) -> Result<(), String> {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let session = match &named {
                Named::Session(session) => session.clone(),
                // It may end while this waits: its result is here then.
                Named::Run(run) => match self.sessions.session_of_run(run).await {
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
            if let Err(error) = self.passer.take_over(&node, &session).await {
                tracing::debug!(%error, "another replica does not give a session up");
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
        }
    }
}
