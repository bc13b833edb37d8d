//! Background recompilation (tier-up): one thread of the lowest priority recompiles quickly compiled libraries with
//! full optimization.

use std::collections::VecDeque;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belljar_core::Progress;
use belljar_core::progress::ProgressStep;
use belljar_emscripten::CompileTier;
use belljar_emscripten::dylink::{LibraryError, LibraryHash};
use belljar_emscripten::os::lower_thread_priority;
use parking_lot::Mutex;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

use super::CompiledLibraries;

/// The libraries to recompile, and the state of the thread that does it.
pub(super) struct BackgroundRecompiler {
    delay: Duration,
    queue: Mutex<RecompileQueue>,
    /// True if libraries were replaced since the last [`CompiledLibraries::take_recompiled`].
    recompiled: AtomicBool,
}

#[derive(Default)]
struct RecompileQueue {
    libraries: VecDeque<LibraryHash>,
    /// True if the thread is waiting for the delay to pass, or is recompiling.
    is_running: bool,
}

impl BackgroundRecompiler {
    pub(super) fn new(delay: Duration) -> Self {
        Self { delay, queue: Mutex::default(), recompiled: AtomicBool::new(false) }
    }

    /// Adds a library of which only quickly compiled code exists, and starts the thread if necessary.
    pub(super) fn enqueue(&self, hash: LibraryHash, libraries: &Weak<CompiledLibraries>) {
        let mut queue = self.queue.lock();
        if !queue.libraries.contains(&hash) {
            queue.libraries.push_back(hash);
        }
        if queue.is_running {
            return;
        }
        let (libraries, delay) = (libraries.clone(), self.delay);
        let result = std::thread::Builder::new().name("recompile".into()).spawn(move || {
            std::thread::sleep(delay);
            recompile_until_empty(&libraries);
        });
        match result {
            Ok(_) => queue.is_running = true,
            Err(error) => tracing::debug!(%error, "failed to start the recompilation thread"),
        }
    }

    /// Returns whether libraries wait for recompilation or are being recompiled.
    pub(super) fn has_work(&self) -> bool {
        let queue = self.queue.lock();
        queue.is_running || !queue.libraries.is_empty()
    }

    /// Returns the next library. Returns `None` and marks the thread as stopped if the queue is empty.
    fn next(&self) -> Option<LibraryHash> {
        let mut queue = self.queue.lock();
        let next = queue.libraries.pop_front();
        queue.is_running = next.is_some();
        next
    }
}

/// Recompiles libraries until the queue is empty or the libraries are dropped.
fn recompile_until_empty(libraries: &Weak<CompiledLibraries>) {
    let pool = single_thread_pool();
    while let Some(libraries) = libraries.upgrade() {
        let Some(hash) = libraries.recompiler.next() else { break };
        let result = match &pool {
            Ok(pool) => pool.install(|| libraries.recompile(&hash)),
            Err(_) => libraries.recompile(&hash),
        };
        if let Err(error) = result {
            tracing::debug!(library = %hex::encode(hash), %error, "failed to recompile a library");
        }
    }
}

/// Returns a pool of one thread of the lowest priority. The compiler's own parallelism stays within the pool that it is
/// called from.
pub(super) fn single_thread_pool() -> Result<ThreadPool, ThreadPoolBuildError> {
    ThreadPoolBuilder::new().num_threads(1).start_handler(|_| lower_thread_priority()).build()
}

impl CompiledLibraries {
    /// Recompiles all quickly compiled libraries on all processors, and waits for it.
    pub(crate) fn recompile_all(&self, progress: &dyn Progress) -> Result<(), LibraryError> {
        let hashes: Vec<LibraryHash> = std::mem::take(&mut self.recompiler.queue.lock().libraries).into();
        if hashes.is_empty() {
            return Ok(());
        }
        let step = progress
            .start(ProgressStep::items("recompiling extension modules with full optimization", hashes.len() as u64));
        for hash in hashes {
            self.recompile(&hash)?;
            step.advance(1);
        }
        step.finish();
        Ok(())
    }

    /// Returns whether libraries were recompiled since the last call. Images that are open still use the previous code.
    pub(crate) fn take_recompiled(&self) -> bool {
        self.recompiler.recompiled.swap(false, Ordering::Relaxed)
    }

