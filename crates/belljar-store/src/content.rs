//! The content of a session: parts, each a list of pieces of blobs.
//!
//! A commit writes one blob with the parts that changed. The record refers to pieces of earlier blobs for the rest:
//!
//! ```text
//!  parts        state ────────────────┐      cells ──┬──────────┬───────┐
//!                                     ▼              ▼          ▼       ▼
//!  blobs        e1-1 [ old state ][ cells ]   e1-2 [ cells ] e1-3 [ state ][ cells ]
//! ```
//!
//! When there are too many blobs, or too much of them is not used any more, the pieces of those with the least use move
//! into the next blob. A blob without use is deleted after the commit.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::names::{self, Digest};

/// The maximum number of a session's blobs.
const MAX_BLOBS: usize = 8;
/// The size of unused bytes that is always tolerated.
const MAX_UNUSED: u64 = 4 << 20;
/// The maximum number of a session's parts.
const MAX_PARTS: usize = 256;
/// The maximum size of a commit, in bytes.
const MAX_COMMIT: usize = 1 << 30;
/// The maximum size of the metadata, in bytes of JSON.
const MAX_METADATA: usize = 64 << 10;
/// The maximum number of images that a session refers to.
const MAX_IMAGES: usize = 64;

/// The properties of a session that are in its record, and listed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// The owner of the session, in the sense of the caller: usually a hash of the user's name.
    pub owner: Option<String>,
    /// The last use, in milliseconds since 1970.
    pub last_used: u64,
    /// The time at which the session may be deleted, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// The images that the session needs. They are not collected as long as it exists.
    pub images: Vec<Digest>,
    /// Anything else that the caller stores, at most 64 KiB of JSON.
    pub metadata: serde_json::Value,
}

impl Facts {
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let size = self.metadata.to_string().len() + self.owner.as_ref().map_or(0, String::len);
        if size > MAX_METADATA {
            return Err(StoreError::TooLarge { what: "the session's metadata", size, limit: MAX_METADATA });
        }
        if self.images.len() > MAX_IMAGES {
            return Err(StoreError::Invalid(format!("a session refers to more than {MAX_IMAGES} images")));
        }
        Ok(())
    }
}

/// The change of a part.
#[derive(Debug, Clone)]
enum Change {
    Put(Bytes),
    Append(Bytes),
    Remove,
}

/// The changes of a commit.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    parts: BTreeMap<String, Change>,
    facts: Option<Facts>,
}

impl Changes {
    /// Returns changes that change nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces a part, or adds it. A part's name has letters, digits, `-`, `_`, `.` and `/`.
    #[must_use]
    pub fn put(mut self, part: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        self.parts.insert(part.into(), Change::Put(bytes.into()));
        self
    }

    /// Appends to a part, or adds it. Replaces an earlier change of the same part in these changes.
    #[must_use]
    pub fn append(mut self, part: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        self.parts.insert(part.into(), Change::Append(bytes.into()));
        self
    }

    /// Removes a part from the session. Does nothing if the session does not have it.
    #[must_use]
    pub fn remove(mut self, part: impl Into<String>) -> Self {
        self.parts.insert(part.into(), Change::Remove);
        self
    }

    /// Replaces the properties of the session that its record has, and that listings return.
    #[must_use]
    pub fn facts(mut self, facts: Facts) -> Self {
        self.facts = Some(facts);
        self
    }

    /// Returns the number of bytes that are written.
    pub(crate) fn size(&self) -> usize {
        let size = |change: &Change| match change {
            Change::Put(bytes) | Change::Append(bytes) => bytes.len(),
            Change::Remove => 0,
        };
        self.parts.values().map(size).sum()
    }
}

/// A piece of a blob.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Piece {
    pub(crate) blob: String,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) digest: Digest,
}

/// The content of a session's record.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(crate) facts: Facts,
    pub(crate) parts: BTreeMap<String, Vec<Piece>>,
    /// The blobs and their sizes.
    pub(crate) blobs: BTreeMap<String, u64>,
}

impl Content {
    pub(crate) fn size(&self) -> u64 {
        self.parts.values().flatten().map(|piece| piece.length).sum()
    }

    /// Returns the number of used bytes of each blob.
    fn used(&self) -> BTreeMap<&str, u64> {
        let mut used: BTreeMap<&str, u64> = self.blobs.keys().map(|blob| (blob.as_str(), 0)).collect();
        for piece in self.parts.values().flatten() {
            *used.entry(&piece.blob).or_default() += piece.length;
        }
        used
    }

