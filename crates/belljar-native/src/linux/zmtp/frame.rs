//! The part of ZMTP 3 that a client of a kernel needs: the greeting, the `READY` command, frames.
//!
//! The specification is <https://rfc.zeromq.org/spec/23/>. A length that the peer announces does not allocate memory:
//! it is checked against the bounds when it is read, and memory grows with the bytes that have arrived.

use super::ZmtpError;

/// The maximum size of one message, in bytes over all its parts. Jupyter's own servers stop at 10 MiB for text, and
/// images are larger.
pub(crate) const MAX_MESSAGE: usize = 64 << 20;
/// The maximum number of parts of a message. Jupyter's messages have six, and one for each buffer.
pub(crate) const MAX_PARTS: usize = 64;
/// The maximum size of a command, in bytes: `READY` has about a hundred.
const MAX_COMMAND: usize = 64 << 10;
/// The size of the greeting, in bytes.
pub(crate) const GREETING_LEN: usize = 64;

const FLAG_MORE: u8 = 1;
const FLAG_LONG: u8 = 2;
const FLAG_COMMAND: u8 = 4;

/// A message or command that was decoded.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// A complete message: its parts.
    Message(Vec<Vec<u8>>),
    /// A command: its name and its body.
    Command(Vec<u8>),
}

/// Returns the greeting that a client sends first: version 3.0 and the mechanism `NULL`, since messages are signed and
/// the unix socket belongs to the kernel alone.
pub(crate) fn greeting() -> [u8; GREETING_LEN] {
    let mut bytes = [0; GREETING_LEN];
    bytes[0] = 0xff;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

/// Checks that the peer's greeting is that of ZMTP 3 with the mechanism `NULL`.
///
/// # Errors
/// Returns [`ZmtpError::Protocol`] if it is another greeting.
pub(crate) fn check_greeting(bytes: &[u8; GREETING_LEN]) -> Result<(), ZmtpError> {
    let mechanism = bytes[12..32].starts_with(b"NULL\0");
    if bytes[0] != 0xff || bytes[9] & 1 == 0 || bytes[10] < 3 || !mechanism {
        return Err(ZmtpError::Protocol("its greeting is not that of ZMTP 3".into()));
    }
    Ok(())
}

/// Encodes the `READY` command of a socket of this type.
pub(crate) fn ready(socket_type: &str, identity: &str) -> Vec<u8> {
    let mut body = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", socket_type), ("Identity", identity)] {
        body.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        body.extend(name.as_bytes());
        body.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
        body.extend(value.as_bytes());
    }
    let mut bytes = Vec::new();
    encode_frame(&mut bytes, FLAG_COMMAND, &body);
    bytes
}

/// Encodes a message.
pub(crate) fn encode(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 9).sum());
    for (index, part) in parts.iter().enumerate() {
        encode_frame(&mut bytes, if index + 1 < parts.len() { FLAG_MORE } else { 0 }, part);
    }
    bytes
}

fn encode_frame(bytes: &mut Vec<u8>, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(short) => bytes.extend([flags, short]),
        Err(_) => {
            bytes.push(flags | FLAG_LONG);
            bytes.extend((body.len() as u64).to_be_bytes());
        }
    }
    bytes.extend(body);
}

/// A decoder of a stream of bytes into messages and commands.
#[derive(Default)]
pub(crate) struct Decoder {
    /// The bytes that have arrived; those before `start` are already decoded.
    buffer: Vec<u8>,
    start: usize,
    /// The parts of the message that is being read.
    parts: Vec<Vec<u8>>,
    /// The number of bytes in `parts`.
    parts_bytes: usize,
}

