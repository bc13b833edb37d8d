//! The bytes of a regular file: chunks written by the guest, over an optional read-only file of a layer.
//!
//! A chunk is copied when it is first written to, and shared with every copy of the filesystem until then. Ranges that
//! were never written, left by seeking or truncating, use no memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::layer::LayerFile;
use crate::Errno;

/// The size in bytes of the parts of a file that are copied, shared and saved together.
pub(super) const CHUNK: usize = 64 << 10;

/// The unit to which the stored bytes of each chunk are rounded up when they are counted: the unit of `st_blocks`. This
/// also accounts for the overhead of a chunk that holds a single byte.
const BLOCK: u64 = 512;

/// The maximum size of a file, holes included: the limit of ext4 with 4 KiB blocks.
pub(super) const MAX_FILE_SIZE: u64 = 16 << 40;

/// The contents of one regular file.
#[derive(Clone, Default)]
pub(super) struct FileContent {
    size: u64,
    lower: Option<LayerFile>,
    /// The length of `lower` that is visible where no chunk covers it.
    lower_size: u64,
    /// The chunks by their offset divided by [`CHUNK`]. A chunk hides all of `lower` in its range; zeros follow its
    /// end.
    chunks: Arc<BTreeMap<u64, Arc<Vec<u8>>>>,
    stored: u64,
}

impl FileContent {
    /// Creates the unmodified contents of a file of a layer.
    pub(super) fn from_layer(file: LayerFile) -> Self {
        let size = file.bytes.len() as u64;
        Self { size, lower: Some(file), lower_size: size, ..Self::default() }
    }

    /// Returns the length in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the number of bytes that count against the quota.
    pub(super) fn stored(&self) -> u64 {
        self.stored
    }

    /// Returns the layer's file that these contents equal, if they were never written to.
    pub(super) fn unmodified(&self) -> Option<&LayerFile> {
        let file = self.lower.as_ref()?;
        let length = file.bytes.len() as u64;
        (self.chunks.is_empty() && self.size == length && self.lower_size == length).then_some(file)
    }

    /// Returns the layer's file under these contents and the length of it that is visible.
    pub(super) fn lower(&self) -> Option<(&LayerFile, u64)> {
        self.lower.as_ref().map(|file| (file, self.lower_size))
    }

    /// Returns every chunk that was written.
    pub(super) fn chunks(&self) -> impl Iterator<Item = (u64, &Arc<Vec<u8>>)> {
        self.chunks.iter().map(|(&index, chunk)| (index, chunk))
    }

    /// Returns the contents as parts, without copying them if they were written in order and no copy of the filesystem
    /// shares them.
    pub(super) fn into_parts(self) -> Vec<Vec<u8>> {
        let is_contiguous = self.lower.is_none()
            && self.chunks.len() as u64 == self.size.div_ceil(CHUNK as u64)
            && self.chunks.values().map(|chunk| chunk.len() as u64).sum::<u64>() == self.size;
        if is_contiguous {
            let chunks = Arc::unwrap_or_clone(self.chunks);
            return chunks.into_values().map(Arc::unwrap_or_clone).collect();
        }
        let mut bytes = vec![0; usize::try_from(self.size).unwrap_or(0)];
        self.read_at(0, &mut bytes);
        vec![bytes]
    }

    /// Creates contents from saved parts; `None` if the parts are inconsistent.
    pub(super) fn from_parts(
        size: u64,
        lower: Option<(LayerFile, u64)>,
        chunks: BTreeMap<u64, Arc<Vec<u8>>>,
    ) -> Option<Self> {
        let ends_inside = |(&index, chunk): (&u64, &Arc<Vec<u8>>)| {
            let end = index.checked_mul(CHUNK as u64).and_then(|start| start.checked_add(chunk.len() as u64));
            chunk.len() <= CHUNK && end.is_some_and(|end| end <= size)
        };
        if size > MAX_FILE_SIZE || !chunks.iter().all(ends_inside) {
            return None;
        }
        let stored = chunks.values().map(|chunk| blocks(chunk.len())).sum();
        let (lower, lower_size) = lower.unzip();
        let lower_size = lower_size.unwrap_or(0);
        if lower_size > size || lower.as_ref().is_some_and(|file| lower_size > file.bytes.len() as u64) {
            return None;
        }
        Some(Self { size, lower, lower_size, chunks: Arc::new(chunks), stored })
    }

