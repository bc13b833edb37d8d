//! Frames on byte streams: a message and, before it, its length as four bytes, the least significant first.

use std::io::{self, Read, Write};

use crate::link::ParentEnd;

/// The maximum length of a message, in bytes.
pub const MAX_FRAME: usize = 256 << 20;
/// The length of the prefix.
const PREFIX_LENGTH: usize = 4;
/// The number of bytes that are read at once, so that a length alone allocates no memory.
const CHUNK_SIZE: usize = 1 << 20;

/// Passes the frames of a stream to a worker until the stream or the worker ends.
///
/// # Errors
/// Fails if the stream cannot be read, ends within a frame, or contains a frame that is too long.
pub fn serve_stream(mut stream: impl Read, parent: &ParentEnd) -> io::Result<()> {
    let result = pass_frames(&mut stream, parent);
    parent.close();
    result
}

fn pass_frames(stream: &mut impl Read, parent: &ParentEnd) -> io::Result<()> {
    while let Some(frame) = read_frame(stream)? {
        if !parent.send(frame) {
            break;
        }
    }
    Ok(())
}

/// Reads a frame; `None` at the end of the stream.
fn read_frame(stream: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut prefix = [0; PREFIX_LENGTH];
    let mut filled = 0;
    while filled < PREFIX_LENGTH {
        match stream.read(&mut prefix[filled..]) {
            Ok(0) if filled == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let length = u32::from_le_bytes(prefix) as usize;
    if length > MAX_FRAME {
        let message = format!("a frame of {length} bytes is longer than {MAX_FRAME} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut frame = Vec::with_capacity(length.min(CHUNK_SIZE));
    let read = stream.take(length as u64).read_to_end(&mut frame)?;
    if read < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(frame))
}

/// Writes a frame and flushes the stream.
///
/// # Errors
/// Fails if the message is too long, or the stream cannot be written.
pub(crate) fn write_frame(stream: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).ok().filter(|length| *length as usize <= MAX_FRAME);
    let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the message is too long"))?;
    let mut frame = Vec::with_capacity(PREFIX_LENGTH + message.len());
    frame.extend(length.to_le_bytes());
    frame.extend(message);
    stream.write_all(&frame)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn truncated_frames_are_errors() {
        let mut frame = Vec::new();
        write_frame(&mut frame, b"message").unwrap();
        for length in 1..frame.len() {
            assert!(read_frame(&mut &frame[..length]).is_err(), "{length}");
        }
        assert!(read_frame(&mut &frame[..0]).unwrap().is_none());
    }

    #[test]
    fn length_above_the_limit_is_refused_before_memory_is_allocated() {
        let error = read_frame(&mut &u32::MAX.to_le_bytes()[..]).unwrap_err();
        assert_eq!(error.to_string(), "a frame of 4294967295 bytes is longer than 268435456 bytes");
    }

    proptest! {
        #[test]
        fn frames_are_read_as_they_were_written(messages in proptest::collection::vec(any::<Vec<u8>>(), 0..8)) {
            let mut stream = Vec::new();
            for message in &messages {
                write_frame(&mut stream, message).unwrap();
            }
            let mut rest = &stream[..];
            let mut read = Vec::new();
            while let Some(message) = read_frame(&mut rest).unwrap() {
                read.push(message);
            }
            prop_assert_eq!(read, messages);
        }
    }
}
