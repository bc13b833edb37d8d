//! What makes an instance differ from the snapshot that it was restored from: the pages that it wrote to, its files, and
//! the little that a machine has beside memory. Far smaller than a snapshot, and as complete, as long as that is there.
//!
//! Like a snapshot it is taken between calls. It says nothing about which snapshot it belongs to: whoever keeps it must
//! know, since the same pages on top of another memory are a broken program.

use std::os::unix::fs::FileExt;
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
const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"BELLDIFF";
/// Magic, version, length of the description, pages, memory in wasm pages.
const HEADER: usize = 8 + 4 + 4 + 4 + 4;

/// How an instance differs from a snapshot.
pub struct Difference {
    description: Description,
    /// Linear memory, in wasm pages.
    memory: u32,
    /// Numbers of the pages that differ, ascending, in units of [`PAGE`].
    pages: Vec<u32>,
    /// What turns the snapshot's page into the instance's, by exclusive or, in that order. A page differs in a few
    /// counters and pointers mostly, so that this is zeros for the most part, which compress to nothing.
    contents: Vec<u8>,
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
        let image = snapshot.memory();
        let (mut pages, mut contents) = (Vec::new(), Vec::new());
        let mut original = [0; PAGE];
        for number in written.into_iter().flat_map(|(first, count)| first..first + count) {
            let at = number as usize * PAGE;
            let Some(page) = memory.get(at..at + PAGE) else { break };
            original.fill(0);
            if at < image.len() {
                image.file().read_exact_at(&mut original, image.offset() + at as u64).map_err(unusable)?;
            }
            if page != original {
                pages.push(number);
                contents.extend(page.iter().zip(&original).map(|(now, before)| now ^ before));
            }
        }
        let memory =
            u32::try_from(memory.len() / WASM_PAGE).map_err(|_| unusable(invalid("its memory is too large")))?;
        Ok(Difference { description, memory, pages, contents })
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
        let memory = main.memory.data_mut(store);
        for (&number, page) in difference.pages.iter().zip(difference.contents.chunks(PAGE)) {
            let at = number as usize * PAGE;
            let place = memory.get_mut(at..at + PAGE);
            let place = place.ok_or_else(|| unusable(invalid("it has a page outside of its memory")))?;
            for (byte, change) in place.iter_mut().zip(page) {
                *byte ^= change;
            }
        }
        Ok(instance)
    }
}

impl Difference {
    /// Bytes of pages in it.
    pub fn page_bytes(&self) -> usize {
        self.contents.len()
    }

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
        let mut bytes = Vec::with_capacity(HEADER + description.len() + self.pages.len() * 4 + self.contents.len());
        bytes.extend_from_slice(&MAGIC);
        for word in [VERSION, length, self.pages.len() as u32, self.memory] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&description);
        for page in &self.pages {
            bytes.extend_from_slice(&page.to_le_bytes());
        }
        bytes.extend_from_slice(&self.contents);
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
        let numbers = HEADER.saturating_add(length);
        let contents = numbers.saturating_add(count.saturating_mul(4));
        if bytes.len() != contents.saturating_add(count.saturating_mul(PAGE)) || length > MAX_FILES {
            return Err(invalid("it is damaged: its length is not what its header says"));
        }
        let description = bytes.get(HEADER..numbers).unwrap_or_default();
        let description =
            postcard::from_bytes(description).map_err(|_| invalid("it is damaged: its description cannot be read"))?;
        let pages = bytes.get(numbers..contents).unwrap_or_default();
        let pages: Vec<u32> = pages.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let most = u64::from(memory) * (WASM_PAGE / PAGE) as u64;
        if !pages.is_sorted_by(|one, other| one < other) || pages.last().is_some_and(|&page| u64::from(page) >= most) {
            return Err(invalid("it is damaged: its pages are out of order"));
        }
        let contents = bytes.get(contents..).unwrap_or_default().to_vec();
        Ok(Self { description, memory, pages, contents })
    }
}

/// Longest description that is read, in bytes: it holds the files, which are bounded by a quota.
const MAX_FILES: usize = 16 * MAX_DESCRIPTION as usize;
