//! ZMTP 3, as far as a client of a kernel needs it: the greeting, the `READY` command, frames.
//!
//! The specification is <https://rfc.zeromq.org/spec/23/>. Nothing is allocated on the word of the other side: a length
//! is held against the bounds when it is read, and memory grows with what has come.

use super::WireError;

/// Most bytes of one message, in all its parts. Jupyter's own servers stop at 10 MiB for text, and pictures are larger.
pub(crate) const MAX_MESSAGE: usize = 64 << 20;
/// Most parts of a message. Jupyter's have six, and one for each buffer.
pub(crate) const MAX_PARTS: usize = 64;
/// Most bytes of a command: `READY` has a hundred.
const MAX_COMMAND: usize = 64 << 10;
/// Bytes of the greeting.
pub(crate) const GREETING: usize = 64;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// A whole message.
    Message(Vec<Vec<u8>>),
    /// A command: its name and body.
    Command(Vec<u8>),
}

/// What this side says first: version 3.0, no security, as there is none on a unix socket that only the kernel holds.
pub(crate) fn greeting() -> [u8; GREETING] {
    let mut bytes = [0; GREETING];
    bytes[0] = 0xff;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

/// Whether the other side's greeting is one that fits ours.
pub(crate) fn check_greeting(bytes: &[u8; GREETING]) -> Result<(), WireError> {
    let mechanism = bytes[12..32].starts_with(b"NULL\0");
    if bytes[0] != 0xff || bytes[9] & 1 == 0 || bytes[10] < 3 || !mechanism {
        return Err(WireError::Protocol("its greeting is not that of ZMTP 3".into()));
    }
    Ok(())
}

/// The `READY` command of a socket of this type.
pub(crate) fn ready(socket_type: &str, identity: &str) -> Vec<u8> {
    let mut body = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", socket_type), ("Identity", identity)] {
        body.push(u8::try_from(name.len()).unwrap_or(u8::MAX));
        body.extend(name.as_bytes());
        body.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
        body.extend(value.as_bytes());
    }
    let mut bytes = Vec::new();
    frame(&mut bytes, COMMAND, &body);
    bytes
}

/// A message as it travels.
pub(crate) fn encode(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 9).sum());
    for (index, part) in parts.iter().enumerate() {
        frame(&mut bytes, if index + 1 < parts.len() { MORE } else { 0 }, part);
    }
    bytes
}

fn frame(bytes: &mut Vec<u8>, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(short) => bytes.extend([flags, short]),
        Err(_) => {
            bytes.push(flags | LONG);
            bytes.extend((body.len() as u64).to_be_bytes());
        }
    }
    bytes.extend(body);
}

/// Makes messages of bytes.
#[derive(Default)]
pub(crate) struct Decoder {
    /// What came and is not used yet, from `start` on.
    buffer: Vec<u8>,
    start: usize,
    /// The message that is being read.
    parts: Vec<Vec<u8>>,
    held: usize,
}

impl Decoder {
    /// Takes more bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        if self.start > 0 && (self.start == self.buffer.len() || self.start > 64 << 10) {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes out a number of bytes that are no frame.
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.buffer.get(self.start..self.start + N)?.try_into().ok()?;
        self.start += N;
        Some(bytes)
    }

    /// The next thing that has come as a whole.
    ///
    /// # Errors
    /// When it exceeds a bound; nothing more can be read then.
    pub(crate) fn next(&mut self) -> Result<Option<Incoming>, WireError> {
        loop {
            let Some((flags, head, length)) = self.header() else { return Ok(None) };
            let is_command = flags & COMMAND != 0;
            let most = if is_command { MAX_COMMAND } else { MAX_MESSAGE - self.held };
            let Some(length) = usize::try_from(length).ok().filter(|length| *length <= most) else {
                return Err(WireError::TooLong);
            };
            let begin = self.start + head;
            let Some(body) = self.buffer.get(begin..begin + length) else { return Ok(None) };
            let body = body.to_vec();
            self.start = begin + length;
            if is_command {
                return Ok(Some(Incoming::Command(body)));
            }
            self.held += body.len();
            self.parts.push(body);
            if self.parts.len() > MAX_PARTS {
                return Err(WireError::Protocol(format!("a message of more than {MAX_PARTS} parts")));
            }
            if flags & MORE == 0 {
                self.held = 0;
                return Ok(Some(Incoming::Message(std::mem::take(&mut self.parts))));
            }
        }
    }

    /// Flags, bytes of the header, and bytes of the body of the frame that begins here.
    fn header(&self) -> Option<(u8, usize, u64)> {
        let bytes = &self.buffer[self.start..];
        let flags = *bytes.first()?;
        if flags & LONG == 0 {
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
    fn messages_come_out_as_they_went_in_however_they_are_cut() {
        let sent = [message(&[0, 1, 255, 256, 70_000]), message(&[3])];
        let bytes: Vec<u8> = sent.iter().flat_map(|parts| encode(parts)).collect();
        for step in [1, 7, 4096, bytes.len()] {
            let (mut decoder, mut came) = (Decoder::default(), Vec::new());
            for piece in bytes.chunks(step) {
                decoder.feed(piece);
                while let Some(Incoming::Message(parts)) = decoder.next().unwrap() {
                    came.push(parts);
                }
            }
            assert_eq!(came, sent, "{step} bytes at a time");
        }
    }

    #[test]
    fn a_frame_of_a_terabyte_is_refused_by_its_header() {
        let mut decoder = Decoder::default();
        decoder.feed(&[LONG]);
        decoder.feed(&(1u64 << 40).to_be_bytes());
        assert!(matches!(decoder.next(), Err(WireError::TooLong)));
        let mut decoder = Decoder::default();
        decoder.feed(&[LONG, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        assert!(decoder.next().is_err());
    }

    #[test]
    fn parts_without_end_are_refused_by_number_and_by_size() {
        let mut decoder = Decoder::default();
        decoder.feed(&[MORE, 0].repeat(MAX_PARTS + 1));
        assert!(decoder.next().unwrap_err().to_string().contains("parts"));
        let mut decoder = Decoder::default();
        let mut part = Vec::new();
        frame(&mut part, MORE, &vec![0; 40 << 20]);
        decoder.feed(&part);
        assert_eq!(decoder.next().unwrap(), None);
        decoder.feed(&part[..9]);
        assert!(matches!(decoder.next(), Err(WireError::TooLong)));
    }

    #[test]
    fn a_command_between_the_parts_of_a_message_is_its_own() {
        let mut decoder = Decoder::default();
        let mut bytes = Vec::new();
        frame(&mut bytes, MORE, b"a");
        frame(&mut bytes, COMMAND, b"\x04PING");
        frame(&mut bytes, 0, b"b");
        decoder.feed(&bytes);
        assert_eq!(decoder.next().unwrap(), Some(Incoming::Command(b"\x04PING".to_vec())));
        assert_eq!(decoder.next().unwrap(), Some(Incoming::Message(vec![b"a".to_vec(), b"b".to_vec()])));
        decoder.feed(&[COMMAND | LONG, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert!(decoder.next().is_err(), "a command of 16 MiB");
    }

    #[test]
    fn greetings_of_others_are_refused() {
        assert!(check_greeting(&greeting()).is_ok());
        for (at, byte) in [(0, b'H'), (9, 0), (10, 2), (12, b'P')] {
            let mut wrong = greeting();
            wrong[at] = byte;
            assert!(check_greeting(&wrong).is_err(), "byte {at}");
        }
    }
}
