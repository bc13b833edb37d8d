//! A CPython that is ready to run: its program compiled, its standard library in place, its images at hand.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_cache::{Cache, CacheError, EntryKey};
use belljar_core::Limits;
use belljar_core::progress::Progress;
use belljar_emscripten::dylink::LibraryError;
use belljar_emscripten::fs::Layer;
use belljar_emscripten::program::ProgramError;
use belljar_emscripten::{Engine, HardStop, InstanceError, Program};

use crate::image::Image;
use crate::interpreter::{Interpreter, Streams};
use crate::libraries::CompiledLibraries;
use crate::packages::{
    Contents, Layers, Member, OpenWheels, PackageSet, Preloader, SetKey, SupplyError, WheelLayerError, preloadable,
};
use crate::recent::Recent;
use crate::runtime::{self, Release, RuntimeError};
use crate::workshop::Workshop;

/// Where an interpreter's files come from.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Directory that holds Pyodide's files, used instead of all other places.
    pub runtime: Option<PathBuf>,
    /// The cache; `None` is the platform's.
    pub cache: Option<PathBuf>,
    /// Pyodide's version; `None` is the newest that is stable.
    pub release: Option<String>,
    /// Whether to use nothing but what is on this machine.
    pub offline: bool,
    /// How much is kept of what packages take.
    pub keep: Keep,
}

/// How much is kept of what packages take, so that the next use of the same ones finds it. What was used least recently
/// goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Images that are open in this process.
    pub images: usize,
    /// Bytes of memory in them. Interpreters map them, so that only what is touched takes memory.
    pub image_bytes: u64,
    /// Bytes of wheels, their layers, libraries and images in the cache directory.
    pub cache_bytes: u64,
}

impl Default for Keep {
    fn default() -> Self {
        Self { images: 64, image_bytes: 8 << 30, cache_bytes: 8 << 30 }
    }
}

/// Why CPython cannot be made ready.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Pyodide's files cannot be had.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// CPython cannot be translated or compiled.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// An instance of it cannot be made or restored.
    #[error(transparent)]
    Instance(#[from] InstanceError),
    /// A wheel cannot be installed.
    #[error(transparent)]
    Wheel(#[from] WheelLayerError),
    /// It does not boot or does not build its own parts.
    #[error("cannot build {what}: {reason}{output}")]
    Build {
        /// What was being built.
        what: &'static str,
        /// What went wrong.
        reason: String,
        /// What the interpreter wrote meanwhile, on lines of its own.
        output: String,
    },
    /// A file of the cache cannot be read or written.
    #[error("cannot use {path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        error: std::io::Error,
    },
}

