//! The memory that the sockets of a sandbox hold: data that was sent and not read. It belongs to no process, so no
//! process's counters contain it.
//!
//! The kernel reports it for each socket of the network namespace over netlink (`sock_diag(7)`), as it accounts it:
//! with the overhead of each message. That includes sockets on their way to another process. Two kinds of unix sockets
//! are not reported: those that wait to be accepted, and closed ones whose data waits in another socket. They are
//! counted as the most that they can hold.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::net::sockopt::socket_send_buffer_size;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink};
use rustix::net::{recv, send, socket_with};

/// `net.unix.max_dgram_qlen` of a sandbox: the number of datagrams that wait in a unix socket.
pub(crate) const UNIX_DATAGRAMS: u64 = 4;

/// The settings of a sandbox's network namespace that keep buffers small, below `/proc/sys/net`.
pub(crate) const SETTINGS: [(&str, &str); 4] = [
    // The least, the initial and the largest size of a buffer. The host's TCP has one limit for all namespaces.
    ("ipv4/tcp_wmem", "4096 16384 131072"),
    ("ipv4/tcp_rmem", "4096 131072 262144"),
    // Sockets that wait to be accepted hold data without a descriptor.
    ("core/somaxconn", "128"),
    ("unix/max_dgram_qlen", "4"),
];

/// The memory of the buffers of internet sockets together, in bytes, at most. All namespaces share the limits
/// `net.ipv4.tcp_mem` and `udp_mem`, and exceeding them would stall the host's connections.
const MAX_INTERNET_BYTES: u64 = 32 << 20;
/// The memory of one internet socket at most, by [`SETTINGS`] and the defaults for UDP.
const INTERNET_SOCKET_BYTES: u64 = 512 << 10;
/// The memory of a socket without data.
const EMPTY_SOCKET_BYTES: u64 = 4 << 10;
/// The size of a datagram of netlink at most.
const MAX_DATAGRAM: usize = 64 << 10;
/// The number of datagrams of one reply at most: those of some hundred thousand sockets.
const MAX_DATAGRAMS: usize = 10_000;

// Of `linux/netlink.h`.
const HEADER_BYTES: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;

// Of `linux/sock_diag.h`: the request, and the fields of its memory information.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const RMEM_ALLOC: usize = 0;
const WMEM_ALLOC: usize = 2;
const FWD_ALLOC: usize = 4;
const WMEM_QUEUED: usize = 5;
const OPTMEM: usize = 6;
const BACKLOG: usize = 7;

// Of `linux/unix_diag.h`.
const UNIX_MESSAGE_BYTES: usize = 16;
const UDIAG_SHOW: u32 = 0x4 | 0x10 | 0x20; // peer, length of the queue, memory
const UNIX_DIAG_PEER: u16 = 2;
const UNIX_DIAG_RQLEN: u16 = 4;
const UNIX_DIAG_MEMINFO: u16 = 5;

// Of `linux/inet_diag.h`.
const INTERNET_MESSAGE_BYTES: usize = 72;
const INET_DIAG_SKMEMINFO: u16 = 7;

/// The state of a listening socket, of any family.
const LISTEN: u8 = 10;

/// A meter of the sockets of the network namespace that it was created in.
pub(crate) struct SocketMeter {
    netlink: OwnedFd,
    /// The data that can wait in a unix socket, in bytes, by the sender's buffer.
    unix_buffer_bytes: u64,
}

