//! One ZMTP connection to a kernel. Every wait has a deadline, and happens in `poll`.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::ZmtpError;
use super::frame::{self, Decoder, GREETING_LEN, Incoming};

/// The number of bytes that one call of [`Peer::receive`] reads at most, so that other connections are served too.
const READ_BATCH: usize = 1 << 20;

/// The socket type of this side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Sends requests and receives replies: shell, control and stdin.
    Dealer,
    /// Receives everything that is published: iopub.
    Subscriber,
}

/// A connection after the handshake.
pub(crate) struct Peer {
    stream: UnixStream,
    decoder: Decoder,
    /// The number of bytes that have arrived.
    received_bytes: u64,
}

impl Peer {
    /// Performs the handshake. All dealers of one client have the same identity: the kernel sends an input request to
    /// the identity that sent the cell.
    ///
    /// # Errors
    /// Returns an error if the peer does not follow ZMTP, or does not answer before `deadline`.
    pub(crate) fn handshake(
        stream: UnixStream,
        role: Role,
        identity: &str,
        deadline: Instant,
    ) -> Result<Self, ZmtpError> {
        stream.set_nonblocking(true)?;
        let mut peer = Self { stream, decoder: Decoder::default(), received_bytes: 0 };
        peer.write(&frame::greeting(), deadline)?;
        let greeting = peer.wait(deadline, |decoder| Ok(decoder.take::<GREETING_LEN>()))?;
        frame::check_greeting(&greeting)?;
        let name = if role == Role::Dealer { "DEALER" } else { "SUB" };
        peer.write(&frame::ready(name, identity), deadline)?;
        match peer.wait(deadline, Decoder::next)? {
            Incoming::Command(body) if body.starts_with(b"\x05READY") => {}
            _ => return Err(ZmtpError::Protocol("expected READY".into())),
        }
        if role == Role::Subscriber {
            // Subscribes to every topic.
            peer.send(&[vec![1]], deadline)?;
        }
        Ok(peer)
    }