impl From<belljar_emscripten::wasmtime::Error> for OpenError {
    fn from(error: belljar_emscripten::wasmtime::Error) -> Self {
        Self::Program(error.into())
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
    base_layers: Vec<Arc<Layer>>,
    images: Mutex<Recent<(SetKey, Vec<String>), Image>>,
    wheels: OpenWheels,
    cache: Cache,
    cache_bytes: u64,
    runtime: runtime::Options,
}

/// Kinds of the cache's entries that belong to packages. They are made, or fetched, anew when they are missing.
pub const PACKAGE_ENTRIES: &[&str] = &["image", "layer", "library", "wheel"];

impl Python {
    /// Makes CPython ready, doing what is missing of it: `progress` hears of all that takes long.
    ///
    /// Must be called on a guest thread ([`crate::on_guest_thread`]): building runs Python.
    ///
    /// # Errors
    /// When a file cannot be had, or what is built of it does not work.
    pub fn open(options: &Options, progress: &dyn Progress) -> Result<Self, OpenError> {
        let release = match &options.release {
            Some(version) => Release::find(version)?,
            None => Release::default_release(),
        };
        let cache = Cache::open(options.cache.clone())?;
        let engine = Engine::new(HardStop::default())?;
        let libraries = CompiledLibraries::new(&engine, &cache);
        let workshop = Workshop { release, cache: &cache, engine: &engine, options, progress };
        let program = workshop.program(&libraries)?;
        let base_layers = workshop.layers(&program)?;
        let base = workshop.image(&program, &base_layers)?;
        let base_key = workshop.image_key(&program);
        let images = Mutex::new(Recent::new(options.keep.images, options.keep.image_bytes));
        let cache_bytes = options.keep.cache_bytes;
        let runtime = runtime::Options { directory: options.runtime.clone(), offline: options.offline };
        let shared = Shared {
            release,
            program,
            libraries,
            base,
            base_key,
            base_layers,
            images,
            wheels: OpenWheels::default(),
            cache,
            cache_bytes,
            runtime,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A new interpreter without packages, a copy of the base image.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub fn interpreter(&self, limits: Limits, streams: Streams) -> Result<Interpreter, OpenError> {
        self.interpreter_with(&self.shared.base, limits, streams)
    }

    /// A new interpreter, a copy of `image`.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub fn interpreter_with(&self, image: &Image, limits: Limits, streams: Streams) -> Result<Interpreter, OpenError> {
        let Shared { program, base, .. } = &*self.shared;
        if image.memory_size() <= limits.memory {
            return Ok(Interpreter::restore(program, image, limits, streams)?);
        }
        // Code that has little memory may still have little use for what the image has imported.
        let mut interpreter = Interpreter::restore(program, base, limits, streams)?;
        for layer in image.packages().layers() {
            interpreter.files().add_layer(layer.clone());
        }
        Ok(interpreter)
    }

    /// The image without packages.
    pub fn base(&self) -> &Image {
        &self.shared.base
    }

    /// Whether these wheels were installed before, so that [`Python::packages`] will not ask for their files.
    ///
    /// # Errors
    /// When the cache cannot be read.
    pub fn has_packages(&self, members: &[Member]) -> Result<bool, OpenError> {
        Ok(self.layers(&belljar_core::NoProgress).have(members)?)
    }

    /// The set of these wheels. `supply` is called with those that were never installed on this machine, and answers
    /// their files; they are compiled then, which `progress` hears of.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// When `supply` fails, or a wheel cannot be installed.
    pub fn packages(
        &self,
        members: &[Member],
        supply: impl FnOnce(&[Member]) -> Result<Vec<Contents>, SupplyError>,
        progress: &dyn Progress,
    ) -> Result<PackageSet, OpenError> {
        let mut made = false;
        let set = self.layers(progress).open(members, |missing| {
            made = true;
            supply(missing)
        })?;
        if made {
            self.evict();
        }
        Ok(set)
    }

    /// The image with these packages, and with those of `imports` (dotted names of modules) imported that are theirs:
    /// from memory, else from the cache, else built.
    ///
    /// Must be called on a guest thread.
    ///
    /// # Errors
    /// When it cannot be built. A module that cannot be imported is no error: see [`Image::left_out`].
    pub fn image(&self, set: &PackageSet, imports: &[String], progress: &dyn Progress) -> Result<Image, OpenError> {
        self.image_with(set, imports, &[], progress)
    }

    /// As [`Python::image`], with the modules in `named` imported wherever they come from.
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
        let name = (set.key().clone(), modules);
        {
            let mut images = lock(&self.shared.images);
            if self.shared.libraries.have_improved() {
                // Opened again, they have the better code.
                images.clear();
            }
            if let Some(image) = images.get(&name) {
                return Ok(image);
            }
        }
        let (image, made) = self.preloader(progress).image(set, &name.1)?;
        if made {
            self.evict();
        }
        let weight = image.memory_size();
        lock(&self.shared.images).insert(name, image.clone(), weight);
        Ok(image)
    }

    pub(crate) fn preloader<'a>(&'a self, progress: &'a dyn Progress) -> Preloader<'a> {
        let Shared { program, base, base_key, base_layers, cache, .. } = &*self.shared;
        Preloader { cache, program, base, base_key, base_layers, progress }
    }

    pub(crate) fn program(&self) -> &Program {
        &self.shared.program
    }

    pub(crate) fn base_key(&self) -> &EntryKey {
        &self.shared.base_key
    }

    /// Compiles with all effort what of packages was compiled quickly, which otherwise happens in the background of a process
    /// that lives for a while.
    ///
    /// # Errors
    /// When a library cannot be compiled, or the cache cannot be written.
    pub fn improve_libraries(&self, progress: &dyn Progress) -> Result<(), LibraryError> {
        self.shared.libraries.improve_now(progress)
    }

    /// The layers of an interpreter with the wheels of `set`.
    pub(crate) fn layers_with(&self, set: &PackageSet) -> Vec<Arc<Layer>> {
        self.shared.base_layers.iter().chain(set.layers()).cloned().collect()
    }

    /// Names what runs: `Python 3.14 (Pyodide 314.0.7)`.
    pub fn description(&self) -> String {
        let (major, minor) = self.shared.release.python;
        format!("Python {major}.{minor} (Pyodide {})", self.shared.release.version)
    }

    /// The cache that holds what was downloaded and built.
    pub fn cache(&self) -> &Cache {
        &self.shared.cache
    }

    pub(crate) fn release(&self) -> &'static Release {
        self.shared.release
    }

    /// Where the release's `pyodide-lock.json` is.
    pub(crate) fn lock_file(&self, progress: &dyn Progress) -> Result<PathBuf, OpenError> {
        let Shared { release, runtime, cache, .. } = &*self.shared;
        Ok(runtime::obtain_lock(release, runtime, cache, progress)?)
    }

    /// The directory that holds what was downloaded and built.
    pub fn cache_directory(&self) -> &Path {
        self.shared.cache.root()
    }

    fn layers<'a>(&'a self, progress: &'a dyn Progress) -> Layers<'a> {
        let Shared { wheels, cache, program, base, libraries, .. } = &*self.shared;
        Layers { open: wheels, cache, program, base, libraries, progress }
    }

    /// Makes room in the cache, after something was added to it.
    fn evict(&self) {
        if let Err(error) = self.shared.cache.evict(PACKAGE_ENTRIES, self.shared.cache_bytes) {
            tracing::warn!(%error, "no room can be made in the cache");
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
