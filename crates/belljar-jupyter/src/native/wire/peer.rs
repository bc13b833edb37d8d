//! One connection to a kernel. Whoever waits does so until a deadline, in `poll`.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::WireError;
use super::frame::{self, Decoder, GREETING, Incoming};

/// Bytes that are read before others get their turn.
const TURN: usize = 1 << 20;

/// What this side of a connection is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Asks, and is answered: shell, control and stdin.
    Dealer,
    /// Hears everything: iopub.
    Subscriber,
}

/// A connection that has shaken hands.
pub(crate) struct Peer {
    stream: UnixStream,
    decoder: Decoder,
    /// Bytes that came so far.
    received: u64,
}

impl Peer {
    /// Shakes hands. All dealers of one client bear the same identity: the kernel sends its questions to the one that
    /// asked for the cell.
    ///
    /// # Errors
    /// When the other side does not speak ZMTP, or not in time.
    pub(crate) fn greet(stream: UnixStream, role: Role, identity: &str, until: Instant) -> Result<Self, WireError> {
        stream.set_nonblocking(true)?;
        let mut peer = Self { stream, decoder: Decoder::default(), received: 0 };
        peer.write(&frame::greeting(), until)?;
        let greeting = peer.wait(until, |decoder| Ok(decoder.take::<GREETING>()))?;
        frame::check_greeting(&greeting)?;
        let name = if role == Role::Dealer { "DEALER" } else { "SUB" };
        peer.write(&frame::ready(name, identity), until)?;
        match peer.wait(until, Decoder::next)? {
            Incoming::Command(body) if body.starts_with(b"\x05READY") => {}
            _ => return Err(WireError::Protocol("it did not say READY".into())),
        }
        if role == Role::Subscriber {
            // To everything.
            peer.send(&[vec![1]], until)?;
        }
        Ok(peer)
    }

