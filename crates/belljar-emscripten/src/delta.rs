//! The difference between an instance and the snapshot that it was restored from: the pages that it wrote to, its
//! files, and the small state that it has outside memory. It is far smaller than a snapshot, and together with its base
//! snapshot as complete.
//!
//! Like a snapshot, a delta is taken between calls. It does not identify its base snapshot: the code that stores it
//! must record that, since applying the same pages to another memory results in a broken program.
//!
//! Most written pages differ in a few counters and pointers only: after the first cell of an IPython session, in one
//! word in thirty. Only changed words are stored, with a mask for each page that identifies them.

use std::sync::Arc;

use wasmtime::{Ref, Val};

use crate::clock::Clock;
use crate::dylink;
use crate::fs::Layer;
use crate::instance::{Instance, InstanceConfig, InstanceError};
use crate::memory::WASM_PAGE;
use crate::os::PAGE;
use crate::program::Program;
use crate::snapshot::{Description, MAX_DESCRIPTION, Snapshot, invalid, unusable};
use crate::working_set::WorkingSet;

/// The version of the format that [`SnapshotDelta::to_bytes`] writes.
const VERSION: u32 = 2;
const MAGIC: [u8; 8] = *b"BELLDIFF";
/// Magic, version, length of the description, number of pages, size of memory in wasm pages.
const HEADER: usize = 8 + 4 + 4 + 4 + 4;
/// The size of a word in bytes, the unit of comparison.
const WORD: usize = 8;
/// One bit for each word of a page; the lowest bit of the first element is the first word.
type Mask = [u64; PAGE / WORD / 64];
const MASK_BYTES: usize = PAGE / WORD / 8;

/// The difference between an instance and a snapshot.
pub struct SnapshotDelta {
    description: Description,
    /// The size of linear memory, in wasm pages.
    memory: u32,
    /// The numbers of the pages that differ, ascending, in units of [`PAGE`].
    pages: Vec<u32>,
    /// The words that differ in each of those pages, in the same order.
    masks: Vec<Mask>,
    /// The exclusive or of the snapshot's and the instance's words, for the words that differ, in that order:
    /// neighbouring pointers differ in the same few bits, which compresses well.
    words: Vec<u64>,
}

impl Instance {
    /// Computes the difference between this instance and `snapshot`, of which it must be a copy.
    ///
    /// # Errors
    /// Fails if the instance is dead, or if the snapshot's file cannot be read.
    pub fn delta(&mut self, snapshot: &Snapshot) -> Result<SnapshotDelta, InstanceError> {
        if self.is_dead() {
            return Err(InstanceError::Dead);
        }
        let image = snapshot.memory().contents().map_err(unusable)?;
        let written = self.dirty_page_runs(image);
        let description = self.describe(Vec::new(), WorkingSet::default());
        let (store, main) = self.parts();
        let memory = main.memory.data(&*store);
        let (mut pages, mut masks, mut words) = (Vec::new(), Vec::new(), Vec::new());
        for number in written.into_iter().flat_map(|(first, count)| first..first + count) {
            let at = number as usize * PAGE;
            let Some(page) = memory.get(at..at + PAGE) else { break };
            // Memory beyond the end of the snapshot's memory was zero when it was allocated.
            let mask = diff_page(page, image.get(at..at + PAGE).unwrap_or(&[0; PAGE]), &mut words);
            if mask != Mask::default() {
                pages.push(number);
                masks.push(mask);
            }
        }
        let memory =
            u32::try_from(memory.len() / WASM_PAGE).map_err(|_| unusable(invalid("its memory is too large")))?;
        Ok(SnapshotDelta { description, memory, pages, masks, words })
    }
}

