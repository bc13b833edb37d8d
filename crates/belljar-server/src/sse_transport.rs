//! The messages of one client of server-sent events. The bytes that wait for a client that does not read are bounded.

use std::sync::Arc;

use futures::Stream;
use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::ClientJsonRpcMessage;
use rmcp::service::TxJsonRpcMessage;
use rmcp::transport::Transport;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

/// The maximum number of unread bytes of one session. A session with more is ended.
const MAX_UNREAD_BYTES: usize = 32 << 20;
/// The maximum number of unread bytes of all sessions.
const MAX_TOTAL_UNREAD_BYTES: usize = 256 << 20;
/// The memory that a message takes apart from its text, approximately.
const MESSAGE_OVERHEAD: usize = 256;

/// The memory for unread messages of all sessions.
#[derive(Clone)]
pub(crate) struct UnreadMemory(Arc<Semaphore>);

impl Default for UnreadMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_TOTAL_UNREAD_BYTES)))
    }
}

/// A message to the client, and its share of the memory for unread messages.
pub(crate) struct UnreadMessage {
    pub(crate) text: String,
    _memory: [OwnedSemaphorePermit; 2],
}

/// The messages that a client has not read. They are freed when the session ends since they are not read, although the
/// response that sends them waits for the client.
#[derive(Clone)]
pub(crate) struct UnreadMessages(Arc<Mutex<mpsc::UnboundedReceiver<UnreadMessage>>>);

impl UnreadMessages {
    pub(crate) fn new(receiver: mpsc::UnboundedReceiver<UnreadMessage>) -> Self {
        Self(Arc::new(Mutex::new(receiver)))
    }

    /// Returns the messages as they arrive.
    pub(crate) fn stream(self) -> impl Stream<Item = UnreadMessage> {
        futures::stream::poll_fn(move |context| self.0.lock().poll_recv(context))
    }

    fn discard(&self) {
        let mut receiver = self.0.lock();
        receiver.close();
        while receiver.try_recv().is_ok() {}
    }
}

/// The error of sending to a client that does not read, or is gone.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("the client does not read its messages")]
    Unread,
    #[error("the client has disconnected")]
    Disconnected,
    #[error(transparent)]
    Serialize(#[from] serde_json::Error),
}

/// A session's messages in both directions.
pub(crate) struct SseTransport {
    from_client: mpsc::Receiver<ClientJsonRpcMessage>,
    to_client: mpsc::UnboundedSender<UnreadMessage>,
    unread: UnreadMessages,
    /// A permit for each byte that the session may have unread.
    own_memory: Arc<Semaphore>,
    memory: UnreadMemory,
    /// Ends the session.
    end: CancellationToken,
}

impl SseTransport {
    pub(crate) fn new(
        from_client: mpsc::Receiver<ClientJsonRpcMessage>,
        to_client: mpsc::UnboundedSender<UnreadMessage>,
        unread: UnreadMessages,
        memory: UnreadMemory,
        end: CancellationToken,
    ) -> Self {
        Self { from_client, to_client, unread, own_memory: Arc::new(Semaphore::new(MAX_UNREAD_BYTES)), memory, end }
    }

    fn queue(&self, message: &TxJsonRpcMessage<RoleServer>) -> Result<(), SendError> {
        let text = serde_json::to_string(message)?;
        let size = text.len() + MESSAGE_OVERHEAD;
        let acquire = |memory: &Arc<Semaphore>| {
            let size = u32::try_from(size).ok()?;
            memory.clone().try_acquire_many_owned(size).ok()
        };
        let (Some(own), Some(total)) = (acquire(&self.own_memory), acquire(&self.memory.0)) else {
            tracing::warn!("ended a session whose client does not read its messages");
            self.end.cancel();
            self.unread.discard();
            return Err(SendError::Unread);
        };
        let sent = self.to_client.send(UnreadMessage { text, _memory: [own, total] });
        sent.map_err(|_| SendError::Disconnected)
    }
}

impl Transport<RoleServer> for SseTransport {
    type Error = SendError;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), SendError>> + Send + 'static {
        std::future::ready(self.queue(&message))
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        self.from_client.recv().await
    }

    async fn close(&mut self) -> Result<(), SendError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use rmcp::model::{LoggingLevel, LoggingMessageNotification, LoggingMessageNotificationParam, ServerNotification};

    use super::*;

    /// Returns a notification with a text of this length.
    fn notification(length: usize) -> TxJsonRpcMessage<RoleServer> {
        let text = serde_json::Value::from("x".repeat(length));
        let notification =
            LoggingMessageNotification::new(LoggingMessageNotificationParam::new(LoggingLevel::Info, text));
        TxJsonRpcMessage::<RoleServer>::notification(ServerNotification::LoggingMessageNotification(notification))
    }

    #[tokio::test]
    async fn unread_messages_of_all_sessions_are_bounded_together() {
        let memory = UnreadMemory(Arc::new(Semaphore::new(100_000)));
        let open = || {
            let (from, from_client) = mpsc::channel(1);
            let (to_client, unread) = mpsc::unbounded_channel();
            let end = CancellationToken::new();
            let unread = UnreadMessages::new(unread);
            let transport = SseTransport::new(from_client, to_client, unread.clone(), memory.clone(), end.clone());
            (transport, end, unread, from)
        };
        let (mut one, one_end, one_unread, _from) = open();
        let (mut two, two_end, _two_unread, _from_two) = open();
        one.send(notification(60_000)).await.unwrap();
        two.send(notification(20_000)).await.unwrap();
        assert!(matches!(two.send(notification(60_000)).await, Err(SendError::Unread)));
        assert!(two_end.is_cancelled() && !one_end.is_cancelled());
        // The messages of the session that has ended are freed, those of the other one are not.
        let (mut three, three_end, _unread, _from_three) = open();
        three.send(notification(30_000)).await.unwrap();
        assert!(matches!(three.send(notification(20_000)).await, Err(SendError::Unread)));
        drop((one, one_unread));
        let (mut four, four_end, _unread, _from_four) = open();
        four.send(notification(90_000)).await.unwrap();
        assert!(!four_end.is_cancelled());
        assert!(three_end.is_cancelled());
    }

    #[tokio::test]
    async fn session_whose_client_does_not_read_is_ended() {
        let (_from, from_client) = mpsc::channel(1);
        let (to_client, unread) = mpsc::unbounded_channel();
        let unread = UnreadMessages::new(unread);
        let mut read = Box::pin(unread.clone().stream());
        let end = CancellationToken::new();
        let mut transport = SseTransport::new(from_client, to_client, unread, UnreadMemory::default(), end.clone());
        let mut send = async |length: usize| transport.send(notification(length)).await;
        for _ in 0..3 {
            send(10 << 20).await.unwrap();
        }
        // A client that reads makes room.
        assert!(read.next().await.is_some_and(|message| message.text.len() > 10 << 20));
        send(10 << 20).await.unwrap();
        assert!(!end.is_cancelled());
        assert!(matches!(send(10 << 20).await, Err(SendError::Unread)));
        assert!(end.is_cancelled());
        assert!(read.next().await.is_none(), "the messages are freed");
    }
}
