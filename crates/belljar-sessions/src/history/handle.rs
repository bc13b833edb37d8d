//! Handles: names of sessions that are no secrets.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::id::SessionId;

/// The number of bytes of the digest in a handle.
const BYTES: usize = 8;

/// The name of a session for operators: the first 64 bits of the SHA-256 of its ID, in hexadecimal digits.
///
/// An ID has 96 random bits, so that it does not follow from its handle. A session has the same handle in all servers.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionHandle(String);

impl SessionHandle {
    /// Returns the handle of a session.
    pub fn of(id: &SessionId) -> Self {
        let digest = Sha256::digest(id.as_str());
        Self(digest.iter().take(BYTES).map(|byte| format!("{byte:02x}")).collect())
    }

    /// Parses a handle. Returns `None` if the text does not have the form of one.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == 2 * BYTES && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// Returns the handle as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}

impl fmt::Debug for SessionHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SessionHandle({})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_digests_and_ids_are_not_handles() {
        let id = SessionId::parse("W-zFjI5p-ns1Qiu9").unwrap();
        let handle = SessionHandle::of(&id);
        assert_eq!(handle, SessionHandle::of(&id));
        assert_eq!(SessionHandle::parse(handle.as_str()), Some(handle.clone()));
        assert!(!id.as_str().contains(handle.as_str()));
        for other in ["", "W-zFjI5p-ns1Qiu9", "0123456789abcde", "0123456789ABCDEF", "0123456789abcdef0"] {
            assert_eq!(SessionHandle::parse(other), None, "{other}");
        }
    }
}
