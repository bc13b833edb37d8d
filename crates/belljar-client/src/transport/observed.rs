//! What every transport is wrapped in: notifications reach their handlers in order, and a server that does not know
//! `server/discover` is not waited for.
//!
//! `rmcp` gives each notification a task of its own, so that lines of a log arrive in any order, and after the result that
//! they belong before. Here they are taken out of the stream as they come.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::transport::Transport;
use tokio::time::Instant;

use super::{BoxTransport, Incoming, Outgoing, TransportError};
use crate::handlers::notifications::Router;

/// A transport that is watched.
pub(crate) struct Observed {
    inner: BoxTransport,
    router: Arc<Router>,
    /// How long an answer to `server/discover` may take before the server counts as one that does not know it.
    patience: Option<Duration>,
    probe: Option<Probe>,
}

struct Probe {
    id: RequestId,
    deadline: Instant,
    /// Its answer was given in the server's stead: the real one is dropped if it comes.
    answered: bool,
}

impl Observed {
    pub(crate) fn new(inner: BoxTransport, router: Arc<Router>, patience: Option<Duration>) -> Self {
        Self { inner, router, patience, probe: None }
    }

    /// Whether the message is an answer to a probe that is over. One that is in time ends the probe.
    fn is_late(&mut self, message: &Incoming) -> bool {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            _ => None,
        };
        match &self.probe {
            Some(probe) if Some(&probe.id) == id => {
                let late = probe.answered;
                if !late {
                    self.probe = None;
                }
                late
            }
            _ => false,
        }
    }
}

impl Transport<RoleClient> for Observed {
    type Error = TransportError;

    fn send(&mut self, message: Outgoing) -> impl Future<Output = Result<(), TransportError>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &message {
            match &request.request {
                // Only the first is a probe: later ones are asked of a server that knows it.
                ClientRequest::DiscoverRequest(_) => {
                    if let Some(patience) = self.patience.take() {
                        let deadline = Instant::now() + patience;
                        self.probe = Some(Probe { id: request.id.clone(), deadline, answered: false });
                    }
                }
                // The fallback: a late answer to the probe is to be dropped.
                ClientRequest::InitializeRequest(_) => {
                    self.probe = self.probe.take().map(|probe| Probe { answered: true, ..probe });
                }
                _ => {}
            }
        }
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<Incoming> {
        loop {
            let waiting = self.probe.as_ref().filter(|probe| !probe.answered).map(|probe| probe.deadline);
            let message = match waiting {
                None => self.inner.receive().await?,
                Some(deadline) => match tokio::time::timeout_at(deadline, self.inner.receive()).await {
                    Ok(message) => message?,
                    Err(_) => {
                        let probe = self.probe.as_mut()?;
                        probe.answered = true;
                        tracing::debug!("no answer to server/discover: going on with initialize");
                        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no answer", None);
                        return Some(JsonRpcMessage::error(error, Some(probe.id.clone())));
                    }
                },
            };
            if self.is_late(&message) {
                continue;
            }
            match message {
                JsonRpcMessage::Notification(notification) => {
                    if let Some(notification) = self.router.route(notification) {
                        return Some(JsonRpcMessage::Notification(notification));
                    }
                }
                message => {
                    self.router.heard(&message);
                    return Some(message);
                }
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), TransportError>> + Send {
        self.inner.close()
    }
}
