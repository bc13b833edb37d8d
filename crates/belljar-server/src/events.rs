//! What was sent on streams, kept for clients whose connection broke (streamable HTTP's `Last-Event-ID`).
//!
//! Everything is bounded: the bytes of all events, those of one stream, the number of streams, and how long a stream that
//! has ended is kept. What goes first is what began first. Events are known by their stream's name, which is random,
//! and a number that only grows: nobody can ask for what is another's.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::Stream;
use rmcp::model::JsonRpcMessage;
use rmcp::transport::common::server_side_http::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::{EventId, EventStore, EventStoreError, EventStream};
use tokio::sync::watch;

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes of all events, as they are sent.
    pub(crate) bytes: usize,
    /// Bytes of one stream's events.
    pub(crate) stream_bytes: usize,
    /// Streams.
    pub(crate) streams: usize,
    /// How long a stream is kept whose last message was sent.
    pub(crate) ended: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { bytes: 64 << 20, stream_bytes: 16 << 20, streams: 10_000, ended: Duration::from_secs(60) }
    }
}

/// The events of all streams. Clones share them.
#[derive(Clone)]
pub(crate) struct Events {
    bounds: Bounds,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    streams: HashMap<String, Sent>,
    /// Names of streams in the order in which they began; some may be gone.
    began: VecDeque<String>,
    /// When the last message of a stream was sent, in that order; some may be gone.
    ended: VecDeque<(Instant, String)>,
    bytes: usize,
    /// The number of the last event of all.
    last: u64,
}

/// What was sent on one stream.
struct Sent {
    events: VecDeque<(u64, usize, ServerSseMessage)>,
    bytes: usize,
    /// Whether its last message was sent.
    ended: bool,
    /// Told when there is more.
    more: watch::Sender<()>,
}

/// What the name of a session's stream that belongs to no request ends with: rmcp's name for it.
const COMMON: &str = ":common";

/// The stream of a session that belongs to no request.
fn common(session: &str) -> String {
    format!("{session}{COMMON}")
}

impl Events {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, kept: Arc::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session has ended, and with it its own stream and those that somebody resumed in it.
    pub(crate) fn forget(&self, session: &str) {
        self.kept().remove(&common(session));
    }

    /// What came after the event `last` that a client of `session` saw, and what comes from now on. `None` when nothing
    /// is known of it any more.
    pub(crate) fn after(&self, session: &str, last: &str) -> Option<impl Stream<Item = ServerSseMessage> + use<>> {
        let (name, number) = match last.rsplit_once('/') {
            Some((name, number)) => (name.to_owned(), number.parse().ok()?),
            // The beginning of the session's own stream, as rmcp calls it.
            None if last == "0" => (common(session), 0),
            None => return None,
        };
        let mut kept = self.kept();
        // Another session's own stream has a name that can be told from the session's. A request's is random.
        if name != common(session) && (name.ends_with(COMMON) || !kept.streams.contains_key(&name)) {
            return None;
        }
        // It lasts as long as the session. A request's stream does not say whose it is, and without the session there will
        // be no answer.
        kept.begin(&common(session));
        let life = kept.streams.get(&common(session))?.more.subscribe();
        let more = kept.streams.get(&name)?.more.subscribe();
        drop(kept);
        Some(futures::stream::unfold(
            (self.clone(), name, number, more, life),
            |(events, name, after, mut more, mut life)| async move {
                let mut over = false;
                loop {
                    // Marked as seen before the look, so that what comes in between is not missed.
                    more.borrow_and_update();
                    match events.next(&name, after) {
                        Next::Event(number, event) => return Some((event, (events, name, number, more, life))),
                        Next::End => return None,
                        Next::Wait if over => return None,
                        Next::Wait => tokio::select! {
                            changed = more.changed() => changed.ok()?,
                            () = ended(&mut life) => over = true,
                        },
                    }
                }
            },
        ))
    }

    fn next(&self, name: &str, after: u64) -> Next {
        let kept = self.kept();
        let Some(sent) = kept.streams.get(name) else { return Next::End };
        let at = sent.events.partition_point(|(number, ..)| *number <= after);
        match sent.events.get(at) {
            Some((number, _, event)) => Next::Event(*number, event.clone()),
            None if sent.ended => Next::End,
            None => Next::Wait,
        }
    }

