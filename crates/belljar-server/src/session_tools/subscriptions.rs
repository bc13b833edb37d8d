//! Subscriptions to changes of files and of the list of files, in both eras of the protocol.
//!
//! | era | a file | the list |
//! | --- | --- | --- |
//! | legacy | `resources/subscribe` | the client whose call changed it |
//! | modern | `subscriptions/listen`, by URI | `subscriptions/listen`, for the client's sessions |
//!
//! A client's sessions are those that it used on its connection, and those of the files that it subscribed to. Over
//! HTTP, calls of the modern era have no connection, so that only the latter apply.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belljar_sessions::{FileAddress, SessionId};
use parking_lot::Mutex;
use rmcp::model::{ErrorData, ResourceUpdatedNotificationParam, SubscriptionFilter};
use rmcp::service::{SubscriptionContext, SubscriptionSink};
use rmcp::{Peer, RoleServer};

use super::{Caller, SessionTools};

/// The maximum number of URIs that one client may subscribe to.
const MAX_SUBSCRIPTIONS: usize = 1000;
/// The maximum number of open `subscriptions/listen` requests, of all clients.
const MAX_LISTEN_REQUESTS: usize = 1000;
/// The time for which a call waits until other clients have received its notifications.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(2);

/// The subscriptions of all clients.
#[derive(Default)]
pub(super) struct Subscribers {
    /// Clients of the legacy era, by URI.
    legacy: Mutex<HashMap<String, Vec<Peer<RoleServer>>>>,
    /// Requests of the modern era, by number.
    listening: Mutex<HashMap<u64, ListenSubscription>>,
    next: AtomicU64,
}

/// An open `subscriptions/listen` request.
#[derive(Clone)]
struct ListenSubscription {
    sink: SubscriptionSink,
    /// The sessions that were used on its connection.
    visible_sessions: Arc<Mutex<BTreeSet<SessionId>>>,
}

impl ListenSubscription {
    fn uris(&self) -> &[String] {
        self.sink.accepted().resource_subscriptions.as_deref().unwrap_or_default()
    }

    fn includes(&self, id: &SessionId) -> bool {
        let is_of_session = |uri: &String| FileAddress::parse(uri).is_ok_and(|address| address.session == *id);
        self.visible_sessions.lock().contains(id) || self.uris().iter().any(is_of_session)
    }

    async fn notify(&self, id: &SessionId, list: bool, changed: &[String]) {
        let filter = self.sink.accepted();
        if list && filter.resources_list_changed == Some(true) && self.includes(id) {
            // Notifications to a disconnected client fail.
            let _ = self.sink.notify_resource_list_changed().await;
        }
        for uri in changed.iter().filter(|uri| self.uris().contains(uri)) {
            let _ = self.sink.notify_resource_updated(uri.clone()).await;
        }
    }
}

/// A guard that removes a `subscriptions/listen` request when dropped.
struct UnsubscribeOnDrop<'a>(&'a Subscribers, u64);

impl Drop for UnsubscribeOnDrop<'_> {
    fn drop(&mut self) {
        self.0.listening.lock().remove(&self.1);
    }
}

impl SessionTools {
    /// Notifies subscribed clients that files of a session have changed; `list` includes the list of files.
    pub(super) async fn notify(&self, id: &SessionId, list: bool, paths: &[&str], caller: &Caller) {
        let changed: Vec<String> = paths.iter().map(|path| FileAddress::format(id, path)).collect();
        if list && !caller.modern {
            // Notifications to a disconnected client fail.
            let _ = caller.peer.notify_resource_list_changed().await;
        }
        for uri in &changed {
            let peers = self.subscribers.legacy.lock().get(uri).cloned().unwrap_or_default();
            for peer in peers {
                let _ = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri.clone())).await;
            }
        }
        let listening: Vec<ListenSubscription> = self.subscribers.listening.lock().values().cloned().collect();
        let notified =
            futures::future::join_all(listening.iter().map(|listening| listening.notify(id, list, &changed)));
        if tokio::time::timeout(NOTIFY_TIMEOUT, notified).await.is_err() {
            tracing::debug!("timed out sending notifications to a subscribed client");
        }
    }

    pub(crate) async fn subscribe(&self, uri: String, peer: Peer<RoleServer>) -> Result<(), ErrorData> {
        let refused = |error: &dyn std::fmt::Display| ErrorData::resource_not_found(error.to_string(), None);
        let address = FileAddress::parse(&uri).map_err(|error| refused(&error))?;
        self.sessions.find(address.session.as_str()).map_err(|error| refused(&error))?;
        {
            let mut subscribed = self.subscribed.lock();
            if subscribed.len() >= MAX_SUBSCRIPTIONS {
                return Err(ErrorData::invalid_params(
                    format!("a client may have at most {MAX_SUBSCRIPTIONS} subscriptions"),
                    None,
                ));
            }
            if !subscribed.insert(uri.clone()) {
                return Ok(());
            }
        }
        let mut subscribers = self.subscribers.legacy.lock();
        // Remove clients that have disconnected.
        subscribers.retain(|_, peers| {
            peers.retain(|peer| !peer.is_transport_closed());
            !peers.is_empty()
        });
        subscribers.entry(uri).or_default().push(peer);
        Ok(())
    }

    pub(crate) fn unsubscribe(&self, uri: &str, peer: &Peer<RoleServer>) {
        self.subscribed.lock().remove(uri);
        if let Some(peers) = self.subscribers.legacy.lock().get_mut(uri) {
            peers.retain(|other| !other.is_transport_closed() && !is_same_client(other, peer));
        }
    }

    /// Returns the part of a requested filter that the server supports: files of existing sessions, and the list.
    pub(crate) fn accept(&self, wanted: &SubscriptionFilter) -> SubscriptionFilter {
        let mut accepted = SubscriptionFilter::new();
        accepted.resources_list_changed = wanted.resources_list_changed;
        let is_there = |uri: &&String| {
            FileAddress::parse(uri).is_ok_and(|address| self.sessions.find(address.session.as_str()).is_ok())
        };
        let uris = wanted.resource_subscriptions.iter().flatten().take(MAX_SUBSCRIPTIONS);
        accepted.resource_subscriptions = Some(uris.filter(is_there).cloned().collect());
        accepted
    }

    /// Keeps a subscription until the client cancels it.
    pub(crate) async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let number = self.subscribers.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut listening = self.subscribers.listening.lock();
            if listening.len() >= MAX_LISTEN_REQUESTS {
                return Err(ErrorData::invalid_request("too many subscriptions are open", None));
            }
            listening.insert(
                number,
                ListenSubscription { sink: context.sink().clone(), visible_sessions: self.visible_sessions.clone() },
            );
        }
        let _guard = UnsubscribeOnDrop(&self.subscribers, number);
        context.cancelled().await;
        Ok(())
    }
}

/// Returns whether two handles belong to the same client.
fn is_same_client(one: &Peer<RoleServer>, other: &Peer<RoleServer>) -> bool {
    one.peer_info().zip(other.peer_info()).is_some_and(|(one, other)| Arc::ptr_eq(&one, &other))
}
