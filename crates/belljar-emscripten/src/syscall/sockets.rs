//! Sockets, over the [`Network`](crate::network::Network) of the program.
//!
//! Stream sockets connect; nothing listens, and there are no datagrams. Without a network, no socket can be created.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use wasmtime::{ExternRef, Linker, Result, Rooted};

use super::name_lookup;
use super::result::{SyscallError, SyscallResult, env};
use super::socket_address::{AF_INET, AF_INET6, read_address, write_address};
use crate::Errno;
use crate::fs::{OpenFlags, SocketFamily};
use crate::guest_memory::{GuestMemory, Ptr, field};
use crate::host::{Call, Host, wait_for_socket};

pub(super) const SOCK_STREAM: i32 = 1;
pub(super) const IPPROTO_TCP: i32 = 6;
const MSG_PEEK: u32 = 0x2;
const MSG_DONTWAIT: u32 = 0x40;

/// The maximum number of buffers of one message.
const IOV_MAX: u32 = 1024;

pub(super) fn define(linker: &mut Linker<Host>) -> Result<()> {
    linker.func_wrap(
        "env",
        "__syscall_socket",
        |mut call: Call<'_>, domain: i32, kind: i32, protocol: i32, _: i32, _: i32, _: i32| {
            env(&mut call, |_, host| socket(host, domain, kind, protocol))
        },
    )?;
    linker.func_wrap(
        "env",
        "__syscall_connect",
        |mut call: Call<'_>, fd: i32, address: Ptr, length: u32, _: i32, _: i32, _: i32| {
            env(&mut call, |memory, host| connect(memory, host, fd, address, length))
        },
    )?;
    for (name, which) in [("__syscall_getpeername", Which::Peer), ("__syscall_getsockname", Which::Local)] {
        linker.func_wrap(
            "env",
            name,
            move |mut call: Call<'_>, fd: i32, address: Ptr, length: Ptr, _: i32, _: i32, _: i32| {
                env(&mut call, |memory, host| socket_name(memory, host, fd, which, address, length))
            },
        )?;
    }
    linker.func_wrap(
        "env",
        "__syscall_getsockopt",
        |mut call: Call<'_>, fd: i32, level: i32, name: i32, value: Ptr, length: Ptr, _: i32| {
            env(&mut call, |memory, host| get_option(memory, host, fd, (level, name), value, length))
        },
    )?;
    linker.func_wrap(
        "env",
        "__syscall_shutdown",
        |mut call: Call<'_>, fd: i32, how: i32, _: i32, _: i32, _: i32, _: i32| {
            env(&mut call, |_, host| shutdown(host, fd, how))
        },
    )?;
    linker.func_wrap(
        "env",
        "__syscall_recvfrom",
        |mut call: Call<'_>, fd: i32, buffer: Ptr, length: u32, flags: u32, address: Ptr, address_length: Ptr| {
            env(&mut call, |memory, host| {
                let count = receive(memory, host, fd, &[(buffer, length)], flags)?;
                write_peer(memory, host, fd, address, address_length)?;
                Ok(count)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "__syscall_sendto",
        |mut call: Call<'_>, fd: i32, buffer: Ptr, length: u32, flags: u32, _: Ptr, _: u32| {
            env(&mut call, |memory, host| send(memory, host, fd, &[(buffer, length)], flags))
        },
    )?;
    linker.func_wrap(
        "env",
        "__syscall_recvmsg",
        |mut call: Call<'_>, fd: i32, message: Ptr, flags: u32, _: i32, _: i32, _: i32| {
            env(&mut call, |memory, host| receive_message(memory, host, fd, message, flags))
        },
    )?;
    linker.func_wrap(
        "env",
        "__syscall_sendmsg",
        |mut call: Call<'_>, fd: i32, message: Ptr, flags: u32, _: i32, _: i32, _: i32| {
            env(&mut call, |memory, host| {
                let buffers = message_buffers(memory, message)?;
                send(memory, host, fd, &buffers, flags)
            })
        },
    )?;
    for name in ["__syscall_accept4", "__syscall_bind", "__syscall_listen"] {
        linker.func_wrap("env", name, |mut call: Call<'_>, fd: i32, _: i32, _: i32, _: i32, _: i32, _: i32| {
            env(&mut call, |_, host| {
                host.files.socket(fd)?;
                Err(Errno::EOPNOTSUPP.into())
            })
        })?;
    }
    name_lookup::define(linker)?;

    // Hooks before the calls above. A null promise and a zero request the plain call.
    for name in ["_maybe_connect_async", "_maybe_recvfrom_async", "_maybe_sendto_async", "_maybe_poll_async"] {
        linker.func_wrap("env", name, |_: i32, _: i32, _: i32| None::<Rooted<ExternRef>>)?;
    }
    linker.func_wrap("env", "_try_fcntl64", |_: i32, _: i32, _: i32, _: i32| 0)?;
    // Programs have no system call for `shutdown` but this hook, which writes the result and returns that it did.
    linker.func_wrap("env", "_try_shutdown", |mut call: Call<'_>, fd: i32, how: i32, result: Ptr| {
        env(&mut call, |memory, host| {
            let status = match shutdown(host, fd, how) {
                Err(SyscallError::Errno(errno)) => errno.negative(),
                other => other?,
            };
            memory.write_i32(result, status)?;
            Ok(1)
        })
    })?;
    Ok(())
}