    /// Fills `buffer` from `offset`. Returns the number of bytes before the end of the file.
    pub(super) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = buffer.len().min(left);
        let mut rest = &mut buffer[..count];
        let mut position = offset;
        while !rest.is_empty() {
            let (index, within) = split(position);
            let (part, tail) = rest.split_at_mut(rest.len().min(CHUNK - within));
            let source = match self.chunks.get(&index) {
                Some(chunk) => chunk.get(within..).unwrap_or_default(),
                None => self.lower_from(position),
            };
            let copied = part.len().min(source.len());
            part[..copied].copy_from_slice(&source[..copied]);
            part[copied..].fill(0);
            position += part.len() as u64;
            rest = tail;
        }
        count
    }

    /// Writes `data` at `offset` as far as `budget` more stored bytes allow. Returns the number of bytes written.
    ///
    /// Fails with [`Errno::ENOSPC`] if not even one byte fits, and with [`Errno::EFBIG`] if it would start beyond
    /// [`MAX_FILE_SIZE`].
    pub(super) fn write_at(&mut self, offset: u64, data: &[u8], budget: u64) -> Result<usize, Errno> {
        if data.is_empty() {
            return Ok(0);
        }
        if offset >= MAX_FILE_SIZE {
            return Err(Errno::EFBIG);
        }
        let room = usize::try_from(MAX_FILE_SIZE - offset).unwrap_or(usize::MAX);
        let data = &data[..data.len().min(room)];
        let limit = self.stored.saturating_add(budget);
        let mut written = 0;
        while written < data.len() {
            let position = offset + written as u64;
            let part = &data[written..];
            let part = &part[..part.len().min(CHUNK - split(position).1)];
            let count = self.write_part(position, part, limit);
            written += count;
            if count < part.len() {
                break;
            }
        }
        if written == 0 {
            return Err(Errno::ENOSPC);
        }
        self.size = self.size.max(offset + written as u64);
        Ok(written)
    }

    /// Writes data that lies in one chunk. Returns the length that the limit on stored bytes allowed.
    fn write_part(&mut self, position: u64, part: &[u8], limit: u64) -> usize {
        let (index, within) = split(position);
        let held = self.chunks.get(&index).map_or(0, |chunk| blocks(chunk.len()));
        let inherited = match self.chunks.get(&index) {
            Some(_) => &[][..],
            None => {
                let bytes = self.lower_from(position - within as u64);
                &bytes[..bytes.len().min(CHUNK)]
            }
        };
        let allowed = usize::try_from(held.saturating_add(limit - self.stored)).unwrap_or(usize::MAX);
        let allowed = (allowed / BLOCK as usize * BLOCK as usize).min(CHUNK);
        if inherited.len() > allowed || within >= allowed {
            return 0;
        }
        let count = part.len().min(allowed - within);
        let inherited = inherited.to_vec();
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(chunks.entry(index).or_insert_with(|| Arc::new(inherited)));
        let end = within + count;
        if end > chunk.len() {
            // Doubles the capacity, as `Vec` does by itself, but not beyond the chunk.
            if end > chunk.capacity() {
                let capacity = end.max(chunk.capacity() * 2).min(CHUNK);
                chunk.reserve_exact(capacity - chunk.len());
            }
        }
        if within == chunk.len() {
            chunk.extend_from_slice(&part[..count]);
        } else {
            if end > chunk.len() {
                chunk.resize(end, 0);
            }
            chunk[within..end].copy_from_slice(&part[..count]);
        }
        self.stored = self.stored - held + blocks(chunk.len());
        count
    }

    /// Cuts the file off at `size`, or adds a hole up to it.
    pub(super) fn truncate(&mut self, size: u64) -> Result<(), Errno> {
        if size > MAX_FILE_SIZE {
            return Err(Errno::EFBIG);
        }
        if size == 0 {
            *self = Self::default();
            return Ok(());
        }
        if size < self.size {
            let (index, within) = split(size);
            let chunks = Arc::make_mut(&mut self.chunks);
            let mut dropped = chunks.split_off(&index);
            let freed: u64 = dropped.values().map(|chunk| blocks(chunk.len())).sum();
            self.stored -= freed;
            if within > 0
                && let Some(mut chunk) = dropped.remove(&index)
            {
                if chunk.len() > within {
                    let chunk = Arc::make_mut(&mut chunk);
                    chunk.truncate(within);
                    chunk.shrink_to_fit();
                }
                self.stored += blocks(chunk.len());
                chunks.insert(index, chunk);
            }
            self.lower_size = self.lower_size.min(size);
        }
        self.size = size;
        Ok(())
    }

    /// Returns the visible part of the layer's file from `position` on.
    fn lower_from(&self, position: u64) -> &[u8] {
        let Some(file) = &self.lower else { return &[] };
        let end = usize::try_from(self.lower_size).unwrap_or(usize::MAX).min(file.bytes.len());
        let start = usize::try_from(position).unwrap_or(usize::MAX);
        file.bytes.get(start..end).unwrap_or_default()
    }
}

