//! Digests, recorded instead of code and of identifiers that give access.

use std::fmt;

use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

/// The number of hexadecimal digits of an identifier's digest.
pub(crate) const DIGEST_LENGTH: usize = 32;
/// The beginning of owners who are known by a token, and whose digest follows.
const TOKEN_PREFIX: &str = "token:";
/// The number of hexadecimal digits of a token's digest in the name of its owner.
const OWNER_LENGTH: usize = 16;

/// Returns the SHA-256 of bytes, in hexadecimal.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Returns the digest by which records name a session or a run, whose ID gives access to it: the first half of its
/// SHA-256. IDs have 96 random bits, so that none can be found from its digest.
pub fn digest(id: &str) -> String {
    let mut digest = sha256(id);
    digest.truncate(DIGEST_LENGTH);
    digest
}

/// The name of a session, a run or code in records. Its text is made when a record is written, so that a call does not
/// wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identifier {
    /// A run or cell of a process: the number of the record of its server's start, and the number of the run in the
    /// process. The two are unique in a chain, which several processes may have continued.
    Run {
        /// The number of the record.
        server: u64,
        /// The number of the run.
        number: u64,
    },
    /// The digest of an ID that gives access: see [`digest`].
    Secret([u8; DIGEST_LENGTH / 2]),
    /// The SHA-256 of code.
    Code([u8; 32]),
}

impl Identifier {
    /// Returns the name of a session or a run with this ID.
    pub fn for_secret(id: &str) -> Self {
        let mut digest = [0; DIGEST_LENGTH / 2];
        for (to, from) in digest.iter_mut().zip(Sha256::digest(id)) {
            *to = from;
        }
        Self::Secret(digest)
    }

    /// Returns the name of code.
    pub fn for_code(code: &str) -> Self {
        Self::Code(Sha256::digest(code).into())
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { server, number } => write!(formatter, "{server}.{number}"),
            Self::Secret(bytes) => formatter.write_str(&hex::encode(bytes)),
            Self::Code(bytes) => formatter.write_str(&hex::encode(bytes)),
        }
    }
}

impl Serialize for Identifier {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Returns a random name, of 128 bits.
pub fn random_id() -> String {
    let mut bytes = [0; 16];
    // Without randomness, the name is that of others at worst.
    let _ = getrandom::fill(&mut bytes);
    hex::encode(bytes)
}

/// Returns the name of an owner in records: a shorter digest of a token, or the subject that an issuer has named.
pub fn owner_name(owner: &str) -> &str {
    if !owner.starts_with(TOKEN_PREFIX) {
        return owner;
    }
    owner.get(..TOKEN_PREFIX.len() + OWNER_LENGTH).unwrap_or(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_named_by_the_beginning_of_their_token() {
        let owner = format!("token:{}", sha256("a token"));
        assert_eq!(owner_name(&owner), format!("token:{}", &sha256("a token")[..OWNER_LENGTH]));
        for owner in ["token:short", "oauth:issuer ann", "ann"] {
            assert_eq!(owner_name(owner), owner);
        }
    }

    #[test]
    fn identifiers_are_written_as_text() {
        let written = |identifier| serde_json::to_value(identifier).unwrap();
        assert_eq!(written(Identifier::Run { server: 2, number: 17 }), "2.17");
        assert_eq!(written(Identifier::for_secret("an ID")), digest("an ID"));
        assert_eq!(written(Identifier::for_code("1 + 1")), sha256("1 + 1"));
    }
}