impl SocketMeter {
    /// Creates a meter of this process's network namespace.
    pub(crate) fn new() -> io::Result<Self> {
        let socket = |family, kind, protocol: Option<Protocol>| {
            socket_with(family, kind, SocketFlags::CLOEXEC, protocol).map_err(io::Error::from)
        };
        let netlink = socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(netlink::SOCK_DIAG))?;
        let unix = socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        // A sender may go on while less than its buffer waits, so that one message exceeds it.
        let unix_buffer_bytes = 2 * socket_send_buffer_size(&unix)? as u64;
        Ok(Self { netlink, unix_buffer_bytes })
    }

    /// Returns an upper bound of [`Self::bytes`], which takes one read.
    pub(crate) fn max_bytes(&self, proc: &Path) -> u64 {
        count(proc).saturating_mul(self.max_socket_bytes())
    }

    /// Returns the memory of all sockets, in bytes. On kernels that do not report it, sockets count as full.
    pub(crate) fn bytes(&self, proc: &Path) -> u64 {
        let (Ok(unix), Ok(internet)) = (self.unix_bytes(), self.internet_bytes()) else { return self.max_bytes(proc) };
        unix.saturating_add(internet).saturating_add(netlink_bytes(proc))
    }

    /// Returns whether internet sockets hold more than their share of the host's limits.
    pub(crate) fn exceeds_internet_limit(&self, proc: &Path) -> bool {
        let count = count(proc);
        if count.saturating_mul(INTERNET_SOCKET_BYTES) <= MAX_INTERNET_BYTES {
            return false;
        }
        self.internet_bytes().unwrap_or(count.saturating_mul(INTERNET_SOCKET_BYTES)) > MAX_INTERNET_BYTES
    }

    fn max_socket_bytes(&self) -> u64 {
        ((UNIX_DATAGRAMS + 2) * self.unix_buffer_bytes).max(INTERNET_SOCKET_BYTES)
    }

    fn unix_bytes(&self) -> io::Result<u64> {
        let mut bytes = 0;
        self.for_each_unix_socket(|message| bytes += self.bytes_of_unix_socket(message))?;
        Ok(bytes)
    }

    /// Calls `handle` with the description of each unix socket: a `struct unix_diag_msg` with attributes.
    fn for_each_unix_socket(&self, handle: impl FnMut(&[u8])) -> io::Result<()> {
        // `struct unix_diag_req`: family, protocol, padding, states, inode, what to show, cookie.
        let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
        request.extend([u32::MAX, 0, UDIAG_SHOW, 0, 0].iter().flat_map(|field| field.to_ne_bytes()));
        self.dump(&request, handle)
    }

    /// Returns the memory of the socket with this description.
    fn bytes_of_unix_socket(&self, message: &[u8]) -> u64 {
        let kind = message.get(1).copied().map_or(0, i32::from);
        let is_listening = message.get(2) == Some(&LISTEN);
        let (mut sent, mut waiting, mut peer) = (0, 0, 0);
        for (attribute, value) in attributes(message.get(UNIX_MESSAGE_BYTES..).unwrap_or_default()) {
            match attribute {
                UNIX_DIAG_MEMINFO => sent = u32_at(value, WMEM_ALLOC) + u32_at(value, OPTMEM),
                UNIX_DIAG_RQLEN => waiting = u32_at(value, 0),
                UNIX_DIAG_PEER => peer = u32_at(value, 0),
                _ => {}
            }
        }
        // Data is accounted to its sender, which may have been closed. Datagrams may have several senders.
        let from_closed_senders = match kind {
            _ if waiting == 0 => 0,
            // The number of connections, each with data of its own.
            _ if is_listening => waiting * self.unix_buffer_bytes,
            libc::SOCK_DGRAM => (UNIX_DATAGRAMS + 1) * self.unix_buffer_bytes,
            // A closed peer does not have an inode.
            _ if peer == 0 => self.unix_buffer_bytes,
            _ => 0,
        };
        EMPTY_SOCKET_BYTES + sent + from_closed_senders
    }

    fn internet_bytes(&self) -> io::Result<u64> {
        let mut bytes = 0;
        self.for_each_internet_socket(|message| bytes += bytes_of_internet_socket(message))?;
        Ok(bytes)
    }

    /// Calls `handle` with the description of each internet socket: a `struct inet_diag_msg` with attributes.
    fn for_each_internet_socket(&self, mut handle: impl FnMut(&[u8])) -> io::Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            for protocol in [libc::IPPROTO_TCP, libc::IPPROTO_UDP] {
                // `struct inet_diag_req_v2`: family, protocol, attributes to show, padding, states, addresses.
                let mut request = vec![family as u8, protocol as u8, 1 << (INET_DIAG_SKMEMINFO - 1), 0];
                request.extend(u32::MAX.to_ne_bytes());
                request.resize(56, 0);
                let dumped = self.dump(&request, &mut handle);
                match dumped {
                    // The kernel has no IPv6.
                    Err(error) if family == libc::AF_INET6 && error.raw_os_error() == Some(libc::ENOENT) => {}
                    dumped => dumped?,
                }
            }
        }
        Ok(())
    }

    /// Sends a request, and calls `handle` with each message of the reply.
    fn dump(&self, request: &[u8], mut handle: impl FnMut(&[u8])) -> io::Result<()> {
        let length = u32::try_from(HEADER_BYTES + request.len()).unwrap_or(u32::MAX);
        let flags = NLM_F_REQUEST | NLM_F_DUMP;
        // `struct nlmsghdr`: length, type, flags, sequence number, port.
        let mut datagram =
            [&length.to_ne_bytes()[..], &SOCK_DIAG_BY_FAMILY.to_ne_bytes(), &flags.to_ne_bytes()].concat();
        datagram.extend([0; 8]);
        datagram.extend(request);
        send(&self.netlink, &datagram, SendFlags::empty())?;
        let mut buffer = vec![0; MAX_DATAGRAM];
        for _ in 0..MAX_DATAGRAMS {
            // The kernel has the next part of the reply ready at once.
            let (length, _) = recv(&self.netlink, &mut buffer, RecvFlags::DONTWAIT)?;
            let mut rest = &buffer[..length];
            while let Some(header) = rest.get(..HEADER_BYTES) {
                let length = u32_at(header, 0) as usize;
                let body = rest.get(HEADER_BYTES..length).ok_or(io::ErrorKind::InvalidData)?;
                match u16::from_ne_bytes([header[4], header[5]]) {
                    NLMSG_DONE => return Ok(()),
                    NLMSG_ERROR => {
                        let code = u32_at(body, 0) as u32;
                        return Err(io::Error::from_raw_os_error(code.cast_signed().saturating_neg()));
                    }
                    _ => handle(body),
                }
                rest = rest.get(aligned(length)..).unwrap_or_default();
            }
        }
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Returns the memory of the socket with this description.
fn bytes_of_internet_socket(message: &[u8]) -> u64 {
    let of_data = attributes(message.get(INTERNET_MESSAGE_BYTES..).unwrap_or_default())
        .find(|(attribute, _)| *attribute == INET_DIAG_SKMEMINFO)
        .map_or(0, |(_, value)| {
            let fields = [RMEM_ALLOC, FWD_ALLOC, OPTMEM, BACKLOG].map(|field| u32_at(value, field));
            // Sent data is in both, until it has left.
            fields.iter().sum::<u64>() + u32_at(value, WMEM_ALLOC).max(u32_at(value, WMEM_QUEUED))
        });
    EMPTY_SOCKET_BYTES + of_data
}

/// Iterates over attributes (`struct nlattr`): their types and values.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let header = rest.get(..4)?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = rest.get(4..length)?;
        let kind = u16::from_ne_bytes([header[2], header[3]]);
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Returns the next multiple of 4, at which netlink's structures begin.
fn aligned(length: usize) -> usize {
    length.saturating_add(3) & !3
}

/// Returns a field of an array of 32-bit numbers, or 0 if the array ends before it.
fn u32_at(bytes: &[u8], index: usize) -> u64 {
    let field = bytes.get(4 * index..4 * index + 4).and_then(|field| field.try_into().ok());
    field.map_or(0, u32::from_ne_bytes).into()
}

/// Returns the number of sockets in the network namespace of this process, of all families.
fn count(proc: &Path) -> u64 {
    let text = fs::read_to_string(proc.join("net/sockstat")).unwrap_or_default();
    text.lines().find_map(|line| line.strip_prefix("sockets: used ")?.trim().parse().ok()).unwrap_or(0)
}

/// Returns the memory of netlink sockets, whose columns 5 and 6 are the sizes of their queues.
fn netlink_bytes(proc: &Path) -> u64 {
    let text = fs::read_to_string(proc.join("net/netlink")).unwrap_or_default();
    let queues = text.lines().skip(1).flat_map(|line| line.split_whitespace().skip(4).take(2));
    queues.filter_map(|queue| queue.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use super::*;

    /// Returns the memory of one socket. Other tests use sockets, too.
    fn bytes_of(socket: impl AsFd) -> u64 {
        let meter = SocketMeter::new().unwrap();
        let inode = rustix::fs::fstat(socket).unwrap().st_ino;
        let mut found = None;
        let is_this = |message: &[u8]| u32_at(message, 1) == inode;
        let mut handle = |message: &[u8]| {
            if is_this(message) {
                found = Some(meter.bytes_of_unix_socket(message));
            }
        };
        meter.for_each_unix_socket(&mut handle).unwrap();
        found.unwrap()
    }

    #[test]
    fn unread_data_counts_for_its_sender() {
        let (mut one, other) = UnixStream::pair().unwrap();
        assert_eq!((bytes_of(&one), bytes_of(&other)), (EMPTY_SOCKET_BYTES, EMPTY_SOCKET_BYTES));
        one.set_nonblocking(true).unwrap();
        let sent: usize = std::iter::from_fn(|| one.write(&[0; 4096]).ok()).sum();
        assert!(sent > 50_000 && bytes_of(&one) > sent as u64, "{sent} were sent, {} are counted", bytes_of(&one));
        assert_eq!(bytes_of(&other), EMPTY_SOCKET_BYTES);
    }

    #[test]
    fn data_of_closed_senders_counts_for_its_receiver() {
        let (mut one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        let sent: usize = std::iter::from_fn(|| one.write(&[0; 4096]).ok()).sum();
        drop(one);
        assert!(bytes_of(&other) > sent as u64, "{sent} were sent, {} are counted", bytes_of(&other));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("listener");
        let listener = UnixListener::bind(&path).unwrap();
        for _ in 0..3 {
            UnixStream::connect(&path).unwrap().write_all(&[0; 50_000]).unwrap();
        }
        assert!(bytes_of(&listener) > 150_000, "{} are counted", bytes_of(&listener));
        let path = folder.path().join("socket");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let sent: usize = (0..4).map(|_| UnixDatagram::unbound().unwrap().send_to(&[0; 50_000], &path).unwrap()).sum();
        assert!(bytes_of(&receiver) > sent as u64, "{sent} were sent, {} are counted", bytes_of(&receiver));
    }

    #[test]
    fn data_of_connections_that_are_not_accepted_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ports =
            [stream.peer_addr().unwrap(), stream.local_addr().unwrap()].map(|address| address.port().to_be_bytes());
        let received = || {
            let mut bytes = 0;
            let mut handle = |message: &[u8]| {
                // The ports of `struct inet_diag_sockid`: the source's and the destination's.
                if message.get(4..8) == Some(&ports.concat()) {
                    bytes = bytes_of_internet_socket(message);
                }
            };
            SocketMeter::new().unwrap().for_each_internet_socket(&mut handle).unwrap();
            bytes
        };
        assert!(received() < 50_000, "{}", received());
        stream.write_all(&[0; 50_000]).unwrap();
        assert!(received() > 50_000, "{}", received());
    }

    #[test]
    fn bounds_are_upper_bounds() {
        let meter = SocketMeter::new().unwrap();
        let _one = TcpListener::bind("127.0.0.1:0").unwrap();
        let proc = Path::new("/proc");
        assert!(count(proc) > 0 && meter.max_bytes(proc) > meter.max_socket_bytes());
        assert!(meter.bytes(proc) >= EMPTY_SOCKET_BYTES);
    }

    #[test]
    fn truncated_descriptions_are_read_as_far_as_they_go() {
        let meter = SocketMeter::new().unwrap();
        for length in 0..200 {
            let message = vec![0xff; length];
            assert!(meter.bytes_of_unix_socket(&message) >= EMPTY_SOCKET_BYTES);
            assert!(bytes_of_internet_socket(&message) >= EMPTY_SOCKET_BYTES);
        }
    }
}
