//! What an entry of the cache is found by.

use std::fmt;

use sha2::{Digest, Sha256};

use super::manifest::hex;

/// Names a cache entry: its kind and a digest of everything that its content depends on. What is not in the key must
/// not influence the content, since an entry is never made anew while its files are whole.
#[derive(Clone)]
pub struct EntryKey {
    kind: &'static str,
    digest: Sha256,
}

impl EntryKey {
    /// A key for entries of a kind. `kind` is for the people who look into the directory (`runtime`, `module`,
    /// `image`): lower-case letters and digits.
    pub fn new(kind: &'static str) -> Self {
        debug_assert!(kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()), "{kind}");
        EntryKey { kind, digest: Sha256::new() }
    }

    /// Adds something that the content depends on: a version, a hash, an option. The order of the parts counts, and
    /// each is framed by its length, so that `("a", "bc")` and `("ab", "c")` are two keys.
    #[must_use]
    pub fn part(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        for field in [name.as_bytes(), value.as_ref()] {
            self.digest.update((field.len() as u64).to_le_bytes());
            self.digest.update(field);
        }
        self
    }

    /// The entry's directory name: kind and 128 bits of the digest.
    pub(crate) fn directory_name(&self) -> String {
        let digest = self.digest.clone().finalize();
        format!("{}-{}", self.kind, &hex(&digest)[..32])
    }
}

/// The name of the entry's directory: as a part of another key it stands for all parts of this one.
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
    fn keys_differ_when_a_part_moves_from_one_field_to_the_next() {
        let one = EntryKey::new("image").part("a", "bc");
        let other = EntryKey::new("image").part("ab", "c");
        assert_ne!(one.directory_name(), other.directory_name());
    }

    #[test]
    fn equal_parts_give_equal_names_that_begin_with_the_kind() {
        let name = EntryKey::new("image").part("release", "314.0.7").directory_name();
        assert_eq!(name, EntryKey::new("image").part("release", "314.0.7").directory_name());
        assert!(name.starts_with("image-"), "{name}");
    }
}
