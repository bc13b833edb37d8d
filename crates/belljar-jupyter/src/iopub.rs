//! The iopub channel, on which the kernel publishes messages to all frontends.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::Stream;
use bytes::Bytes;
use jupyter_protocol::messaging::{Header, IoPubWelcome, Status};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use zeromq::{SocketRecv, SocketSend, XPubSocket, ZmqMessage};

use crate::message::Signer;

/// The capacity of the queue of messages. When it is full because frontends do not read, the cell blocks.
const QUEUE_CAPACITY: usize = 1024;
/// The largest size of a stream message, in bytes. Frontends draw each message as it arrives.
const MAX_STREAM_BYTES: usize = 1 << 20;
/// The time that text is held to be sent with later text: `print` writes a line and its end separately, and frontends
/// store each message.
const STREAM_FLUSH_INTERVAL: Duration = Duration::from_millis(20);
/// The time after which a message that cannot be sent is dropped.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after an error of the socket.
const ERROR_RETRY_INTERVAL: Duration = Duration::from_millis(10);

enum QueueItem {
    Message { kind: &'static str, parent: Option<Arc<Header>>, content: Value },
    StreamText { parent: Arc<Header>, stream: Stream, bytes: Vec<u8> },
}

/// Publishes messages to all frontends. Clones publish on the same socket.
#[derive(Clone)]
pub(crate) struct IopubPublisher(mpsc::Sender<QueueItem>);

impl IopubPublisher {
    /// Starts a task that sends on `socket`. Must be called on a runtime.
    pub(crate) fn start(socket: XPubSocket, signer: Arc<Signer>) -> Self {
        let (sender, items) = mpsc::channel(QUEUE_CAPACITY);
        tokio::spawn(SendTask { socket, signer, text: None }.run(items));
        Self(sender)
    }

    /// Publishes a message caused by a request. Blocks while the queue is full.
    pub(crate) fn publish(&self, kind: &'static str, parent: &Arc<Header>, content: &impl Serialize) {
        // Fails when the kernel shuts down: the message is dropped.
        let _ = self.0.blocking_send(message(kind, Some(parent), content));
    }

    /// Publishes a message from a task of the runtime.
    pub(crate) async fn publish_async(
        &self,
        kind: &'static str,
        parent: Option<&Arc<Header>>,
        content: &impl Serialize,
    ) {
        let _ = self.0.send(message(kind, parent, content)).await;
    }

    /// Publishes text that a cell wrote. Blocks while the queue is full.
    pub(crate) fn publish_stream(&self, parent: &Arc<Header>, stream: Stream, bytes: &[u8]) {
        for bytes in bytes.chunks(MAX_STREAM_BYTES) {
            let _ =
                self.0.blocking_send(QueueItem::StreamText { parent: parent.clone(), stream, bytes: bytes.to_vec() });
        }
    }

    /// Awaits `work` for a request, with the kernel's status set to busy.
    pub(crate) async fn with_busy_status(&self, parent: &Arc<Header>, work: impl Future<Output = ()>) {
        self.publish_async("status", Some(parent), &Status::busy()).await;
        work.await;
        self.publish_async("status", Some(parent), &Status::idle()).await;
    }
}

fn message(kind: &'static str, parent: Option<&Arc<Header>>, content: &impl Serialize) -> QueueItem {
    let content = serde_json::to_value(content).unwrap_or_else(|_| json!({}));
    QueueItem::Message { kind, parent: parent.cloned(), content }
}

/// Stream text that is not sent yet.
struct PendingText {
    parent: Arc<Header>,
    stream: Stream,
    bytes: Vec<u8>,
    /// The time at which the text is sent.
    due: Instant,
}

/// The task that sends on the socket.
struct SendTask {
    socket: XPubSocket,
    signer: Arc<Signer>,
    text: Option<PendingText>,
}

impl SendTask {
    async fn run(mut self, mut items: mpsc::Receiver<QueueItem>) {
        loop {
            let due = self.due();
            tokio::select! {
                item = items.recv() => match item {
                    None => break,
                    Some(item) => self.handle(item).await,
                },
                received = self.socket.recv() => self.on_subscription(received).await,
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.send_text(false).await;
                }
            }
        }
        self.send_text(true).await;
    }

