//! The names of objects and records, and random IDs.
//!
//! ```text
//! PREFIX/sessions/KEY                      the record of a session
//! PREFIX/state/KEY/eEPOCH-SEQUENCE-WRITE   the parts that one commit has changed
//! PREFIX/nodes/NODE                        the record of a replica
//! PREFIX/shared/DIGEST                     the record of an image
//! PREFIX/images/DIGEST/WRITE               an image
//! PREFIX/records/COLLECTION/NAME           small shared records
//! PREFIX/contents/COLLECTION/NAME/WRITE    a content that is too large for its record
//! PREFIX/coordinator                       the coordinator of the replicas that use the prefix
//! PREFIX/identity                          the random ID of the store, which etcd remembers
//! ```
//!
//! With etcd, its keys have the records, and the store the rest.
//!
//! A session's ID is a bearer secret, and names of objects appear in logs and bills of a store. So KEY is the SHA-256
//! of the ID. A key for the hash would not help: all replicas would have to share it, and those who can read the store
//! can read the sessions anyway. IDs have 96 random bits or more, so that none can be found from its hash.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::error::StoreError;
use crate::protocol::{NodeId, WriteId};

macro_rules! hash {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; 32]);

        impl $name {
            /// Parses 64 lower-case hexadecimal digits.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
                    return None;
                }
                let mut bytes = [0; 32];
                hex::decode_to_slice(text, &mut bytes).ok()?;
                Some(Self(bytes))
            }

            /// Returns the bytes of the hash.
            #[must_use]
            pub fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, formatter)
            }
        }

        serde_as_text!($name, "64 hexadecimal digits");
    };
}

hash! {
    /// The name of a session in a store: the SHA-256 of its ID, with a prefix that separates it from other hashes. Not
    /// a secret.
    SessionKey
}

hash! {
    /// The SHA-256 of an image, or of another content.
    Digest
}

impl SessionKey {
    /// Returns the key of the session with this ID.
    #[must_use]
    pub fn from_id(id: &str) -> Self {
        Self(Sha256::new().chain_update(b"belljar session\0").chain_update(id).finalize().into())
    }
}

impl Digest {
    /// Returns the digest of a content.
    #[must_use]
    pub fn from_content(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

pub(crate) const SESSIONS: &str = "sessions/";
pub(crate) const STATE: &str = "state/";
pub(crate) const NODES: &str = "nodes/";
pub(crate) const SHARED: &str = "shared/";
pub(crate) const IMAGES: &str = "images/";
pub(crate) const RECORDS: &str = "records/";
pub(crate) const CONTENTS: &str = "contents/";
pub(crate) const COORDINATOR: &str = "coordinator";
pub(crate) const IDENTITY: &str = "identity";

pub(crate) fn session(key: &SessionKey) -> String {
    format!("{SESSIONS}{key}")
}

pub(crate) fn node(node: NodeId) -> String {
    format!("{NODES}{node}")
}

/// Returns the folder of a session's blobs.
pub(crate) fn state(key: &SessionKey) -> String {
    format!("{STATE}{key}/")
}

/// Returns the name of a blob in its session's folder. The write makes it unique, so that a blob is never replaced; the
/// epoch shows whether a later owner may delete it.
pub(crate) fn blob(epoch: u64, sequence: u64, write: WriteId) -> String {
    format!("e{epoch}-{sequence}-{write}")
}

/// Returns the epoch in the name of a blob.
pub(crate) fn epoch_of_blob(name: &str) -> Option<u64> {
    name.strip_prefix('e')?.split_once('-')?.0.parse().ok()
}

pub(crate) fn shared(digest: &Digest) -> String {
    format!("{SHARED}{digest}")
}

pub(crate) fn image(digest: &Digest, write: WriteId) -> String {
    format!("{IMAGES}{digest}/{write}")
}

/// Returns the folder of the records of a collection.
pub(crate) fn records(collection: &str) -> String {
    format!("{RECORDS}{collection}/")
}

pub(crate) fn record(collection: &str, name: &str) -> String {
    format!("{RECORDS}{collection}/{name}")
}

/// Returns the object of a content, which the record names `NAME/WRITE`.
pub(crate) fn content(collection: &str, content: &str) -> String {
    format!("{CONTENTS}{collection}/{content}")
}

/// Returns the record of a content from the name of its object.
pub(crate) fn record_of_content(object: &str) -> Option<String> {
    let (record, _) = object.strip_prefix(CONTENTS)?.rsplit_once('/')?;
    Some(format!("{RECORDS}{record}"))
}

/// Returns the random number of a new ID.
pub(crate) fn random() -> Result<u128, StoreError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| StoreError::Random(error.to_string()))?;
    Ok(u128::from_le_bytes(bytes))
}

pub(crate) fn new_write() -> Result<WriteId, StoreError> {
    random().map(WriteId)
}

/// Checks a name that a caller has chosen: 1 to 200 characters, of which only `/` separates, without empty or dotted
/// segments.
pub(crate) fn check(name: &str) -> Result<(), StoreError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_segment = |segment: &str| !segment.is_empty() && !segment.starts_with('.') && segment.bytes().all(plain);
    if name.len() <= 200 && name.split('/').all(is_segment) {
        return Ok(());
    }
    Err(StoreError::Invalid(format!("{name:?} is not a name of letters, digits, '-', '_', '.' and '/'")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_are_not_in_the_names_of_objects() {
        let key = SessionKey::from_id("AbCdEfGhIjKlMnOp");
        assert!(!session(&key).contains("AbCdEfGhIjKlMnOp"));
        assert_eq!(SessionKey::parse(&key.to_string()), Some(key));
        assert_ne!(key.as_bytes(), Digest::from_content(b"AbCdEfGhIjKlMnOp").as_bytes());
    }

    #[test]
    fn the_epoch_is_read_from_the_name_of_a_blob() {
        assert_eq!(epoch_of_blob(&blob(12, 7, WriteId(5))), Some(12));
        for name in ["", "e", "e-1-2", "x1-2-3", "e1"] {
            assert_eq!(epoch_of_blob(name), None, "{name}");
        }
    }

    #[test]
    fn contents_belong_to_their_records() {
        let object = content("runs", "one/5");
        assert_eq!(record_of_content(&object), Some(record("runs", "one")));
        assert_eq!(record_of_content("images/x/y"), None);
    }

    #[test]
    fn names_that_leave_the_prefix_are_refused() {
        for name in ["", "/", "a//b", "../a", "a/..", "a b", ".hidden", "a/", "ü"] {
            assert!(check(name).is_err(), "{name:?}");
        }
        for name in ["a", "a/b", "A-b_c.d/9"] {
            check(name).unwrap();
        }
    }
}
