//! Look-ups of names.

use std::io;
use std::net::{IpAddr, ToSocketAddrs as _};

/// A resolver of names. It is called on a thread that may block, only for names that the policy allows.
pub trait Resolver: Send + Sync {
    /// Returns the addresses of a name.
    ///
    /// # Errors
    /// Returns an error if the look-up failed or the name has no addresses.
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let mut addresses: Vec<IpAddr> = (name, 0).to_socket_addrs()?.map(|address| address.ip()).collect();
        addresses.dedup();
        Ok(addresses)
    }
}