impl Program {
    /// Creates a copy of the instance that `delta` was taken of; `snapshot` must be its base snapshot. `layers` are the
    /// read-only layers that its files refer to.
    ///
    /// # Errors
    /// Fails if the two do not match this program or each other, or if memory cannot be mapped.
    pub fn restore_with_delta(
        &self,
        snapshot: &Snapshot,
        delta: &SnapshotDelta,
        layers: &[Arc<Layer>],
        config: InstanceConfig,
    ) -> Result<Instance, InstanceError> {
        let Description { identity, files, state } = &delta.description;
        if identity != self.identity() {
            return Err(InstanceError::Snapshot("it was taken by another build or of another program".into()));
        }
        let needed = u64::from(delta.memory) * WASM_PAGE as u64;
        if needed > config.limits.memory {
            return Err(InstanceError::TooLittleMemory { needed, limit: config.limits.memory });
        }
        let files = files.clone().load(layers, config.limits.files);
        let mut files = files.map_err(|error| InstanceError::Snapshot(error.to_string()))?;
        let libraries = dylink::find_libraries(&state.link, &mut files, self)?;
        let mut instance = Instance::new(self, snapshot.memory(), InstanceConfig { files, ..config })?;
        for (name, value) in &state.globals {
            let global = instance.exported_global(name)?;
            global.set(instance.parts().0, Val::I32(*value))?;
        }
        let (store, main) = instance.parts();
        let grown = u64::from(delta.memory).saturating_sub(main.memory.size(&*store));
        if grown > 0 {
            main.memory.grow(&mut *store, grown)?;
        }
        store.data_mut().clock = Clock::starting_at(state.clock);
        store.data_mut().environment.clone_from(&state.environment);
        let missing = state.table_size.saturating_sub(main.table.size(&*store));
        if missing > 0 {
            main.table.grow(&mut *store, missing, Ref::Func(None))?;
        }
        dylink::restore(store, &state.link, &libraries)?;
        // The copy is expected to write to many of the pages that it wrote to before.
        instance.prefault(snapshot.working_set());
        instance.prefault(&WorkingSet::from_pages(&delta.pages));
        let (store, main) = instance.parts();
        let memory = main.memory.data_mut(store);
        let mut words = delta.words.iter();
        for (&number, mask) in delta.pages.iter().zip(&delta.masks) {
            let at = number as usize * PAGE;
            let page = memory.get_mut(at..at + PAGE);
            apply_page_diff(
                page.ok_or_else(|| unusable(invalid("it has a page outside of its memory")))?,
                mask,
                &mut words,
            );
        }
        Ok(instance)
    }
}

/// Returns a mask of the words of a page that differ from `original`, and appends their exclusive or to `words`.
fn diff_page(page: &[u8], original: &[u8], words: &mut Vec<u64>) -> Mask {
    let mut mask = Mask::default();
    let pairs = page.as_chunks::<WORD>().0.iter().zip(original.as_chunks::<WORD>().0);
    for (number, (now, before)) in pairs.enumerate() {
        if now != before {
            mask[number / 64] |= 1 << (number % 64);
            words.push(u64::from_le_bytes(*now) ^ u64::from_le_bytes(*before));
        }
    }
    mask
}

/// Applies the changes that [`diff_page`] found.
fn apply_page_diff<'a>(page: &mut [u8], mask: &Mask, changes: &mut impl Iterator<Item = &'a u64>) {
    let words = page.as_chunks_mut::<WORD>().0;
    for (words, mut bits) in words.chunks_mut(64).zip(mask.iter().copied()) {
        while bits != 0 {
            let word = &mut words[bits.trailing_zeros() as usize];
            bits &= bits - 1;
            if let Some(change) = changes.next() {
                *word = (u64::from_le_bytes(*word) ^ change).to_le_bytes();
            }
        }
    }
}

impl SnapshotDelta {
    /// Returns the path, relative to the directory `path`, and the contents of each regular file in it that the program
    /// wrote completely. Needs no program, snapshot or layer.
    pub fn files_under(&self, path: &str) -> Vec<(String, Vec<u8>)> {
        self.description.files.written_under(path)
    }

