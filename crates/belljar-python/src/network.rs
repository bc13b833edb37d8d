//! The network of an interpreter: its sockets lead to connections of `belljar-network`, which checks the policy.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use belljar_core::kernel::CellObserver;
use belljar_core::{ConnectionRecord, Waker};
use belljar_emscripten::Errno;
use belljar_emscripten::fs::{Readiness, SocketFamily};
use belljar_emscripten::network::{self as emscripten, ResolveError};
use belljar_network::{Connection, Connections, Network, NetworkObserver, Refusal, RefusalKind};
use parking_lot::Mutex;
use serde_json::value::{RawValue, to_raw_value};

use crate::host_calls::{CallError, HostCall, HostCallContext};
use crate::interpreter::Interpreter;

/// Connects the sockets of an interpreter to the network. `waker` continues code that waits for a connection without
/// its thread. The next run has the placeholders of secrets in its environment variables.
pub fn attach_network(
    interpreter: &mut Interpreter,
    network: &Network,
    connections: &Arc<Connections>,
    waker: Option<&Waker>,
) {
    let variables = network.secrets().environment();
    interpreter.set_environment(variables.map(|(name, placeholder)| (name.to_owned(), placeholder.to_owned())));
    connect(interpreter, network, connections, waker);
}

/// Does the same as [`attach_network`] for an interpreter that has the variables.
pub(crate) fn connect(
    interpreter: &mut Interpreter,
    network: &Network,
    connections: &Arc<Connections>,
    waker: Option<&Waker>,
) {
    interpreter.scrub(network.scrubber());
    interpreter.set_connections(connections.clone());
    let refusal = LastRefusal::default();
    interpreter.register_host_call("network_token", Arc::new(Token(connections.clone())));
    interpreter.register_host_call("network_allowed", Arc::new(Allowed(connections.clone())));
    interpreter.register_host_call("network_refusal", Arc::new(TakeRefusal(refusal.clone())));
    let host = interpreter.host_mut();
    host.network = Some(Arc::new(GuestNetwork { connections: connections.clone(), refusal }));
    let observer = waker.cloned().map(|waker| -> Arc<dyn Fn() + Send + Sync> { Arc::new(move || waker.wake()) });
    host.stop.observe_changes(observer);
}

/// The network behind the sockets of one interpreter.
struct GuestNetwork {
    connections: Arc<Connections>,
    refusal: LastRefusal,
}

/// The text of the last refusal, which the guest puts into an exception.
type LastRefusal = Arc<Mutex<Option<String>>>;

impl GuestNetwork {
    /// Returns the error number for a refusal, and keeps its text.
    fn refuse(&self, refusal: &Refusal) -> Errno {
        *self.refusal.lock() = Some(refusal.to_string());
        match refusal.kind() {
            RefusalKind::Limit => Errno::EMFILE,
            RefusalKind::Internal => Errno::EIO,
            _ => Errno::EACCES,
        }
    }
}

impl emscripten::Network for GuestNetwork {
    fn resolve(&self, name: &str, family: Option<SocketFamily>, port: Option<u16>) -> Result<IpAddr, ResolveError> {
        let addresses = match name.parse::<Ipv6Addr>() {
            Ok(address) => self.connections.ipv4_for(address, port).map(|address| vec![address]),
            Err(_) => self.connections.resolve_for_port(name, port),
        };
        let addresses = addresses.map_err(|refusal| {
            self.refuse(&refusal);
            if refusal.kind() == RefusalKind::Name { ResolveError::Unknown } else { ResolveError::Refused }
        })?;
        let fits = |address: &&IpAddr| match family {
            Some(SocketFamily::Ipv4) => address.is_ipv4(),
            Some(SocketFamily::Ipv6) => address.is_ipv6(),
            None => true,
        };
        addresses.iter().find(fits).copied().ok_or(ResolveError::Unknown)
    }

    fn connect(&self, address: SocketAddr) -> Result<Box<dyn emscripten::Connection>, Errno> {
        let connection = self.connections.connect(address).map_err(|refusal| self.refuse(&refusal))?;
        Ok(Box::new(GuestConnection { connection, refusal: self.refusal.clone() }))
    }
}

/// A connection of a socket.
struct GuestConnection {
    connection: Connection,
    refusal: LastRefusal,
}

impl emscripten::Connection for GuestConnection {
    fn readiness(&self) -> Readiness {
        let belljar_network::Readiness { readable, writable, hung_up, error } = self.connection.readiness();
        Readiness { readable, writable, hung_up, broken: error }
    }

    fn read(&self, buffer: &mut [u8], peek: bool) -> io::Result<usize> {
        self.connection.read(buffer, peek)
    }

    fn write(&self, data: &[u8]) -> io::Result<usize> {
        self.connection.write(data)
    }

    fn shutdown(&self, read: bool, write: bool) {
        self.connection.shutdown(read, write);
    }

    fn take_error(&self) -> Option<io::Error> {
        let error = self.connection.take_error()?;
        if error.kind() == io::ErrorKind::PermissionDenied {
            *self.refusal.lock() = Some(error.to_string());
        }
        Some(error)
    }

    fn is_connected(&self) -> bool {
        self.connection.is_connected()
    }

    fn peer(&self) -> SocketAddr {
        self.connection.peer()
    }

    fn local(&self) -> SocketAddr {
        self.connection.local()
    }

    fn on_change(&self, notify: Arc<dyn Fn() + Send + Sync>) {
        self.connection.on_change(notify);
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

/// Returns the text of the last refusal, if there was one since the last call.
struct TakeRefusal(LastRefusal);

impl HostCall for TakeRefusal {
    fn call(&self, _: &RawValue, _: &mut HostCallContext<'_>) -> Result<Box<RawValue>, CallError> {
        reply(&self.0.lock().take())
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
