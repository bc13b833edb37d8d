//! A store of sent events, from which clients whose connection broke continue (streamable HTTP's `Last-Event-ID`).
//!
//! Everything is bounded: the bytes of all events, the bytes of one stream, the number of streams, and the time for
//! which a stream that has ended is kept. The streams that began first are removed first. An event's ID consists of
//! the name of its stream, which is random, and a number that only grows, so that a client cannot guess the IDs of
//! another client.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::Stream;
use parking_lot::{Mutex, MutexGuard};
use rmcp::model::JsonRpcMessage;
use rmcp::transport::common::server_side_http::ServerSseMessage;
use rmcp::transport::streamable_http_server::session::{EventId, EventStore, EventStoreError, EventStream};
use tokio::sync::watch;

/// The limits of an event store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventStoreLimits {
    /// The bytes of all events, as sent.
    pub(crate) bytes: usize,
    /// The bytes of one stream's events.
    pub(crate) stream_bytes: usize,
    /// The number of streams.
    pub(crate) streams: usize,
    /// The time for which a stream is kept after its last message.
    pub(crate) ended: Duration,
}

impl Default for EventStoreLimits {
    fn default() -> Self {
        Self { bytes: 64 << 20, stream_bytes: 16 << 20, streams: 10_000, ended: Duration::from_secs(60) }
    }
}

/// A store of the events of all streams, in memory. Clones share it.
#[derive(Clone)]
pub(crate) struct InMemoryEventStore {
    limits: EventStoreLimits,
    inner: Arc<Mutex<EventStoreInner>>,
}

#[derive(Default)]
struct EventStoreInner {
    streams: HashMap<String, StreamLog>,
    /// Names of streams in the order in which they began; some may have been removed.
    began: VecDeque<String>,
    /// The time of each ended stream's last message, in order; some streams may have been removed.
    ended: VecDeque<(Instant, String)>,
    bytes: usize,
    /// The number of the newest event of all streams.
    last: u64,
}

/// The events sent on one stream.
struct StreamLog {
    events: VecDeque<(u64, usize, ServerSseMessage)>,
    bytes: usize,
    /// The session of the request that it belongs to, once an event was sent in the session.
    session: Option<String>,
    /// Set once its last message was sent.
    ended: bool,
    /// Notifies readers of new events.
    more: watch::Sender<()>,
}

/// The suffix that rmcp gives to the name of a session's standalone stream, which does not belong to a request.
const STANDALONE_SUFFIX: &str = ":common";

/// Returns the name of a session's standalone stream.
fn standalone_stream(session: &str) -> String {
    format!("{session}{STANDALONE_SUFFIX}")
}

impl InMemoryEventStore {
    pub(crate) fn new(limits: EventStoreLimits) -> Self {
        Self { limits, inner: Arc::default() }
    }

    fn inner(&self) -> MutexGuard<'_, EventStoreInner> {
        self.inner.lock()
    }

    /// Removes the standalone stream of a session that was closed. The streams that were resumed in the session end
    /// too.
    pub(crate) fn remove_session(&self, session: &str) {
        self.inner().remove(&standalone_stream(session));
    }

    /// Records that the stream of this event belongs to a request of `session`: other sessions cannot resume it.
    pub(crate) fn set_session(&self, event: &str, session: &str) {
        if let Some((name, _)) = event.rsplit_once('/')
            && let Some(log) = self.inner().streams.get_mut(name)
        {
            log.session.get_or_insert_with(|| session.to_owned());
        }
    }

    /// Returns the events after `last`, the last event that a client of `session` received, followed by future
    /// events. Returns `None` when the event's stream is unknown, or that of another session.
    pub(crate) fn replay_after(
        &self,
        session: &str,
        last: &str,
    ) -> Option<impl Stream<Item = ServerSseMessage> + use<>> {
        let (name, number) = match last.rsplit_once('/') {
            Some((name, number)) => (name.to_owned(), number.parse().ok()?),
            // rmcp's name for the start of the session's standalone stream.
            None if last == "0" => (standalone_stream(session), 0),
            None => return None,
        };
        let mut inner = self.inner();
        // The name of a standalone stream can be derived from its session's ID. The name of a request's stream is
        // random, but a client that learned it is not thereby allowed to read it.
        let is_of_session = |log: &StreamLog| log.session.as_deref().is_none_or(|known| known == session);
        if name != standalone_stream(session)
            && (name.ends_with(STANDALONE_SUFFIX) || !inner.streams.get(&name).is_some_and(is_of_session))
        {
            return None;
        }
        // The standalone stream lasts as long as the session. A request's stream does not name its session, and it
        // gets no response once the session is closed.
        inner.begin(&standalone_stream(session));
        let session_stream = inner.streams.get(&standalone_stream(session))?.more.subscribe();
        let more = inner.streams.get(&name)?.more.subscribe();
        drop(inner);
        Some(futures::stream::unfold(
            (self.clone(), name, number, more, session_stream),
            |(events, name, after, mut more, mut session_stream)| async move {
                let mut over = false;
                loop {
                    // Mark as seen before reading, so that an event that arrives in between is not missed.
                    more.borrow_and_update();
                    match events.next(&name, after) {
                        Next::Event(number, event) => {
                            return Some((event, (events, name, number, more, session_stream)));
                        }
                        Next::End => return None,
                        Next::Wait if over => return None,
                        Next::Wait => tokio::select! {
                            changed = more.changed() => changed.ok()?,
                            () = wait_until_removed(&mut session_stream) => over = true,
                        },
                    }
                }
            },
        ))
    }

    fn next(&self, name: &str, after: u64) -> Next {
        let inner = self.inner();
        let Some(log) = inner.streams.get(name) else { return Next::End };
        let at = log.events.partition_point(|(number, ..)| *number <= after);
        match log.events.get(at) {
            Some((number, _, event)) => Next::Event(*number, event.clone()),
            None if log.ended => Next::End,
            None => Next::Wait,
        }
    }

    fn store(&self, name: &str, event: &ServerSseMessage) -> EventId {
        let size = size(event);
        let mut inner = self.inner();
        inner.last += 1;
        let number = inner.last;
        let id = format!("{name}/{number}");
        inner.begin(name);
        let mut event = event.clone();
        event.event_id = Some(id.clone());
        let ends = event.message.as_deref().is_some_and(|message| {
            matches!(message, JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_))
                && !name.ends_with(STANDALONE_SUFFIX)
        });
        if let Some(log) = inner.streams.get_mut(name) {
            log.events.push_back((number, size, event));
            log.bytes += size;
            let mut freed = 0;
            while log.bytes - freed > self.limits.stream_bytes && log.events.len() > 1 {
                freed += log.events.pop_front().map_or(0, |(_, size, _)| size);
            }
            log.bytes -= freed;
            log.ended |= ends;
            log.more.send_replace(());
            inner.bytes = inner.bytes + size - freed;
            if ends {
                inner.ended.push_back((Instant::now(), name.to_owned()));
            }
        }
        inner.make_room(&self.limits);
        id
    }
}

