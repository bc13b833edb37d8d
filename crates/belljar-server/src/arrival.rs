//! The order of arrival: calls to one session run in the order in which they arrived at the server.
//!
//! Each request is handled in a task of its own, and tasks overtake one another. Therefore a request takes its turn
//! where it arrives, before its task is started:
//!
//! ```text
//!  stdio: lines ───────────────────────────────┐
//!                                              ├─▶ SessionTurn ─▶ task ─▶ in_turn ─▶ the session's queue
//!  HTTP: heads ─▶ SenderTurn ─▶ whole bodies ──┘
//! ```
//!
//! In its task the call waits for its turn, queues its work without waiting for the result, and passes the turn on.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use axum::http::request::Parts;
use belljar_sessions::{FileAddress, SessionId};
use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::{session_tools, tool};

/// The time for which a call waits for calls that arrived before it and were not handled, for example because their
/// bodies are incomplete. It then runs before them.
const TURN_TIMEOUT: Duration = Duration::from_secs(60);
/// The time for which an interrupt waits for such calls, at each of its two turns. A busy machine may take seconds to
/// read a body that has arrived.
const INTERRUPT_TURN_TIMEOUT: Duration = Duration::from_secs(5);

/// The turns of all requests with equal keys, in the order of arrival. Clones share them.
pub(crate) struct ArrivalOrder<K>(Arc<Mutex<Turns<K>>>);

struct Turns<K> {
    /// The number of the next turn, of all keys.
    next: u64,
    /// The turns that were not passed on, by key.
    open: HashMap<K, BTreeMap<u64, Arc<Notify>>>,
}

/// The turn of one request. It is passed on when the last clone is dropped, or earlier by [`Turn::pass`].
pub(crate) struct Turn<K: Clone + Eq + Hash>(Arc<OpenTurn<K>>);

/// The turn of a call among the calls to the same session.
pub(crate) type SessionTurn = Turn<SessionId>;

/// The turn of a request over HTTP among those of the same sender.
pub(crate) type SenderTurn = Turn<Sender>;

struct OpenTurn<K: Clone + Eq + Hash> {
    order: ArrivalOrder<K>,
    key: K,
    number: u64,
    /// Notified when the turn may have come.
    came: Arc<Notify>,
}

/// The sender of a request over HTTP, by what is known before the body is read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Sender {
    /// A client with an MCP session, which may use several connections.
    McpSession(HeaderValue),
    /// A connection, with the credentials of the request: a proxy may use one connection for several clients.
    Connection(u64, Option<HeaderValue>),
}

impl<K> Clone for ArrivalOrder<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K> Default for ArrivalOrder<K> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Turns { next: 0, open: HashMap::new() })))
    }
}

impl<K: Clone + Eq + Hash> ArrivalOrder<K> {
    /// Takes the next turn with this key.
    pub(crate) fn enter(&self, key: K) -> Turn<K> {
        let came = Arc::<Notify>::default();
        let mut turns = self.0.lock();
        let number = turns.next;
        turns.next += 1;
        turns.open.entry(key.clone()).or_default().insert(number, came.clone());
        drop(turns);
        Turn(Arc::new(OpenTurn { order: self.clone(), key, number, came }))
    }
}

impl<K: Clone + Eq + Hash> Clone for Turn<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Clone + Eq + Hash> Turn<K> {
    /// Waits until all earlier turns were passed on, for a limited time.
    pub(crate) async fn wait(&self) {
        let reached = async {
            while !self.0.is_first() {
                self.0.came.notified().await;
            }
        };
        if tokio::time::timeout(TURN_TIMEOUT, reached).await.is_err() {
            tracing::debug!("a call runs before one that arrived earlier and was not handled in time");
        }
    }

    /// Waits for the turn of an interrupt for a short time: it follows the calls that arrived before it, but must act
    /// soon, and acts before its turn if that does not come.
    pub(crate) async fn wait_briefly(&self) {
        let _ = tokio::time::timeout(INTERRUPT_TURN_TIMEOUT, self.wait()).await;
    }

    /// Lets the next request have its turn.
    pub(crate) fn pass(self) {
        self.0.close();
    }
}

impl<K: Clone + Eq + Hash> OpenTurn<K> {
    fn is_first(&self) -> bool {
        let turns = self.order.0.lock();
        // A turn that was passed on is not in the map, and has come.
        turns.open.get(&self.key).and_then(BTreeMap::first_key_value).is_none_or(|(first, _)| *first >= self.number)
    }

    fn close(&self) {
        let mut turns = self.order.0.lock();
        let Some(open) = turns.open.get_mut(&self.key) else { return };
        if open.remove(&self.number).is_none() {
            return;
        }
        match open.first_key_value() {
            // The permit of `notify_one` is kept for a request that does not wait yet.
            Some((_, came)) => came.notify_one(),
            None => drop(turns.open.remove(&self.key)),
        }
    }
}

impl<K: Clone + Eq + Hash> Drop for OpenTurn<K> {
    fn drop(&mut self) {
        self.close();
    }
}

/// Waits for a call's turn, calls `queue`, which queues the call's work, and lets the next call have its turn.
pub(crate) async fn in_turn<T>(turn: Option<SessionTurn>, queue: impl FnOnce() -> T) -> T {
    let Some(turn) = turn else { return queue() };
    turn.wait().await;
    let queued = queue();
    turn.pass();
    queued
}

