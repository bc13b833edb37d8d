//! The entries of recordings, their encoding, and the types of calls in them.

use std::time::Duration;

use sha2::{Digest, Sha256};

/// The length of the digest of a request, in bytes.
pub(super) const DIGEST: usize = 8;
/// The digest of a sleep in which a recording was saved.
pub(super) const SLEEP: RequestDigest = RequestDigest([0; DIGEST]);

/// The kinds of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A reading of the time since 1970, in microseconds: the difference to the last one.
    RealTime = 1,
    /// A reading of the monotonic time, likewise.
    Monotonic = 2,
    /// The time of a change of a file, in nanoseconds, likewise.
    FileTime = 3,
    /// Random bytes.
    Random = 4,
    /// A sleep that was not interrupted.
    Sleep = 5,
    /// A call of the program by its embedder: name and argument.
    Call = 6,
    /// A call of the embedder by the program: the digest of the request, and the reply.
    Reply = 7,
    /// The wait in which the recording was saved: the digest of the request, and the state of its handler.
    Pending = 8,
}

impl Kind {
    /// Returns the kind of an entry by its first byte.
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        let all = [
            Self::RealTime,
            Self::Monotonic,
            Self::FileTime,
            Self::Random,
            Self::Sleep,
            Self::Call,
            Self::Reply,
            Self::Pending,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }

    /// Returns the name for messages about replays.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RealTime | Self::Monotonic => "a reading of a clock",
            Self::FileTime => "a change of a file",
            Self::Random => "random bytes",
            Self::Sleep => "a sleep",
            Self::Call => "the end of a step",
            Self::Reply | Self::Pending => "a call of the host",
        }
    }
}

/// The progress of a call of the embedder by the program.
#[derive(Debug)]
pub enum HostCall {
    /// The call is carried out. Its reply is recorded with [`Recording::reply`](super::Recording::reply).
    New(RequestDigest),
    /// The call was carried out before, with this reply.
    Replied(Vec<u8>),
    /// The call was in progress when the recording was saved, with this state. The replay has ended.
    Pending(RequestDigest, Vec<u8>),
    /// The replay has diverged, and the program has to end.
    Diverged,
}

/// The error of bytes that are not a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the recording is damaged")]
pub struct DamagedRecording;

/// The digest of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestDigest(pub(super) [u8; DIGEST]);

impl RequestDigest {
    pub(super) fn new(request: &[u8]) -> Self {
        let mut digest = [0; DIGEST];
        digest.copy_from_slice(&Sha256::digest(request)[..DIGEST]);
        Self(digest)
    }
}

/// Returns a time in whole microseconds.
pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Writes a number with seven bits in each byte, the lowest first.
pub(super) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Writes data after its length.
pub(super) fn put_data(bytes: &mut Vec<u8>, data: &[u8]) {
    put_number(bytes, data.len() as u64);
    bytes.extend_from_slice(data);
}

/// Reads what `put_number` and `put_data` have written.
pub(super) struct Reader<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) position: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let end = self.position.checked_add(length)?;
        let taken = self.bytes.get(self.position..end)?;
        self.position = end;
        Some(taken)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn data(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }
}
