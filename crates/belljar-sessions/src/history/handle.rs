//! Handles: names of sessions that are no secrets.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::id::SessionId;

/// The number of bytes of the digest in a handle.
const HANDLE_BYTES: usize = 8;

/// The name of a session for operators: the first 64 bits of the SHA-256 of its ID, in hexadecimal digits.
///
/// An ID has 96 random bits, so that it does not follow from its handle. A session has the same handle in all servers.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionHandle([u8; 2 * HANDLE_BYTES]);

impl SessionHandle {
    /// Returns the handle of a session.
    pub fn from_id(id: &SessionId) -> Self {
        let digest = Sha256::digest(id.as_str());
        let mut digits = [0; 2 * HANDLE_BYTES];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(digest.iter()) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 0xf)]);
        }
        Self(digits)
    }

    /// Parses a handle. Returns `None` if the text does not have the form of one.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let digits: [u8; 2 * HANDLE_BYTES] = text.as_bytes().try_into().ok()?;
        digits.into_iter().all(is_digit).then_some(Self(digits))
    }

    /// Returns the handle as text.
    pub fn as_str(&self) -> &str {
        // All characters are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// Returns the hexadecimal digit of a number below 16.
fn digit(number: u8) -> u8 {
    if number < 10 { b'0' + number } else { b'a' + (number - 10) }
}

impl fmt::Display for SessionHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

impl fmt::Debug for SessionHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SessionHandle({})", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_digests_and_ids_are_not_handles() {
        let id = SessionId::parse("W-zFjI5p-ns1Qiu9").unwrap();
        let handle = SessionHandle::from_id(&id);
        assert_eq!(handle.as_str(), &belljar_audit::digest(id.as_str())[..2 * HANDLE_BYTES]);
        assert_eq!(SessionHandle::parse(handle.as_str()), Some(handle.clone()));
        assert!(!id.as_str().contains(handle.as_str()));
        for other in ["", "W-zFjI5p-ns1Qiu9", "0123456789abcde", "0123456789ABCDEF", "0123456789abcdef0"] {
            assert_eq!(SessionHandle::parse(other), None, "{other}");
        }
    }
}