/// Returns the turn that a request took when it arrived.
pub(crate) fn turn_of(context: &RequestContext<RoleServer>) -> Option<SessionTurn> {
    let of_http = || context.extensions.get::<Parts>()?.extensions.get::<SessionTurn>();
    context.extensions.get::<SessionTurn>().or_else(of_http).cloned()
}

/// The use of a session by a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SessionUse {
    pub(crate) session: SessionId,
    /// Set if the message interrupts the session, which may not wait for other messages for long.
    pub(crate) is_interrupt: bool,
}

/// Returns the use of a session by a message, if it has one and its place in the order matters.
pub(crate) fn session_use(message: &[u8]) -> Option<SessionUse> {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        method: Cow<'a, str>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Call<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow)]
        arguments: Option<Arguments<'a>>,
        /// Marks a call that continues a running cell.
        #[serde(borrow, rename = "requestState")]
        state: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Arguments<'a> {
        #[serde(borrow)]
        session_id: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Read {
        uri: String,
    }
    let Message { method, params } = serde_json::from_slice(message).ok()?;
    let params = params?.get();
    match &*method {
        "tools/call" => {
            let call: Call<'_> = serde_json::from_str(params).ok()?;
            if call.state.is_some() || call.name == tool::NAME {
                return None;
            }
            let Value::String(id) = serde_json::from_str(call.arguments?.session_id?.get()).ok()? else { return None };
            Some(SessionUse { session: SessionId::parse(&id)?, is_interrupt: call.name == session_tools::INTERRUPT })
        }
        "resources/read" => {
            let Read { uri } = serde_json::from_str(params).ok()?;
            Some(SessionUse { session: FileAddress::parse(&uri).ok()?.session, is_interrupt: false })
        }
        _ => None,
    }
}

/// Returns the ID of the run that a message names, if it names one and no session: a call that continues a run, or a
/// request about its task.
pub(crate) fn used_run(message: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Message {
        method: String,
        params: Option<Params>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Params {
        name: String,
        arguments: Option<Arguments>,
        request_state: Option<String>,
        task_id: Option<String>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Arguments {
        run_id: Option<String>,
    }
    let Message { method, params } = serde_json::from_slice(message).ok()?;
    let Params { arguments, request_state, task_id, .. } = params?;
    match &*method {
        "tools/call" => match request_state {
            Some(state) => Some(state.split('.').next()?.to_owned()),
            None => arguments?.run_id,
        },
        "tasks/get" | "tasks/update" | "tasks/cancel" | "tasks/result" => task_id,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use serde_json::json;

    use super::*;

    const ID: &str = "W-zFjI5p-ns1Qiu9";

    #[tokio::test]
    async fn turns_come_in_the_order_of_arrival() {
        let order = ArrivalOrder::default();
        let turns: Vec<Turn<u8>> = (0..100).map(|_| order.enter(1)).collect();
        let (sender, mut results) = tokio::sync::mpsc::unbounded_channel();
        for (number, turn) in turns.into_iter().enumerate().rev() {
            let sender = sender.clone();
            tokio::spawn(async move {
                turn.wait().await;
                sender.send(number).unwrap();
                turn.pass();
            });
        }
        for number in 0..100 {
            assert_eq!(results.recv().await, Some(number));
        }
        assert!(order.0.lock().open.is_empty());
    }

    #[tokio::test]
    async fn other_keys_and_dropped_turns_are_not_waited_for() {
        let order = ArrivalOrder::default();
        let (first, second, other) = (order.enter(1), order.enter(1), order.enter(2));
        assert_eq!(other.wait().now_or_never(), Some(()));
        assert_eq!(second.wait().now_or_never(), None);
        let clone = first.clone();
        drop(first);
        assert_eq!(second.wait().now_or_never(), None);
        drop(clone);
        assert_eq!(second.wait().now_or_never(), Some(()));
        let third = order.enter(1);
        second.clone().pass();
        assert_eq!(third.wait().now_or_never(), Some(()));
        // The drop of a turn that was passed on does not pass on another one.
        let fourth = order.enter(1);
        drop(second);
        assert_eq!(fourth.wait().now_or_never(), None);
    }

    #[test]
    fn session_of_a_message_is_found() {
        let call = |name: &str, arguments: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": name, "arguments": arguments } });
        let mut continued = call("execute_code", json!({ "code": "1", "session_id": ID }));
        continued["params"]["requestState"] = json!("x");
        let read = json!({ "method": "resources/read", "params": { "uri": format!("kernel://{ID}/a%20b.txt") } });
        for (message, wanted) in [
            (call("execute_code", json!({ "code": "\"session_id\"", "session_id": ID })), Some(ID)),
            (call("fork_session", json!({ "session_id": ID })), Some(ID)),
            (call("interrupt_session", json!({ "session_id": ID })), Some(ID)),
            (read, Some(ID)),
            (call("execute_code", json!({ "code": "1", "session_id": "" })), None),
            (call("execute_code", json!({ "code": "1", "session_id": 0 })), None),
            (call("execute_code", json!({ "code": "1" })), None),
            (call("run_python_code", json!({ "python_code": "1", "session_id": ID })), None),
            (continued, None),
            (json!({ "method": "ping" }), None),
            (json!([]), None),
        ] {
            let found = session_use(message.to_string().as_bytes());
            assert_eq!(found.as_ref().map(|found| found.session.as_str()), wanted, "{message}");
            let is_interrupt = message["params"]["name"] == "interrupt_session";
            assert_eq!(found.is_some_and(|found| found.is_interrupt), is_interrupt, "{message}");
        }
        assert_eq!(session_use(b"{bad"), None);
    }
}
