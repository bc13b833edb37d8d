//! The network of an interpreter: its sockets lead to connections of `belljar-network`, which checks the policy.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use belljar_core::kernel::CellObserver;
use belljar_core::{ConnectionRecord, Waker};
use belljar_emscripten::Errno;
use belljar_emscripten::fs::{Readiness, SocketFamily};
use belljar_emscripten::network::{self as emscripten, ResolveError};
use belljar_network::{Connection, Connections, Network, NetworkObserver, Refusal, RefusalKind, Scrubber};
use parking_lot::Mutex;
use serde_json::value::{RawValue, to_raw_value};

use crate::host_calls::{CallError, HostCall, HostCallContext};
use crate::interpreter::Interpreter;
use crate::isolation::ChangeObserver;

/// The calls of the guest to the host about its network.
pub(crate) const HOST_CALLS: [&str; 3] = [TOKEN_CALL, ALLOWED_CALL, REFUSAL_CALL];
const TOKEN_CALL: &str = "network_token";
const ALLOWED_CALL: &str = "network_allowed";
const REFUSAL_CALL: &str = "network_refusal";

/// An interpreter that can be connected to a network, in this process or in one of its own.
pub(crate) trait NetworkClient {
    /// Sets environment variables, beginning with the next run.
    fn set_environment(&mut self, variables: Vec<(String, String)>);

    /// Removes secrets from what the code writes and returns.
    fn scrub(&mut self, scrubber: &Scrubber);

    /// Sets the connections of the code.
    fn set_connections(&mut self, connections: Arc<Connections>);

    /// Registers the handler of the host call `name`, in place of an earlier one.
    fn register_host_call(&mut self, name: &str, handler: Arc<dyn HostCall>);

    /// Sets what is behind the sockets of the code. `observer` is called when a connection may have changed.
    fn set_network(&mut self, network: Arc<dyn emscripten::Network>, observer: Option<ChangeObserver>);
}

impl NetworkClient for Interpreter {
    fn set_environment(&mut self, variables: Vec<(String, String)>) {
        Self::set_environment(self, variables);
    }

    fn scrub(&mut self, scrubber: &Scrubber) {
        Self::scrub(self, scrubber);
    }

    fn set_connections(&mut self, connections: Arc<Connections>) {
        Self::set_connections(self, connections);
    }

    fn register_host_call(&mut self, name: &str, handler: Arc<dyn HostCall>) {
        Self::register_host_call(self, name, handler);
    }

    fn set_network(&mut self, network: Arc<dyn emscripten::Network>, observer: Option<ChangeObserver>) {
        let host = self.host_mut();
        host.network = Some(network);
        host.stop.observe_changes(observer);
    }
}

/// Connects the sockets of an interpreter to the network. `waker` continues code that waits for a connection without
/// its thread. The next run has the placeholders of secrets in its environment variables.
pub fn attach_network(
    interpreter: &mut Interpreter,
    network: &Network,
    connections: &Arc<Connections>,
    waker: Option<&Waker>,
) {
    attach(interpreter, network, connections, waker);
}

/// Does the same as [`attach_network`] for an interpreter of any process.
pub(crate) fn attach(
    interpreter: &mut dyn NetworkClient,
    network: &Network,
    connections: &Arc<Connections>,
    waker: Option<&Waker>,
) {
    let variables = network.secrets().environment();
    let variables = variables.map(|(name, placeholder)| (name.to_owned(), placeholder.to_owned()));
    interpreter.set_environment(variables.collect());
    connect(interpreter, network, connections, waker);
}

/// Does the same as [`attach`] for an interpreter that has the variables.
pub(crate) fn connect(
    interpreter: &mut dyn NetworkClient,
    network: &Network,
    connections: &Arc<Connections>,
    waker: Option<&Waker>,
) {
    interpreter.scrub(network.scrubber());
    interpreter.set_connections(connections.clone());
    let refusal = LastRefusal::default();
    interpreter.register_host_call(TOKEN_CALL, Arc::new(Token(connections.clone())));
    interpreter.register_host_call(ALLOWED_CALL, Arc::new(Allowed(connections.clone())));
    interpreter.register_host_call(REFUSAL_CALL, Arc::new(TakeRefusal(refusal.clone())));
    let observer = waker.cloned().map(|waker| -> ChangeObserver { Arc::new(move || waker.wake()) });
    interpreter.set_network(Arc::new(GuestNetwork { connections: connections.clone(), refusal }), observer);
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

    fn read(&self, buffer: &mut [u8], peek: bool) -> Result<usize, Errno> {
        self.connection.read(buffer, peek).map_err(|error| errno(&error))
    }

    fn write(&self, data: &[u8]) -> Result<usize, Errno> {
        self.connection.write(data).map_err(|error| errno(&error))
    }

    fn shutdown(&self, read: bool, write: bool) {
        self.connection.shutdown(read, write);
    }

    fn take_error(&self) -> Option<Errno> {
        let error = self.connection.take_error()?;
        if error.kind() == ErrorKind::PermissionDenied {
            *self.refusal.lock() = Some(error.to_string());
        }
        Some(errno(&error))
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

/// Returns the error number of an error of a connection.
fn errno(error: &io::Error) -> Errno {
    match error.kind() {
        ErrorKind::WouldBlock => Errno::EAGAIN,
        ErrorKind::PermissionDenied => Errno::EACCES,
        ErrorKind::ConnectionRefused => Errno::ECONNREFUSED,
        ErrorKind::ConnectionReset => Errno::ECONNRESET,
        ErrorKind::ConnectionAborted => Errno::ECONNABORTED,
        ErrorKind::NotConnected => Errno::ENOTCONN,
        ErrorKind::BrokenPipe => Errno::EPIPE,
        ErrorKind::TimedOut => Errno::ETIMEDOUT,
        ErrorKind::NetworkUnreachable => Errno::ENETUNREACH,
        ErrorKind::HostUnreachable | ErrorKind::NotFound => Errno::EHOSTUNREACH,
        ErrorKind::AddrNotAvailable => Errno::EADDRNOTAVAIL,
        _ => Errno::EIO,
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
