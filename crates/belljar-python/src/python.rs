//! A CPython that is ready to run: a compiled program, its standard library and its images.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_cache::{BundleContents, Cache, EntryKey};
use belljar_core::progress::ProgressStep;
use belljar_core::{BackendStatistics, InstallStatistics, Limits, NoProgress, Progress};
use belljar_emscripten::dylink::{LibraryError, LibraryHash};
use belljar_emscripten::fs::FileBytes;
use belljar_emscripten::{Engine, InstanceError, InterruptMode, Processor, Program, Target};
use parking_lot::Mutex;

use crate::bootstrap::{RuntimeBuilder, program_key};
use crate::error::{BundleMismatch, OpenError};
use crate::image::{Image, ImageParts};
use crate::install::{InstallerSource, PrepareError};
use crate::interpreter::{Interpreter, Streams};
use crate::kept_image;
use crate::libraries::CompiledLibraries;
use crate::lru::LruCache;
use crate::packages::{
    BytecodeQueue, Layers, ModulePaths, PackageSet, Preloader, SetKey, SupplyError, UnpackedWheel, WheelId, WheelTable,
    all_modules, preloadable,
};
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

/// A CPython that is ready to run. Cheap to clone.
#[derive(Clone)]
pub struct Python {
    shared: Arc<Shared>,
}

struct Shared {
    release: &'static Release,
    program: Program,
    libraries: Arc<CompiledLibraries>,
    base: Image,
    base_key: EntryKey,
    images: Mutex<LruCache<(SetKey, Vec<String>), Image>>,
    wheels: WheelTable,
    bytecode_queue: BytecodeQueue,
    cache: Cache,
    cache_bytes: u64,
    runtime: runtime::Options,
    installs: InstallStatistics,
    notice: Option<String>,
}