    /// Returns the time at which the pending text is sent; `None` if no complete character is pending.
    fn due(&self) -> Option<Instant> {
        self.text.as_ref().filter(|text| text.bytes.len() > incomplete_suffix(&text.bytes)).map(|text| text.due)
    }

    /// Sends `iopub_welcome` to a frontend that has subscribed, before any other message.
    async fn on_subscription(&mut self, received: zeromq::ZmqResult<ZmqMessage>) {
        match received.ok().and_then(|message| message.get(0).cloned()) {
            Some(frame) if frame.first() == Some(&1) => {
                let topic = frame.slice(1..);
                let welcome = IoPubWelcome::new(String::from_utf8_lossy(&topic).into_owned());
                self.send(&[topic], "iopub_welcome", None, &welcome).await;
            }
            Some(_) => {}
            None => tokio::time::sleep(ERROR_RETRY_INTERVAL).await,
        }
    }

    async fn handle(&mut self, item: QueueItem) {
        match item {
            QueueItem::Message { kind, parent, content } => {
                self.send_text(true).await;
                let topic = Bytes::from_static(kind.as_bytes());
                self.send(&[topic], kind, parent.as_deref(), &content).await;
            }
            QueueItem::StreamText { parent, stream, bytes } => match &mut self.text {
                Some(text) if text.stream == stream && Arc::ptr_eq(&text.parent, &parent) => {
                    text.bytes.extend(bytes);
                    if text.bytes.len() >= MAX_STREAM_BYTES {
                        self.send_text(false).await;
                    }
                }
                _ => {
                    self.send_text(true).await;
                    self.text =
                        Some(PendingText { parent, stream, bytes, due: Instant::now() + STREAM_FLUSH_INTERVAL });
                }
            },
        }
    }

    /// Sends the pending text. Unless `end` is set, an incomplete character at the end stays pending.
    async fn send_text(&mut self, end: bool) {
        let Some(PendingText { parent, stream, mut bytes, .. }) = self.text.take() else { return };
        let rest = if end { Vec::new() } else { bytes.split_off(bytes.len() - incomplete_suffix(&bytes)) };
        if !bytes.is_empty() {
            let name = if stream == Stream::Stdout { "stdout" } else { "stderr" };
            let content = json!({ "name": name, "text": String::from_utf8_lossy(&bytes) });
            self.send(&[Bytes::from_static(b"stream")], "stream", Some(&parent), &content).await;
        }
        if !rest.is_empty() {
            self.text = Some(PendingText { parent, stream, bytes: rest, due: Instant::now() + STREAM_FLUSH_INTERVAL });
        }
    }

    async fn send(&mut self, topic: &[Bytes], kind: &str, parent: Option<&Header>, content: &impl Serialize) {
        let message = self.signer.sign(topic, kind, parent, content);
        match tokio::time::timeout(SEND_TIMEOUT, self.socket.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, kind, "failed to send to a frontend"),
            Err(_) => tracing::warn!(kind, "a frontend does not read: a message was dropped"),
        }
    }
}

/// Returns the number of bytes at the end that are the beginning of an incomplete UTF-8 character.
fn incomplete_suffix(bytes: &[u8]) -> usize {
    let begin = bytes.iter().rev().take(3).position(|byte| *byte >= 0xc0).map_or(0, |back| back + 1);
    match std::str::from_utf8(&bytes[bytes.len() - begin..]) {
        Err(error) if error.error_len().is_none() => begin,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::incomplete_suffix;

    #[test]
    fn incomplete_character_stays_pending() {
        let text = "a€é😀z";
        for cut in 0..=text.len() {
            let whole = (0..=cut).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            assert_eq!(incomplete_suffix(&text.as_bytes()[..cut]), cut - whole, "{cut}");
        }
        // Bytes that are not UTF-8 do not stay pending.
        assert_eq!(incomplete_suffix(b"\xff\xff\xff\xff"), 0);
        assert_eq!(incomplete_suffix(b"a\x80\x80\x80"), 0);
    }
}
