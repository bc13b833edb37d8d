//! The state of an instance as bytes: taken once, restored as often as wanted.
//!
//! The state is linear memory, the module's mutable globals, the table's size and added entries, loaded libraries
//! and their bases, files and descriptors, and the clock. It is taken between calls, so that no frame of the guest
//! is on the stack.
//!
//! One file holds it all: a header, the description, and from a page boundary on the memory, with holes where it
//! is zero. The memory is mapped from the file copy-on-write; nothing of it is read before the guest touches it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wasmtime::{Mutability, Ref, Val};

use crate::clock::Clock;
use crate::dylink::{self, Library, LinkImage};
use crate::fs::{Filesystem, Layer, Quota, SavedFiles};
use crate::instance::{Instance, InstanceError, Setup};
use crate::memory::{MemoryImage, WASM_PAGE};
use crate::program::Program;
use crate::working_set::WorkingSet;

/// Version of the file format and of what is in it.
pub const VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"BELLJAR\0";
const HEADER: usize = 64;
/// Descriptions are small; a larger one is not ours.
pub(crate) const MAX_DESCRIPTION: u32 = 64 << 20;
/// Granularity at which zeroes are left out of the file.
const HOLE: usize = 4096;

#[derive(Serialize, Deserialize)]
pub(crate) struct Description {
    /// [`Program::identity`] of the program it was taken of.
    pub(crate) identity: String,
    pub(crate) files: SavedFiles,
    pub(crate) state: State,
}

/// The state of an instance, but for its memory and files.
#[derive(Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) globals: BTreeMap<String, i32>,
    pub(crate) table_size: u64,
    pub(crate) link: LinkImage,
    pub(crate) clock: Duration,
    pub(crate) environment: Vec<String>,
    /// The pages that a copy is going to write to first.
    working_set: WorkingSet,
    /// The embedder's own.
    extra: Vec<u8>,
}

/// Where the parts of a snapshot file are.
struct Header {
    description_length: u32,
    description_digest: [u8; 32],
    memory_offset: u64,
    memory_length: u64,
}

/// A snapshot that can be restored. Cheap to clone.
#[derive(Clone)]
pub struct Snapshot {
    shared: Arc<Shared>,
}

struct Shared {
    identity: String,
    state: State,
    memory: MemoryImage,
    files: Filesystem,
    libraries: Vec<Arc<Library>>,
}

/// A file in memory, for snapshots that need not outlive the process.
///
/// # Errors
/// When the system has no room for it.
pub fn anonymous_file() -> std::io::Result<File> {
    // SAFETY: the name is a C string; a valid result is a new descriptor that nobody else owns.
    unsafe {
        let descriptor = libc::memfd_create(c"belljar-snapshot".as_ptr(), libc::MFD_CLOEXEC);
        if descriptor < 0 { Err(std::io::Error::last_os_error()) } else { Ok(File::from_raw_fd(descriptor)) }
    }
}

impl Instance {
    /// Writes this instance's state into `file`, which must be empty. `extra` is kept for the embedder.
    /// `working_set` is what [`Instance::rehearse`] found, or empty.
    ///
    /// # Errors
    /// When the instance is dead or the file cannot be written.
    pub fn snapshot(&mut self, file: &File, extra: Vec<u8>, working_set: WorkingSet) -> Result<(), InstanceError> {
        if self.is_dead() {
            return Err(InstanceError::Dead);
        }
        let description = self.describe(extra, working_set);
        let (store, main) = self.parts();
        write(file, &description, main.memory.data(&*store)).map_err(unusable)
    }

    /// Everything but the memory.
    pub(crate) fn describe(&mut self, extra: Vec<u8>, working_set: WorkingSet) -> Description {
        let globals = self.mutable_globals();
        let identity = self.program().identity().to_owned();
        let (store, main) = self.parts();
        let link = dylink::capture(store);
        let state = State {
            globals,
            table_size: main.table.size(&*store),
            link,
            clock: store.data().clock.monotonic(),
            environment: store.data().environment.clone(),
            working_set,
            extra,
        };
        Description { identity, files: store.data().files.save(), state }
    }

