//! The side modules of wheels (`.so`): translated and compiled once, and cached by content.
//!
//! At first, functions are compiled when they are called: an import calls a tenth of the functions of a module. A
//! process that runs for a while compiles whole modules in the background with full optimization ([`recompile`]); for
//! one that ends earlier, the command line starts a process that does so ([`optimize`]).

mod optimize;
mod recompile;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use belljar_cache::{Cache, CacheError, Entry, EntryKey};
use belljar_core::progress::ProgressStep;
use belljar_core::{NoProgress, Progress};
use belljar_emscripten::dylink::{Libraries, Library, LibraryError, LibraryHash};
use belljar_emscripten::fs::FileBytes;
use belljar_emscripten::{CompileTier, Engine};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::lru::LruCache;
use recompile::BackgroundRecompiler;

pub use optimize::{is_optimizing_libraries, optimize_libraries, optimize_libraries_in_background};

/// The maximum number of libraries that are kept open while no image or interpreter uses them.
const MAX_OPEN: usize = 512;

const TIERS: [CompileTier; 2] = [CompileTier::Optimized, CompileTier::Quick];
/// The size in bytes from which the functions of a library are compiled when they are called, at first. Compiling
/// smaller ones takes too little time to be noticed.
const MIN_LAZY_SIZE: usize = 16 << 10;
/// The age of a process at which it recompiles quickly compiled libraries. A process that ends earlier would hardly
/// benefit from the work.
const RECOMPILE_DELAY: Duration = Duration::from_secs(5);

/// Compiled libraries: a cache on disk, and open libraries in memory, shared by all interpreters of the process.
pub(crate) struct CompiledLibraries {
    engine: Engine,
    cache: Cache,
    open: Mutex<LruCache<LibraryHash, Arc<Library>>>,
    /// Hashes of the files of layers, by the address and length of their bytes, which the layer keeps in memory.
    /// Hashing a library takes longer than opening it.
    hashes: Mutex<HashMap<(usize, usize), (LibraryHash, FileBytes)>>,
    recompiler: BackgroundRecompiler,
    this: Weak<Self>,
}

impl CompiledLibraries {
    pub(crate) fn new(engine: &Engine, cache: &Cache) -> Arc<Self> {
        Self::with_recompile_delay(engine, cache, RECOMPILE_DELAY)
    }