/// Implements `socket`: stream sockets of IPv4 and IPv6, if the program has a network.
fn socket(host: &mut Host, domain: i32, kind: i32, protocol: i32) -> SyscallResult {
    let family = match domain {
        AF_INET if host.network.is_some() => SocketFamily::Ipv4,
        AF_INET6 if host.network.is_some() => SocketFamily::Ipv6,
        _ => return Err(Errno::EAFNOSUPPORT.into()),
    };
    let flags = OpenFlags(kind.cast_unsigned());
    let options = OpenFlags::NON_BLOCKING.0 | OpenFlags::CLOSE_ON_EXEC.0;
    if kind & !options.cast_signed() != SOCK_STREAM {
        return Err(Errno::EPROTOTYPE.into());
    }
    if protocol != 0 && protocol != IPPROTO_TCP {
        return Err(Errno::EPROTONOSUPPORT.into());
    }
    Ok(host.files.open_socket(family, flags)?)
}

/// Implements `connect`.
fn connect(memory: &mut GuestMemory<'_>, host: &mut Host, fd: i32, address: Ptr, length: u32) -> SyscallResult {
    host.files.socket(fd)?;
    let address = read_address(memory, address, length)?;
    match host.files.socket(fd)?.connection() {
        Err(Errno::ENOTCONN) => {}
        Err(errno) => return Err(errno.into()),
        Ok(connection) if connection.is_connected() => return Err(Errno::EISCONN.into()),
        Ok(_) => {
            // A second call reports the error of the first one.
            let error = host.files.socket(fd)?.take_error();
            return Err(error.unwrap_or(Errno::EALREADY).into());
        }
    }
    let family = host.files.socket(fd)?.family();
    if (family == SocketFamily::Ipv4) != address.is_ipv4() {
        return Err(Errno::EAFNOSUPPORT.into());
    }
    let network = host.network.clone().ok_or(Errno::ENETUNREACH)?;
    let connection = network.connect(address)?;
    let stop = host.stop.clone();
    connection.on_change(Arc::new(move || stop.notify()));
    host.files.socket_mut(fd)?.set_connection(connection);
    let result = wait_for_socket(host, fd, |host| {
        let socket = host.files.socket(fd)?;
        match socket.connection()?.is_connected() {
            true => Ok(0),
            false => Err(socket.take_error().unwrap_or(Errno::EAGAIN)),
        }
    })?;
    Ok(result.map_err(|errno| if errno == Errno::EAGAIN { Errno::EINPROGRESS } else { errno })?)
}

#[derive(Clone, Copy)]
enum Which {
    Peer,
    Local,
}