    /// What to wait for until [`receive`](Self::receive) has something.
    pub(crate) fn readiness(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Bytes that came so far, whatever became of them.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// The next message, if one has come; never waits.
    ///
    /// # Errors
    /// When the connection has ended, or the other side exceeds a bound.
    pub(crate) fn receive(&mut self) -> Result<Option<Vec<Vec<u8>>>, WireError> {
        let mut room = TURN;
        loop {
            match self.decoder.next()? {
                Some(Incoming::Message(parts)) => return Ok(Some(parts)),
                // A heartbeat, perhaps: nothing that a client of version 3.0 has to answer.
                Some(Incoming::Command(_)) => {}
                None if room == 0 => return Ok(None),
                None => match self.fill(room)? {
                    0 => return Ok(None),
                    read => room -= read,
                },
            }
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// When the other side does not take it in time.
    pub(crate) fn send(&mut self, parts: &[Vec<u8>], until: Instant) -> Result<(), WireError> {
        self.write(&frame::encode(parts), until)
    }

    /// Reads what is there, at most so many bytes; 0 when there is nothing.
    fn fill(&mut self, most: usize) -> Result<usize, WireError> {
        let mut bytes = [0; 64 << 10];
        let room = most.min(bytes.len());
        match self.stream.read(&mut bytes[..room]) {
            Ok(0) => Err(WireError::Closed),
            Ok(read) => {
                self.received += read as u64;
                self.decoder.feed(&bytes[..read]);
                Ok(read)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock || error.kind() == ErrorKind::Interrupted => Ok(0),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(WireError::Closed),
            Err(error) => Err(error.into()),
        }
    }

    fn wait<T>(
        &mut self,
        until: Instant,
        mut take: impl FnMut(&mut Decoder) -> Result<Option<T>, WireError>,
    ) -> Result<T, WireError> {
        loop {
            if let Some(taken) = take(&mut self.decoder)? {
                return Ok(taken);
            }
            if self.fill(TURN)? == 0 && !self.is_ready(PollFlags::POLLIN, until)? {
                return Err(WireError::Late("answer"));
            }
        }
    }

    fn write(&mut self, mut bytes: &[u8], until: Instant) -> Result<(), WireError> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !self.is_ready(PollFlags::POLLOUT, until)? {
                        return Err(WireError::Late("take a message"));
                    }
                }
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                    return Err(WireError::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn is_ready(&self, what: PollFlags, until: Instant) -> Result<bool, WireError> {
        let ready = wait_for(&[(self.stream.as_fd(), what)], until)?;
        Ok(ready[0])
    }
}

/// Waits until one of these is ready, or has ended, or the time has come; answers which are.
///
/// # Errors
/// When the system cannot wait.
pub(crate) fn wait_for(what: &[(BorrowedFd<'_>, PollFlags)], until: Instant) -> std::io::Result<Vec<bool>> {
    let mut polled: Vec<PollFd<'_>> = what.iter().map(|(descriptor, flags)| PollFd::new(*descriptor, *flags)).collect();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up: rounded down it would spin through the last millisecond.
        let left = left.as_nanos().div_ceil(1_000_000).min(60_000);
        let timeout = PollTimeout::try_from(u32::try_from(left).unwrap_or(0)).unwrap_or(PollTimeout::ZERO);
        match poll(&mut polled, timeout) {
            Ok(0) if Instant::now() < until => {}
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

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    /// A dealer, and the other end of its connection, which does what `other` says in a thread.
    fn against(other: impl FnOnce(UnixStream) + Send + 'static) -> Result<Peer, WireError> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || other(theirs));
        Peer::greet(ours, Role::Dealer, "me", soon())
    }

    /// Shakes hands as a router does.
    fn shake(stream: &mut UnixStream) {
        stream.write_all(&frame::greeting()).unwrap();
        stream.write_all(&frame::ready("ROUTER", "")).unwrap();
        let mut taken = [0; GREETING];
        stream.read_exact(&mut taken).unwrap();
    }

    fn next(peer: &mut Peer) -> Result<Vec<Vec<u8>>, WireError> {
        loop {
            if let Some(parts) = peer.receive()? {
                return Ok(parts);
            }
            assert!(peer.is_ready(PollFlags::POLLIN, soon())?, "nothing came");
        }
    }

    #[test]
    fn messages_go_both_ways() {
        let mut peer = against(|mut stream| {
            shake(&mut stream);
            let mut seen = Vec::new();
            while !seen.ends_with(b"\x00\x05hello") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                seen.push(byte[0]);
            }
            stream.write_all(&frame::encode(&[b"".to_vec(), vec![b'x'; 1 << 20]])).unwrap();
        })
        .unwrap();
        peer.send(&[b"hello".to_vec()], soon()).unwrap();
        assert_eq!(next(&mut peer).unwrap()[1].len(), 1 << 20);
        assert!(matches!(next(&mut peer), Err(WireError::Closed)));
    }

    #[test]
    fn whoever_greets_otherwise_is_refused() {
        let listen = |mut stream: UnixStream| drop(std::io::copy(&mut stream, &mut std::io::sink()));
        let refused = against(move |mut stream| {
            stream.write_all(&[b'H'; 200]).unwrap();
            listen(stream);
        });
        assert!(matches!(refused, Err(WireError::Protocol(_))));
        let refused = against(move |mut stream| {
            stream.write_all(&frame::greeting()).unwrap();
            stream.write_all(&frame::encode(&[b"no command".to_vec()])).unwrap();
            listen(stream);
        });
        assert!(matches!(refused, Err(WireError::Protocol(_))));
        assert!(matches!(against(drop), Err(WireError::Closed)));
    }

    #[test]
    fn whoever_never_answers_is_given_up() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let until = Instant::now() + Duration::from_millis(30);
        assert!(matches!(Peer::greet(ours, Role::Dealer, "me", until), Err(WireError::Late(_))));
        drop(theirs);
    }

    #[test]
    fn whoever_never_reads_is_given_up() {
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let mut peer = against(move |mut stream| {
            shake(&mut stream);
            let _ = gate.recv();
        })
        .unwrap();
        let until = Instant::now() + Duration::from_millis(50);
        assert!(matches!(peer.send(&[vec![0; 64 << 20]], until), Err(WireError::Late(_))));
        drop(release);
    }

    #[test]
    fn a_terabyte_that_is_announced_ends_the_connection() {
        let mut peer = against(|mut stream| {
            shake(&mut stream);
            stream.write_all(&[2, 0, 0, 1, 0, 0, 0, 0, 0, b'x']).unwrap();
            let _ = stream.read(&mut [0; 500]);
        })
        .unwrap();
        assert!(matches!(next(&mut peer), Err(WireError::TooLong)));
    }
}
