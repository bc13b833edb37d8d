//! The state of an instance as bytes: written once, restored any number of times.
//!
//! The state consists of linear memory, the module's mutable globals, the table's size and added entries, the loaded
//! libraries and their bases, files and descriptors, and the clock. It is taken between calls, so that the stack
//! contains no frame of the guest.
//!
//! One file holds everything: a header, the description, and, from a page boundary on, the memory, with holes where it
//! is zero. The memory is mapped from the file copy-on-write, and no page of it is read before the guest touches it.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wasmtime::{Mutability, Ref, Val};

use crate::clock::Clock;
use crate::dylink::{self, Library, LinkSnapshot};
use crate::fs::{Filesystem, FilesystemSnapshot, Layer, Quota};
use crate::instance::{Instance, InstanceConfig, InstanceError};
use crate::memory::{MemoryImage, WASM_PAGE};
use crate::os::{self, read_exact_at, write_all_at};
use crate::program::Program;
use crate::versions::SNAPSHOT_VERSION;
use crate::working_set::WorkingSet;

const MAGIC: [u8; 8] = *b"BELLJAR\0";
const HEADER: usize = 64;
/// The maximum size of a description. Descriptions are small; a larger one was not written by this library.
pub(crate) const MAX_DESCRIPTION: u32 = 64 << 20;
/// The granularity in bytes at which zeroes are left out of the file.
const SPARSE_GRANULARITY: usize = 4096;

#[derive(Serialize, Deserialize)]
pub(crate) struct Description {
    /// [`Program::identity`] of the program that the snapshot was taken of.
    pub(crate) identity: String,
    pub(crate) files: FilesystemSnapshot,
    pub(crate) state: State,
}

/// The state of an instance without its memory and files.
#[derive(Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) globals: BTreeMap<String, i32>,
    pub(crate) table_size: u64,
    pub(crate) link: LinkSnapshot,
    pub(crate) clock: Duration,
    pub(crate) environment: Vec<String>,
    /// The pages that a copy is expected to write to first.
    working_set: WorkingSet,
    /// Data of the embedder.
    extra: Vec<u8>,
}

/// The positions of the parts of a snapshot file.
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

/// Creates an anonymous file, for snapshots that do not outlive the process: on Linux in memory, elsewhere in the
/// directory for temporary files.
///
/// # Errors
/// Fails if the system cannot create the file.
pub fn anonymous_file() -> std::io::Result<File> {
    os::anonymous_file()
}

impl Instance {
    /// Writes this instance's state into `file`, which must be empty. `extra` is stored for the embedder. `working_set`
    /// is the result of [`Instance::measure_working_set`], or empty.
    ///
    /// # Errors
    /// Fails if the instance is dead or the file cannot be written.
    pub fn snapshot(&mut self, file: &File, extra: Vec<u8>, working_set: WorkingSet) -> Result<(), InstanceError> {
        if self.is_dead() {
            return Err(InstanceError::Dead);
        }
        let description = self.describe(extra, working_set);
        let (store, main) = self.parts();
        write(file, &description, main.memory.data(&*store)).map_err(unusable)
    }

    /// Captures everything but the memory.
    pub(crate) fn describe(&mut self, extra: Vec<u8>, working_set: WorkingSet) -> Description {
        let globals = self.mutable_globals();
        let identity = self.program().identity().to_owned();
        let (store, main) = self.parts();
        let link = dylink::capture(store);
        let state = State {
            globals,
            table_size: main.table.size(&*store),
            link,
            clock: store.data().clock.monotonic_of_host(),
            environment: store.data().environment.clone(),
            working_set,
            extra,
        };
        Description { identity, files: store.data().files.save(), state }
    }

    /// Runs `work`, a sample of the first call of a restored instance, on a copy of this instance and returns the pages
    /// that the copy wrote to. The result is empty on systems that do not report written pages.
    ///
    /// # Errors
    /// Fails with the error of `work`, or if the copy cannot be created.
    pub fn measure_working_set<E: From<InstanceError>>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<WorkingSet, E> {
        let file = anonymous_file().map_err(unusable)?;
        self.snapshot(&file, Vec::new(), WorkingSet::default())?;
        let snapshot = Snapshot::open(file, self.program(), self.host().files.layers())?;
        let mut copy = snapshot.restore(self.program(), InstanceConfig::isolated())?;
        if self.host().clock.sources().as_reproducible().is_some() {
            copy.make_reproducible();
        }
        work(&mut copy)?;
        Ok(copy.written_pages().unwrap_or_default())
    }

    /// Returns every mutable `i32` global of the main module; the translator exports them all.
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

impl Program {
    /// Creates a copy of the instance that `snapshot` was taken of.
    ///
    /// # Errors
    /// Fails if the snapshot belongs to another program or build, or if memory cannot be mapped.
    pub fn restore(&self, snapshot: &Snapshot, config: InstanceConfig) -> Result<Instance, InstanceError> {
        snapshot.restore(self, config)
    }
}

impl Snapshot {
    /// Opens a snapshot of `program`. `layers` are the read-only layers that its files refer to.
    ///
    /// The header and description are checked; the memory is not read.
    ///
    /// # Errors
    /// Fails if the file is not a complete snapshot, was taken by another build or of another program, or if a layer or
    /// library that it refers to is missing.
    pub fn open(file: File, program: &Program, layers: &[Arc<Layer>]) -> Result<Self, InstanceError> {
        let header = read_header(&file).map_err(unusable)?;
        let Description { identity, files, state } = read_description(&file, &header).map_err(unusable)?;
        if identity != program.identity() {
            let what = "it was taken by another build or of another program";
            return Err(InstanceError::Snapshot(what.into()));
        }
        let memory = MemoryImage::new(file, header.memory_offset, header.memory_length).map_err(unusable)?;
        // Each copy has its own quota.
        let mut files =
            files.load(layers, Quota::default()).map_err(|error| InstanceError::Snapshot(error.to_string()))?;
        let libraries = dylink::find_libraries(&state.link, &mut files, program)?;
        Ok(Self { shared: Arc::new(Shared { identity, state, memory, files, libraries }) })
    }

