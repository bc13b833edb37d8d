//! Optimization of a cache's libraries by a process of its own, after the run that compiled them quickly has ended.
//!
//! A quickly compiled entry contains the library itself, in a file named by its hash, so that another process can
//! compile it again without knowing the packages that it belongs to.

use belljar_cache::{Cache, Entry, EntryKey};
use belljar_core::Progress;
use belljar_core::progress::ProgressStep;
use belljar_emscripten::dylink::{LibraryError, LibraryHash};
use belljar_emscripten::fs::FileBytes;
use belljar_emscripten::{CompileTier, Engine, InterruptMode, Processor};

use super::{CompiledLibraries, source_name};
use crate::error::OpenError;

/// The name of the lock of the process that optimizes a cache.
const TASK: &str = "optimize-libraries";

/// Compiles all libraries in `cache` that were compiled quickly again, with full optimization. Waits while another
/// process does so.
///
/// Uses all processors, unless it runs in a rayon pool of fewer threads. Returns the number of compiled libraries.
///
/// # Errors
/// Returns an error if the cache cannot be read or written, or if a library fails to compile.
pub fn optimize_libraries(cache: &Cache, progress: &dyn Progress) -> Result<usize, OpenError> {
    let _lock = cache.lock_task(TASK, progress)?;
    optimize_locked(cache, progress)
}

/// Does the same as [`optimize_libraries`] with the lowest priority and on one processor. Returns at once if another
/// process is doing so.
///
/// The priority is that of the calling thread and those that it starts, until they end.
///
/// # Errors
/// Returns an error if the cache cannot be read or written, or if a library fails to compile.
pub fn optimize_libraries_in_background(cache: &Cache, progress: &dyn Progress) -> Result<usize, OpenError> {
    let Some(_lock) = cache.try_lock_task(TASK) else { return Ok(0) };
    belljar_emscripten::os::lower_thread_priority();
    match super::recompile::single_thread_pool() {
        Ok(pool) => pool.install(|| optimize_locked(cache, progress)),
        Err(_) => optimize_locked(cache, progress),
    }
}

/// Returns whether a process is optimizing the cache's libraries.
pub fn is_optimizing_libraries(cache: &Cache) -> bool {
    cache.try_lock_task(TASK).is_none()
}

/// Compiles the libraries for this machine's processor, and those that a program with a bundle has compiled for all of
/// the platform's.
fn optimize_locked(cache: &Cache, progress: &dyn Progress) -> Result<usize, OpenError> {
    let mut optimized = 0;
    for processor in [Processor::Native, Processor::Baseline].into_iter().filter(|processor| processor.is_available()) {
        let engine = Engine::for_processor(InterruptMode::default(), processor)?;
        optimized += optimize_for(&CompiledLibraries::new(&engine, cache), cache, progress)?;
    }
    Ok(optimized)
}

fn optimize_for(libraries: &CompiledLibraries, cache: &Cache, progress: &dyn Progress) -> Result<usize, OpenError> {
    let mut optimized = 0;
    // Runs that end in the meantime leave more work.
    loop {
        let quick = libraries.quick_entries()?;
        if quick.is_empty() {
            return Ok(optimized);
        }
        let step = progress
            .start(ProgressStep::items("compiling extension modules with full optimization", quick.len() as u64));
        for (hash, key, entry) in quick {
            libraries.optimize(&hash, &entry)?;
            // Removing the entry waits for the end of all pins.
            drop(entry);
            cache.remove(&key)?;
            optimized += 1;
            step.advance(1);
        }
        step.finish();
    }
}

impl CompiledLibraries {
    /// Returns the libraries for which this build has only quickly compiled code in the cache.
    fn quick_entries(&self) -> Result<Vec<(LibraryHash, EntryKey, Entry)>, OpenError> {
        let mut found = Vec::new();
        for usage in self.cache.usage()?.iter().filter(|usage| usage.kind() == "library") {
            let Some(hash) = usage.files.iter().find_map(|file| hash_of_source(file)) else { continue };
            let key = self.key(&hash, CompileTier::Quick);
            let is_of_this_build = key.to_string() == usage.name;
            if is_of_this_build && let Some(entry) = self.cache.get_pinned(&key)? {
                found.push((hash, key, entry));
            }
        }
        Ok(found)
    }

    fn optimize(&self, hash: &LibraryHash, quick: &Entry) -> Result<(), OpenError> {
        let path = quick.file(&source_name(hash))?;
        let bytes = FileBytes::map(&path).map_err(|error| OpenError::File { path, error })?;
        self.compile_with(CompileTier::Optimized, hash, &bytes).map_err(|error: LibraryError| OpenError::Build {
            what: "an extension module",
            reason: error.to_string(),
            output: String::new(),
        })?;
        Ok(())
    }
}

/// Returns the hash in the name of a file that contains a library: see [`source_name`].
fn hash_of_source(file: &str) -> Option<LibraryHash> {
    let mut hash = LibraryHash::default();
    hex::decode_to_slice(file.strip_suffix(".wasm")?, &mut hash).ok()?;
    Some(hash)
}
