//! The network of the code in a worker: its sockets ask the broker, which has the connections.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use belljar_emscripten::Errno;
use belljar_emscripten::fs::{Readiness, SocketFamily};
use belljar_emscripten::network::{Connection, Network, ResolveError};
use belljar_python::isolation::{
    ChangeObserver, ConnectionId, ConnectionState, MAX_TRANSFER, NetworkReply, NetworkRequest,
};
use parking_lot::Mutex;

use crate::channel::{Channel, end};
use crate::messages::{Command, Event};

/// The functions that are called when a connection may have changed, by the connections.
pub(crate) type ChangeListeners = Mutex<BTreeMap<ConnectionId, ChangeObserver>>;

/// The network that the broker provides. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RemoteNetwork(Arc<Shared>);

struct Shared {
    channel: Arc<Channel>,
    listeners: ChangeListeners,
}

impl RemoteNetwork {
    pub(crate) fn new(channel: Arc<Channel>) -> Self {
        Self(Arc::new(Shared { channel, listeners: ChangeListeners::default() }))
    }

    /// Tells the program that a connection may have changed.
    pub(crate) fn notify(&self) {
        for listener in self.0.listeners.lock().values() {
            listener();
        }
    }

    fn ask(&self, request: NetworkRequest) -> NetworkReply {
        match self.0.channel.ask(&Event::Network(request)) {
            Command::Network(reply) => reply,
            _ => end(),
        }
    }
}

impl Network for RemoteNetwork {
    fn resolve(&self, name: &str, family: Option<SocketFamily>, port: Option<u16>) -> Result<IpAddr, ResolveError> {
        match self.ask(NetworkRequest::Resolve { name: name.into(), family, port }) {
            NetworkReply::Resolved(resolved) => resolved,
            _ => end(),
        }
    }

    fn connect(&self, address: SocketAddr) -> Result<Box<dyn Connection>, Errno> {
        let NetworkReply::Connected(connected) = self.ask(NetworkRequest::Connect(address)) else { end() };
        let connected = connected?;
        let (network, is_connected) = (self.clone(), AtomicBool::new(false));
        Ok(Box::new(RemoteConnection {
            network,
            id: connected.id,
            local: connected.local,
            peer: address,
            is_connected,
        }))
    }

    fn on_wait(&self) {
        if self.0.channel.send(&Event::Waiting).is_err() {
            end();
        }
    }
}

/// A connection that the broker has.
struct RemoteConnection {
    network: RemoteNetwork,
    id: ConnectionId,
    peer: SocketAddr,
    local: SocketAddr,
    /// True once the broker has said so.
    is_connected: AtomicBool,
}

impl RemoteConnection {
    fn state(&self) -> ConnectionState {
        let NetworkReply::State(state) = self.network.ask(NetworkRequest::State(self.id)) else { end() };
        self.is_connected.fetch_or(state.is_connected, Ordering::Relaxed);
        state
    }
}

impl Connection for RemoteConnection {
    fn readiness(&self) -> Readiness {
        self.state().readiness
    }

    fn read(&self, buffer: &mut [u8], peek: bool) -> Result<usize, Errno> {
        let max = buffer.len().min(MAX_TRANSFER);
        let request = NetworkRequest::Read { connection: self.id, max: max as u32, peek };
        let NetworkReply::Read(read) = self.network.ask(request) else { end() };
        let bytes = read?;
        let Some(start) = buffer.get_mut(..bytes.len()) else { end() };
        start.copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn write(&self, data: &[u8]) -> Result<usize, Errno> {
        let bytes = data[..data.len().min(MAX_TRANSFER)].to_vec();
        match self.network.ask(NetworkRequest::Write { connection: self.id, bytes }) {
            NetworkReply::Written(written) => written.map(|count| count as usize),
            _ => end(),
        }
    }

    fn shutdown(&self, read: bool, write: bool) {
        self.network.ask(NetworkRequest::Shutdown { connection: self.id, read, write });
    }

    fn take_error(&self) -> Option<Errno> {
        match self.network.ask(NetworkRequest::TakeError(self.id)) {
            NetworkReply::Error(error) => error,
            _ => end(),
        }
    }

    fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed) || self.state().is_connected
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn local(&self) -> SocketAddr {
        self.local
    }

    fn on_change(&self, notify: Arc<dyn Fn() + Send + Sync>) {
        self.network.0.listeners.lock().insert(self.id, notify);
    }
}

impl Drop for RemoteConnection {
    fn drop(&mut self) {
        self.network.0.listeners.lock().remove(&self.id);
        // The broker closes all connections of an interpreter that it drops.
        if self.network.0.channel.is_called() {
            self.network.ask(NetworkRequest::Close(self.id));
        }
    }
}
