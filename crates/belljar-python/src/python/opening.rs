//! Opening CPython: its options, the parts that are built, and bundles of parts that were built before.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_cache::{BundleContents, Cache};
use belljar_core::progress::ProgressStep;
use belljar_core::{InstallStatistics, Progress};
use belljar_emscripten::{Engine, InterruptMode, Processor, Target};
use parking_lot::Mutex;

use super::{Python, Shared};
use crate::bootstrap::{RuntimeBuilder, program_key};
use crate::error::{BundleMismatch, OpenError};
use crate::install::{InstallerSource, PrepareError};
use crate::libraries::CompiledLibraries;
use crate::lru::LruCache;
use crate::packages::{BytecodeQueue, WheelTable};
use crate::runtime::{self, Release};

/// Options for [`Python::open`].
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A directory with Pyodide's files, used instead of all other sources.
    pub runtime: Option<PathBuf>,
    /// The cache directory; `None` selects the platform's.
    pub cache: Option<PathBuf>,
    /// A directory of prebuilt entries that was installed with this program (see [`Cache::with_bundle`]). It is
    /// searched before the cache.
    pub bundle: Option<PathBuf>,
    /// The Pyodide version; `None` selects the newest stable one.
    pub release: Option<String>,
    /// True if nothing may be downloaded.
    pub offline: bool,
    /// Limits of the caches for packages.
    pub cache_limits: CacheLimits,
}

impl Options {
    /// Returns the cache directory: the given one, or the platform's.
    ///
    /// # Errors
    /// Returns an error if the directory is unknown or cannot be created.
    pub fn cache_directory(&self) -> Result<PathBuf, OpenError> {
        Ok(Cache::open(self.cache.clone())?.root().to_owned())
    }
}

/// Limits of the in-memory and on-disk caches for packages. The least recently used entries are evicted first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// The maximum number of open images in this process.
    pub images: usize,
    /// The maximum size of their memory, in bytes. Interpreters map it, so that only touched pages are resident.
    pub image_bytes: u64,
    /// The maximum size of wheels, their layers, libraries and images in the cache directory, in bytes.
    pub cache_bytes: u64,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { images: 64, image_bytes: 8 << 30, cache_bytes: 8 << 30 }
    }
}

/// The contents of a bundle.
const BUNDLE: BundleContents<'_> = BundleContents {
    kinds: &["base", "program", "runtime", "stdlib"],
    // They are only needed for building what a bundle contains: the memory that the interpreter of the base image
    // started with, and the archive of the standard library.
    left_out: &[("program", "program.memory"), ("runtime", "python_stdlib.zip")],
    // It is only needed where the program does not fit the processor.
    compressed: &[("runtime", "pyodide.asm.wasm")],
    // They are only needed for sessions. The image of sessions began as a copy of the base image.
    packed: &["bytecode", "layer", "session"],
    resembled: ("base", "base.image"),
};

impl Python {
    /// Makes CPython ready, building the parts that are missing. Long steps are reported to `progress`.
    ///
    /// Must be called on a guest thread ([`crate::on_guest_thread`]): building runs Python.
    ///
    /// # Errors
    /// Returns an error if a file is not available, or if building a part fails.
    pub fn open(options: &Options, progress: &dyn Progress) -> Result<Self, OpenError> {
        let release = match &options.release {
            Some(version) => Release::find(version)?,
            None => Release::default_release(),
        };
        let cache = Cache::open(options.cache.clone())?;
        let engine = || Engine::new(InterruptMode::default());
        let Some(bundle) = &options.bundle else {
            return Self::open_with(release, options, cache, &engine()?, None, progress);
        };
        let bundled = cache.clone().with_bundle(Some(bundle.clone()));
        let reason = match Self::open_bundled(release, options, bundled.clone(), progress) {
            Ok(python) => return Ok(python),
            Err(reason) => reason,
        };
        let notice = format!(
            "the files that were installed with belljar do not fit this machine, and others are built in {}: {reason}",
            cache.root().display()
        );
        tracing::warn!("{notice}");
        // The program is compiled from Pyodide's files in the bundle, so that nothing is downloaded.
        let engine = engine()?;
        match Self::open_with(release, options, bundled, &engine, Some(notice.clone()), progress) {
            Ok(python) => Ok(python),
            Err(error) => {
                tracing::warn!(%error, "failed to use Pyodide's files in the bundle");
                Self::open_with(release, options, cache, &engine, Some(notice), progress)
            }
        }
    }

