//! The side modules of wheels (`.so`), translated and compiled once and kept in the cache by their content.
//!
//! Large ones are compiled quickly at first, so that nobody waits twice as long for their first use. A process that lives on
//! for a while compiles them anew, with all effort, in the background ([`improve`]).

mod improve;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use belljar_cache::{Cache, CacheError, Entry, EntryKey};
use belljar_core::progress::{NoProgress, Progress, Step};
use belljar_emscripten::dylink::{Libraries, Library, LibraryError, LibraryHash};
use belljar_emscripten::fs::FileBytes;
use belljar_emscripten::{Effort, Engine};
use sha2::{Digest, Sha256};

use crate::recent::Recent;
use improve::Improvement;

/// Libraries that are kept open when no image or interpreter uses them any more.
const KEPT_OPEN: usize = 512;

const BEST_FIRST: [Effort; 2] = [Effort::Full, Effort::Quick];
/// Bytes from which on a library is compiled quickly at first. Smaller ones take no time that anybody notices.
const QUICK_FROM: usize = 256 << 10;
/// How long a process lives before it compiles anew what was compiled quickly. One that ends before would not have had much
/// of it, and would have done the work in vain.
const PATIENCE: Duration = Duration::from_secs(5);

/// Compiles libraries, keeps them in the cache, and open ones in memory for all interpreters of the process.
pub(crate) struct CompiledLibraries {
    engine: Engine,
    cache: Cache,
    open: Mutex<Recent<LibraryHash, Arc<Library>>>,
    /// Hashes of the files of layers, by where their bytes are in memory, which the layer keeps there. Hashing a
    /// library takes longer than opening it.
    hashes: Mutex<HashMap<(usize, usize), (LibraryHash, FileBytes)>>,
    improvement: Improvement,
    this: Weak<Self>,
}

impl CompiledLibraries {
    pub(crate) fn new(engine: &Engine, cache: &Cache) -> Arc<Self> {
        Self::with_patience(engine, cache, PATIENCE)
    }

    fn with_patience(engine: &Engine, cache: &Cache, patience: Duration) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            engine: engine.clone(),
            cache: cache.clone(),
            open: Mutex::new(Recent::new(KEPT_OPEN, u64::MAX)),
            hashes: Mutex::default(),
            improvement: Improvement::new(patience),
            this: this.clone(),
        })
    }

    /// Notes the hash of a file that a layer holds: the layer's own index says it.
    pub(crate) fn note(&self, bytes: &FileBytes, hash: LibraryHash) {
        lock(&self.hashes).insert(place(bytes), (hash, bytes.clone()));
    }

    /// Forgets files that only this still holds, which is what is left of a layer that nobody uses.
    pub(crate) fn forget(&self, bytes: &FileBytes) {
        lock(&self.hashes).remove(&place(bytes));
    }

    /// Compiles those of `libraries` that the cache does not have, on all processors.
    ///
    /// One that cannot be compiled is no reason to fail: code that imports it is told why.
    pub(crate) fn compile_all(&self, libraries: &[(LibraryHash, FileBytes)], progress: &dyn Progress) {
        let missing: Vec<_> = libraries.iter().filter(|(hash, _)| !self.is_compiled(hash)).collect();
        if missing.is_empty() {
            return;
        }
        let step = progress.start(Step::items("compiling extension modules", missing.len() as u64));
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(missing.len());
        let next = Mutex::new(missing.iter());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some((hash, bytes)) = { lock(&next).next() } {
                        if let Err(error) = self.compile(hash, bytes) {
                            tracing::warn!(library = %belljar_cache::hex(hash), %error, "cannot be compiled");
                        }
                        step.advance(1);
                    }
                });
            }
        });
        step.finish();
    }

    fn is_compiled(&self, hash: &LibraryHash) -> bool {
        BEST_FIRST.iter().any(|effort| matches!(self.cache.get(&self.key(hash, *effort)), Ok(Some(_))))
    }

    fn key(&self, hash: &LibraryHash, effort: Effort) -> EntryKey {
        // The fingerprint covers the translator's version, too.
        let key = EntryKey::new("library").part("engine", self.engine.fingerprint()).part("file", hash);
        match effort {
            Effort::Full => key,
            Effort::Quick => key.part("effort", "quick"),
        }
    }

    /// The library in the cache, compiled if it is not there.
    fn compile(&self, hash: &LibraryHash, bytes: &FileBytes) -> Result<(Effort, Entry), LibraryError> {
        if let Some(found) = self.find(hash) {
            return Ok(found);
        }
        let effort = if bytes.len() < QUICK_FROM { Effort::Full } else { Effort::Quick };
        Ok((effort, self.compile_with(effort, hash, bytes)?))
    }

    /// The best that the cache has of a library.
    fn find(&self, hash: &LibraryHash) -> Option<(Effort, Entry)> {
        let find = |effort: &Effort| Some((*effort, self.cache.hold(&self.key(hash, *effort)).ok().flatten()?));
        BEST_FIRST.iter().find_map(find)
    }

    fn compile_with(&self, effort: Effort, hash: &LibraryHash, bytes: &FileBytes) -> Result<Entry, LibraryError> {
        let entry = self.cache.hold_or_make(&self.key(hash, effort), &NoProgress, |new| {
            Library::compile(&self.engine, effort, bytes, new.path()).map_err(Failure::Library)
        });
        entry.map_err(|failure| match failure {
            Failure::Library(error) => error,
            Failure::Cache(error) => LibraryError::Unavailable(error.to_string()),
        })
    }

    #[expect(unsafe_code, reason = "the cache vouches for the files it hands out: see below")]
    fn open(&self, hash: &LibraryHash, (effort, entry): &(Effort, Entry)) -> Result<Arc<Library>, LibraryError> {
        // SAFETY: the entry was made by `Library::compile` in `compile_with` above, under a key that names this build's
        // compiler and its input. `Cache` hands an entry out only while each file is what was written.
        let library = unsafe { Library::open(&self.engine, entry.directory()) }?;
        if library.hash() != hash {
            return Err(LibraryError::Unavailable("the cache has another library in its place".into()));
        }
        let library = Arc::new(library);
        lock(&self.open).insert(*hash, library.clone(), 0);
        if *effort == Effort::Quick {
            self.improvement.want(*hash, &self.this);
        }
        Ok(library)
    }
}

impl Libraries for CompiledLibraries {
    fn library(&self, bytes: &FileBytes) -> Result<Arc<Library>, LibraryError> {
        let noted = lock(&self.hashes).get(&place(bytes)).map(|(hash, _)| *hash);
        let hash = noted.unwrap_or_else(|| Sha256::digest(bytes).into());
        if let Some(library) = lock(&self.open).get(&hash) {
            return Ok(library);
        }
        self.open(&hash, &self.compile(&hash, bytes)?)
    }

    fn known(&self, hash: &LibraryHash) -> Option<Arc<Library>> {
        if let Some(library) = lock(&self.open).get(hash) {
            return Some(library);
        }
        self.open(hash, &self.find(hash)?).ok()
    }
}

enum Failure {
    Library(LibraryError),
    Cache(CacheError),
}

impl From<CacheError> for Failure {
    fn from(error: CacheError) -> Self {
        Self::Cache(error)
    }
}

/// Where bytes are in this process: equal only for the same bytes, as long as somebody holds them.
fn place(bytes: &FileBytes) -> (usize, usize) {
    (bytes.as_ptr().addr(), bytes.len())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
