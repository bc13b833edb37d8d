//! What makes an instance differ from the snapshot that it was restored from: the pages that it wrote to, its files, and
//! the little that a machine has beside memory. Far smaller than a snapshot, and as complete, as long as that is there.
//!
//! Like a snapshot it is taken between calls. It says nothing about which snapshot it belongs to: whoever keeps it must
//! know, since the same pages on top of another memory are a broken program.
//!
//! Of a page that was written to, a few counters and pointers differ mostly: of the first cell of an IPython session one
//! word in thirty. So only words that differ are kept, and a mask for each page says which they are.

use std::sync::Arc;

use wasmtime::{Ref, Val};

use crate::clock::Clock;
use crate::dylink;
use crate::fs::Layer;
use crate::instance::{Instance, InstanceError, Setup};
use crate::memory::WASM_PAGE;
use crate::pagemap::PAGE;
use crate::program::Program;
use crate::snapshot::{Description, MAX_DESCRIPTION, Snapshot, invalid, unusable};
use crate::working_set::WorkingSet;

/// Version of the form in which [`Difference::to_bytes`] writes.
const VERSION: u32 = 2;
const MAGIC: [u8; 8] = *b"BELLDIFF";
/// Magic, version, length of the description, pages, memory in wasm pages.
const HEADER: usize = 8 + 4 + 4 + 4 + 4;
/// Bytes of a word: what differs is told word by word.
const WORD: usize = 8;
/// A bit for each word of a page, the lowest of the first element for the first word.
type Mask = [u64; PAGE / WORD / 64];
const MASK_BYTES: usize = PAGE / WORD / 8;

/// How an instance differs from a snapshot.
pub struct Difference {
    description: Description,
    /// Linear memory, in wasm pages.
    memory: u32,
    /// Numbers of the pages that differ, ascending, in units of [`PAGE`].
    pages: Vec<u32>,
    /// Which words of them differ, in that order.
    masks: Vec<Mask>,
    /// What turns those words from the snapshot's into the instance's, by exclusive or, in that order: neighbouring
    /// pointers differ in the same few bits, which compresses well.
    words: Vec<u64>,
}

impl Instance {
    /// How this instance differs from `snapshot`, of which it must be a copy.
    ///
    /// # Errors
    /// When the instance is dead, or the snapshot's file cannot be read.
    pub fn difference(&mut self, snapshot: &Snapshot) -> Result<Difference, InstanceError> {
        if self.is_dead() {
            return Err(InstanceError::Dead);
        }
        let written = self.may_have_written();
        let description = self.describe(Vec::new(), WorkingSet::default());
        let (store, main) = self.parts();
        let memory = main.memory.data(&*store);
        let image = snapshot.memory().contents().map_err(unusable)?;
        let (mut pages, mut masks, mut words) = (Vec::new(), Vec::new(), Vec::new());
        for number in written.into_iter().flat_map(|(first, count)| first..first + count) {
            let at = number as usize * PAGE;
            let Some(page) = memory.get(at..at + PAGE) else { break };
            // Memory that the program took since then was zero.
            let mask = changed_words(page, image.get(at..at + PAGE).unwrap_or(&[0; PAGE]), &mut words);
            if mask != Mask::default() {
                pages.push(number);
                masks.push(mask);
            }
        }
        let memory =
            u32::try_from(memory.len() / WASM_PAGE).map_err(|_| unusable(invalid("its memory is too large")))?;
        Ok(Difference { description, memory, pages, masks, words })
    }
}