impl Decoder {
    /// Appends bytes that have arrived.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 && (self.start == self.buffer.len() || self.start > 64 << 10) {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes `N` bytes that are not a frame, or returns `None` until as many have arrived.
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.buffer.get(self.start..self.start + N)?.try_into().ok()?;
        self.start += N;
        Some(bytes)
    }

    /// Returns the next message or command that has arrived completely.
    ///
    /// # Errors
    /// Returns an error if it exceeds a bound. The decoder cannot be used after that.
    pub(crate) fn next(&mut self) -> Result<Option<Incoming>, ZmtpError> {
        loop {
            let Some((flags, head, length)) = self.header() else { return Ok(None) };
            let is_command = flags & FLAG_COMMAND != 0;
            let max = if is_command { MAX_COMMAND } else { MAX_MESSAGE - self.parts_bytes };
            let Some(length) = usize::try_from(length).ok().filter(|length| *length <= max) else {
                return Err(ZmtpError::TooLong);
            };
            let start = self.start + head;
            let Some(body) = self.buffer.get(start..start + length) else { return Ok(None) };
            let body = body.to_vec();
            self.start = start + length;
            if is_command {
                return Ok(Some(Incoming::Command(body)));
            }
            self.parts_bytes += body.len();
            self.parts.push(body);
            if self.parts.len() > MAX_PARTS {
                return Err(ZmtpError::Protocol(format!("a message of more than {MAX_PARTS} parts")));
            }
            if flags & FLAG_MORE == 0 {
                self.parts_bytes = 0;
                return Ok(Some(Incoming::Message(std::mem::take(&mut self.parts))));
            }
        }
    }

    /// Returns the flags, the size of the header and the size of the body of the frame at `start`.
    fn header(&self) -> Option<(u8, usize, u64)> {
        let bytes = &self.buffer[self.start..];
        let flags = *bytes.first()?;
        if flags & FLAG_LONG == 0 {
            return Some((flags, 2, u64::from(*bytes.get(1)?)));
        }
        let length = bytes.get(1..9)?.try_into().ok()?;
        Some((flags, 9, u64::from_be_bytes(length)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sizes: &[usize]) -> Vec<Vec<u8>> {
        sizes.iter().map(|size| vec![b'x'; *size]).collect()
    }

    #[test]
    fn messages_survive_any_split_into_chunks() {
        let sent = [message(&[0, 1, 255, 256, 70_000]), message(&[3])];
        let bytes: Vec<u8> = sent.iter().flat_map(|parts| encode(parts)).collect();
        for chunk_size in [1, 7, 4096, bytes.len()] {
            let (mut decoder, mut received) = (Decoder::default(), Vec::new());
            for chunk in bytes.chunks(chunk_size) {
                decoder.feed(chunk);
                while let Some(Incoming::Message(parts)) = decoder.next().unwrap() {
                    received.push(parts);
                }
            }
            assert_eq!(received, sent, "{chunk_size} bytes at a time");
        }
    }

    #[test]
    fn terabyte_frame_is_refused_by_its_header() {
        let mut decoder = Decoder::default();
        decoder.feed(&[FLAG_LONG]);
        decoder.feed(&(1u64 << 40).to_be_bytes());
        assert!(matches!(decoder.next(), Err(ZmtpError::TooLong)));
        let mut decoder = Decoder::default();
        decoder.feed(&[FLAG_LONG, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert!(decoder.next().is_err());
    }

    #[test]
    fn too_many_and_too_large_parts_are_refused() {
        let mut decoder = Decoder::default();
        decoder.feed(&[FLAG_MORE, 0].repeat(MAX_PARTS + 1));
        assert!(decoder.next().unwrap_err().to_string().contains("parts"));
        let mut decoder = Decoder::default();
        let mut part = Vec::new();
        encode_frame(&mut part, FLAG_MORE, &vec![0; 40 << 20]);
        decoder.feed(&part);
        assert_eq!(decoder.next().unwrap(), None);
        decoder.feed(&part[..9]);
        assert!(matches!(decoder.next(), Err(ZmtpError::TooLong)));
    }

    #[test]
    fn command_between_message_parts_is_separate() {
        let mut decoder = Decoder::default();
        let mut bytes = Vec::new();
        encode_frame(&mut bytes, FLAG_MORE, b"a");
        encode_frame(&mut bytes, FLAG_COMMAND, b"\x04PING");
        encode_frame(&mut bytes, 0, b"b");
        decoder.feed(&bytes);
        assert_eq!(decoder.next().unwrap(), Some(Incoming::Command(b"\x04PING".to_vec())));
        assert_eq!(decoder.next().unwrap(), Some(Incoming::Message(vec![b"a".to_vec(), b"b".to_vec()])));
        decoder.feed(&[FLAG_COMMAND | FLAG_LONG, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert!(decoder.next().is_err(), "a command of 16 MiB");
    }

    #[test]
    fn greeting_of_another_protocol_is_refused() {
        assert!(check_greeting(&greeting()).is_ok());
        for (at, byte) in [(0, b'H'), (9, 0), (10, 2), (12, b'P')] {
            let mut wrong = greeting();
            wrong[at] = byte;
            assert!(check_greeting(&wrong).is_err(), "byte {at}");
        }
    }
}
