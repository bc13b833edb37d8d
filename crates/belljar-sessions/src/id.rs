//! Session IDs. An ID is a bearer secret that gives access to its session, so IDs are random and never logged.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The number of characters of an ID.
const LENGTH: usize = 16;
/// The number of characters that the IDs of a sequence have in common.
const COMMON: usize = 10;

/// The ID of a session: 16 characters of URL-safe base64, which encode 96 random bits.
///
/// New IDs begin with a letter or a digit, since a command line takes a word that begins with `-` for an option. IDs of
/// earlier versions may begin with any character. Copies allocate nothing: many tables and records have an ID.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId([u8; LENGTH]);

impl SessionId {
    /// Returns a new random ID.
    ///
    /// # Errors
    /// Fails if the system's random number generator fails.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; LENGTH / 4 * 3];
        let mut id = [0; LENGTH];
        loop {
            getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
            URL_SAFE_NO_PAD.encode_slice(bytes, &mut id).map_err(std::io::Error::other)?;
            if !matches!(id, [b'-' | b'_', ..]) {
                return Ok(Self(id));
            }
        }
    }

    /// Parses an ID. Returns `None` if the text does not have the form of a session ID.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let id: [u8; LENGTH] = text.as_bytes().try_into().ok()?;
        id.into_iter().all(plain).then_some(Self(id))
    }

    /// Returns the ID as text. It is a secret: only the session's owner may see it.
    pub fn as_str(&self) -> &str {
        // All characters are ASCII.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// IDs that nothing else has, and that are not secrets: they begin with the same 60 random bits, and count. They take
/// one use of the system's random number generator.
pub(crate) struct IdSequence {
    first: SessionId,
    count: AtomicU64,
}

impl IdSequence {
    /// Creates a sequence.
    ///
    /// # Errors
    /// Fails if the system's random number generator fails.
    pub(crate) fn random() -> std::io::Result<Self> {
        Ok(Self { first: SessionId::random()?, count: AtomicU64::new(0) })
    }

    /// Returns the next ID.
    pub(crate) fn next_id(&self) -> SessionId {
        let SessionId(mut id) = self.first;
        let mut count = self.count.fetch_add(1, Ordering::Relaxed);
        let digits = URL_SAFE.as_str().as_bytes();
        for place in id.iter_mut().skip(COMMON) {
            *place = digits.get((count % 64) as usize).copied().unwrap_or_default();
            count /= 64;
        }
        SessionId(id)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ids_have_16_characters_and_differ() {
        let ids: std::collections::BTreeSet<_> = (0..1000).map(|_| SessionId::random().unwrap()).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| SessionId::parse(id.as_str()).as_ref() == Some(id)));
    }

    #[test]
    fn random_ids_begin_with_a_letter_or_a_digit() {
        // Without the rule, one of 32 would not.
        let first = |id: SessionId| id.as_str().as_bytes()[0];
        assert!((0..2000).all(|_| first(SessionId::random().unwrap()).is_ascii_alphanumeric()));
    }

    #[test]
    fn ids_of_a_sequence_differ() {
        let (one, other) = (IdSequence::random().unwrap(), IdSequence::random().unwrap());
        let ids: std::collections::BTreeSet<_> = (0..5000).flat_map(|_| [one.next_id(), other.next_id()]).collect();
        assert_eq!(ids.len(), 10_000);
        assert!(ids.iter().all(|id| SessionId::parse(id.as_str()).as_ref() == Some(id)));
    }

    #[test]
    fn ids_of_earlier_versions_are_parsed() {
        for text in ["-lB3dEfGhIjKlMnO", "_lB3dEfGhIjKlMnO", "--B3dEfGhIjKlMnO"] {
            assert!(SessionId::parse(text).is_some_and(|id| id.as_str() == text), "{text}");
        }
    }

    #[test]
    fn paths_are_not_session_ids() {
        for text in
            ["", "0", "../../../etc/pas", "a/b/c/d/e/f/g/h/", "aaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaa.", "aaaaaaaaaaaaaaé"]
        {
            assert_eq!(SessionId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn debug_output_hides_the_id() {
        let id = SessionId::random().unwrap();
        assert!(!format!("{id:?}").contains(id.as_str()));
    }
}
