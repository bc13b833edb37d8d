//! Replies on a channel to the frontend that sent the request.

use std::sync::Arc;

use serde::Serialize;
use tokio::runtime::Handle;
use zeromq::{RouterSendHalf, SocketSend};

use crate::message::{Request, Signer};

/// The sending half of a router socket. Clones send on the same socket.
#[derive(Clone)]
pub(crate) struct ReplySender {
    socket: RouterSendHalf,
    signer: Arc<Signer>,
    runtime: Handle,
}

impl ReplySender {
    pub(crate) fn new(socket: RouterSendHalf, signer: Arc<Signer>, runtime: Handle) -> Self {
        Self { socket, signer, runtime }
    }

    /// Replies to a request. Must be called from a thread that is not one of the runtime's.
    pub(crate) fn reply(&self, request: &Request, kind: &str, content: &impl Serialize) {
        self.runtime.block_on(self.reply_async(request, kind, content));
    }

    /// Replies to a request, from a task of the runtime.
    pub(crate) async fn reply_async(&self, request: &Request, kind: &str, content: &impl Serialize) {
        let message = self.signer.sign(&request.identities, kind, Some(&request.header), content);
        if let Err(error) = self.socket.clone().send(message).await {
            tracing::debug!(%error, kind, "failed to send to a frontend");
        }
    }
}
