//! A socket between the host and its own processes: JSON messages with file descriptors. The code in the sandbox never
//! has a descriptor of it.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest size of a message, in bytes; the default buffer of a socket is a little larger.
const MAX_MESSAGE_BYTES: usize = 128 << 10;

/// The largest number of descriptors in a message.
pub(crate) const MAX_MESSAGE_DESCRIPTORS: usize = 32;

/// One end of a pair of connected sockets that preserve message boundaries (`SOCK_SEQPACKET`).
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Creates a pair of connected ends. Both are closed on exec.
    ///
    /// # Errors
    ///
    /// The system's, if it creates no socket.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(io::Error::from)?;
        Ok((Self(one), Self(other)))
    }

    /// Wraps the descriptor of an end that another process created.
    pub(crate) fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Returns the descriptor of this end, to pass it to another process.
    #[must_use]
    pub fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    /// Sends one message as JSON.
    ///
    /// # Errors
    ///
    /// Returns `InvalidInput` for a message that is too large; otherwise the system's error.
    pub(crate) fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(message).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.send_bytes(&text, descriptors)
    }

    /// Sends one message in any encoding.
    ///
    /// # Errors
    ///
    /// As [`Self::send`].
    pub fn send_bytes(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if bytes.len() > MAX_MESSAGE_BYTES || descriptors.len() > MAX_MESSAGE_DESCRIPTORS {
            let size = format!(
                "a message of {} bytes and {} descriptors exceeds {MAX_MESSAGE_BYTES} bytes and \
                 {MAX_MESSAGE_DESCRIPTORS} descriptors",
                bytes.len(),
                descriptors.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, size));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MESSAGE_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Receives one JSON message; returns `None` if the other end is closed.
    ///
    /// # Errors
    ///
    /// Returns `WouldBlock` if `wait` is false and no message is queued; `InvalidData` for a message that cannot be
    /// decoded.
    pub fn receive<T: DeserializeOwned>(&self, wait: bool) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_MESSAGE_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        // Peeks at the length first: allocating memory for the longest message takes longer than receiving most
        // messages.
        let peek = flags | RecvFlags::PEEK | RecvFlags::TRUNC;
        let length = match rustix::io::retry_on_intr(|| recv(&self.0, &mut [0_u8; 0], peek)) {
            // The other end was closed before it read all messages of this end.
            Err(Errno::CONNRESET) => return Ok(None),
            peeked => peeked?.1,
        };
        let mut bytes = vec![0; length.min(MAX_MESSAGE_BYTES)];
        let received =
            rustix::io::retry_on_intr(|| recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags))?;
        if received.bytes == 0 {
            return Ok(None);
        }
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        let message = serde_json::from_slice(&bytes[..received.bytes])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Some((message, descriptors)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