    fn store(&self, name: &str, event: &ServerSseMessage) -> EventId {
        let size = size(event);
        let mut kept = self.kept();
        kept.last += 1;
        let number = kept.last;
        let id = format!("{name}/{number}");
        kept.begin(name);
        let mut event = event.clone();
        event.event_id = Some(id.clone());
        let ends = event.message.as_deref().is_some_and(|message| {
            matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)) && !name.ends_with(COMMON)
        });
        if let Some(sent) = kept.streams.get_mut(name) {
            sent.events.push_back((number, size, event));
            sent.bytes += size;
            let mut freed = 0;
            while sent.bytes - freed > self.bounds.stream_bytes && sent.events.len() > 1 {
                freed += sent.events.pop_front().map_or(0, |(_, size, _)| size);
            }
            sent.bytes -= freed;
            sent.ended |= ends;
            sent.more.send_replace(());
            kept.bytes = kept.bytes + size - freed;
            if ends {
                kept.ended.push_back((Instant::now(), name.to_owned()));
            }
        }
        kept.make_room(&self.bounds);
        id
    }
}

/// Waits until a stream is not known any more.
async fn ended(life: &mut watch::Receiver<()>) {
    while life.changed().await.is_ok() {}
}

enum Next {
    Event(u64, ServerSseMessage),
    Wait,
    End,
}

impl Kept {
    fn begin(&mut self, name: &str) {
        if !self.streams.contains_key(name) {
            let (more, _) = watch::channel(());
            let sent = Sent { events: VecDeque::new(), bytes: 0, ended: false, more };
            self.streams.insert(name.to_owned(), sent);
            self.began.push_back(name.to_owned());
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(sent) = self.streams.remove(name) {
            self.bytes -= sent.bytes;
        }
    }

    fn make_room(&mut self, bounds: &Bounds) {
        while self.ended.front().is_some_and(|(when, _)| when.elapsed() > bounds.ended) {
            if let Some((_, name)) = self.ended.pop_front() {
                self.remove(&name);
            }
        }
        while self.bytes > bounds.bytes || self.streams.len() > bounds.streams {
            match self.began.pop_front() {
                Some(name) => self.remove(&name),
                None => return,
            }
        }
        // Names of what is gone take room as well.
        let most = 2 * self.streams.len() + 64;
        if self.began.len() > most {
            self.began.retain(|name| self.streams.contains_key(name));
        }
        if self.ended.len() > most {
            self.ended.retain(|(_, name)| self.streams.contains_key(name));
        }
    }
}

/// The bytes that an event takes on the wire, nearly.
fn size(event: &ServerSseMessage) -> usize {
    struct Count(usize);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    // An event takes some room even when it says nothing.
    let mut count = Count(256);
    if let Some(message) = &event.message {
        // Counting does not fail.
        let _ = serde_json::to_writer(&mut count, message);
    }
    count.0
}

#[async_trait::async_trait]
impl EventStore for Events {
    async fn store_event(&self, stream_id: &str, event: &ServerSseMessage) -> Result<EventId, EventStoreError> {
        Ok(self.store(stream_id, event))
    }

    /// Never asked: [`ResumableSessions`](crate::resumable::ResumableSessions) knows whose event it is, and asks
    /// [`Events::after`].
    async fn replay_events_after(&self, _: &str) -> Result<EventStream, EventStoreError> {
        Ok(Box::pin(futures::stream::empty()))
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};
    use rmcp::model::{EmptyResult, RequestId, ServerJsonRpcMessage, ServerNotification, ServerResult};

    use super::*;

    fn said(text: &str) -> ServerSseMessage {
        let params = rmcp::model::LoggingMessageNotificationParam::new(
            rmcp::model::LoggingLevel::Info,
            serde_json::Value::from(text),
        );
        let notification = rmcp::model::LoggingMessageNotification::new(params);
        let message = ServerNotification::LoggingMessageNotification(notification);
        ServerSseMessage::from_message(ServerJsonRpcMessage::notification(message))
    }

    fn answered() -> ServerSseMessage {
        let result = ServerResult::EmptyResult(EmptyResult {});
        ServerSseMessage::from_message(ServerJsonRpcMessage::response(result, RequestId::Number(1)))
    }

