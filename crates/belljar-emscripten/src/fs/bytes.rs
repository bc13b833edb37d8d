//! Read-only bytes that are cheap to share: in memory, or mapped from a file of the host.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

/// Immutable bytes, shared by clones and slices.
#[derive(Clone)]
pub struct FileBytes {
    source: Source,
    range: Range<usize>,
}

#[derive(Clone)]
enum Source {
    Memory(Arc<Vec<u8>>),
    Mmap(Arc<memmap2::Mmap>),
}

impl FileBytes {
    /// Maps a file of the host. Its pages are shared by every process that maps it, and read when first touched.
    ///
    /// The file must not change as long as any clone lives. This is intended for files of a content-addressed cache,
    /// which are written under another name and never modified. Never map a file that a guest can write to.
    pub fn map(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(Self::default());
        }
        // SAFETY: the mapping is private and read-only. This function documents the condition that the file does not
        // change meanwhile, and guests cannot access the host's files that are mapped.
        let mapping = unsafe { memmap2::Mmap::map(&file)? };
        let range = 0..mapping.len();
        Ok(Self { source: Source::Mmap(Arc::new(mapping)), range })
    }

    /// Returns a part of these bytes; `None` if the range reaches beyond them.
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.range.len() {
            return None;
        }
        let start = self.range.start + range.start;
        Some(Self { source: self.source.clone(), range: start..start + range.len() })
    }
}

impl Default for FileBytes {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl From<Vec<u8>> for FileBytes {
    fn from(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        Self { source: Source::Memory(Arc::new(bytes)), range }
    }
}

impl Deref for FileBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let whole: &[u8] = match &self.source {
            Source::Memory(bytes) => bytes,
            Source::Mmap(mapping) => mapping,
        };
        // The range was checked against the source when it was created.
        whole.get(self.range.clone()).unwrap_or_default()
    }
}

impl AsRef<[u8]> for FileBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for FileBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileBytes({} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_stay_inside_their_source() {
        let whole = FileBytes::from(b"0123456789".to_vec());
        let middle = whole.slice(2..8).unwrap();
        assert_eq!(&*middle, b"234567");
        assert_eq!(&*middle.slice(1..3).unwrap(), b"34");
        assert!(middle.slice(0..7).is_none());
        assert!(middle.slice(6..6).unwrap().is_empty());
        #[expect(clippy::reversed_empty_ranges, reason = "that is what must be refused")]
        let reversed = 5..2;
        assert!(whole.slice(reversed).is_none());
    }

    #[test]
    fn a_mapped_file_has_the_contents_of_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        std::fs::write(&path, b"mapped").unwrap();
        let bytes = FileBytes::map(&path).unwrap();
        assert_eq!(&*bytes.slice(1..4).unwrap(), b"app");
        std::fs::write(directory.path().join("empty"), b"").unwrap();
        assert!(FileBytes::map(&directory.path().join("empty")).unwrap().is_empty());
        assert!(FileBytes::map(&directory.path().join("absent")).is_err());
    }
}
