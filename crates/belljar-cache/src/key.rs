//! Keys of cache entries.

use std::fmt;

use sha2::{Digest, Sha256};

/// The key of a cache entry: its kind and a digest of everything that its content depends on. Inputs that are not part
/// of the key must not influence the content, since an intact entry is never recreated.
#[derive(Clone)]
pub struct EntryKey {
    kind: &'static str,
    digest: Sha256,
}

impl EntryKey {
    /// Creates a key for entries of a kind. `kind` (`runtime`, `module`, `image`) makes directory listings readable and
    /// consists of lower-case letters and digits.
    pub fn new(kind: &'static str) -> Self {
        debug_assert!(kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{kind}");
        EntryKey { kind, digest: Sha256::new() }
    }

    /// Adds an input that the content depends on: a version, a hash, an option. The order of the parts is significant,
    /// and each part is prefixed with its length, so that `("a", "bc")` and `("ab", "c")` give different keys.
    #[must_use]
    pub fn part(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        for field in [name.as_bytes(), value.as_ref()] {
            self.digest.update((field.len() as u64).to_le_bytes());
            self.digest.update(field);
        }
        self
    }

    /// Returns the kind of the entries.
    pub(crate) fn kind(&self) -> &'static str {
        self.kind
    }

    /// Returns the entry's directory name: the kind and 128 bits of the digest.
    pub(crate) fn directory_name(&self) -> String {
        let digest = self.digest.clone().finalize();
        format!("{}-{}", self.kind, hex::encode(&digest[..16]))
    }
}

/// Formats the key as the name of the entry's directory. Used as a part of another key, it represents all parts of this
/// one.
impl fmt::Display for EntryKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.directory_name())
    }
}

impl fmt::Debug for EntryKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "EntryKey({})", self.directory_name())
    }
}

#[cfg(test)]
mod tests {
    use super::EntryKey;

    #[test]
    fn moving_text_between_name_and_value_changes_the_key() {
        let one = EntryKey::new("image").part("a", "bc");
        let other = EntryKey::new("image").part("ab", "c");
        assert_ne!(one.directory_name(), other.directory_name());
    }

    #[test]
    fn equal_parts_give_equal_names_with_the_kind_as_prefix() {
        let name = EntryKey::new("image").part("release", "314.0.7").directory_name();
        assert_eq!(name, EntryKey::new("image").part("release", "314.0.7").directory_name());
        assert!(name.starts_with("image-"), "{name}");
    }
}
