//! Compiling anew, with all effort, what was compiled quickly: in the background, by one thread that gives way to all others.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Weak};
use std::time::Duration;

use belljar_core::progress::{Progress, Step};
use belljar_emscripten::Effort;
use belljar_emscripten::dylink::{LibraryError, LibraryHash};
use rayon::ThreadPoolBuilder;
use rustix::process::setpriority_process;

use super::{CompiledLibraries, lock};

/// The highest value: the thread runs when nobody else wants to.
const NICE: i32 = 19;

/// What is to be compiled anew, and whether somebody is at it.
pub(super) struct Improvement {
    patience: Duration,
    wanted: Mutex<Wanted>,
    /// Whether libraries were replaced since somebody asked.
    news: AtomicBool,
}

#[derive(Default)]
struct Wanted {
    libraries: VecDeque<LibraryHash>,
    /// A thread waits for its time, or is at work.
    under_way: bool,
}

impl Improvement {
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, wanted: Mutex::default(), news: AtomicBool::new(false) }
    }

    /// Notes that only quickly compiled code is there of a library.
    pub(super) fn want(&self, hash: LibraryHash, libraries: &Weak<CompiledLibraries>) {
        let mut wanted = lock(&self.wanted);
        if !wanted.libraries.contains(&hash) {
            wanted.libraries.push_back(hash);
        }
        if wanted.under_way {
            return;
        }
        let (libraries, patience) = (libraries.clone(), self.patience);
        let begun = std::thread::Builder::new().name("improve".into()).spawn(move || {
            std::thread::sleep(patience);
            improve_all(&libraries);
        });
        match begun {
            Ok(_) => wanted.under_way = true,
            Err(error) => tracing::debug!(%error, "quickly compiled code stays in use"),
        }
    }

    /// The next library, or nothing, after which nobody is at work.
    fn next(&self) -> Option<LibraryHash> {
        let mut wanted = lock(&self.wanted);
        let next = wanted.libraries.pop_front();
        wanted.under_way = next.is_some();
        next
    }
}

/// Works until nothing is wanted, or nobody uses the libraries any more.
fn improve_all(libraries: &Weak<CompiledLibraries>) {
    let give_way = |_| {
        // Where that is forbidden, the thread competes.
        let _ = setpriority_process(None, NICE);
    };
    // The compiler's own parallelism stays in the pool that it is called from.
    let pool = ThreadPoolBuilder::new().num_threads(1).start_handler(give_way).build();
    while let Some(libraries) = libraries.upgrade() {
        let Some(hash) = libraries.improvement.next() else { break };
        let improved = match &pool {
            Ok(pool) => pool.install(|| libraries.improve(&hash)),
            Err(_) => libraries.improve(&hash),
        };
        if let Err(error) = improved {
            tracing::debug!(library = %belljar_cache::hex(&hash), %error, "quickly compiled code stays in use");
        }
    }
}

impl CompiledLibraries {
    /// Compiles with all effort what was compiled quickly, on all processors, and waits for it.
    pub(crate) fn improve_now(&self, progress: &dyn Progress) -> Result<(), LibraryError> {
        let wanted: Vec<LibraryHash> = std::mem::take(&mut lock(&self.improvement.wanted).libraries).into();
        if wanted.is_empty() {
            return Ok(());
        }
        let step = progress.start(Step::items("compiling extension modules with all effort", wanted.len() as u64));
        for hash in wanted {
            self.improve(&hash)?;
            step.advance(1);
        }
        step.finish();
        Ok(())
    }

    /// Whether libraries were replaced by better code since this was asked last. Who holds one, in an image, has the old code.
    pub(crate) fn have_improved(&self) -> bool {
        self.improvement.news.swap(false, Ordering::Relaxed)
    }

    fn improve(&self, hash: &LibraryHash) -> Result<(), LibraryError> {
        let held = lock(&self.hashes).values().find(|(held, _)| held == hash).map(|(_, bytes)| bytes.clone());
        // Its packages are not used any more.
        let Some(bytes) = held else { return Ok(()) };
        let entry = self.compile_with(Effort::Full, hash, &bytes)?;
        self.open(hash, &(Effort::Full, entry))?;
        self.improvement.news.store(true, Ordering::Relaxed);
        if let Err(error) = self.cache.remove(&self.key(hash, Effort::Quick)) {
            tracing::debug!(%error, "code that is not needed any more stays in the cache");
        }
        tracing::debug!(library = %belljar_cache::hex(hash), "compiled with all effort");
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
    use belljar_emscripten::{Engine, HardStop};
    use sha2::{Digest, Sha256};

    use super::super::QUICK_FROM;
    use super::*;

    /// A side module that is large enough to be compiled quickly at first.
    fn large() -> FileBytes {
        let data = "x".repeat(QUICK_FROM);
        let size = data.len();
        let text = format!(
            r#"(module (@dylink.0 (mem-info (memory {size} 0))) (import "env" "memory" (memory 1))
                (import "env" "__memory_base" (global $base i32))
                (func (export "answer") (result i32) (i32.const 42)) (data (global.get $base) "{data}"))"#
        );
        wat::parse_str(text).unwrap().into()
    }

    /// A large library and a cache for what it is compiled to.
    struct Bench {
        cache: Cache,
        engine: Engine,
        bytes: FileBytes,
        hash: LibraryHash,
        _directory: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let cache = Cache::open(Some(directory.path().into())).unwrap();
            let bytes = large();
            let hash = Sha256::digest(&bytes).into();
            Self { cache, engine: Engine::new(HardStop::default()).unwrap(), bytes, hash, _directory: directory }
        }

        /// What a process has of the cache.
        fn libraries(&self, patience: Duration) -> Arc<CompiledLibraries> {
            let libraries = CompiledLibraries::with_patience(&self.engine, &self.cache, patience);
            libraries.note(&self.bytes, self.hash);
            libraries
        }

        fn effort(&self, libraries: &CompiledLibraries) -> Option<Effort> {
            libraries.find(&self.hash).map(|(effort, _)| effort)
        }
    }

    #[test]
    fn a_large_library_is_compiled_quickly_and_then_with_all_effort() {
        let bench = Bench::new();
        let libraries = bench.libraries(Duration::from_millis(200));
        libraries.compile_all(&[(bench.hash, bench.bytes.clone())], &NoProgress);
        let quick = libraries.library(&bench.bytes).unwrap();
        assert_eq!(bench.effort(&libraries), Some(Effort::Quick));
        assert!(!libraries.have_improved());
        let begun = Instant::now();
        while !libraries.have_improved() {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody improves it");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(bench.effort(&libraries), Some(Effort::Full));
        assert!(!Arc::ptr_eq(&quick, &libraries.library(&bench.bytes).unwrap()));
        // Another process finds the better code alone.
        let other = bench.libraries(Duration::ZERO);
        assert!(other.known(&bench.hash).is_some() && lock(&other.improvement.wanted).libraries.is_empty());
    }

    #[test]
    fn who_asks_for_the_best_code_waits_for_it() {
        let bench = Bench::new();
        let libraries = bench.libraries(Duration::from_secs(3600));
        libraries.library(&bench.bytes).unwrap();
        libraries.improve_now(&NoProgress).unwrap();
        assert_eq!(bench.effort(&libraries), Some(Effort::Full));
    }
}
