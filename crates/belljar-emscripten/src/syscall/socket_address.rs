//! Addresses of sockets in the guest's memory.

use std::net::{IpAddr, SocketAddr};

use crate::Errno;
use crate::guest_memory::{GuestMemory, Ptr, field};

pub(super) const AF_INET: i32 = 2;
pub(super) const AF_INET6: i32 = 10;

/// The size of `struct sockaddr_in`.
const SOCKADDR_IN: u32 = 16;
/// The size of `struct sockaddr_in6`.
pub(super) const SOCKADDR_IN6: u32 = 28;

/// Reads a `struct sockaddr_in` or `struct sockaddr_in6`.
pub(super) fn read_address(memory: &GuestMemory<'_>, address: Ptr, length: u32) -> Result<SocketAddr, Errno> {
    if length < 2 {
        return Err(Errno::EINVAL);
    }
    let family = memory.read_u16(address)?;
    let port = |bytes: [u8; 2]| u16::from_be_bytes(bytes);
    match i32::from(family) {
        AF_INET if length >= SOCKADDR_IN => {
            let ip: [u8; 4] = memory.array(field(address, 4)?)?;
            Ok(SocketAddr::from((ip, port(memory.array(field(address, 2)?)?))))
        }
        AF_INET6 if length >= SOCKADDR_IN6 => {
            let ip: [u8; 16] = memory.array(field(address, 8)?)?;
            Ok(SocketAddr::from((ip, port(memory.array(field(address, 2)?)?))))
        }
        AF_INET | AF_INET6 => Err(Errno::EINVAL),
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// Returns an address as `struct sockaddr_in` or `struct sockaddr_in6`.
pub(super) fn encode_address(address: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(SOCKADDR_IN6 as usize);
    let family = if address.is_ipv4() { AF_INET as u16 } else { AF_INET6 as u16 };
    bytes.extend(family.to_le_bytes());
    bytes.extend(address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => {
            bytes.extend(ip.octets());
            bytes.extend([0; 8]);
        }
        IpAddr::V6(ip) => {
            bytes.extend([0; 4]);
            bytes.extend(ip.octets());
            bytes.extend([0; 4]);
        }
    }
    bytes
}

/// Writes as much of an address as fits into `*length` bytes, and its whole length to `length`.
pub(super) fn write_address(
    memory: &mut GuestMemory<'_>,
    name: SocketAddr,
    address: Ptr,
    length: Ptr,
) -> Result<(), Errno> {
    let bytes = encode_address(name);
    let room = memory.read_u32(length)? as usize;
    memory.write(address, bytes.get(..room.min(bytes.len())).unwrap_or_default())?;
    memory.write_u32(length, bytes.len() as u32)
}
