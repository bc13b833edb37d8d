//! The iopub channel: what all frontends see of a kernel.

use std::sync::Arc;
use std::time::Duration;

use belljar_core::kernel::Stream;
use bytes::Bytes;
use jupyter_protocol::messaging::{Header, IoPubWelcome, Status};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use zeromq::{SocketRecv, SocketSend, XPubSocket, ZmqMessage};

use super::message::Signer;

/// Messages that wait to be sent. When frontends do not read, the cell waits.
const WAITING: usize = 1024;
/// Text of a message at most, in bytes: a frontend draws each as it comes.
const MOST_TEXT: usize = 1 << 20;
/// How long text waits for more of it: `print` writes a line and its end apart, and a frontend keeps each message.
const HELD: Duration = Duration::from_millis(20);
/// How long one message may take to send before it is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Pause after a frontend's connection broke.
const BROKEN: Duration = Duration::from_millis(10);

enum Item {
    Message { kind: &'static str, parent: Option<Arc<Header>>, content: Value },
    Text { parent: Arc<Header>, stream: Stream, bytes: Vec<u8> },
}

/// Tells all frontends. Clones tell the same ones.
#[derive(Clone)]
pub(crate) struct Broadcast(mpsc::Sender<Item>);

impl Broadcast {
    /// Starts sending on the socket; on a runtime.
    pub(crate) fn start(socket: XPubSocket, signer: Arc<Signer>) -> Self {
        let (sender, items) = mpsc::channel(WAITING);
        tokio::spawn(Sending { socket, signer, text: None }.run(items));
        Self(sender)
    }

    /// Tells of something that a request caused. Blocks while too much waits.
    pub(crate) fn tell(&self, kind: &'static str, parent: &Arc<Header>, content: &impl Serialize) {
        // Fails when the kernel ends: nobody is there to see it.
        let _ = self.0.blocking_send(message(kind, Some(parent), content));
    }

    /// The same, on a runtime.
    pub(crate) async fn tell_from_task(
        &self,
        kind: &'static str,
        parent: Option<&Arc<Header>>,
        content: &impl Serialize,
    ) {
        let _ = self.0.send(message(kind, parent, content)).await;
    }

    /// Tells what a cell wrote.
    pub(crate) fn wrote(&self, parent: &Arc<Header>, stream: Stream, bytes: &[u8]) {
        for bytes in bytes.chunks(MOST_TEXT) {
            let _ = self.0.blocking_send(Item::Text { parent: parent.clone(), stream, bytes: bytes.to_vec() });
        }
    }

    /// Does something for a request, with the kernel shown busy meanwhile.
    pub(crate) async fn busy_in_task(&self, parent: &Arc<Header>, work: impl Future<Output = ()>) {
        self.tell_from_task("status", Some(parent), &Status::busy()).await;
        work.await;
        self.tell_from_task("status", Some(parent), &Status::idle()).await;
    }
}

fn message(kind: &'static str, parent: Option<&Arc<Header>>, content: &impl Serialize) -> Item {
    let content = serde_json::to_value(content).unwrap_or_else(|_| json!({}));
    Item::Message { kind, parent: parent.cloned(), content }
}

/// Text that was written and not yet sent.
struct Text {
    parent: Arc<Header>,
    stream: Stream,
    bytes: Vec<u8>,
    due: Instant,
}

struct Sending {
    socket: XPubSocket,
    signer: Arc<Signer>,
    text: Option<Text>,
}

impl Sending {
    async fn run(mut self, mut items: mpsc::Receiver<Item>) {
        loop {
            let due = self.due();
            tokio::select! {
                item = items.recv() => match item {
                    None => break,
                    Some(item) => self.take(item).await,
                },
                received = self.socket.recv() => self.subscribed(received).await,
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.send_text(false).await;
                }
            }
        }
        self.send_text(true).await;
    }

    /// When the text that waits is to be sent, if there is some.
    fn due(&self) -> Option<Instant> {
        self.text.as_ref().filter(|text| text.bytes.len() > unfinished(&text.bytes)).map(|text| text.due)
    }

    /// Welcomes a frontend that has subscribed, before it sees anything else.
    async fn subscribed(&mut self, received: zeromq::ZmqResult<ZmqMessage>) {
        match received.ok().and_then(|message| message.get(0).cloned()) {
            Some(frame) if frame.first() == Some(&1) => {
                let topic = frame.slice(1..);
                let welcome = IoPubWelcome::new(String::from_utf8_lossy(&topic).into_owned());
                self.send(&[topic], "iopub_welcome", None, &welcome).await;
            }
            Some(_) => {}
            None => tokio::time::sleep(BROKEN).await,
        }
    }

    async fn take(&mut self, item: Item) {
        match item {
            Item::Message { kind, parent, content } => {
                self.send_text(true).await;
                let topic = Bytes::from_static(kind.as_bytes());
                self.send(&[topic], kind, parent.as_deref(), &content).await;
            }
            Item::Text { parent, stream, bytes } => match &mut self.text {
                Some(text) if text.stream == stream && Arc::ptr_eq(&text.parent, &parent) => {
                    text.bytes.extend(bytes);
                    if text.bytes.len() >= MOST_TEXT {
                        self.send_text(false).await;
                    }
                }
                _ => {
                    self.send_text(true).await;
                    self.text = Some(Text { parent, stream, bytes, due: Instant::now() + HELD });
                }
            },
        }
    }

    /// Sends the text that waits; unless this is the `end` of it, a character that is not whole yet waits on.
    async fn send_text(&mut self, end: bool) {
        let Some(Text { parent, stream, mut bytes, .. }) = self.text.take() else { return };
        let rest = if end { Vec::new() } else { bytes.split_off(bytes.len() - unfinished(&bytes)) };
        if !bytes.is_empty() {
            let name = if stream == Stream::Stdout { "stdout" } else { "stderr" };
            let content = json!({ "name": name, "text": String::from_utf8_lossy(&bytes) });
            self.send(&[Bytes::from_static(b"stream")], "stream", Some(&parent), &content).await;
        }
        if !rest.is_empty() {
            self.text = Some(Text { parent, stream, bytes: rest, due: Instant::now() + HELD });
        }
    }

    async fn send(&mut self, topic: &[Bytes], kind: &str, parent: Option<&Header>, content: &impl Serialize) {
        let message = self.signer.seal(topic, kind, parent, content);
        match tokio::time::timeout(PATIENCE, self.socket.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, kind, "a frontend is gone"),
            Err(_) => tracing::warn!(kind, "a frontend does not read"),
        }
    }
}

/// Bytes at the end that begin a character of UTF-8 and do not end it.
fn unfinished(bytes: &[u8]) -> usize {
    let begin = bytes.iter().rev().take(3).position(|byte| *byte >= 0xc0).map_or(0, |back| back + 1);
    match std::str::from_utf8(&bytes[bytes.len() - begin..]) {
        Err(error) if error.error_len().is_none() => begin,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::unfinished;

    #[test]
    fn a_character_is_not_cut_in_two() {
        let text = "a€é😀z";
        for cut in 0..=text.len() {
            let whole = (0..=cut).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            assert_eq!(unfinished(&text.as_bytes()[..cut]), cut - whole, "{cut}");
        }
        // What is no UTF-8 does not wait for more.
        assert_eq!(unfinished(b"\xff\xff\xff\xff"), 0);
        assert_eq!(unfinished(b"a\x80\x80\x80"), 0);
    }
}