/// Waits until a stream is removed.
async fn wait_until_removed(session_stream: &mut watch::Receiver<()>) {
    while session_stream.changed().await.is_ok() {}
}

enum Next {
    Event(u64, ServerSseMessage),
    Wait,
    End,
}

impl EventStoreInner {
    fn begin(&mut self, name: &str) {
        if !self.streams.contains_key(name) {
            let (more, _) = watch::channel(());
            let log = StreamLog { events: VecDeque::new(), bytes: 0, session: None, ended: false, more };
            self.streams.insert(name.to_owned(), log);
            self.began.push_back(name.to_owned());
        }
    }

    fn remove(&mut self, name: &str) {
        if let Some(log) = self.streams.remove(name) {
            self.bytes -= log.bytes;
        }
    }

    fn make_room(&mut self, limits: &EventStoreLimits) {
        while self.ended.front().is_some_and(|(when, _)| when.elapsed() > limits.ended) {
            if let Some((_, name)) = self.ended.pop_front() {
                self.remove(&name);
            }
        }
        while self.bytes > limits.bytes || self.streams.len() > limits.streams {
            match self.began.pop_front() {
                Some(name) => self.remove(&name),
                None => return,
            }
        }
        // The names of removed streams take memory as well.
        let max = 2 * self.streams.len() + 64;
        if self.began.len() > max {
            self.began.retain(|name| self.streams.contains_key(name));
        }
        if self.ended.len() > max {
            self.ended.retain(|(_, name)| self.streams.contains_key(name));
        }
    }
}

/// Returns approximately the bytes that an event takes on the wire.
fn size(event: &ServerSseMessage) -> usize {
    struct ByteCounter(usize);
    impl Write for ByteCounter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    // An empty event takes memory as well.
    let mut count = ByteCounter(256);
    if let Some(message) = &event.message {
        // Counting does not fail.
        let _ = serde_json::to_writer(&mut count, message);
    }
    count.0
}

#[async_trait::async_trait]
impl EventStore for InMemoryEventStore {
    async fn store_event(&self, stream_id: &str, event: &ServerSseMessage) -> Result<EventId, EventStoreError> {
        Ok(self.store(stream_id, event))
    }

    /// Returns no events. It is never called: [`ResumableSessions`](crate::resumable::ResumableSessions) knows the
    /// session of an event and calls [`InMemoryEventStore::replay_after`].
    async fn replay_events_after(&self, _: &str) -> Result<EventStream, EventStoreError> {
        Ok(Box::pin(futures::stream::empty()))
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, StreamExt};
    use rmcp::model::{EmptyResult, RequestId, ServerJsonRpcMessage, ServerNotification, ServerResult};

    use super::*;

    fn log_message(text: &str) -> ServerSseMessage {
        let params = rmcp::model::LoggingMessageNotificationParam::new(
            rmcp::model::LoggingLevel::Info,
            serde_json::Value::from(text),
        );
        let notification = rmcp::model::LoggingMessageNotification::new(params);
        let message = ServerNotification::LoggingMessageNotification(notification);
        ServerSseMessage::from_message(ServerJsonRpcMessage::notification(message))
    }