/// Implements `getpeername` and `getsockname`.
fn socket_name(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    fd: i32,
    which: Which,
    address: Ptr,
    length: Ptr,
) -> SyscallResult {
    let socket = host.files.socket(fd)?;
    let unspecified = match socket.family() {
        SocketFamily::Ipv4 => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketFamily::Ipv6 => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let name = match (which, socket.addresses()) {
        (Which::Peer, Some((_, peer))) if socket.connection()?.is_connected() => peer,
        (Which::Peer, _) => return Err(Errno::ENOTCONN.into()),
        (Which::Local, addresses) => addresses.map_or(unspecified, |(local, _)| local),
    };
    write_address(memory, name, address, length)?;
    Ok(0)
}

/// Implements `getsockopt` for the options that programs ask for. Others are not available.
fn get_option(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    fd: i32,
    option: (i32, i32),
    value: Ptr,
    length: Ptr,
) -> SyscallResult {
    const SOL_SOCKET: i32 = 1;
    let socket = host.files.socket(fd)?;
    let number = match option {
        // SO_TYPE.
        (SOL_SOCKET, 3) => SOCK_STREAM,
        // SO_ERROR.
        (SOL_SOCKET, 4) => socket.take_error().map_or(0, Errno::positive),
        // SO_SNDBUF, SO_RCVBUF.
        (SOL_SOCKET, 7 | 8) => 256 << 10,
        // SO_KEEPALIVE, SO_ACCEPTCONN.
        (SOL_SOCKET, 9 | 30) => 0,
        // SO_PROTOCOL.
        (SOL_SOCKET, 38) => IPPROTO_TCP,
        // SO_DOMAIN.
        (SOL_SOCKET, 39) => match socket.family() {
            SocketFamily::Ipv4 => AF_INET,
            SocketFamily::Ipv6 => AF_INET6,
        },
        // TCP_NODELAY.
        (IPPROTO_TCP, 1) => 1,
        _ => return Err(Errno::ENOPROTOOPT.into()),
    };
    if memory.read_u32(length)? < 4 {
        return Err(Errno::EINVAL.into());
    }
    memory.write_i32(value, number)?;
    memory.write_u32(length, 4)?;
    Ok(0)
}

/// Implements `shutdown`.
fn shutdown(host: &mut Host, fd: i32, how: i32) -> SyscallResult {
    let (read, write) = match how {
        0 => (true, false),
        1 => (false, true),
        2 => (true, true),
        _ => return Err(Errno::EINVAL.into()),
    };
    host.files.socket(fd)?.connection()?.shutdown(read, write);
    Ok(0)
}

/// Receives into buffers, the first that has room.
fn receive(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    fd: i32,
    buffers: &[(Ptr, u32)],
    flags: u32,
) -> SyscallResult {
    host.files.socket(fd)?;
    for &(start, length) in buffers {
        memory.slice(start, length)?;
    }
    let Some(&(start, length)) = buffers.iter().find(|(_, length)| *length > 0) else { return Ok(0) };
    let buffer = memory.slice_mut(start, length.min(i32::MAX as u32))?;
    let operation = |host: &mut Host| host.files.socket(fd)?.read(buffer, flags & MSG_PEEK != 0);
    let count = with_flags(host, fd, flags, operation)?;
    i32::try_from(count).map_err(|_| Errno::EOVERFLOW.into())
}

/// Sends from buffers, at least one byte of them.
fn send(memory: &mut GuestMemory<'_>, host: &mut Host, fd: i32, buffers: &[(Ptr, u32)], flags: u32) -> SyscallResult {
    host.files.socket(fd)?;
    let mut sent = 0_usize;
    for &(start, length) in buffers {
        let data = memory.slice(start, length)?;
        let result = if sent == 0 {
            with_flags(host, fd, flags, |host| host.files.socket(fd)?.write(data))
        } else {
            host.files.socket(fd)?.write(data).map_err(SyscallError::from)
        };
        match result {
            Ok(count) => {
                sent += count;
                if count < data.len() {
                    break;
                }
            }
            Err(SyscallError::Errno(_)) if sent > 0 => break,
            Err(error) => return Err(error),
        }
    }
    i32::try_from(sent).map_err(|_| Errno::EOVERFLOW.into())
}

/// Runs an operation, and waits for it unless the socket or `flags` forbid that.
fn with_flags(
    host: &mut Host,
    fd: i32,
    flags: u32,
    mut operation: impl FnMut(&mut Host) -> Result<usize, Errno>,
) -> Result<usize, SyscallError> {
    if flags & MSG_DONTWAIT != 0 {
        return Ok(operation(host)?);
    }
    Ok(wait_for_socket(host, fd, operation)??)
}

/// Implements `recvmsg`. There is no ancillary data.
fn receive_message(memory: &mut GuestMemory<'_>, host: &mut Host, fd: i32, message: Ptr, flags: u32) -> SyscallResult {
    let buffers = message_buffers(memory, message)?;
    let count = receive(memory, host, fd, &buffers, flags)?;
    let name = memory.read_u32(message)?;
    write_peer(memory, host, fd, name, field(message, 4)?)?;
    // `msg_controllen` and `msg_flags`.
    memory.write_u32(field(message, 20)?, 0)?;
    memory.write_u32(field(message, 24)?, 0)?;
    Ok(count)
}

/// Returns the buffers of a `struct msghdr`.
fn message_buffers(memory: &GuestMemory<'_>, message: Ptr) -> Result<Vec<(Ptr, u32)>, Errno> {
    let (list, count) = (memory.read_u32(field(message, 8)?)?, memory.read_u32(field(message, 12)?)?);
    if count > IOV_MAX {
        return Err(Errno::EINVAL);
    }
    let buffer = |index| {
        let entry = field(list, index * 8)?;
        let (start, length) = (memory.read_u32(entry)?, memory.read_u32(field(entry, 4)?)?);
        memory.slice(start, length)?;
        Ok((start, length))
    };
    (0..count).map(buffer).collect()
}

/// Writes the peer's address where a call asks for it.
fn write_peer(memory: &mut GuestMemory<'_>, host: &Host, fd: i32, address: Ptr, length: Ptr) -> Result<(), Errno> {
    if address == 0 || length == 0 {
        return Ok(());
    }
    match host.files.socket(fd)?.addresses() {
        Some((_, peer)) => write_address(memory, peer, address, length),
        None => memory.write_u32(length, 0),
    }
}
