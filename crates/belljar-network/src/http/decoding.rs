//! The decompression of responses, so that secrets are found in them.

use std::io::{self, Write as _};

use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

/// The most bytes that one compressed byte may become, on average.
const MAX_RATIO: u64 = 1_000;

/// Bytes for which the ratio is not checked.
const RATIO_GRACE: u64 = 1 << 20;

/// The bytes that are decompressed at once: they become at most 1 MiB.
pub(crate) const MAX_INPUT: usize = 1024;

/// A decoder of a body.
pub(crate) struct BodyDecoder {
    kind: Kind,
    read: u64,
    written: u64,
}

enum Kind {
    Gzip(Box<MultiGzDecoder<Vec<u8>>>),
    /// `deflate`, before its first bytes, which decide whether it has the header of zlib.
    Undecided(Vec<u8>),
    Zlib(Box<ZlibDecoder<Vec<u8>>>),
    Deflate(Box<DeflateDecoder<Vec<u8>>>),
}

impl BodyDecoder {
    /// Creates a decoder for a `Content-Encoding`, or returns `None` if it is not supported.
    pub(crate) fn new(encoding: &[u8]) -> Option<Self> {
        let kind = match encoding.to_ascii_lowercase().as_slice() {
            b"gzip" | b"x-gzip" => Kind::Gzip(Box::new(MultiGzDecoder::new(Vec::new()))),
            b"deflate" => Kind::Undecided(Vec::new()),
            _ => return None,
        };
        Some(Self { kind, read: 0, written: 0 })
    }

    /// Returns the text of at most [`MAX_INPUT`] bytes.
    ///
    /// # Errors
    /// Returns an error if the bytes are not valid or become too many.
    pub(crate) fn decode(&mut self, data: &[u8]) -> io::Result<Vec<u8>> {
        let output = self.decode_unchecked(data)?;
        self.read += data.len() as u64;
        self.written += output.len() as u64;
        if self.written > RATIO_GRACE && self.written / MAX_RATIO > self.read {
            return Err(io::Error::other("the response becomes more than 1000 times its length"));
        }
        Ok(output)
    }

    fn decode_unchecked(&mut self, data: &[u8]) -> io::Result<Vec<u8>> {
        if let Kind::Undecided(begun) = &mut self.kind {
            begun.extend_from_slice(data);
            let [first, second, ..] = begun.as_slice() else { return Ok(Vec::new()) };
            let is_zlib = first & 0x0f == 8 && u16::from_be_bytes([*first, *second]) % 31 == 0;
            let begun = std::mem::take(begun);
            self.kind = if is_zlib {
                Kind::Zlib(Box::new(ZlibDecoder::new(Vec::new())))
            } else {
                Kind::Deflate(Box::new(DeflateDecoder::new(Vec::new())))
            };
            return self.decode_unchecked(&begun);
        }
        match &mut self.kind {
            Kind::Gzip(decoder) => {
                decoder.write_all(data)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Kind::Zlib(decoder) => {
                decoder.write_all(data)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Kind::Deflate(decoder) => {
                decoder.write_all(data)?;
                decoder.flush()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Kind::Undecided(_) => Ok(Vec::new()),
        }
    }

    /// Returns the rest of the text.
    ///
    /// # Errors
    /// Returns an error if the body is incomplete.
    pub(crate) fn finish(&mut self) -> io::Result<Vec<u8>> {
        if self.read == 0 {
            return Ok(Vec::new());
        }
        match &mut self.kind {
            Kind::Gzip(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Kind::Zlib(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Kind::Deflate(decoder) => {
                decoder.try_finish()?;
                Ok(std::mem::take(decoder.get_mut()))
            }
            Kind::Undecided(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn decoded(encoding: &[u8], bytes: &[u8], size: usize) -> io::Result<Vec<u8>> {
        let mut decoder = BodyDecoder::new(encoding).unwrap();
        let mut output = Vec::new();
        for chunk in bytes.chunks(size) {
            output.extend(decoder.decode(chunk)?);
        }
        output.extend(decoder.finish()?);
        Ok(output)
    }

    #[test]
    fn encodings_are_decoded_in_any_split() {
        let text = b"a text that is a text that is compressed".repeat(20);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(&text).unwrap();
        zlib.write_all(&text).unwrap();
        deflate.write_all(&text).unwrap();
        let gzip = gzip.finish().unwrap();
        let zlib = zlib.finish().unwrap();
        let deflate = deflate.finish().unwrap();
        for size in [1, 2, 3, 7, 1000] {
            assert_eq!(decoded(b"GZip", &gzip, size).unwrap(), text);
            assert_eq!(decoded(b"gzip", &[gzip.clone(), gzip.clone()].concat(), size).unwrap(), text.repeat(2));
            assert_eq!(decoded(b"deflate", &zlib, size).unwrap(), text);
            assert_eq!(decoded(b"deflate", &deflate, size).unwrap(), text);
        }
        assert!(decoded(b"gzip", &gzip[..gzip.len() / 2], 10).is_err());
        assert!(decoded(b"gzip", b"not gzip, but text", 10).is_err());
        assert!(BodyDecoder::new(b"br").is_none());
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        for _ in 0..64 {
            gzip.write_all(&vec![0; 1 << 20]).unwrap();
        }
        let bomb = gzip.finish().unwrap();
        assert!(decoded(b"gzip", &bomb, MAX_INPUT).unwrap_err().to_string().contains("1000 times"));
    }
}