    /// Returns the pieces that move into the next blob, if these changes are made.
    pub(crate) fn pieces_to_move(&self, changes: &Changes) -> Vec<Piece> {
        let mut rest = self.clone();
        rest.parts.retain(|part, _| !matches!(changes.parts.get(part), Some(Change::Put(_) | Change::Remove)));
        let mut used: Vec<(u64, String)> =
            rest.used().into_iter().map(|(blob, used)| (used, blob.to_owned())).collect();
        used.sort_unstable();
        used.retain(|(size, _)| *size > 0);
        let live = rest.size() + changes.size() as u64;
        let mut stored = changes.size() as u64 + used.iter().map(|(_, blob)| self.blobs[blob]).sum::<u64>();
        let mut moved = BTreeSet::new();
        // Half of the blobs go at a time, so that most commits move nothing. The new blob is one more.
        let bound = if used.len() >= MAX_BLOBS { MAX_BLOBS / 2 } else { MAX_BLOBS };
        while used.len() - moved.len() >= bound || stored > live.saturating_mul(3) + MAX_UNUSED {
            let Some((size, blob)) = used.get(moved.len()) else { break };
            stored = stored - self.blobs[blob] + size;
            moved.insert(blob.as_str());
        }
        let is_moved = |piece: &&Piece| moved.contains(piece.blob.as_str());
        rest.parts.values().flatten().filter(is_moved).cloned().collect()
    }

    /// Returns the content after the changes, the bytes of the new blob, and the blobs that are not used any more.
    /// `moved` has the bytes of [`Content::pieces_to_move`].
    pub(crate) fn apply(
        &self,
        changes: Changes,
        blob: &str,
        moved: &BTreeMap<Piece, Bytes>,
    ) -> Result<(Self, Bytes, Vec<String>), StoreError> {
        let size = changes.size() + moved.values().map(Bytes::len).sum::<usize>();
        if size > MAX_COMMIT {
            return Err(StoreError::TooLarge { what: "a commit", size, limit: MAX_COMMIT });
        }
        let mut new = Vec::with_capacity(size);
        let mut content = Self { facts: changes.facts.unwrap_or_else(|| self.facts.clone()), ..Self::default() };
        content.facts.check()?;
        let mut changes = changes.parts;
        let mut add = |name: &str, old: &[Piece], change: Option<Change>| {
            let (old, bytes) = match change {
                Some(Change::Remove) => return,
                Some(Change::Put(bytes)) => (&[][..], Some(bytes)),
                Some(Change::Append(bytes)) => (old, Some(bytes)),
                None => (old, None),
            };
            let mut pieces: Vec<Piece> = Vec::new();
            for piece in old {
                match moved.get(piece) {
                    None => pieces.push(piece.clone()),
                    Some(bytes) => append(&mut pieces, blob, &mut new, bytes),
                }
            }
            if let Some(bytes) = bytes {
                append(&mut pieces, blob, &mut new, &bytes);
            }
            content.parts.insert(name.to_owned(), pieces);
        };
        for (name, old) in &self.parts {
            add(name, old, changes.remove(name));
        }
        for (name, change) in changes {
            names::check(&name)?;
            add(&name, &[], Some(change));
        }
        if content.parts.len() > MAX_PARTS {
            return Err(StoreError::Invalid(format!("a session has more than {MAX_PARTS} parts")));
        }
        let used: BTreeSet<&str> = content.parts.values().flatten().map(|piece| piece.blob.as_str()).collect();
        let sizes = self.blobs.iter().map(|(name, size)| (name.as_str(), *size)).chain([(blob, new.len() as u64)]);
        let blobs = sizes.filter(|(name, _)| used.contains(name)).map(|(name, size)| (name.to_owned(), size)).collect();
        let unused = self.blobs.keys().filter(|name| !used.contains(name.as_str())).cloned().collect();
        content.blobs = blobs;
        Ok((content, new.into(), unused))
    }
}

