//! A CPython that is ready to run: a compiled program, its standard library and its images.

mod opening;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_cache::{Cache, EntryKey};
use belljar_core::{BackendStatistics, InstallStatistics, Limits, NoProgress, Progress};
use belljar_emscripten::dylink::{LibraryError, LibraryHash};
use belljar_emscripten::fs::FileBytes;
use belljar_emscripten::{InstanceError, Program};
use parking_lot::Mutex;

use crate::error::OpenError;
use crate::image::{Image, ImageParts};
use crate::interpreter::{Interpreter, Streams};
use crate::kept_image;
use crate::libraries::CompiledLibraries;
use crate::lru::LruCache;
use crate::packages::{
    BytecodeQueue, Layers, ModulePaths, PackageSet, Preloader, SetKey, SupplyError, UnpackedWheel, WheelId, WheelTable,
    all_modules, preloadable,
};
use crate::runtime::{self, Release};

pub use opening::{CacheLimits, Options};

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

impl Python {
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
