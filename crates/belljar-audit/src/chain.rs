//! The hash chain of lines.
//!
//! A line is a JSON object whose last member is its hash: the SHA-256 of the previous line's hash and of the line
//! before that member.
//!
//! ```text
//!  {"seq":7,"time":"…","event":"cell.end",…,"hash":"3f…"}
//!  └──────────────── body ────────────────┘
//!  hash = SHA-256(hash of record 6 as 32 bytes, body)
//! ```

use sha2::{Digest as _, Sha256};

/// The text between the body and the digits of the hash.
const SEPARATOR: &str = ",\"hash\":\"";
/// The text after the digits.
const END: &str = "\"}";
/// The number of hexadecimal digits of a hash.
const DIGITS: usize = 64;

/// The hash of a record.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hash([u8; 32]);

impl Hash {
    /// Returns a random hash, from which a chain starts.
    pub(crate) fn random() -> std::io::Result<Self> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self(bytes))
    }

    /// Parses lower-case hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() != DIGITS || text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }

    /// Returns the hash of a body that follows a record with this hash.
    fn next(self, body: &str) -> Self {
        Self(Sha256::new().chain_update(self.0).chain_update(body).finalize().into())
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

/// Appends the hash to the JSON object in `line`, and returns the hash.
pub(crate) fn seal(previous: Hash, line: &mut String) -> Hash {
    if line.ends_with('}') {
        line.pop();
    }
    let hash = previous.next(line);
    line.push_str(SEPARATOR);
    line.push_str(&hash.to_string());
    line.push_str(END);
    hash
}

/// A line, taken apart.
pub(crate) struct ChainedLine<'a> {
    body: &'a str,
    /// The hash that the line states.
    pub(crate) hash: Hash,
}

impl<'a> ChainedLine<'a> {
    /// Takes a line apart. Returns `None` if it does not end with a hash.
    pub(crate) fn parse(line: &'a str) -> Option<Self> {
        let rest = line.strip_suffix(END)?;
        let (before, digits) = rest.split_at_checked(rest.len().checked_sub(DIGITS)?)?;
        Some(Self { body: before.strip_suffix(SEPARATOR)?, hash: Hash::parse(digits)? })
    }

    /// Returns whether the line follows a record with this hash.
    pub(crate) fn follows(&self, previous: Hash) -> bool {
        previous.next(self.body) == self.hash
    }
}