    /// Serializes the delta for [`SnapshotDelta::from_bytes`].
    ///
    /// # Errors
    /// Fails if the delta is too large for the format.
    pub fn to_bytes(&self) -> std::io::Result<Vec<u8>> {
        let description = postcard::to_stdvec(&self.description).map_err(std::io::Error::other)?;
        let length = u32::try_from(description.len()).map_err(|_| invalid("its files are too large"))?;
        let memory = self.pages.len() * (4 + MASK_BYTES) + self.words.len() * WORD;
        let mut bytes = Vec::with_capacity(HEADER + description.len() + memory);
        bytes.extend_from_slice(&MAGIC);
        for word in [VERSION, length, self.pages.len() as u32, self.memory] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&description);
        for page in &self.pages {
            bytes.extend_from_slice(&page.to_le_bytes());
        }
        for word in self.masks.iter().flatten().chain(&self.words) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        Ok(bytes)
    }

    /// Deserializes the output of [`SnapshotDelta::to_bytes`]. The input is not trusted: the result is well-formed,
    /// though possibly of another program.
    ///
    /// # Errors
    /// Fails if the bytes are not a well-formed delta.
    pub fn from_bytes(bytes: &[u8]) -> std::io::Result<Self> {
        let word = |at: usize| {
            let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_le_bytes).ok_or_else(|| invalid("it is damaged: too short"))
        };
        if bytes.get(..8) != Some(&MAGIC) {
            return Err(invalid("it is not a saved session"));
        }
        if word(8)? != VERSION {
            let message = format!("its format is version {}, this build reads version {VERSION}", word(8)?);
            return Err(invalid(&message));
        }
        let (length, count, memory) = (word(12)? as usize, word(16)? as usize, word(20)?);
        if length > MAX_DELTA_DESCRIPTION {
            return Err(invalid("it is damaged: its description is too long"));
        }
        let short = || invalid("it is damaged: its length does not match its header");
        let (description, rest) =
            bytes.get(HEADER..).and_then(|rest| rest.split_at_checked(length)).ok_or_else(short)?;
        let (pages, rest) = rest.split_at_checked(count.saturating_mul(4)).ok_or_else(short)?;
        let (masks, words) = rest.split_at_checked(count.saturating_mul(MASK_BYTES)).ok_or_else(short)?;
        let masks: Vec<Mask> = masks.as_chunks().0.iter().map(mask).collect();
        let changed: usize = masks.iter().flatten().map(|bits| bits.count_ones() as usize).sum();
        if words.len() != changed.saturating_mul(WORD) {
            return Err(short());
        }
        let description =
            postcard::from_bytes(description).map_err(|_| invalid("it is damaged: its description cannot be read"))?;
        let pages: Vec<u32> = pages.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let page_limit = u64::from(memory) * (WASM_PAGE / PAGE) as u64;
        if !pages.is_sorted_by(|one, other| one < other)
            || pages.last().is_some_and(|&page| u64::from(page) >= page_limit)
        {
            return Err(invalid("it is damaged: its pages are out of order"));
        }
        let words = words.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        Ok(Self { description, memory, pages, masks, words })
    }
}

fn mask(bytes: &[u8; MASK_BYTES]) -> Mask {
    let mut mask = Mask::default();
    for (bits, bytes) in mask.iter_mut().zip(bytes.as_chunks().0) {
        *bits = u64::from_le_bytes(*bytes);
    }
    mask
}

/// The maximum size of a description in bytes: it contains the files, which are bounded by a quota.
const MAX_DELTA_DESCRIPTION: usize = 16 * MAX_DESCRIPTION as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_diff_can_be_applied_again() {
        let before: Vec<u8> = (0..PAGE).map(|at| (at * 7 % 251) as u8).collect();
        let mut now = before.clone();
        for at in [0, 7, 8, 511, 512, 513, 2048, PAGE - 1] {
            now[at] ^= 0x81;
        }
        let mut words = Vec::new();
        let mask = diff_page(&now, &before, &mut words);
        // Words 0, 1, 63, 64, 256 and 511.
        assert_eq!(words.len(), 6);
        assert_eq!(mask, [1 << 63 | 3, 1, 0, 0, 1, 0, 0, 1 << 63]);
        let mut page = before.clone();
        apply_page_diff(&mut page, &mask, &mut words.iter());
        assert!(page == now, "the page is another one");
        assert_eq!(diff_page(&before, &before, &mut words), Mask::default());
    }
}
