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
                    bytes.into()
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

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use belljar_emscripten::fs::{Readiness, SocketFamily};
    use belljar_emscripten::network::ResolveError;

    use super::*;

    const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80);

    /// A network whose connections return what they are sent, and are told to have changed by `change`.
    #[derive(Default)]
    struct Echo {
        open: Arc<AtomicUsize>,
        change: Arc<Mutex<Option<ChangeObserver>>>,
    }

    struct EchoConnection {
        bytes: Mutex<Vec<u8>>,
        open: Arc<AtomicUsize>,
        change: Arc<Mutex<Option<ChangeObserver>>>,
    }

    impl Network for Echo {
        fn resolve(&self, _: &str, _: Option<SocketFamily>, _: Option<u16>) -> Result<IpAddr, ResolveError> {
            Err(ResolveError::Refused)
        }

        fn connect(&self, _: SocketAddr) -> Result<Box<dyn Connection>, Errno> {
            self.open.fetch_add(1, Ordering::Relaxed);
            let (open, change) = (self.open.clone(), self.change.clone());
            Ok(Box::new(EchoConnection { bytes: Mutex::default(), open, change }))
        }
    }

    impl Connection for EchoConnection {
        fn readiness(&self) -> Readiness {
            Readiness { readable: !self.bytes.lock().is_empty(), writable: true, ..Readiness::default() }
        }

        fn read(&self, buffer: &mut [u8], _: bool) -> Result<usize, Errno> {
            let mut bytes = self.bytes.lock();
            let count = bytes.len().min(buffer.len());
            buffer[..count].copy_from_slice(&bytes.drain(..count).collect::<Vec<u8>>());
            Ok(count)
        }

        fn write(&self, data: &[u8]) -> Result<usize, Errno> {
            self.bytes.lock().extend(data);
            Ok(data.len())
        }

        fn shutdown(&self, _: bool, _: bool) {}

        fn take_error(&self) -> Option<Errno> {
            None
        }

        fn is_connected(&self) -> bool {
            true
        }

        fn peer(&self) -> SocketAddr {
            ADDRESS
        }

        fn local(&self) -> SocketAddr {
            ADDRESS
        }

        fn on_change(&self, notify: ChangeObserver) {
            *self.change.lock() = Some(notify);
        }
    }

    impl Drop for EchoConnection {
        fn drop(&mut self) {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn connections_are_those_that_were_given_out() {
        let echo = Arc::new(Echo::default());
        let mut network = IsolatedNetwork::default();
        let notify: ChangeObserver = Arc::new(|| ());
        assert_eq!(network.handle(NetworkRequest::Connect(ADDRESS), &notify), None, "the code has no network");
        network.set(echo.clone(), None);
        let mut connect = || match network.handle(NetworkRequest::Connect(ADDRESS), &notify) {
            Some(NetworkReply::Connected(Ok(connected))) => connected.id,
            reply => panic!("{reply:?}"),
        };
        let [one, two] = [(); 2].map(|()| connect());
        assert_ne!(one, two);
        let mut ask = |request| network.handle(request, &notify);
        let bytes = b"abc".to_vec();
        let written = ask(NetworkRequest::Write { connection: one, bytes: bytes.clone() });
        assert_eq!(written, Some(NetworkReply::Written(Ok(3))));
        let read = |connection, max| NetworkRequest::Read { connection, max, peek: false };
        assert_eq!(ask(read(two, 9)), Some(NetworkReply::Read(Ok(Vec::new().into()))));
        assert_eq!(ask(read(one, 9)), Some(NetworkReply::Read(Ok(bytes.into()))));
        // No worker that follows the protocol sends these.
        assert_eq!(ask(read(one, MAX_TRANSFER as u32 + 1)), None);
        let long = NetworkRequest::Write { connection: one, bytes: vec![0; MAX_TRANSFER + 1] };
        assert_eq!(ask(long), None);
        assert_eq!(ask(NetworkRequest::Close(one)), Some(NetworkReply::Done));
        for request in [NetworkRequest::Close(one), NetworkRequest::State(one), NetworkRequest::TakeError(99)] {
            assert_eq!(ask(request), None);
        }
        assert_eq!(echo.open.load(Ordering::Relaxed), 1);
        network.close_all();
        assert_eq!((echo.open.load(Ordering::Relaxed), network.has_connections()), (0, false));
    }

    #[test]
    fn changes_reach_the_process_and_the_cell_that_waits() {
        let echo = Arc::new(Echo::default());
        let counter = || Arc::new(AtomicUsize::new(0));
        let observer = |counter: &Arc<AtomicUsize>| -> ChangeObserver {
            let counter = counter.clone();
            Arc::new(move || {
                counter.fetch_add(1, Ordering::Relaxed);
            })
        };
        let (process, first, second) = (counter(), counter(), counter());
        let mut network = IsolatedNetwork::default();
        network.set(echo.clone(), Some(observer(&first)));
        network.handle(NetworkRequest::Connect(ADDRESS), &observer(&process));
        let change = echo.change.lock().clone().unwrap();
        change();
        // The next cell has the connection, too.
        network.set(echo.clone(), Some(observer(&second)));
        change();
        let counts = [process, first, second].map(|counter| counter.load(Ordering::Relaxed));
        assert_eq!(counts, [2, 1, 1]);
    }
}