    /// Opens CPython from a bundle. It was compiled for all processors of the platform.
    ///
    /// # Errors
    /// Fails if the bundle does not fit this machine or this program.
    fn open_bundled(
        release: &'static Release,
        options: &Options,
        cache: Cache,
        progress: &dyn Progress,
    ) -> Result<Self, BundleMismatch> {
        let engine = Engine::for_processor(InterruptMode::default(), Processor::Baseline).map_err(OpenError::from)?;
        if !cache.is_bundled(&program_key(release, &engine)) {
            return Err(BundleMismatch::Other);
        }
        Ok(Self::open_with(release, options, cache, &engine, None, progress)?)
    }

    /// Writes the parts that are needed to run code and sessions into `directory`, compiled for all processors of
    /// `target`: a bundle for [`Options::bundle`].
    ///
    /// Only the native code of CPython depends on the platform. The other parts are built with the program for this
    /// machine, and are the same for every platform.
    ///
    /// Must be called on a guest thread. `source` creates the source of IPython's wheels.
    ///
    /// # Errors
    /// Returns an error if a part cannot be built or written.
    pub fn write_bundle(
        options: &Options,
        target: Target,
        source: impl FnOnce(&Self) -> Arc<dyn InstallerSource>,
        directory: &Path,
        progress: &dyn Progress,
    ) -> Result<Self, PrepareError> {
        let release = match &options.release {
            Some(version) => Release::find(version).map_err(OpenError::from)?,
            None => Release::default_release(),
        };
        let engine = Engine::for_processor(InterruptMode::default(), Processor::Baseline).map_err(OpenError::from)?;
        let built = Self::open_with(release, options, Cache::open(options.cache.clone())?, &engine, None, progress)?;
        let source = source(&built);
        built.session_image(&*source, progress)?;
        // Opened again: what was needed for building only is not copied.
        let cache = Cache::open(options.cache.clone())?.recording();
        let python = Self::open_with(release, options, cache, &engine, None, progress)?;
        python.session_image(&*source, progress)?;
        python.lock_file(progress)?;
        if target != Target::HOST {
            let for_target = Engine::for_target(InterruptMode::default(), target).map_err(OpenError::from)?;
            python.builder(&for_target, progress).compiled()?;
            python.cache().exclude_from_bundle(&program_key(release, &engine));
        }
        let step = progress.start(ProgressStep::indeterminate("compressing the image of sessions"));
        python.cache().write_bundle(&BUNDLE, directory)?;
        step.finish();
        Ok(python)
    }

    fn open_with(
        release: &'static Release,
        options: &Options,
        cache: Cache,
        engine: &Engine,
        notice: Option<String>,
        progress: &dyn Progress,
    ) -> Result<Self, OpenError> {
        let libraries = CompiledLibraries::new(engine, &cache);
        let runtime = runtime::Options { directory: options.runtime.clone(), offline: options.offline };
        let builder = RuntimeBuilder { release, cache: &cache, engine, options: &runtime, progress };
        let program = builder.program(&libraries)?;
        let base_layers = builder.layers(&program)?;
        let base = builder.image(&program, &base_layers)?;
        let base_key = builder.image_key(&program);
        let images = Mutex::new(LruCache::new(options.cache_limits.images, options.cache_limits.image_bytes));
        let cache_bytes = options.cache_limits.cache_bytes;
        let shared = Shared {
            release,
            program,
            libraries,
            base,
            base_key,
            images,
            wheels: WheelTable::default(),
            bytecode_queue: BytecodeQueue::default(),
            cache,
            cache_bytes,
            runtime,
            installs: InstallStatistics::default(),
            notice,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    fn builder<'a>(&'a self, engine: &'a Engine, progress: &'a dyn Progress) -> RuntimeBuilder<'a> {
        let Shared { cache, runtime, .. } = &*self.shared;
        RuntimeBuilder { release: self.shared.release, cache, engine, options: runtime, progress }
    }
}
