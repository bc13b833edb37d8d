//! The network of an interpreter: its sockets lead to connections of `belljar-network`, which checks the policy.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use belljar_core::kernel::CellObserver;
use belljar_core::{ConnectionRecord, Waker};
use belljar_emscripten::network::{Connection, Network, ResolveError};
use belljar_emscripten::{Errno, fs::Readiness};
use belljar_network::{Connections, NetworkObserver, Refusal};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::host_calls::{CallError, HostCall, HostCallContext};
use crate::interpreter::Interpreter;

/// Connects the sockets of an interpreter to the network. `waker` continues code that waits for a connection without
/// its thread. The next run has the placeholders of secrets in its environment variables.
pub fn attach_network(interpreter: &mut Interpreter, connections: &Arc<Connections>, waker: Option<&Waker>) {
    let variables = connections.environment().map(|(name, placeholder)| (name.to_owned(), placeholder.to_owned()));
    interpreter.set_environment(variables);
    connect(interpreter, connections, waker);
}

/// Does the same as [`attach_network`] for an interpreter that has the variables.
pub(crate) fn connect(interpreter: &mut Interpreter, connections: &Arc<Connections>, waker: Option<&Waker>) {
    let network = Arc::new(GuestNetwork { connections: connections.clone(), refusal: Mutex::default() });
    interpreter.register_host_call("network_token", Arc::new(Token(connections.clone())));
    interpreter.register_host_call("network_allowed", Arc::new(Allowed(connections.clone())));
    interpreter.register_host_call("network_refusal", Arc::new(LastRefusal(network.clone())));
    let host = interpreter.host_mut();
    host.network = Some(network);
    let observer = waker.cloned().map(|waker| -> Arc<dyn Fn() + Send + Sync> { Arc::new(move || waker.wake()) });
    host.stop.observe_changes(observer);
}

/// The network behind the sockets of one interpreter.
struct GuestNetwork {
    connections: Arc<Connections>,
    /// The last refusal, and the name or address that it is about.
    refusal: Mutex<Option<Refusal>>,
}

impl GuestNetwork {
    fn refuse(&self, refusal: Refusal) {
        *self.refusal.lock() = Some(refusal);
    }
}

impl Network for GuestNetwork {
    fn resolve(&self, name: &str) -> Result<IpAddr, ResolveError> {
        match self.connections.resolve(name) {
            // IPv4 first: Emscripten's `getaddrinfo` returns one address.
            Ok(addresses) => {
                let found = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
                found.copied().ok_or(ResolveError::Unknown)
            }
            Err(refusal) => {
                self.refuse(refusal);
                Err(ResolveError::Refused)
            }
        }
    }

    fn connect(&self, address: SocketAddr) -> Result<Box<dyn Connection>, Errno> {
        match self.connections.connect(address) {
            Ok(connection) => Ok(Box::new(GuestConnection(connection))),
            Err(refusal) => {
                self.refuse(refusal);
                Err(Errno::EACCES)
            }
        }
    }
}

/// A connection of a socket.
struct GuestConnection(belljar_network::Connection);

impl Connection for GuestConnection {
    fn readiness(&self) -> Readiness {
        let belljar_network::Readiness { readable, writable, hung_up, error } = self.0.readiness();
        Readiness { readable, writable, hung_up, broken: error }
    }

    fn read(&self, buffer: &mut [u8], peek: bool) -> io::Result<usize> {
        self.0.read(buffer, peek)
    }

    fn write(&self, data: &[u8]) -> io::Result<usize> {
        self.0.write(data)
    }

    fn shutdown(&self, read: bool, write: bool) {
        self.0.shutdown(read, write);
    }

    fn take_error(&self) -> Option<io::Error> {
        self.0.take_error()
    }

    fn is_connected(&self) -> bool {
        self.0.is_connected()
    }

    fn peer(&self) -> SocketAddr {
        self.0.peer()
    }

    fn local(&self) -> SocketAddr {
        self.0.local()
    }

    fn on_change(&self, notify: Arc<dyn Fn() + Send + Sync>) {
        self.0.on_change(notify);
    }
}

/// Returns the bytes with which the code begins a request for TLS, in hexadecimal digits.
struct Token(Arc<Connections>);

impl HostCall for Token {
    fn call(&self, _: &RawValue, _: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        reply(&hex::encode(self.0.tls_token()))
    }
}

/// Returns the text of what is allowed.
struct Allowed(Arc<Connections>);

impl HostCall for Allowed {
    fn call(&self, _: &RawValue, _: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        reply(&self.0.policy().summary())
    }
}

/// Returns the text of the last refusal, if it is about this destination, and forgets it.
struct LastRefusal(Arc<GuestNetwork>);

#[derive(Deserialize)]
struct Destination {
    host: String,
    port: u16,
}

impl HostCall for LastRefusal {
    fn call(&self, request: &RawValue, _: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        let destination: Destination =
            serde_json::from_str(request.get()).map_err(|_| CallError::Refused("`host` or `port` is missing".into()))?;
        let refusal = self.0.refusal.lock().take();
        reply(&refusal.map(|refusal| refusal.with_port(&destination.host, destination.port).to_string()))
    }
}

fn reply(value: &impl serde::Serialize) -> Result<Box<RawValue>, CallError> {
    to_raw_value(value).map_err(|error| CallError::Refused(error.to_string()))
}

/// Passes records of connections to the observer of the code.
pub(crate) struct ObservedConnections(pub(crate) Arc<dyn CellObserver>);

impl NetworkObserver for ObservedConnections {
    fn on_connection(&self, record: &ConnectionRecord) {
        self.0.on_connection(record);
    }
}