    fn response() -> ServerSseMessage {
        let result = ServerResult::EmptyResult(EmptyResult {});
        ServerSseMessage::from_message(ServerJsonRpcMessage::response(result, RequestId::Number(1)))
    }

    /// Returns the number of events that a client receives after `last`, and whether the stream ends after them.
    fn rest(events: &InMemoryEventStore, session: &str, last: &str) -> (usize, bool) {
        let Some(stream) = events.replay_after(session, last) else { return (0, true) };
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
    fn replay_continues_after_the_last_event_until_the_response() {
        let events = InMemoryEventStore::new(EventStoreLimits::default());
        let first = events.store("a", &ServerSseMessage::retry(Duration::from_secs(1)));
        events.store("b", &log_message("of another stream"));
        let second = events.store("a", &log_message("x"));
        assert_eq!(rest(&events, "s", &first), (1, false));
        events.store("a", &response());
        assert_eq!(rest(&events, "s", &first), (2, true));
        assert_eq!(rest(&events, "s", &second), (1, true));
        assert_eq!(rest(&events, "s", "a/99"), (0, true));
    }

    #[test]
    fn standalone_stream_lasts_until_the_session_is_closed() {
        let events = InMemoryEventStore::new(EventStoreLimits::default());
        assert_eq!(rest(&events, "s", "0"), (0, false));
        events.store("s:common", &log_message("x"));
        events.store("s:common", &response());
        assert_eq!(rest(&events, "s", "0"), (2, false));
        assert_eq!(rest(&events, "other", "0"), (0, false));
        for last in ["s:common/0", "s:common/1", "unknown:common/0"] {
            assert!(events.replay_after("other", last).is_none(), "{last}");
        }
        let mut waiting = Box::pin(events.replay_after("s", "0").unwrap());
        events.remove_session("s");
        assert!(matches!(waiting.next().now_or_never(), Some(None)));
    }

    #[test]
    fn replay_ends_when_the_session_is_closed() {
        let events = InMemoryEventStore::new(EventStoreLimits::default());
        let first = events.store("a", &ServerSseMessage::retry(Duration::from_secs(1)));
        let mut waiting = Box::pin(events.replay_after("s", &first).unwrap());
        assert!(waiting.next().now_or_never().is_none());
        events.store("a", &log_message("last"));
        events.remove_session("s");
        assert!(matches!(waiting.next().now_or_never(), Some(Some(_))));
        assert!(matches!(waiting.next().now_or_never(), Some(None)));
    }

    #[test]
    fn malformed_event_ids_are_unknown() {
        let events = InMemoryEventStore::new(EventStoreLimits::default());
        for last in ["", "/", "a", "a/", "a/b", "a/-1", "1", "//1"] {
            assert!(events.replay_after("s", last).is_none(), "{last}");
        }
    }

    #[test]
    fn stream_is_resumed_only_in_its_session() {
        let events = InMemoryEventStore::new(EventStoreLimits::default());
        let first = events.store("a", &log_message("secret"));
        events.set_session(&first, "s");
        // The first session remains.
        events.set_session(&first, "other");
        assert!(events.replay_after("s", &first).is_some());
        assert!(events.replay_after("other", &first).is_none());
        events.set_session("unknown/1", "s");
        assert!(!events.inner().streams.contains_key("unknown"));
    }

    #[test]
    fn stored_events_are_bounded() {
        let limits =
            EventStoreLimits { bytes: 50_000, stream_bytes: 20_000, streams: 20, ended: Duration::from_secs(60) };
        let events = InMemoryEventStore::new(limits);
        let long = "x".repeat(5_000);
        for _ in 0..100 {
            events.store("one", &log_message(&long));
        }
        assert!(events.inner().bytes <= 20_000, "{}", events.inner().bytes);
        assert_eq!(rest(&events, "s", "one/1").0, 3);
        for stream in 0..100 {
            events.store(&format!("stream {stream}"), &log_message(&long));
            assert!(events.inner().bytes <= 50_000, "{}", events.inner().bytes);
        }
        assert_eq!(rest(&events, "s", "one/1"), (0, true));
        for stream in 0..100 {
            events.store(&format!("short {stream}"), &response());
        }
        let inner = events.inner();
        assert!(inner.streams.len() <= 20, "{}", inner.streams.len());
        assert!(inner.began.len() <= 104 && inner.ended.len() <= 104, "{} {}", inner.began.len(), inner.ended.len());
    }

    #[test]
    fn ended_streams_are_removed_after_their_retention() {
        let events = InMemoryEventStore::new(EventStoreLimits { ended: Duration::ZERO, ..EventStoreLimits::default() });
        let id = events.store("a", &response());
        std::thread::sleep(Duration::from_millis(2));
        events.store("b", &log_message("x"));
        assert!(events.replay_after("s", &id).is_none());
        assert_eq!(events.inner().streams.len(), 1);
    }
}
