//! Look-ups of names, over the [`Network`](crate::network::Network) of the program.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use wasmtime::{Linker, Result};

use super::socket_address::{AF_INET, AF_INET6, SOCKADDR_IN6, encode_address};
use super::sockets::{IPPROTO_TCP, SOCK_STREAM};
use crate::fs::SocketFamily;
use crate::guest_caller::GuestCaller;
use crate::guest_memory::{Ptr, field};
use crate::host::{Call, Host, NETWORK, split};
use crate::network::ResolveError;

const AF_UNSPEC: i32 = 0;
const EAI_NONAME: i32 = -2;
const EAI_FAIL: i32 = -4;
const EAI_FAMILY: i32 = -6;
const EAI_SERVICE: i32 = -8;
const EAI_MEMORY: i32 = -10;

/// The flag `AI_NUMERICHOST`.
const AI_NUMERICHOST: i32 = 0x4;

pub(super) fn define(linker: &mut Linker<Host>) -> Result<()> {
    linker.func_wrap(
        "env",
        "getaddrinfo",
        |mut call: Call<'_>, node: Ptr, service: Ptr, hints: Ptr, result: Ptr| match look_up(
            &mut call, node, service, hints,
        ) {
            Ok((address, kind)) => write_address_info(&mut call, address, kind, result),
            Err(code) => Ok(code),
        },
    )?;
    linker.func_wrap("env", "getnameinfo", |_: i32, _: i32, _: i32, _: i32, _: i32, _: i32, _: i32| EAI_FAIL)?;
    // A null pointer: unknown protocol.
    linker.func_wrap("env", "getprotobyname", |_: i32| 0)?;
    // The address 0.0.0.0: this function cannot report an error.
    linker.func_wrap("env", "_emscripten_lookup_name", |_: i32| 0)?;
    Ok(())
}

/// Looks up the address of `getaddrinfo`. Returns it with the type and protocol of the socket, or an `EAI` number.
fn look_up(call: &mut Call<'_>, node: Ptr, service: Ptr, hints: Ptr) -> Result<(SocketAddr, (i32, i32)), i32> {
    let (memory, host) = split(call).map_err(|_| EAI_FAIL)?;
    let Some(network) = host.network.clone() else { return Err(EAI_FAIL) };
    if let Some(recording) = host.recording() {
        recording.set_incomplete(NETWORK);
    }
    let hint = |offset| if hints == 0 { Ok(0) } else { field(hints, offset).and_then(|at| memory.read_i32(at)) };
    let hint = |offset| hint(offset).map_err(|_| EAI_FAIL);
    let (flags, family, kind, protocol) = (hint(0)?, hint(4)?, hint(8)?, hint(12)?);
    let text = |at| memory.c_bytes(at, 1024).map_err(|_| EAI_NONAME);
    let port = match service {
        0 => 0,
        service => port_of(text(service)?)?,
    };
    let requested = match family {
        AF_INET => Some(SocketFamily::Ipv4),
        AF_INET6 => Some(SocketFamily::Ipv6),
        _ => None,
    };
    let resolve = |name: &str, family| {
        network.resolve(name, family, Some(port).filter(|port| *port != 0)).map_err(|error| match error {
            ResolveError::Unknown => EAI_NONAME,
            ResolveError::Refused => EAI_FAIL,
        })
    };
    let ip = match node {
        0 => IpAddr::V4(Ipv4Addr::LOCALHOST),
        node => {
            let name = str::from_utf8(text(node)?).map_err(|_| EAI_NONAME)?;
            match name.parse::<IpAddr>() {
                // CPython here cannot connect sockets of IPv6: the network may have an address of IPv4 for this one.
                Ok(IpAddr::V6(_)) if family == AF_UNSPEC => resolve(name, Some(SocketFamily::Ipv4))?,
                Ok(ip) => ip,
                Err(_) if flags & AI_NUMERICHOST != 0 => return Err(EAI_NONAME),
                Err(_) => resolve(name, requested)?,
            }
        }
    };
    match (family, ip) {
        (AF_UNSPEC, _) | (AF_INET, IpAddr::V4(_)) | (AF_INET6, IpAddr::V6(_)) => {}
        _ => return Err(EAI_FAMILY),
    }
    let kind = if kind == 0 { SOCK_STREAM } else { kind };
    let protocol = if protocol == 0 && kind == SOCK_STREAM { IPPROTO_TCP } else { protocol };
    Ok((SocketAddr::new(ip, port), (kind, protocol)))
}

/// Returns the port of a service: a number, or one of the names that libraries look up.
fn port_of(service: &[u8]) -> Result<u16, i32> {
    match service {
        b"http" => Ok(80),
        b"https" => Ok(443),
        b"smtp" => Ok(25),
        b"submission" => Ok(587),
        b"postgresql" => Ok(5432),
        number => str::from_utf8(number).ok().and_then(|text| text.parse().ok()).ok_or(EAI_SERVICE),
    }
}

/// Writes the result of `getaddrinfo` in two blocks of the program's allocator, as Emscripten's `freeaddrinfo` frees
/// them: one `struct addrinfo` without a successor, and its address.
fn write_address_info(
    call: &mut Call<'_>,
    address: SocketAddr,
    (kind, protocol): (i32, i32),
    result: Ptr,
) -> Result<i32> {
    const ADDRINFO: u32 = 32;
    let bytes = encode_address(address);
    let mut guest = GuestCaller::new(call);
    let info = guest.call("malloc", &[ADDRINFO])?;
    let name = guest.call("malloc", &[SOCKADDR_IN6])?;
    if info == 0 || name == 0 {
        return Ok(EAI_MEMORY);
    }
    let family = if address.is_ipv4() { AF_INET } else { AF_INET6 };
    let mut memory = guest.memory()?;
    let mut write = || {
        memory.write(name, &bytes)?;
        // ai_flags, ai_family, ai_socktype, ai_protocol, ai_addrlen, ai_addr, ai_canonname, ai_next.
        let fields = [0, family.cast_unsigned(), kind.cast_unsigned(), protocol.cast_unsigned()];
        let fields = fields.into_iter().chain([bytes.len() as u32, name, 0, 0]);
        for (index, value) in (0..).zip(fields) {
            memory.write_u32(field(info, index * 4)?, value)?;
        }
        memory.write_u32(result, info)
    };
    Ok(if write().is_ok() { 0 } else { EAI_FAIL })
}