    /// Returns the data that the embedder stored.
    pub fn extra(&self) -> &[u8] {
        &self.shared.state.extra
    }

    /// Returns the file that the snapshot was opened from.
    pub fn file(&self) -> &File {
        self.shared.memory.file()
    }

    /// Returns what [`Instance::memory_digest`] returned when the snapshot was taken. Reads the whole memory.
    ///
    /// # Errors
    /// Fails if the file cannot be mapped.
    pub fn memory_digest(&self) -> Result<[u8; 32], InstanceError> {
        Ok(memory_digest(&self.shared.identity, self.shared.memory.contents().map_err(unusable)?))
    }

    /// Returns the size of linear memory in bytes.
    pub fn memory_size(&self) -> u64 {
        self.shared.memory.len() as u64
    }

    /// Maps the memory for reading, as [`Instance::delta`] does when it is first called. For processes that are about
    /// to be sealed.
    ///
    /// # Errors
    /// Fails if the file cannot be mapped.
    pub fn map_memory(&self) -> Result<(), InstanceError> {
        self.shared.memory.contents().map(drop).map_err(unusable)
    }

    pub(crate) fn memory(&self) -> &MemoryImage {
        &self.shared.memory
    }

    /// Returns the pages that a copy is expected to write to first.
    pub(crate) fn working_set(&self) -> &WorkingSet {
        &self.shared.state.working_set
    }

    pub(crate) fn restore(&self, program: &Program, config: InstanceConfig) -> Result<Instance, InstanceError> {
        let Shared { identity, state, memory, files, libraries } = &*self.shared;
        if identity != program.identity() {
            return Err(InstanceError::Snapshot("it belongs to another program".into()));
        }
        let quota = config.limits.files;
        let mut instance = Instance::new(program, memory, InstanceConfig { files: files.clone(), ..config })?;
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
        instance.set_working_set(&state.working_set);
        Ok(instance)
    }
}

/// Returns a digest of the program with this identity, and of the contents of its memory.
pub(crate) fn memory_digest(identity: &str, memory: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(identity).chain_update(memory).finalize().into()
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
    os::set_sparse_length(file, (memory_offset + memory.len()) as u64)?;
    write_filled(file, memory, memory_offset)?;
    write_all_at(file, &encoded, HEADER as u64)?;
    // The header is written last: a file without one is not a snapshot.
    write_all_at(file, &header.encode(), 0)
}

/// Writes `memory` at `offset` of a file that contains only zeroes there, and skips blocks of zeroes.
fn write_filled(file: &File, memory: &[u8], offset: usize) -> std::io::Result<()> {
    let mut filled = None;
    let chunks = (0..).step_by(SPARSE_GRANULARITY).zip(memory.chunks(SPARSE_GRANULARITY));
    for (at, chunk) in chunks.chain([(memory.len(), &[][..])]) {
        // Compared as a block: comparing byte by byte takes longer than writing.
        let empty = *chunk == [0; SPARSE_GRANULARITY][..chunk.len()];
        match filled {
            None if !empty => filled = Some(at),
            Some(first) if empty => {
                write_all_at(file, &memory[first..at], (offset + first) as u64)?;
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
        bytes[8..12].copy_from_slice(&SNAPSHOT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.description_length.to_le_bytes());
        bytes[16..48].copy_from_slice(&self.description_digest);
        bytes[48..56].copy_from_slice(&self.memory_offset.to_le_bytes());
        bytes[56..64].copy_from_slice(&self.memory_length.to_le_bytes());
        bytes
    }
}

fn read_header(file: &File) -> std::io::Result<Header> {
    let mut bytes = [0; HEADER];
    read_exact_at(file, &mut bytes, 0).map_err(|_| invalid("it is not a snapshot: too short"))?;
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap_or_default());
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
    if bytes[0..8] != MAGIC {
        return Err(invalid("it is not a snapshot"));
    }
    if word(8) != SNAPSHOT_VERSION {
        let message = format!("its format is version {}, this build reads version {SNAPSHOT_VERSION}", word(8));
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
        return Err(invalid("it is damaged: its length does not match its header"));
    }
    Ok(header)
}

fn read_description(file: &File, header: &Header) -> std::io::Result<Description> {
    let mut bytes = vec![0; header.description_length as usize];
    read_exact_at(file, &mut bytes, HEADER as u64).map_err(|_| invalid("it is damaged: too short"))?;
    if <[u8; 32]>::from(Sha256::digest(&bytes)) != header.description_digest {
        return Err(invalid("it is damaged: its description does not match its checksum"));
    }
    postcard::from_bytes(&bytes).map_err(|_| invalid("it is damaged: its description cannot be read"))
}
