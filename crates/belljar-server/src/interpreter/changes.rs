//! Who hears of changes to files, and to the list of files: subscriptions in both eras of the protocol.
//!
//! | era | a file | the list |
//! | --- | --- | --- |
//! | legacy | `resources/subscribe` | the client whose call changed it |
//! | modern | `subscriptions/listen`, by address | `subscriptions/listen`, of sessions that it knows |
//!
//! A client knows the sessions that it used on its connection, and those of the files that it named. Over HTTP calls of the
//! modern era have no connection, so that only the latter are left.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belljar_sessions::{FileAddress, SessionId};
use rmcp::model::{ErrorData, ResourceUpdatedNotificationParam, SubscriptionFilter};
use rmcp::service::{SubscriptionContext, SubscriptionSink};
use rmcp::{Peer, RoleServer};

use super::{Caller, Interpreter, lock};

/// Addresses that one client may subscribe to.
const MOST_SUBSCRIPTIONS: usize = 1000;
/// Requests to listen that are open at once, of all clients.
const MOST_LISTENING: usize = 1000;
/// How long a call waits for others to take the news of it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whoever wants to hear of changes, of all clients.
#[derive(Default)]
pub(super) struct Subscribers {
    /// Of the legacy era, by address.
    legacy: Mutex<HashMap<String, Vec<Peer<RoleServer>>>>,
    /// Of the modern era, by number.
    listening: Mutex<HashMap<u64, Listening>>,
    next: AtomicU64,
}

/// A request to listen.
#[derive(Clone)]
struct Listening {
    sink: SubscriptionSink,
    /// The sessions of its connection.
    mine: Arc<Mutex<BTreeSet<SessionId>>>,
}

impl Listening {
    fn addresses(&self) -> &[String] {
        self.sink.accepted().resource_subscriptions.as_deref().unwrap_or_default()
    }

    fn knows(&self, id: &SessionId) -> bool {
        let is_of = |uri: &String| FileAddress::parse(uri).is_ok_and(|address| address.session == *id);
        lock(&self.mine).contains(id) || self.addresses().iter().any(is_of)
    }

    async fn tell(&self, id: &SessionId, list: bool, changed: &[String]) {
        let filter = self.sink.accepted();
        if list && filter.resources_list_changed == Some(true) && self.knows(id) {
            // A client that is gone need not hear it.
            let _ = self.sink.notify_resource_list_changed().await;
        }
        for uri in changed.iter().filter(|uri| self.addresses().contains(uri)) {
            let _ = self.sink.notify_resource_updated(uri.clone()).await;
        }
    }
}

/// Ends a request to listen when it is dropped.
struct Until<'a>(&'a Subscribers, u64);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        lock(&self.0.listening).remove(&self.1);
    }
}

impl Interpreter {
    /// Tells all who want to hear it that files of a session have changed, and perhaps the list of them.
    pub(super) async fn tell(&self, id: &SessionId, list: bool, paths: &[&str], caller: &Caller) {
        let changed: Vec<String> = paths.iter().map(|path| FileAddress::format(id, path)).collect();
        if list && !caller.modern {
            // A client that is gone need not hear it.
            let _ = caller.peer.notify_resource_list_changed().await;
        }
        for uri in &changed {
            let peers = lock(&self.subscribers.legacy).get(uri).cloned().unwrap_or_default();
            for peer in peers {
                let _ = peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(uri.clone())).await;
            }
        }
        let listening: Vec<Listening> = lock(&self.subscribers.listening).values().cloned().collect();
        let told = futures::future::join_all(listening.iter().map(|listening| listening.tell(id, list, &changed)));
        if tokio::time::timeout(PATIENCE, told).await.is_err() {
            tracing::debug!("somebody who listens does not take the news");
        }
    }

    pub(crate) async fn subscribe(&self, uri: String, peer: Peer<RoleServer>) -> Result<(), ErrorData> {
        let refused = |error: &dyn std::fmt::Display| ErrorData::resource_not_found(error.to_string(), None);
        let address = FileAddress::parse(&uri).map_err(|error| refused(&error))?;
        self.sessions.find(address.session.as_str()).map_err(|error| refused(&error))?;
        {
            let mut subscribed = lock(&self.subscribed);
            if subscribed.len() >= MOST_SUBSCRIPTIONS {
                return Err(ErrorData::invalid_params(
                    format!("at most {MOST_SUBSCRIPTIONS} subscriptions are kept"),
                    None,
                ));
            }
            if !subscribed.insert(uri.clone()) {
                return Ok(());
            }
        }
        let mut subscribers = lock(&self.subscribers.legacy);
        // Clients that are gone are forgotten here.
        subscribers.retain(|_, peers| {
            peers.retain(|peer| !peer.is_transport_closed());
            !peers.is_empty()
        });
        subscribers.entry(uri).or_default().push(peer);
        Ok(())
    }

    pub(crate) fn unsubscribe(&self, uri: &str, peer: &Peer<RoleServer>) {
        lock(&self.subscribed).remove(uri);
        if let Some(peers) = lock(&self.subscribers.legacy).get_mut(uri) {
            peers.retain(|other| !other.is_transport_closed() && !same(other, peer));
        }
    }

    /// What can be listened to of what a client wants to: files of sessions that there are, and the list.
    pub(crate) fn accept(&self, wanted: &SubscriptionFilter) -> SubscriptionFilter {
        let mut accepted = SubscriptionFilter::new();
        accepted.resources_list_changed = wanted.resources_list_changed;
        let is_there = |uri: &&String| {
            FileAddress::parse(uri).is_ok_and(|address| self.sessions.find(address.session.as_str()).is_ok())
        };
        let addresses = wanted.resource_subscriptions.iter().flatten().take(MOST_SUBSCRIPTIONS);
        accepted.resource_subscriptions = Some(addresses.filter(is_there).cloned().collect());
        accepted
    }

    /// Passes changes on until the client wants no more.
    pub(crate) async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let number = self.subscribers.next.fetch_add(1, Ordering::Relaxed);
        {
            let mut listening = lock(&self.subscribers.listening);
            if listening.len() >= MOST_LISTENING {
                return Err(ErrorData::invalid_request("too many clients listen already", None));
            }
            listening.insert(number, Listening { sink: context.sink().clone(), mine: self.mine.clone() });
        }
        let _until = Until(&self.subscribers, number);
        context.cancelled().await;
        Ok(())
    }
}

/// Whether two handles are of one client.
fn same(one: &Peer<RoleServer>, other: &Peer<RoleServer>) -> bool {
    one.peer_info().zip(other.peer_info()).is_some_and(|(one, other)| Arc::ptr_eq(&one, &other))
}
