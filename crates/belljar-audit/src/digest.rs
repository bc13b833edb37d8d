//! Digests, recorded instead of code and of identifiers that give access.

use sha2::{Digest as _, Sha256};

/// The number of hexadecimal digits of an identifier's digest.
pub(crate) const DIGEST_LENGTH: usize = 32;
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

/// Returns a random name, of 128 bits.
pub fn random_id() -> String {
    let mut bytes = [0; 16];
    // Without randomness, the name is that of others at worst.
    let _ = getrandom::fill(&mut bytes);
    hex::encode(bytes)
}

/// Returns the name of an owner in records: a shorter digest of a token, or the subject that an issuer has named.
pub fn owner_name(owner: &str) -> String {
    match owner.strip_prefix("token:") {
        Some(digest) => format!("token:{}", digest.get(..OWNER_LENGTH).unwrap_or(digest)),
        None => owner.to_owned(),
    }
}