    /// Returns the descriptor that becomes readable when [`receive`](Self::receive) may have a message.
    pub(crate) fn poll_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Returns the number of bytes that have arrived, including those of dropped messages.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// Returns the next message if one has arrived, without waiting.
    ///
    /// # Errors
    /// Returns an error if the connection has ended, or the peer exceeds a bound.
    pub(crate) fn receive(&mut self) -> Result<Option<Vec<Vec<u8>>>, ZmtpError> {
        let mut left = READ_BATCH;
        loop {
            match self.decoder.next()? {
                Some(Incoming::Message(parts)) => return Ok(Some(parts)),
                // Such as a heartbeat, which a client of version 3.0 need not answer.
                Some(Incoming::Command(_)) => {}
                None if left == 0 => return Ok(None),
                None => match self.fill(left)? {
                    0 => return Ok(None),
                    read => left -= read,
                },
            }
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Returns an error if the peer does not read it before `deadline`.
    pub(crate) fn send(&mut self, parts: &[Vec<u8>], deadline: Instant) -> Result<(), ZmtpError> {
        self.write(&frame::encode(parts), deadline)
    }

    /// Reads at most `max` bytes that have arrived. Returns their number, which may be 0.
    fn fill(&mut self, max: usize) -> Result<usize, ZmtpError> {
        let mut bytes = [0; 64 << 10];
        let max = max.min(bytes.len());
        match self.stream.read(&mut bytes[..max]) {
            Ok(0) => Err(ZmtpError::Closed),
            Ok(read) => {
                self.received_bytes += read as u64;
                self.decoder.feed(&bytes[..read]);
                Ok(read)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock || error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(ZmtpError::Closed),
            Err(error) => Err(error.into()),
        }
    }

    fn wait<T>(
        &mut self,
        deadline: Instant,
        mut next: impl FnMut(&mut Decoder) -> Result<Option<T>, ZmtpError>,
    ) -> Result<T, ZmtpError> {
        loop {
            if let Some(taken) = next(&mut self.decoder)? {
                return Ok(taken);
            }
            if self.fill(READ_BATCH)? == 0 && !self.is_ready(PollFlags::POLLIN, deadline)? {
                return Err(ZmtpError::Timeout("answer"));
            }
        }
    }

    fn write(&mut self, mut bytes: &[u8], deadline: Instant) -> Result<(), ZmtpError> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.is_ready(PollFlags::POLLOUT, deadline)? {
                        return Err(ZmtpError::Timeout("take a message"));
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                    return Err(ZmtpError::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn is_ready(&self, events: PollFlags, deadline: Instant) -> Result<bool, ZmtpError> {
        let ready = wait_for(&[(self.stream.as_fd(), events)], deadline)?;
        Ok(ready[0])
    }
}

/// Waits until one of these descriptors is ready or closed, or the deadline has passed. Returns for each whether it is
/// ready.
///
/// # Errors
/// Returns an error if `poll` fails.
pub(crate) fn wait_for(descriptors: &[(BorrowedFd<'_>, PollFlags)], deadline: Instant) -> std::io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> =
        descriptors.iter().map(|(descriptor, flags)| PollFd::new(*descriptor, *flags)).collect();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Rounded up: rounding down would busy-loop through the last millisecond.
        let left = left.as_nanos().div_ceil(1_000_000).min(60_000);
        let timeout = PollTimeout::try_from(u32::try_from(left).unwrap_or(0)).unwrap_or(PollTimeout::ZERO);
        match poll(&mut polled, timeout) {
            Ok(0) if Instant::now() < deadline => {}
            Ok(_) => return Ok(polled.iter().map(|polled| polled.any().unwrap_or(true)).collect()),
            Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn test_deadline() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Connects a dealer to a peer that runs `other` in a thread.
    fn connect_to(other: impl FnOnce(UnixStream) + Send + 'static) -> Result<Peer, ZmtpError> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || other(theirs));
        Peer::handshake(ours, Role::Dealer, "me", test_deadline())
    }

    /// Performs the handshake of a router.
    fn router_handshake(stream: &mut UnixStream) {
        stream.write_all(&frame::greeting()).unwrap();
        stream.write_all(&frame::ready("ROUTER", "")).unwrap();
        let mut taken = [0; GREETING_LEN];
        stream.read_exact(&mut taken).unwrap();
    }

    fn next(peer: &mut Peer) -> Result<Vec<Vec<u8>>, ZmtpError> {
        loop {
            if let Some(parts) = peer.receive()? {
                return Ok(parts);
            }
            assert!(peer.is_ready(PollFlags::POLLIN, test_deadline())?, "no message arrived");
        }
    }

    #[test]
    fn messages_are_sent_and_received() {
        let mut peer = connect_to(|mut stream| {
            router_handshake(&mut stream);
            let mut seen = Vec::new();
            while !seen.ends_with(b"\x00\x05hello") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                seen.push(byte[0]);
            }
            stream.write_all(&frame::encode(&[b"".to_vec(), vec![b'x'; 1 << 20]])).unwrap();
        })
        .unwrap();
        peer.send(&[b"hello".to_vec()], test_deadline()).unwrap();
        assert_eq!(next(&mut peer).unwrap()[1].len(), 1 << 20);
        assert!(matches!(next(&mut peer), Err(ZmtpError::Closed)));
    }

    #[test]
    fn wrong_greeting_is_refused() {
        let drain = |mut stream: UnixStream| drop(std::io::copy(&mut stream, &mut std::io::sink()));
        let refused = connect_to(move |mut stream| {
            stream.write_all(&[b'H'; 200]).unwrap();
            drain(stream);
        });
        assert!(matches!(refused, Err(ZmtpError::Protocol(_))));
        let refused = connect_to(move |mut stream| {
            stream.write_all(&frame::greeting()).unwrap();
            stream.write_all(&frame::encode(&[b"not a command".to_vec()])).unwrap();
            drain(stream);
        });
        assert!(matches!(refused, Err(ZmtpError::Protocol(_))));
        assert!(matches!(connect_to(drop), Err(ZmtpError::Closed)));
    }

    #[test]
    fn handshake_times_out() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let deadline = Instant::now() + Duration::from_millis(30);
        assert!(matches!(Peer::handshake(ours, Role::Dealer, "me", deadline), Err(ZmtpError::Timeout(_))));
        drop(theirs);
    }

    #[test]
    fn send_times_out() {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let mut peer = connect_to(move |mut stream| {
            router_handshake(&mut stream);
            let _ = released.recv();
        })
        .unwrap();
        let deadline = Instant::now() + Duration::from_millis(50);
        assert!(matches!(peer.send(&[vec![0; 64 << 20]], deadline), Err(ZmtpError::Timeout(_))));
        drop(release);
    }

    #[test]
    fn announced_terabyte_ends_the_connection() {
        let mut peer = connect_to(|mut stream| {
            router_handshake(&mut stream);
            stream.write_all(&[2, 0, 0, 1, 0, 0, 0, 0, 0, b'x']).unwrap();
            let _ = stream.read(&mut [0; 500]);
        })
        .unwrap();
        assert!(matches!(next(&mut peer), Err(ZmtpError::TooLong)));
    }
}