impl Program {
    /// A copy of the instance that `difference` was taken of; `snapshot` must be the one that it differs from. `layers`
    /// are the read-only layers that its files refer to.
    ///
    /// # Errors
    /// When the two do not fit this program or each other, or memory cannot be had.
    pub fn restore_changed(
        &self,
        snapshot: &Snapshot,
        difference: &Difference,
        layers: &[Arc<Layer>],
        setup: Setup,
    ) -> Result<Instance, InstanceError> {
        let Description { identity, files, state } = &difference.description;
        if identity != self.identity() {
            return Err(InstanceError::Snapshot("it was taken by another build or of another program".into()));
        }
        let needed = u64::from(difference.memory) * WASM_PAGE as u64;
        if needed > setup.limits.memory {
            return Err(InstanceError::TooLittleMemory { needed, given: setup.limits.memory });
        }
        let files = files.clone().load(layers, setup.limits.files);
        let mut files = files.map_err(|error| InstanceError::Snapshot(error.to_string()))?;
        let libraries = dylink::libraries_of(&state.link, &mut files, self)?;
        let mut instance = Instance::new(self, snapshot.memory(), Setup { files, ..setup })?;
        for (name, value) in &state.globals {
            let global = instance.exported_global(name)?;
            global.set(instance.parts().0, Val::I32(*value))?;
        }
        let (store, main) = instance.parts();
        let grown = u64::from(difference.memory).saturating_sub(main.memory.size(&*store));
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
        // What the copy is going to write to when it goes on is much of what it wrote to before.
        instance.copy_ahead(snapshot.working_set());
        instance.copy_ahead(&WorkingSet::of_pages(&difference.pages));
        let (store, main) = instance.parts();
        let memory = main.memory.data_mut(store);
        let mut words = difference.words.iter();
        for (&number, mask) in difference.pages.iter().zip(&difference.masks) {
            let at = number as usize * PAGE;
            let page = memory.get_mut(at..at + PAGE);
            change_words(
                page.ok_or_else(|| unusable(invalid("it has a page outside of its memory")))?,
                mask,
                &mut words,
            );
        }
        Ok(instance)
    }
}

/// Which words of a page are others than those of `original`; how they differ is added to `words`.
fn changed_words(page: &[u8], original: &[u8], words: &mut Vec<u64>) -> Mask {
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

/// Undoes [`changed_words`].
fn change_words<'a>(page: &mut [u8], mask: &Mask, changes: &mut impl Iterator<Item = &'a u64>) {
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

impl Difference {
    /// The regular files under the directory `path` that the program wrote, whole: path from there, and contents. Needs no
    /// program, no snapshot and no layer.
    pub fn files_under(&self, path: &str) -> Vec<(String, Vec<u8>)> {
        self.description.files.written_under(path)
    }

    /// All of it, for [`Difference::from_bytes`].
    ///
    /// # Errors
    /// When it is too large for the form.
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

    /// Reads what [`Difference::to_bytes`] wrote. Nothing is trusted: what comes out is whole, though perhaps of another
    /// program.
    ///
    /// # Errors
    /// When the bytes are not that.
    pub fn from_bytes(bytes: &[u8]) -> std::io::Result<Self> {
        let word = |at: usize| {
            let bytes = bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_le_bytes).ok_or_else(|| invalid("it is damaged: too short"))
        };
        if bytes.get(..8) != Some(&MAGIC) {
            return Err(invalid("it is no saved session"));
        }
        if word(8)? != VERSION {
            let message = format!("its format is version {}, this build reads version {VERSION}", word(8)?);
            return Err(invalid(&message));
        }
        let (length, count, memory) = (word(12)? as usize, word(16)? as usize, word(20)?);
        if length > MAX_FILES {
            return Err(invalid("it is damaged: its description is too long"));
        }
        let short = || invalid("it is damaged: its length is not what its header says");
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
        let most = u64::from(memory) * (WASM_PAGE / PAGE) as u64;
        if !pages.is_sorted_by(|one, other| one < other) || pages.last().is_some_and(|&page| u64::from(page) >= most) {
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

/// Longest description that is read, in bytes: it holds the files, which are bounded by a quota.
const MAX_FILES: usize = 16 * MAX_DESCRIPTION as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_changed_are_told_and_changed_again() {
        let before: Vec<u8> = (0..PAGE).map(|at| (at * 7 % 251) as u8).collect();
        let mut now = before.clone();
        for at in [0, 7, 8, 511, 512, 513, 2048, PAGE - 1] {
            now[at] ^= 0x81;
        }
        let mut words = Vec::new();
        let mask = changed_words(&now, &before, &mut words);
        // Words 0, 1, 63, 64, 256 and 511.
        assert_eq!(words.len(), 6);
        assert_eq!(mask, [1 << 63 | 3, 1, 0, 0, 1, 0, 0, 1 << 63]);
        let mut page = before.clone();
        change_words(&mut page, &mask, &mut words.iter());
        assert!(page == now, "the page is another one");
        assert_eq!(changed_words(&before, &before, &mut words), Mask::default());
    }
}