/// Appends bytes to the new blob, and to the last piece if that is its end.
fn append(pieces: &mut Vec<Piece>, blob: &str, new: &mut Vec<u8>, bytes: &[u8]) {
    let offset = new.len();
    new.extend_from_slice(bytes);
    match pieces.last_mut() {
        Some(last) if last.blob == blob => {
            let start = usize::try_from(last.offset).unwrap_or(0);
            last.length = (new.len() - start) as u64;
            last.digest = Digest::from_content(&new[start..]);
        }
        // A part without content has no pieces.
        _ if bytes.is_empty() => {}
        _ => pieces.push(Piece {
            blob: blob.to_owned(),
            offset: offset as u64,
            length: bytes.len() as u64,
            digest: Digest::from_content(bytes),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Carries out commits in memory, and compares what the pieces say with what was committed.
    struct Model {
        content: Content,
        blobs: BTreeMap<String, Bytes>,
        expected: BTreeMap<String, Vec<u8>>,
        moved: usize,
    }

    impl Model {
        fn new() -> Self {
            Self { content: Content::default(), blobs: BTreeMap::new(), expected: BTreeMap::new(), moved: 0 }
        }

        fn commit(&mut self, number: usize, changes: Changes) {
            for (name, change) in &changes.parts {
                match change {
                    Change::Put(bytes) => drop(self.expected.insert(name.clone(), bytes.to_vec())),
                    Change::Append(bytes) => self.expected.entry(name.clone()).or_default().extend(bytes),
                    Change::Remove => drop(self.expected.remove(name)),
                }
            }
            let moved: BTreeMap<Piece, Bytes> = self
                .content
                .pieces_to_move(&changes)
                .into_iter()
                .map(|piece| (piece.clone(), self.read(&piece)))
                .collect();
            self.moved += moved.values().map(Bytes::len).sum::<usize>();
            let name = format!("blob-{number}");
            let (content, bytes, unused) = self.content.apply(changes, &name, &moved).unwrap();
            if content.blobs.contains_key(&name) {
                self.blobs.insert(name, bytes);
            }
            for name in unused {
                self.blobs.remove(&name).unwrap();
            }
            self.content = content;
            assert_eq!(self.blobs.keys().collect::<Vec<_>>(), self.content.blobs.keys().collect::<Vec<_>>());
            for (name, pieces) in &self.content.parts {
                let found: Vec<u8> = pieces.iter().flat_map(|piece| self.read(piece).to_vec()).collect();
                assert_eq!(found, self.expected[name], "{name} after commit {number}");
            }
            assert_eq!(self.content.parts.len(), self.expected.len());
        }

        fn read(&self, piece: &Piece) -> Bytes {
            let start = usize::try_from(piece.offset).unwrap();
            let bytes = self.blobs[&piece.blob].slice(start..start + usize::try_from(piece.length).unwrap());
            assert_eq!(Digest::from_content(&bytes), piece.digest);
            bytes
        }
    }

    #[test]
    fn parts_keep_their_content_while_blobs_come_and_go() {
        let mut model = Model::new();
        for number in 0..300 {
            let byte = u8::try_from(number % 251).unwrap();
            let mut changes = Changes::new().append("cells", vec![byte; 10 + number]);
            if number % 3 == 0 {
                changes = changes.put("state", vec![byte; 5000 + number]);
            }
            if number % 7 == 0 {
                changes = changes.put(format!("files/{}", number % 35), vec![byte; 100]).put("empty", Vec::new());
            }
            if number % 35 == 20 {
                changes = changes.remove(format!("files/{}", 14));
            }
            model.commit(number, changes);
            assert!(model.content.blobs.len() <= MAX_BLOBS, "{}", model.content.blobs.len());
        }
        let written: usize = (0..300).map(|number| 10 + number).sum();
        // A log that only grows is moved a bounded number of times.
        assert!(model.moved < written * 20, "{} of {written}", model.moved);
    }

    #[test]
    fn unused_bytes_are_bounded() {
        let mut model = Model::new();
        for number in 0..20 {
            model.commit(number, Changes::new().put("state", vec![1; 3 << 20]).append("log", vec![2; 1000]));
            let stored: u64 = model.content.blobs.values().sum();
            assert!(stored <= model.content.size() * 3 + MAX_UNUSED, "{stored}");
        }
    }

    #[test]
    fn hostile_names_and_sizes_are_refused() {
        let content = Content::default();
        let apply = |changes| content.apply(changes, "blob", &BTreeMap::new());
        assert!(apply(Changes::new().put("../x", "1")).is_err());
        let metadata = serde_json::Value::String("x".repeat(MAX_METADATA));
        assert!(apply(Changes::new().facts(Facts { metadata, ..Facts::default() })).is_err());
        let many = (0..=MAX_PARTS).fold(Changes::new(), |changes, number| changes.put(format!("p{number}"), "1"));
        assert!(apply(many).is_err());
    }
}
