//! The bearer tokens that a server was configured with.

use std::sync::Arc;

use parking_lot::RwLock;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bearer tokens, stored as SHA-256 digests. Clones share them, so that a running server accepts those that replace
/// them.
#[derive(Debug, Clone, Default)]
pub struct Tokens(Arc<RwLock<Vec<KnownToken>>>);

/// A token.
#[derive(Debug, Clone)]
struct KnownToken {
    digest: [u8; 32],
    /// The name of its owner in the quotas. Tokens of the same name share them.
    name: Option<Arc<str>>,
}

impl KnownToken {
    fn parse(line: &str) -> Self {
        let (token, name) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let name = name.trim();
        Self { digest: Sha256::digest(token).into(), name: (!name.is_empty()).then(|| name.into()) }
    }

    /// Returns an identifier for the bearer.
    fn owner(&self) -> String {
        let hex: String = self.digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("token:{hex}")
    }
}

impl Tokens {
    /// Parses the text of a file with one token on each line, which a name may follow; lines that begin with `#` are
    /// comments.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(Arc::new(RwLock::new(lines.map(KnownToken::parse).collect())))
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }

    /// Accepts the tokens of `other` from now on, and no longer those of before.
    pub fn replace_with(&self, other: &Self) {
        let tokens = other.0.read().clone();
        *self.0.write() = tokens;
    }

    /// Returns the names of tokens, by the identifiers of their bearers.
    pub fn names(&self) -> Vec<(String, Arc<str>)> {
        let tokens = self.0.read();
        tokens.iter().filter_map(|token| Some((token.owner(), token.name.clone()?))).collect()
    }

    /// Returns an identifier for the bearer of `token`, if it is one of these tokens. Takes the same time for each
    /// token.
    pub(super) fn owner(&self, token: &str) -> Option<String> {
        let digest = Sha256::digest(token);
        let is_same = |known: &KnownToken| bool::from(known.digest.ct_eq(digest.as_slice()));
        let found = self.0.read().iter().fold(false, |found, known| found | is_same(known));
        found.then(|| format!("token:{digest:x}"))
    }
}