    /// Has a copy of this instance do what copies are likely to do first; answers the pages that it wrote to.
    ///
    /// Where the system does not tell, the answer is empty.
    ///
    /// # Errors
    /// What `work` answers, or when the copy cannot be made.
    pub fn rehearse<E: From<InstanceError>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<WorkingSet, E> {
        let file = anonymous_file().map_err(unusable)?;
        self.snapshot(&file, Vec::new(), WorkingSet::default())?;
        let snapshot = Snapshot::open(file, self.program(), self.host().files.layers())?;
        let mut copy = snapshot.restore(self.program(), Setup::sealed())?;
        work(&mut copy)?;
        Ok(copy.written_pages().unwrap_or_default())
    }

    /// Every mutable `i32` global of the main module; the translator exports them all.
    fn mutable_globals(&mut self) -> BTreeMap<String, i32> {
        let (store, main) = self.parts();
        let exported: Vec<_> = main
            .instance
            .exports(&mut *store)
            .filter_map(|export| Some((export.name().to_owned(), export.into_global()?)))
            .collect();
        let mut values = BTreeMap::new();
        for (name, global) in exported {
            if global.ty(&*store).mutability() == Mutability::Var
                && let Some(value) = global.get(&mut *store).i32()
            {
                values.insert(name, value);
            }
        }
        values
    }
}

impl Snapshot {
    /// Opens a snapshot of `program`. `layers` are the read-only layers that its files refer to.
    ///
    /// The header and description are checked; the memory is taken as it is, unread.
    ///
    /// # Errors
    /// When the file is not a whole snapshot, was taken by another build or of another program, or a layer or
    /// library that it refers to is missing.
    pub fn open(file: File, program: &Program, layers: &[Arc<Layer>]) -> Result<Self, InstanceError> {
        let header = read_header(&file).map_err(unusable)?;
        let Description { identity, files, state } = read_description(&file, &header).map_err(unusable)?;
        if identity != program.identity() {
            let what = "it was taken by another build or of another program; make it again";
            return Err(InstanceError::Snapshot(what.into()));
        }
        let memory = MemoryImage::new(file, header.memory_offset, header.memory_length).map_err(unusable)?;
        // Each copy brings a quota of its own.
        let mut files =
            files.load(layers, Quota::default()).map_err(|error| InstanceError::Snapshot(error.to_string()))?;
        let libraries = dylink::libraries_of(&state.link, &mut files, program)?;
        Ok(Self { shared: Arc::new(Shared { identity, state, memory, files, libraries }) })
    }

    /// What the embedder left in it.
    pub fn extra(&self) -> &[u8] {
        &self.shared.state.extra
    }

    /// Bytes of linear memory in it.
    pub fn memory_size(&self) -> u64 {
        self.shared.memory.len() as u64
    }

    pub(crate) fn memory(&self) -> &MemoryImage {
        &self.shared.memory
    }

    /// The pages that a copy is going to write to first.
    pub(crate) fn working_set(&self) -> &WorkingSet {
        &self.shared.state.working_set
    }

    pub(crate) fn restore(&self, program: &Program, setup: Setup) -> Result<Instance, InstanceError> {
        let Shared { identity, state, memory, files, libraries } = &*self.shared;
        if identity != program.identity() {
            return Err(InstanceError::Snapshot("it belongs to another program".into()));
        }
        let quota = setup.limits.files;
        let mut instance = Instance::new(program, memory, Setup { files: files.clone(), ..setup })?;
        for (name, value) in &state.globals {
            let global = instance.exported_global(name)?;
            global.set(instance.parts().0, Val::I32(*value))?;
        }
        let (store, main) = instance.parts();
        store.data_mut().files.set_quota(quota);
        store.data_mut().clock = Clock::starting_at(state.clock);
        store.data_mut().environment.clone_from(&state.environment);
        let missing = state.table_size.saturating_sub(main.table.size(&*store));
        if missing > 0 {
            main.table.grow(&mut *store, missing, Ref::Func(None))?;
        }
        dylink::restore(store, &state.link, libraries)?;
        instance.expect_writes(state.working_set.clone());
        Ok(instance)
    }
}