    /// What a client gets now that has seen `last`; whether the stream has ended then.
    fn rest(events: &Events, session: &str, last: &str) -> (usize, bool) {
        let Some(stream) = events.after(session, last) else { return (0, true) };
        let mut stream = Box::pin(stream);
        let mut count = 0;
        loop {
            match stream.next().now_or_never() {
                Some(Some(_)) => count += 1,
                Some(None) => return (count, true),
                None => return (count, false),
            }
        }
    }

    #[test]
    fn what_came_after_an_event_comes_again_until_the_answer() {
        let events = Events::new(Bounds::default());
        let first = events.store("a", &ServerSseMessage::retry(Duration::from_secs(1)));
        events.store("b", &said("of another"));
        let second = events.store("a", &said("x"));
        assert_eq!(rest(&events, "s", &first), (1, false));
        events.store("a", &answered());
        assert_eq!(rest(&events, "s", &first), (2, true));
        assert_eq!(rest(&events, "s", &second), (1, true));
        assert_eq!(rest(&events, "s", "a/99"), (0, true));
    }

    #[test]
    fn a_sessions_own_stream_goes_on_until_the_session_ends() {
        let events = Events::new(Bounds::default());
        assert_eq!(rest(&events, "s", "0"), (0, false));
        events.store("s:common", &said("x"));
        events.store("s:common", &answered());
        assert_eq!(rest(&events, "s", "0"), (2, false));
        assert_eq!(rest(&events, "other", "0"), (0, false));
        for last in ["s:common/0", "s:common/1", "unknown:common/0"] {
            assert!(events.after("other", last).is_none(), "{last}");
        }
        let mut waiting = Box::pin(events.after("s", "0").unwrap());
        events.forget("s");
        assert!(matches!(waiting.next().now_or_never(), Some(None)));
    }

    #[test]
    fn nobody_waits_for_an_answer_in_a_session_that_has_ended() {
        let events = Events::new(Bounds::default());
        let first = events.store("a", &ServerSseMessage::retry(Duration::from_secs(1)));
        let mut waiting = Box::pin(events.after("s", &first).unwrap());
        assert!(waiting.next().now_or_never().is_none());
        events.store("a", &said("the last words"));
        events.forget("s");
        assert!(matches!(waiting.next().now_or_never(), Some(Some(_))));
        assert!(matches!(waiting.next().now_or_never(), Some(None)));
    }

    #[test]
    fn what_makes_no_sense_is_nothing() {
        let events = Events::new(Bounds::default());
        for last in ["", "/", "a", "a/", "a/b", "a/-1", "1", "//1"] {
            assert!(events.after("s", last).is_none(), "{last}");
        }
    }

    #[test]
    fn there_is_an_end_to_what_is_kept() {
        let bounds = Bounds { bytes: 50_000, stream_bytes: 20_000, streams: 20, ended: Duration::from_secs(60) };
        let events = Events::new(bounds);
        let long = "x".repeat(5_000);
        for _ in 0..100 {
            events.store("one", &said(&long));
        }
        assert!(events.kept().bytes <= 20_000, "{}", events.kept().bytes);
        assert_eq!(rest(&events, "s", "one/1").0, 3);
        for stream in 0..100 {
            events.store(&format!("stream {stream}"), &said(&long));
            assert!(events.kept().bytes <= 50_000, "{}", events.kept().bytes);
        }
        assert_eq!(rest(&events, "s", "one/1"), (0, true));
        for stream in 0..100 {
            events.store(&format!("short {stream}"), &answered());
        }
        let kept = events.kept();
        assert!(kept.streams.len() <= 20, "{}", kept.streams.len());
        assert!(kept.began.len() <= 104 && kept.ended.len() <= 104, "{} {}", kept.began.len(), kept.ended.len());
    }

    #[test]
    fn streams_that_have_ended_are_forgotten_after_a_while() {
        let events = Events::new(Bounds { ended: Duration::ZERO, ..Bounds::default() });
        let id = events.store("a", &answered());
        std::thread::sleep(Duration::from_millis(2));
        events.store("b", &said("x"));
        assert!(events.after("s", &id).is_none());
        assert_eq!(events.kept().streams.len(), 1);
    }
}