/// Returns the chunk number and the offset inside the chunk.
fn split(position: u64) -> (u64, usize) {
    let chunk = CHUNK as u64;
    (position / chunk, (position % chunk) as usize)
}

/// Returns the number of bytes counted for a chunk of this length.
fn blocks(length: usize) -> u64 {
    (length as u64).next_multiple_of(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &FileContent) -> Vec<u8> {
        let mut bytes = vec![0xaa; usize::try_from(content.size()).unwrap()];
        assert_eq!(content.read_at(0, &mut bytes), bytes.len());
        bytes
    }

    fn layered(bytes: &[u8]) -> FileContent {
        FileContent::from_layer(LayerFile { layer: 0, node: 1, bytes: bytes.to_vec().into() })
    }

    #[test]
    fn hole_reads_as_zeros_and_uses_no_space() {
        let mut content = FileContent::default();
        content.truncate(MAX_FILE_SIZE).unwrap();
        assert_eq!(content.stored(), 0);
        let mut bytes = [1; 8];
        assert_eq!(content.read_at(1 << 40, &mut bytes), 8);
        assert_eq!(bytes, [0; 8]);
        assert_eq!(content.write_at(3 * CHUNK as u64 + 5, b"x", u64::MAX), Ok(1));
        assert_eq!(content.stored(), BLOCK);
        assert_eq!(content.truncate(MAX_FILE_SIZE + 1), Err(Errno::EFBIG));
        assert_eq!(content.write_at(MAX_FILE_SIZE, b"x", u64::MAX), Err(Errno::EFBIG));
        assert_eq!(content.write_at(MAX_FILE_SIZE - 1, b"xy", u64::MAX), Ok(1));
    }

    #[test]
    fn truncated_bytes_read_as_zeros_after_extension() {
        for mut content in [layered(b"abcdef"), {
            let mut written = FileContent::default();
            written.write_at(0, b"abcdef", u64::MAX).unwrap();
            written
        }] {
            content.truncate(3).unwrap();
            content.truncate(5).unwrap();
            assert_eq!(read(&content), b"abc\0\0");
            content.write_at(6, b"z", u64::MAX).unwrap();
            assert_eq!(read(&content), b"abc\0\0\0z");
        }
    }

    #[test]
    fn writing_over_a_layer_copies_only_touched_chunks() {
        let mut content = layered(&vec![7; 3 * CHUNK]);
        let mut copy = content.clone();
        assert!(content.unmodified().is_some());
        content.write_at(CHUNK as u64 + 1, b"new", u64::MAX).unwrap();
        assert!(content.unmodified().is_none());
        assert_eq!(content.stored(), CHUNK as u64);
        let mut expected = vec![7; 3 * CHUNK];
        expected[CHUNK + 1..CHUNK + 4].copy_from_slice(b"new");
        assert_eq!(read(&content), expected);
        assert_eq!(read(&copy), vec![7; 3 * CHUNK]);
        copy.truncate(CHUNK as u64).unwrap();
        copy.truncate(3 * CHUNK as u64).unwrap();
        assert!(copy.unmodified().is_none());
        content.truncate(0).unwrap();
        assert_eq!(content.stored(), 0);
    }

    #[test]
    fn write_stops_at_the_budget() {
        let mut content = FileContent::default();
        assert_eq!(content.write_at(0, &[1; 2000], 1024), Ok(1024));
        assert_eq!(content.write_at(1024, b"x", 0), Err(Errno::ENOSPC));
        // Bytes that are already counted can be overwritten.
        assert_eq!(content.write_at(0, &[2; 1024], 0), Ok(1024));
        assert_eq!(content.stored(), 1024);
        assert_eq!(layered(&[1; 2048]).write_at(0, b"x", 1024), Err(Errno::ENOSPC));
    }

    #[test]
    fn clones_share_until_one_writes() {
        let mut first = FileContent::default();
        first.write_at(0, &vec![1; 2 * CHUNK], u64::MAX).unwrap();
        let second = first.clone();
        first.write_at(0, b"changed", u64::MAX).unwrap();
        assert_eq!(read(&second), vec![1; 2 * CHUNK]);
        assert!(Arc::ptr_eq(&first.chunks[&1], &second.chunks[&1]));
    }

    #[test]
    fn contents_are_taken_in_parts() {
        let bytes: Vec<u8> = (0..2 * CHUNK + 10).map(|at| at as u8).collect();
        let mut content = FileContent::default();
        content.write_at(0, &bytes, u64::MAX).unwrap();
        let parts = content.clone().into_parts();
        assert_eq!((parts.len(), parts.concat()), (3, bytes.clone()));
        let mut hole = FileContent::default();
        hole.truncate(3 * CHUNK as u64).unwrap();
        hole.write_at(5, b"x", u64::MAX).unwrap();
        assert_eq!(hole.clone().into_parts().concat(), read(&hole));
        assert_eq!(layered(&bytes).into_parts().concat(), bytes);
    }

    #[test]
    fn many_small_appends_never_reserve_more_than_a_chunk() {
        let mut content = FileContent::default();
        for offset in 0..CHUNK as u64 + 10 {
            assert_eq!(content.write_at(offset, b"a", u64::MAX), Ok(1));
        }
        assert!(content.chunks.values().all(|chunk| chunk.capacity() <= CHUNK));
        assert_eq!(content.stored(), CHUNK as u64 + BLOCK);
    }

    #[test]
    fn inconsistent_saved_parts_are_refused() {
        let chunk = |length| BTreeMap::from([(1, Arc::new(vec![0; length]))]);
        assert!(FileContent::from_parts(CHUNK as u64 + 4, None, chunk(4)).is_some());
        assert!(FileContent::from_parts(CHUNK as u64 + 3, None, chunk(4)).is_none());
        assert!(FileContent::from_parts(MAX_FILE_SIZE, None, chunk(CHUNK + 1)).is_none());
        let huge = BTreeMap::from([(u64::MAX, Arc::new(vec![0]))]);
        assert!(FileContent::from_parts(MAX_FILE_SIZE, None, huge).is_none());
        let file = LayerFile { layer: 0, node: 1, bytes: vec![0; 4].into() };
        assert!(FileContent::from_parts(9, Some((file, 5)), BTreeMap::new()).is_none());
    }
}