/// The kinds of cache entries that belong to packages. They are rebuilt or fetched again when they are missing.
pub const PACKAGE_ENTRIES: &[&str] = &["bytecode", "image", "layer", "library", "wheel"];

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

    /// Creates an interpreter without packages, a copy of the base image.
    ///
    /// # Errors
    /// Returns an error if allocating memory fails.
    pub fn interpreter(&self, limits: Limits, streams: Streams) -> Result<Interpreter, OpenError> {
        self.interpreter_with(&self.shared.base, limits, streams)
    }

    /// Creates an interpreter as a copy of `image`.
    ///
    /// # Errors
    /// Returns an error if allocating memory fails.
    pub fn interpreter_with(&self, image: &Image, limits: Limits, streams: Streams) -> Result<Interpreter, OpenError> {
        let Shared { program, base, .. } = &*self.shared;
        if image.memory_size() <= limits.memory {
            return Ok(Interpreter::restore(program, image, limits, streams)?);
        }
        // The image does not fit into the memory limit. Its packages can still be used without the preloaded modules.
        let mut interpreter = Interpreter::restore(program, base, limits, streams)?;
        for layer in image.packages().layers() {
            interpreter.files().add_layer(layer.clone());
        }
        Ok(interpreter)
    }

    /// Compiles the libraries of packages completely, for processes that open them with [`Python::open_image`]. Takes
    /// minutes for large packages that were not compiled before.
    ///
    /// # Errors
    /// Returns an error if a library cannot be compiled.
    pub fn compile_libraries_of(&self, packages: &PackageSet, progress: &dyn Progress) -> Result<(), LibraryError> {
        self.shared.libraries.compile_whole(&libraries_of(packages), progress)
    }

    /// Opens the image of these parts, which another process has built, and all that its interpreters read from files
    /// later: the libraries of its packages. Returns it with all packages of the parts.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// Returns an error if a part is not in the cache.
    pub fn open_image(&self, parts: &ImageParts) -> Result<(Image, PackageSet), OpenError> {
        self.shared.program.open_symbols().map_err(InstanceError::from)?;
        if parts == &ImageParts::default() {
            return Ok((self.shared.base.clone(), PackageSet::empty()));
        }
        let missing = |ids: &[WheelId]| Err(format!("{} wheels are not in the cache", ids.len()).into());
        let set = self.packages(&parts.wheels, &[], missing, &NoProgress)?;
        let opened = self.shared.libraries.open_whole(&libraries_of(&set));
        opened.map_err(|error| InstanceError::Snapshot(error.to_string()))?;
        let image = match (&parts.kept, parts.is_session) {
            (Some(kept), _) => {
                let packages = |wheels: &[WheelId]| self.packages(wheels, &[], missing, &NoProgress);
                let image = kept_image::open(self, kept, |wheels| packages(wheels).map_err(|error| error.to_string()));
                image.map_err(|error| InstanceError::Snapshot(error.to_string()))?
            }
            (None, true) => self.existing_session_image()?,
            (None, false) => self.image_with(&set, &[], &parts.modules, &NoProgress)?,
        };
        Ok((image, set))
    }

    /// Returns the image without packages.
    pub fn base(&self) -> &Image {
        &self.shared.base
    }

    /// Returns whether all of these wheels are installed, so that [`Python::packages`] does not request their files.
    ///
    /// # Errors
    /// Returns an error if reading the cache fails.
    pub fn has_packages(&self, ids: &[WheelId]) -> Result<bool, OpenError> {
        Ok(self.layers(&NoProgress).contains_all(ids)?)
    }

    /// Returns the set of these wheels. `supply` is called with the wheels that are not installed on this machine and
    /// returns their files. What importing the modules `imports` needs is then compiled; `progress` reports this.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// Returns an error if `supply` fails, or if a wheel cannot be installed.
    pub fn packages(
        &self,
        ids: &[WheelId],
        imports: &[String],
        supply: impl FnOnce(&[WheelId]) -> Result<Vec<UnpackedWheel>, SupplyError>,
        progress: &dyn Progress,
    ) -> Result<PackageSet, OpenError> {
        let mut is_new = false;
        let set = self.layers(progress).open(ids, imports, |missing| {
            is_new = true;
            supply(missing)
        })?;
        if is_new {
            self.evict();
        }
        Ok(set)
    }

    /// Compiles the modules of `set` that interpreters have imported from their sources since the last call, so that
    /// the next import is fast.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// Returns an error if the cache cannot be written.
    pub fn compile_imported(&self, set: &PackageSet, progress: &dyn Progress) -> Result<(), OpenError> {
        self.compile(set, &set.take_uncompiled(), progress)
    }

    /// Does the same as [`Python::compile_imported`], in a thread of the lowest priority.
    pub(crate) fn compile_imported_in_background(&self, set: &PackageSet) {
        let modules = set.take_uncompiled();
        if modules.iter().any(|modules| !modules.is_empty()) {
            self.shared.bytecode_queue.enqueue(self, set, modules);
        }
    }

    pub(crate) fn bytecode_queue(&self) -> &BytecodeQueue {
        &self.shared.bytecode_queue
    }

    pub(crate) fn compile(
        &self,
        set: &PackageSet,
        modules: &ModulePaths,
        progress: &dyn Progress,
    ) -> Result<(), OpenError> {
        self.layers(progress).compile(set, modules)
    }

    /// Compiles all modules of `set` that have not been compiled.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// Returns an error if the cache cannot be written.
    pub fn compile_all(&self, set: &PackageSet, progress: &dyn Progress) -> Result<(), OpenError> {
        self.compile(set, &all_modules(set), progress)
    }

    /// Returns the image of these packages in which the modules in `imports` (dotted names) that belong to them are
    /// imported: from memory, from the cache, or newly built.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// Returns an error if building the image fails. A failed import is not an error: see [`Image::preload_failures`].
    pub fn image(&self, set: &PackageSet, imports: &[String], progress: &dyn Progress) -> Result<Image, OpenError> {
        self.image_with(set, imports, &[], progress)
    }

    /// Does the same as [`Python::image`], and also imports the modules in `named`, whatever their origin.
    pub(crate) fn image_with(
        &self,
        set: &PackageSet,
        imports: &[String],
        named: &[String],
        progress: &dyn Progress,
    ) -> Result<Image, OpenError> {
        let modules = preloadable(set, imports, named);
        if set.is_empty() && modules.is_empty() {
            return Ok(self.shared.base.clone());
        }
        let key = (set.key().clone(), modules);
        {
            let mut images = self.shared.images.lock();
            if self.shared.libraries.take_recompiled() {
                // Images use the recompiled libraries once they are opened again.
                images.clear();
            }
            if let Some(image) = images.get(&key) {
                return Ok(image);
            }
        }
        let (image, is_new) = self.preloader(progress).image(set, &key.1)?;
        let image = image.with_modules(&key.1);
        if is_new {
            self.evict();
        }
        let weight = image.memory_size();
        self.shared.images.lock().insert(key, image.clone(), weight);
        Ok(image)
    }

    fn builder<'a>(&'a self, engine: &'a Engine, progress: &'a dyn Progress) -> RuntimeBuilder<'a> {
        let Shared { cache, runtime, .. } = &*self.shared;
        RuntimeBuilder { release: self.shared.release, cache, engine, options: runtime, progress }
    }

    pub(crate) fn preloader<'a>(&'a self, progress: &'a dyn Progress) -> Preloader<'a> {
        let Shared { program, base, base_key, cache, .. } = &*self.shared;
        Preloader { layers: self.layers(progress), cache, program, base, base_key, progress }
    }

    pub(crate) fn program(&self) -> &Program {
        &self.shared.program
    }

    pub(crate) fn base_key(&self) -> &EntryKey {
        &self.shared.base_key
    }

    /// Recompiles the libraries of packages that were compiled quickly, with full optimization. A process that runs for
    /// a while does this in the background.
    ///
    /// # Errors
    /// Returns an error if compiling a library or writing the cache fails.
    pub fn recompile_libraries(&self, progress: &dyn Progress) -> Result<(), LibraryError> {
        self.shared.libraries.recompile_all(progress)
    }

    /// Returns whether libraries of packages are in use that were compiled quickly and not yet recompiled. A process
    /// that is about to end may leave that to another one: [`crate::optimize_libraries`].
    pub fn has_unoptimized_libraries(&self) -> bool {
        self.shared.libraries.has_unoptimized()
    }

    /// Returns the reason why the bundle is not used: one of its files does not fit.
    pub fn notice(&self) -> Option<&str> {
        self.shared.notice.as_deref()
    }

    /// Returns the name and version of the runtime: `Python 3.14 (Pyodide 314.0.7)`.
    pub fn description(&self) -> String {
        let (major, minor) = self.shared.release.python;
        format!("Python {major}.{minor} (Pyodide {})", self.shared.release.version)
    }

    /// Returns the cache, which holds downloaded and built files.
    pub fn cache(&self) -> &Cache {
        &self.shared.cache
    }

    /// Returns the statistics of the cache and of installations, since this CPython was opened.
    pub fn statistics(&self) -> BackendStatistics {
        let cache = self.shared.cache.statistics();
        let cache = cache.inspect_err(|error| tracing::debug!(%error, "failed to read the size of the cache")).ok();
        BackendStatistics { installs: self.shared.installs.clone(), cache }
    }

    pub(crate) fn installs(&self) -> &InstallStatistics {
        &self.shared.installs
    }

    pub(crate) fn release(&self) -> &'static Release {
        self.shared.release
    }

    /// Returns the path of the release's `pyodide-lock.json`.
    pub(crate) fn lock_file(&self, progress: &dyn Progress) -> Result<PathBuf, OpenError> {
        let Shared { release, runtime, cache, .. } = &*self.shared;
        Ok(runtime::locate_or_fetch_lock(release, runtime, cache, progress)?)
    }

    /// Returns the cache's directory.
    pub fn cache_directory(&self) -> &Path {
        self.shared.cache.root()
    }

    fn layers<'a>(&'a self, progress: &'a dyn Progress) -> Layers<'a> {
        let Shared { release, wheels, cache, program, base, libraries, .. } = &*self.shared;
        Layers { open: wheels, cache, program, base, libraries, python: release.python, progress }
    }

    /// Evicts old entries after something was added to the cache.
    fn evict(&self) {
        if let Err(error) = self.shared.cache.evict(PACKAGE_ENTRIES, self.shared.cache_bytes) {
            tracing::warn!(%error, "failed to evict entries from the cache");
        }
    }
}

/// Returns the libraries of a set of packages.
fn libraries_of(set: &PackageSet) -> Vec<(LibraryHash, FileBytes)> {
    set.wheels().iter().flat_map(|wheel| wheel.libraries.iter().cloned()).collect()
}
