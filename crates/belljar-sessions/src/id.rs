//! How sessions are named. Whoever knows a name may use the session, so names cannot be guessed and stand in no log.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Characters of a name.
const LENGTH: usize = 16;

/// The name of a session: 16 characters of base64 for URLs, 96 bits of the system's randomness.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(String);

impl SessionId {
    /// A new one.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn random() -> std::io::Result<Self> {
        let mut bytes = [0; LENGTH / 4 * 3];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Reads one; `None` for what cannot be the name of a session.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (text.len() == LENGTH && text.bytes().all(plain)).then(|| Self(text.to_owned()))
    }

    /// The name itself, for whoever the session belongs to.
    pub fn as_str(&self) -> &str {
        &self.0
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
    fn names_have_16_characters_and_differ() {
        let names: std::collections::BTreeSet<_> = (0..1000).map(|_| SessionId::random().unwrap()).collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|name| SessionId::parse(name.as_str()).as_ref() == Some(name)));
    }

    #[test]
    fn what_could_be_a_path_is_no_name() {
        for text in
            ["", "0", "../../../etc/pas", "a/b/c/d/e/f/g/h/", "aaaaaaaaaaaaaaa", "aaaaaaaaaaaaaaa.", "aaaaaaaaaaaaaaé"]
        {
            assert_eq!(SessionId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_does_not_show_when_it_is_printed_for_debugging() {
        let name = SessionId::random().unwrap();
        assert!(!format!("{name:?}").contains(name.as_str()));
    }
}
