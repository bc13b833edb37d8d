//! The wrapper of every transport: delivers notifications in order, and gives up waiting for a server that does not
//! support `server/discover`.
//!
//! `rmcp` spawns a task for each notification, so log messages arrive in any order, even after the result that they
//! precede. This wrapper takes them out of the stream as they arrive.

use std::sync::Arc;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::transport::Transport;
use tokio::time::Instant;

use super::{BoxTransport, Incoming, Outgoing, TransportError};
use crate::handlers::notifications::Router;

/// A transport that delivers notifications in order.
pub(crate) struct OrderedTransport {
    inner: BoxTransport,
    router: Arc<Router>,
    /// The time within which the server must respond to `server/discover`; later it counts as not supporting it.
    probe_timeout: Option<Duration>,
    probe: Option<Probe>,
}

struct Probe {
    id: RequestId,
    deadline: Instant,
    /// True if a response was substituted: the server's own is dropped if it arrives.
    answered: bool,
}

impl OrderedTransport {
    pub(crate) fn new(inner: BoxTransport, router: Arc<Router>, probe_timeout: Option<Duration>) -> Self {
        Self { inner, router, probe_timeout, probe: None }
    }

    /// Returns whether the message is a late response to a probe. A response in time ends the probe.
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

impl Transport<RoleClient> for OrderedTransport {
    type Error = TransportError;

    fn send(&mut self, message: Outgoing) -> impl Future<Output = Result<(), TransportError>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &message {
            match &request.request {
                // Only the first request is a probe: later ones go to a server that supports it.
                ClientRequest::DiscoverRequest(_) => {
                    if let Some(probe_timeout) = self.probe_timeout.take() {
                        let deadline = Instant::now() + probe_timeout;
                        self.probe = Some(Probe { id: request.id.clone(), deadline, answered: false });
                    }
                }
                // The fallback was chosen: a late response to the probe must be dropped.
                ClientRequest::InitializeRequest(_) => {
                    self.probe = self.probe.take().map(|probe| Probe { answered: true, ..probe });
                }
                _ => {}
            }
        }
        self.inner.send(message)
    }

    async fn receive(&mut self) -> Option<Incoming> {
        let message = self.receive_ordered().await;
        if message.is_none() {
            self.router.closed.cancel();
        }
        message
    }

    fn close(&mut self) -> impl Future<Output = Result<(), TransportError>> + Send {
        self.router.closed.cancel();
        self.inner.close()
    }
}

impl Drop for OrderedTransport {
    fn drop(&mut self) {
        self.router.closed.cancel();
    }
}

impl OrderedTransport {
    async fn receive_ordered(&mut self) -> Option<Incoming> {
        loop {
            let waiting = self.probe.as_ref().filter(|probe| !probe.answered).map(|probe| probe.deadline);
            let message = match waiting {
                None => self.inner.receive().await?,
                Some(deadline) => match tokio::time::timeout_at(deadline, self.inner.receive()).await {
                    Ok(message) => message?,
                    Err(_) => {
                        let probe = self.probe.as_mut()?;
                        probe.answered = true;
                        tracing::debug!("no response to server/discover: falling back to initialize");
                        let error = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no response", None);
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
                    self.router.record_activity(&message);
                    return Some(message);
                }
            }
        }
    }
}
