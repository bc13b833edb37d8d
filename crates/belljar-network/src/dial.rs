//! The connection to a server: the look-up of its name and the check of each address.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::connections::Connections;
use crate::failure::Failure;
use crate::limits::count;
use crate::policy::Host;

/// The most addresses of a name that are tried.
const MAX_ADDRESSES: usize = 8;

/// Connects to a host. The addresses that are checked are those that are connected to: there is no second look-up.
pub(crate) async fn dial(connections: &Arc<Connections>, host: &Host, port: u16) -> Result<TcpStream, Failure> {
    let limit = connections.limits().connect;
    match timeout(limit, dial_unlimited(connections, host, port)).await {
        Ok(result) => result,
        Err(_) => Err(Failure::Io(io::ErrorKind::TimedOut.into())),
    }
}

async fn dial_unlimited(connections: &Arc<Connections>, host: &Host, port: u16) -> Result<TcpStream, Failure> {
    let addresses = match host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => addresses_of(connections, name).await?,
    };
    let mut refused = None;
    let mut failed = None;
    for address in addresses.into_iter().take(MAX_ADDRESSES) {
        if let Err(reason) = connections.policy().check_address(host, address, port) {
            refused.get_or_insert(reason);
            continue;
        }
        match TcpStream::connect(SocketAddr::new(address, port)).await {
            Ok(stream) => {
                stream.set_nodelay(true).map_err(Failure::Io)?;
                return Ok(stream);
            }
            Err(error) => failed = Some(error),
        }
    }
    Err(match (failed, refused) {
        (Some(error), _) => Failure::Io(error),
        (None, Some(reason)) => Failure::Address(connections.refuse(host, Some(port), Some(&reason)).to_string()),
        (None, None) => Failure::Io(not_found(host)),
    })
}

async fn addresses_of(connections: &Arc<Connections>, name: &str) -> Result<Vec<IpAddr>, Failure> {
    let resolved = connections.policy().resolved(name);
    if !resolved.is_empty() {
        return Ok(resolved);
    }
    let limit = connections.limits().lookups;
    if !count(&connections.counts.lookups, 1, limit) {
        return Err(Failure::Limit(format!("more than {limit} look-ups of names")));
    }
    let resolver = Arc::clone(&connections.network.resolver);
    let owned = name.to_owned();
    let found = tokio::task::spawn_blocking(move || resolver.resolve(&owned)).await;
    match found {
        Ok(Ok(addresses)) => Ok(addresses),
        Ok(Err(_)) => Err(Failure::Io(not_found(&Host::Name(name.to_owned())))),
        Err(error) => Err(Failure::Io(io::Error::other(error))),
    }
}

fn not_found(host: &Host) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("failed to resolve {host}: the name is not known"))
}
