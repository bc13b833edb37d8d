//! Bodies in chunks.

use bytes::{Buf as _, BytesMut};

use super::head::{Header, parse_trailers};

/// The longest line with the size of a chunk and its extensions.
const MAX_SIZE_LINE: usize = 1024;

/// The most bytes of trailers.
const MAX_TRAILERS: usize = 16 * 1024;

/// A decoder of a body in chunks. It is strict: lines end with CR LF, and sizes are hexadecimal digits.
#[derive(Debug, Default)]
pub(crate) struct ChunkedDecoder {
    state: State,
}

#[derive(Debug, Default, Clone, Copy)]
enum State {
    /// The line with the size of the next chunk.
    #[default]
    Size,
    /// Data of a chunk: the rest of its bytes.
    Data(u64),
    /// The line end after the data.
    DataEnd,
    Trailers,
    Done,
}

/// A piece of a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Data(BytesMut),
    /// The end, with the trailers.
    End(Vec<Header>),
}

impl ChunkedDecoder {
    /// Takes the next piece from the buffer, or returns `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns the reason if the body is not valid.
    pub(crate) fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Piece>, String> {
        loop {
            match self.state {
                State::Size => {
                    let Some(end) = line_end(buffer, MAX_SIZE_LINE)? else { return Ok(None) };
                    let size = chunk_size(buffer.get(..end).unwrap_or_default())?;
                    buffer.advance(end + 2);
                    self.state = if size == 0 { State::Trailers } else { State::Data(size) };
                }
                State::Data(0) => self.state = State::DataEnd,
                State::Data(rest) => {
                    if buffer.is_empty() {
                        return Ok(None);
                    }
                    let length = usize::try_from(rest).unwrap_or(usize::MAX).min(buffer.len());
                    self.state = State::Data(rest - length as u64);
                    return Ok(Some(Piece::Data(buffer.split_to(length))));
                }
                State::DataEnd => {
                    if !b"\r\n".starts_with(buffer.get(..buffer.len().min(2)).unwrap_or_default()) {
                        return Err("a chunk is longer than its size".to_owned());
                    }
                    if buffer.len() < 2 {
                        return Ok(None);
                    }
                    buffer.advance(2);
                    self.state = State::Size;
                }
                State::Trailers => {
                    let length = if buffer.starts_with(b"\r\n") {
                        2
                    } else {
                        match buffer.windows(4).take(MAX_TRAILERS).position(|window| window == b"\r\n\r\n") {
                            Some(end) => end + 4,
                            None if buffer.len() >= MAX_TRAILERS => return Err("the trailers are too long".to_owned()),
                            None => return Ok(None),
                        }
                    };
                    let trailers = parse_trailers(buffer.get(..length).unwrap_or_default())?;
                    buffer.advance(length);
                    self.state = State::Done;
                    return Ok(Some(Piece::End(trailers)));
                }
                State::Done => return Ok(Some(Piece::End(Vec::new()))),
            }
        }
    }
}

/// Returns the length of the line at the beginning of the bytes.
fn line_end(bytes: &[u8], limit: usize) -> Result<Option<usize>, String> {
    match bytes.iter().take(limit).position(|byte| *byte == b'\n') {
        Some(end) => match end.checked_sub(1) {
            Some(end) if bytes.get(end) == Some(&b'\r') => Ok(Some(end)),
            _ => Err("a line of a chunk does not end with CR LF".to_owned()),
        },
        None if bytes.len() >= limit => Err("the size of a chunk is too long".to_owned()),
        None => Ok(None),
    }
}

/// Reads the size of a chunk. Extensions are ignored.
fn chunk_size(line: &[u8]) -> Result<u64, String> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (size, rest) = line.split_at(digits);
    let is_extension = rest.trim_ascii_start().first().is_none_or(|byte| *byte == b';')
        && rest.iter().all(|byte| matches!(byte, b'\t' | 0x20..=0x7e));
    let size = std::str::from_utf8(size).ok().filter(|size| (1..=15).contains(&size.len()));
    match size.and_then(|size| u64::from_str_radix(size, 16).ok()) {
        Some(size) if is_extension => Ok(size),
        _ => Err("the size of a chunk is not a number".to_owned()),
    }
}

/// Adds a chunk. Empty data adds nothing, since an empty chunk ends a body.
pub(crate) fn write_chunk(bytes: &mut Vec<u8>, data: &[u8]) {
    if !data.is_empty() {
        bytes.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
        bytes.extend_from_slice(data);
        bytes.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The data, the trailers, and the bytes after the body.
    type Decoded = (Vec<u8>, Vec<Header>, Vec<u8>);

    fn decode(text: &[u8], size: usize) -> Result<Decoded, String> {
        let mut decoder = ChunkedDecoder::default();
        let mut buffer = BytesMut::new();
        let mut data = Vec::new();
        for (index, chunk) in text.chunks(size).enumerate() {
            buffer.extend_from_slice(chunk);
            while let Some(piece) = decoder.next(&mut buffer)? {
                match piece {
                    Piece::Data(bytes) => data.extend_from_slice(&bytes),
                    Piece::End(trailers) => {
                        let rest = text.get((index + 1) * size..).unwrap_or_default();
                        return Ok((data, trailers, [&buffer, rest].concat()));
                    }
                }
            }
        }
        Err("incomplete".to_owned())
    }

    #[test]
    fn bodies_are_decoded_in_any_split() {
        let text = b"5\r\nhello\r\n00a;name=\"value\"\r\n 123456789\r\n0\r\nX-Sum: 1\r\n\r\nGET /";
        for size in 1..text.len() {
            let (data, trailers, rest) = decode(text, size).unwrap();
            assert_eq!(data, b"hello 123456789");
            assert_eq!(trailers, [("X-Sum".to_owned(), b"1".to_vec())]);
            assert_eq!(rest, b"GET /");
        }
        assert_eq!(decode(b"0\r\n\r\n", 1).unwrap().0, b"");
    }

    #[test]
    fn invalid_bodies_are_refused() {
        for text in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "0x1\r\na\r\n",
            "+1\r\na\r\n",
            "1\na\r\n0\r\n\r\n",
            "1 a\r\na\r\n",
            "1;a\rb\r\na\r\n",
            "1;a\nb\r\na\r\n",
            "1\r\nab\r\n",
            "1\r\na\n0\r\n\r\n",
            "1\r\na0\r\n\r\n",
            "fffffffffffffffff\r\n",
            "0\r\nA: b\nC: d\r\n\r\n",
            "0\r\nA: b\r\n c\r\n\r\n",
        ] {
            let result = decode(text.as_bytes(), 1);
            assert!(result.is_err() && result != Err("incomplete".to_owned()), "{text:?}: {result:?}");
        }
        let endless = [b"0\r\n".as_slice(), &b"A: b\r\n".repeat(4000)].concat();
        assert_ne!(decode(&endless, 100).unwrap_err(), "incomplete");
        assert_ne!(decode(&b"1;".repeat(1000), 100).unwrap_err(), "incomplete");
    }
}