    fn recompile(&self, hash: &LibraryHash) -> Result<(), LibraryError> {
        let known = self.hashes.lock().values().find(|(known, _)| known == hash).map(|(_, bytes)| bytes.clone());
        // The packages are no longer in use.
        let Some(bytes) = known else { return Ok(()) };
        let entry = self.compile_with(CompileTier::Optimized, hash, &bytes)?;
        self.open(hash, &(CompileTier::Optimized, entry))?;
        self.recompiler.recompiled.store(true, Ordering::Relaxed);
        if let Err(error) = self.cache.remove(&self.key(hash, CompileTier::Quick)) {
            tracing::debug!(%error, "failed to remove obsolete code from the cache");
        }
        tracing::debug!(library = %hex::encode(hash), "recompiled a library");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use belljar_cache::Cache;
    use belljar_core::NoProgress;
    use belljar_emscripten::dylink::Libraries;
    use belljar_emscripten::fs::FileBytes;
    use belljar_emscripten::{Engine, InterruptMode};
    use sha2::{Digest, Sha256};

    use super::super::MIN_LAZY_SIZE;
    use super::*;

    /// Returns a side module that is large enough to be compiled quickly at first.
    fn large() -> FileBytes {
        let data = "x".repeat(MIN_LAZY_SIZE);
        let size = data.len();
        let text = format!(
            r#"(module (@dylink.0 (mem-info (memory {size} 0))) (import "env" "memory" (memory 1))
                (import "env" "__memory_base" (global $base i32))
                (func (export "answer") (result i32) (i32.const 42)) (data (global.get $base) "{data}"))"#
        );
        wat::parse_str(text).unwrap().into()
    }

    /// A large library and a cache for its compiled code.
    struct Fixture {
        cache: Cache,
        engine: Engine,
        bytes: FileBytes,
        hash: LibraryHash,
        _directory: tempfile::TempDir,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let cache = Cache::open(Some(directory.path().into())).unwrap();
            let bytes = large();
            let hash = Sha256::digest(&bytes).into();
            Self { cache, engine: Engine::new(InterruptMode::default()).unwrap(), bytes, hash, _directory: directory }
        }

        /// Returns the libraries of a new process that shares the cache.
        fn libraries(&self, delay: Duration) -> Arc<CompiledLibraries> {
            let libraries = CompiledLibraries::with_recompile_delay(&self.engine, &self.cache, delay);
            libraries.record_hash(&self.bytes, self.hash);
            libraries
        }

        fn tier(&self, libraries: &CompiledLibraries) -> Option<CompileTier> {
            libraries.find(&self.hash).map(|(tier, _)| tier)
        }
    }

    #[test]
    fn large_library_is_compiled_quickly_then_optimized() {
        let fixture = Fixture::new();
        // Long enough to look at the quickly compiled code before.
        let libraries = fixture.libraries(Duration::from_secs(5));
        libraries.compile_all(&[(fixture.hash, fixture.bytes.clone())], &NoProgress);
        let quick = libraries.library(&fixture.bytes).unwrap();
        assert_eq!(fixture.tier(&libraries), Some(CompileTier::Quick));
        assert!(!libraries.take_recompiled());
        let start = Instant::now();
        while !libraries.take_recompiled() {
            assert!(start.elapsed() < Duration::from_secs(60), "the library was not recompiled");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(fixture.tier(&libraries), Some(CompileTier::Optimized));
        assert!(!Arc::ptr_eq(&quick, &libraries.library(&fixture.bytes).unwrap()));
        // Another process finds the optimized code, and only that.
        let other = fixture.libraries(Duration::ZERO);
        assert!(other.known(&fixture.hash).is_some() && other.recompiler.queue.lock().libraries.is_empty());
    }

    #[test]
    fn recompile_all_waits_for_optimized_code() {
        let fixture = Fixture::new();
        let libraries = fixture.libraries(Duration::from_secs(3600));
        libraries.library(&fixture.bytes).unwrap();
        libraries.recompile_all(&NoProgress).unwrap();
        assert_eq!(fixture.tier(&libraries), Some(CompileTier::Optimized));
    }
}