    fn with_recompile_delay(engine: &Engine, cache: &Cache, delay: Duration) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            engine: engine.clone(),
            cache: cache.clone(),
            open: Mutex::new(LruCache::new(MAX_OPEN, u64::MAX)),
            hashes: Mutex::default(),
            recompiler: BackgroundRecompiler::new(delay),
            this: this.clone(),
        })
    }

    /// Records the hash of a layer's file, as listed in the layer's index.
    pub(crate) fn record_hash(&self, bytes: &FileBytes, hash: LibraryHash) {
        self.hashes.lock().insert(location(bytes), (hash, bytes.clone()));
    }

    /// Removes a file of a layer that is no longer used, so that its memory can be freed.
    pub(crate) fn remove_hash(&self, bytes: &FileBytes) {
        self.hashes.lock().remove(&location(bytes));
    }

    /// Compiles those of `libraries` that are not in the cache, on all processors.
    ///
    /// A failure is logged, not returned: code that imports the library gets the error.
    pub(crate) fn compile_all(&self, libraries: &[(LibraryHash, FileBytes)], progress: &dyn Progress) {
        let missing: Vec<_> = libraries.iter().filter(|(hash, _)| !self.is_compiled(hash)).collect();
        if missing.is_empty() {
            return;
        }
        let step = progress.start(ProgressStep::items("compiling extension modules", missing.len() as u64));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(missing.len());
        let next = Mutex::new(missing.iter());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some((hash, bytes)) = { next.lock().next() } {
                        if let Err(error) = self.compile_initializers(hash, bytes) {
                            tracing::warn!(library = %hex::encode(hash), %error, "failed to compile a library");
                        }
                        step.advance(1);
                    }
                });
            }
        });
        step.finish();
    }

    /// Compiles those of `libraries` completely that are not so in the cache: for processes that cannot compile.
    ///
    /// # Errors
    /// Returns the error of the first library that cannot be compiled.
    pub(crate) fn compile_whole(
        &self,
        libraries: &[(LibraryHash, FileBytes)],
        progress: &dyn Progress,
    ) -> Result<(), LibraryError> {
        let is_missing = |(hash, _): &&(LibraryHash, FileBytes)| {
            !matches!(self.cache.get(&self.key(hash, CompileTier::Optimized)), Ok(Some(_)))
        };
        let missing: Vec<_> = libraries.iter().filter(is_missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let step = progress.start(ProgressStep::items("compiling extension modules", missing.len() as u64));
        for (hash, bytes) in missing {
            // Compiling one uses all processors.
            self.compile_with(CompileTier::Optimized, hash, bytes)?;
            step.advance(1);
        }
        step.finish();
        Ok(())
    }

    /// Opens `libraries`, which [`CompiledLibraries::compile_whole`] has compiled, so that no file is opened later.
    ///
    /// # Errors
    /// Returns an error if one is not in the cache.
    pub(crate) fn open_whole(&self, libraries: &[(LibraryHash, FileBytes)]) -> Result<(), LibraryError> {
        for (hash, _) in libraries {
            let entry = self.cache.get_pinned(&self.key(hash, CompileTier::Optimized)).ok().flatten();
            let entry = entry.ok_or_else(|| LibraryError::Unavailable("it was not compiled".into()))?;
            self.open(hash, &(CompileTier::Optimized, entry))?;
        }
        Ok(())
    }

    /// Compiles a library as far as importing it needs for sure.
    fn compile_initializers(&self, hash: &LibraryHash, bytes: &FileBytes) -> Result<(), LibraryError> {
        let library = self.open(hash, &self.compile(hash, bytes)?)?;
        library.compile_needed(|name| name.starts_with("PyInit_"))
    }

    /// Returns whether libraries are in use of which only quickly compiled code exists.
    pub(crate) fn has_unoptimized(&self) -> bool {
        self.recompiler.has_work()
    }

    fn is_compiled(&self, hash: &LibraryHash) -> bool {
        TIERS.iter().any(|tier| matches!(self.cache.get(&self.key(hash, *tier)), Ok(Some(_))))
    }

    fn key(&self, hash: &LibraryHash, tier: CompileTier) -> EntryKey {
        // The fingerprint includes the translator's version.
        let key = EntryKey::new("library").part("engine", self.engine.fingerprint()).part("file", hash);
        match tier {
            CompileTier::Optimized => key,
            CompileTier::Quick => key.part("effort", "lazy"),
        }
    }

    /// Returns the library from the cache, after compiling it if necessary.
    fn compile(&self, hash: &LibraryHash, bytes: &FileBytes) -> Result<(CompileTier, Entry), LibraryError> {
        if let Some(found) = self.find(hash) {
            return Ok(found);
        }
        let tier = if bytes.len() < MIN_LAZY_SIZE { CompileTier::Optimized } else { CompileTier::Quick };
        Ok((tier, self.compile_with(tier, hash, bytes)?))
    }

    /// Returns the most optimized code in the cache for a library.
    fn find(&self, hash: &LibraryHash) -> Option<(CompileTier, Entry)> {
        let find = |tier: &CompileTier| Some((*tier, self.cache.get_pinned(&self.key(hash, *tier)).ok().flatten()?));
        TIERS.iter().find_map(find)
    }

    fn compile_with(&self, tier: CompileTier, hash: &LibraryHash, bytes: &FileBytes) -> Result<Entry, LibraryError> {
        let entry = self.cache.get_or_create_pinned(&self.key(hash, tier), &NoProgress, |new| {
            if tier == CompileTier::Quick {
                new.write(&source_name(hash), bytes)?;
            }
            Library::compile(&self.engine, tier, bytes, new.path()).map_err(CompileError::Library)
        });
        entry.map_err(|error| match error {
            CompileError::Library(error) => error,
            CompileError::Cache(error) => LibraryError::Unavailable(error.to_string()),
        })
    }

    #[expect(unsafe_code, reason = "the cache verifies the files that it returns: see below")]
    fn open(&self, hash: &LibraryHash, (tier, entry): &(CompileTier, Entry)) -> Result<Arc<Library>, LibraryError> {
        // SAFETY: `Library::compile` made the entry in `compile_with` above, under a key that includes this build's
        // compiler and its input. `Cache` returns an entry only while each file has its original content.
        let library = unsafe { Library::open(&self.engine, entry.directory()) }?;
        if library.hash() != hash {
            return Err(LibraryError::Unavailable("the cache entry contains another library".into()));
        }
        let library = Arc::new(library);
        self.open.lock().insert(*hash, library.clone(), 0);
        if *tier == CompileTier::Quick {
            self.recompiler.enqueue(*hash, &self.this);
        }
        Ok(library)
    }
}

impl Libraries for CompiledLibraries {
    fn library(&self, bytes: &FileBytes) -> Result<Arc<Library>, LibraryError> {
        let known = self.hashes.lock().get(&location(bytes)).map(|(hash, _)| *hash);
        let hash = known.unwrap_or_else(|| Sha256::digest(bytes).into());
        if let Some(library) = self.open.lock().get(&hash) {
            return Ok(library);
        }
        self.open(&hash, &self.compile(&hash, bytes)?)
    }

    fn known(&self, hash: &LibraryHash) -> Option<Arc<Library>> {
        if let Some(library) = self.open.lock().get(hash) {
            return Some(library);
        }
        self.open(hash, &self.find(hash)?).ok()
    }
}

enum CompileError {
    Library(LibraryError),
    Cache(CacheError),
}

impl From<CacheError> for CompileError {
    fn from(error: CacheError) -> Self {
        Self::Cache(error)
    }
}

/// Returns the name of the file of a quickly compiled entry that contains the library itself.
fn source_name(hash: &LibraryHash) -> String {
    format!("{}.wasm", hex::encode(hash))
}

/// Returns the address and length of bytes in this process, which identify them as long as they stay allocated.
fn location(bytes: &FileBytes) -> (usize, usize) {
    (bytes.as_ptr().addr(), bytes.len())
}
