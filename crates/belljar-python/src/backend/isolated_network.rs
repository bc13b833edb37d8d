//! The network of code in another process, on the side of its caller, which has the connections.

use std::collections::HashMap;
use std::sync::Arc;

use belljar_emscripten::Errno;
use belljar_emscripten::network::{Connection, Network};
use parking_lot::Mutex;

use crate::isolation::{
    ChangeObserver, ConnectionId, ConnectionState, MAX_TRANSFER, NetworkReply, NetworkRequest, NewConnection,
};

/// The connections of an interpreter in another process.
#[derive(Default)]
pub(in crate::backend) struct IsolatedNetwork {
    /// The network; `None` if the code has none.
    network: Option<Arc<dyn Network>>,
    /// The observer of the cell that runs or waits.
    observer: Arc<Mutex<Option<ChangeObserver>>>,
    connections: HashMap<ConnectionId, Box<dyn Connection>>,
    last: ConnectionId,
}

impl IsolatedNetwork {
    /// Sets the network for new connections. `observer` is called when a connection may have changed.
    pub(in crate::backend) fn set(&mut self, network: Arc<dyn Network>, observer: Option<ChangeObserver>) {
        self.network = Some(network);
        *self.observer.lock() = observer;
    }

    pub(in crate::backend) fn is_set(&self) -> bool {
        self.network.is_some()
    }

    pub(in crate::backend) fn has_connections(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Closes all connections: the process that knows their numbers has ended.
    pub(in crate::backend) fn close_all(&mut self) {
        self.connections.clear();
    }

    /// Handles a request of the other process, which is told of changes of its connections by `notify`. Returns `None`
    /// if the process cannot have made this request by itself: code of an attacker's choice runs in it.
    pub(in crate::backend) fn handle(
        &mut self,
        request: NetworkRequest,
        notify: &ChangeObserver,
    ) -> Option<NetworkReply> {
        let network = self.network.as_ref()?;
        Some(match request {
            NetworkRequest::Resolve { name, family, port } => {
                NetworkReply::Resolved(network.resolve(&name, family, port))
            }
            NetworkRequest::Connect(address) => {
                NetworkReply::Connected(network.connect(address).map(|connection| self.add(connection, notify)))
            }
            NetworkRequest::State(id) => {
                let connection = self.connections.get(&id)?;
                let (readiness, is_connected) = (connection.readiness(), connection.is_connected());
                NetworkReply::State(ConnectionState { readiness, is_connected })
            }
            NetworkRequest::Read { connection, max, peek } => {
                let connection = self.connections.get(&connection)?;
                let max = usize::try_from(max).ok().filter(|max| *max <= MAX_TRANSFER)?;
                let mut bytes = vec![0; max];
                NetworkReply::Read(connection.read(&mut bytes, peek).map(|count| {
                    bytes.truncate(count);
                    bytes
                }))
            }
            NetworkRequest::Write { connection, bytes } => {
                let connection = self.connections.get(&connection)?;
                if bytes.len() > MAX_TRANSFER {
                    return None;
                }
                let written = connection.write(&bytes);
                NetworkReply::Written(written.and_then(|count| u32::try_from(count).map_err(|_| Errno::EOVERFLOW)))
            }
            NetworkRequest::Shutdown { connection, read, write } => {
                self.connections.get(&connection)?.shutdown(read, write);
                NetworkReply::Done
            }
            NetworkRequest::TakeError(id) => NetworkReply::Error(self.connections.get(&id)?.take_error()),
            NetworkRequest::Close(id) => {
                self.connections.remove(&id)?;
                NetworkReply::Done
            }
        })
    }

    /// Adds a connection that has begun.
    fn add(&mut self, connection: Box<dyn Connection>, notify: &ChangeObserver) -> NewConnection {
        self.last += 1;
        let (observer, notify) = (self.observer.clone(), notify.clone());
        connection.on_change(Arc::new(move || {
            notify();
            let observer = observer.lock().clone();
            if let Some(observer) = observer {
                observer();
            }
        }));
        let new = NewConnection { id: self.last, local: connection.local() };
        self.connections.insert(new.id, connection);
        new
    }
}
