//! What the host and processes of ours say to each other: messages of JSON, with descriptors, over a socket that keeps
//! messages apart. Nothing that runs inside ever holds its end.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{Ended, Failure, Policy, Spec};

/// Most bytes of one message; a socket's default buffer takes a little more.
const MESSAGE_BYTES: usize = 128 << 10;

/// Most descriptors that one message carries.
pub(super) const MESSAGE_DESCRIPTORS: usize = 32;

/// What the launcher is asked, at once when it starts. With it goes the program's standard input, if it has one.
#[derive(Serialize, Deserialize)]
pub(super) struct Task {
    pub(super) spec: Spec,
    pub(super) policy: Policy,
}

/// What the host asks of a sandbox that stands.
#[derive(Serialize, Deserialize)]
pub(super) enum Order {
    /// Kill all that runs inside, and keep the sandbox.
    Empty,
}

/// What is told to the host.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Report {
    /// A step failed; nothing stands.
    Failed(Failure),
    /// The first process is there; with its descriptor.
    Begun,
    /// It stands, and the program runs. The descriptors: Landlock's rules, the program if there is one, folders.
    Standing {
        /// Paths inside of the folders in memory whose descriptors come with this.
        folders: Vec<PathBuf>,
        /// Whether a program was started.
        program: bool,
    },
    /// The program has ended.
    Ended(Ended),
    /// More memory was used than allowed, and all that ran was killed.
    OverMemory,
    /// An order was carried out.
    Done,
}

/// One end of the conversation.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl Channel {
    /// Two ends. Both close themselves at exec.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(io::Error::from)?;
        Ok((Self(one), Self(other)))
    }

    /// The end that `descriptor` is.
    pub(super) fn from_descriptor(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// The descriptor, which another process shall have.
    pub(crate) fn into_descriptor(self) -> OwnedFd {
        self.0
    }

    /// Sends one message.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a message that is too large; else the system's.
    pub(super) fn send(&self, message: &impl Serialize, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(message).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        self.send_text(&text, descriptors)
    }

    /// The same for a message that is not JSON alone.
    pub(crate) fn send_text(&self, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if text.len() > MESSAGE_BYTES || descriptors.len() > MESSAGE_DESCRIPTORS {
            let size =
                format!("{} bytes with {} descriptors are more than one message takes", text.len(), descriptors.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, size));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        sendmsg(&self.0, &[IoSlice::new(text)], &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next message; `None` if the other end is closed.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if `wait` is false and there is none; `InvalidData` for one that is not understood.
    pub(crate) fn receive<T: DeserializeOwned>(&self, wait: bool) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC | if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
        // Asked for its length first: memory for the longest would take longer to get than most messages to come.
        let ahead = flags | RecvFlags::PEEK | RecvFlags::TRUNC;
        let length = match rustix::io::retry_on_intr(|| recv(&self.0, &mut [0_u8; 0], ahead)) {
            // The other end was closed with messages of ours unread.
            Err(Errno::CONNRESET) => return Ok(None),
            ahead => ahead?.1,
        };
        let mut text = vec![0; length.min(MESSAGE_BYTES)];
        let received =
            rustix::io::retry_on_intr(|| recvmsg(&self.0, &mut [IoSliceMut::new(&mut text)], &mut ancillary, flags))?;
        if received.bytes == 0 {
            return Ok(None);
        }
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(received) = message {
                descriptors.extend(received);
            }
        }
        let message = serde_json::from_slice(&text[..received.bytes])
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Some((message, descriptors)))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