pub(crate) fn unusable(error: std::io::Error) -> InstanceError {
    InstanceError::Snapshot(error.to_string())
}

pub(crate) fn invalid(message: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, message)
}

fn write(file: &File, description: &Description, memory: &[u8]) -> std::io::Result<()> {
    let encoded = postcard::to_stdvec(description).map_err(std::io::Error::other)?;
    let description_length = u32::try_from(encoded.len()).ok().filter(|&length| length <= MAX_DESCRIPTION);
    let memory_offset = (HEADER + encoded.len()).next_multiple_of(WASM_PAGE);
    let header = Header {
        description_length: description_length.ok_or_else(|| invalid("the description is too large"))?,
        description_digest: Sha256::digest(&encoded).into(),
        memory_offset: memory_offset as u64,
        memory_length: memory.len() as u64,
    };
    file.set_len((memory_offset + memory.len()) as u64)?;
    write_filled(file, memory, memory_offset)?;
    file.write_all_at(&encoded, HEADER as u64)?;
    // The header comes last: a file without one is not a snapshot.
    file.write_all_at(&header.encode(), 0)
}

/// Writes `memory` at `offset` of a file that has only zeroes there, and leaves them where the memory has them, too.
fn write_filled(file: &File, memory: &[u8], offset: usize) -> std::io::Result<()> {
    let mut filled = None;
    let chunks = (0..).step_by(HOLE).zip(memory.chunks(HOLE));
    for (at, chunk) in chunks.chain([(memory.len(), &[][..])]) {
        // Compared as a whole: byte by byte takes longer than writing.
        let empty = *chunk == [0; HOLE][..chunk.len()];
        match filled {
            None if !empty => filled = Some(at),
            Some(first) if empty => {
                file.write_all_at(&memory[first..at], (offset + first) as u64)?;
                filled = None;
            }
            _ => {}
        }
    }
    Ok(())
}

impl Header {
    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.description_length.to_le_bytes());
        bytes[16..48].copy_from_slice(&self.description_digest);
        bytes[48..56].copy_from_slice(&self.memory_offset.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.memory_length.to_le_bytes());
        bytes
    }
}

fn read_header(file: &File) -> std::io::Result<Header> {
    let mut bytes = [0; HEADER];
    file.read_exact_at(&mut bytes, 0).map_err(|_| invalid("it is not a snapshot: too short"))?;
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    if bytes[0..8] != MAGIC {
        return Err(invalid("it is not a snapshot"));
    }
    if word(8) != VERSION {
        let message = format!("its format is version {}, this build reads version {VERSION}; make it again", word(8));
        return Err(invalid(&message));
    }
    let header = Header {
        description_length: word(12),
        description_digest: bytes[16..48].try_into().unwrap_or_default(),
        memory_offset: long(48),
        memory_length: long(56),
    };
    let whole = header.memory_offset.checked_add(header.memory_length);
    if header.description_length > MAX_DESCRIPTION || whole != Some(file.metadata()?.len()) {
        return Err(invalid("it is damaged: its length is not what its header says"));
    }
    Ok(header)
}

fn read_description(file: &File, header: &Header) -> std::io::Result<Description> {
    let mut bytes = vec![0; header.description_length as usize];
    file.read_exact_at(&mut bytes, HEADER as u64).map_err(|_| invalid("it is damaged: too short"))?;
    if <[u8; 32]>::from(Sha256::digest(&bytes)) != header.description_digest {
        return Err(invalid("it is damaged: its description does not match its checksum"));
    }
    postcard::from_bytes(&bytes).map_err(|_| invalid("it is damaged: its description cannot be read"))
}
