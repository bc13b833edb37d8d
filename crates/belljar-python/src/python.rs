//! A CPython that is ready to run: its program compiled, its standard library in place, its base image built.
//!
//! Each of the three is a cache entry of its own, made when it is missing:
//!
//! | entry | holds | made from |
//! | --- | --- | --- |
//! | `program` | native code of CPython | `pyodide.asm.wasm`, by translation and compilation |
//! | `stdlib` | the standard library with bytecode, uncompressed | `python_stdlib.zip`, by that very CPython |
//! | `image` | the memory and files of a booted interpreter | the two above and the guest's part of Belljar |

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_cache::{Cache, CacheError, Entry, EntryKey, NewEntry};
use belljar_core::Limits;
use belljar_core::progress::{Progress, Step};
use belljar_emscripten::console::{Capture, Console};
use belljar_emscripten::fs::{FileBytes, FileError, Filesystem, Layer, LayerBuilder, LayerError};
use belljar_emscripten::program::{ProgramError, Source};
use belljar_emscripten::translate::Options as TranslateOptions;
use belljar_emscripten::{Engine, HardStop, Instance, InstanceError, Program, Setup, Snapshot};

use crate::boot::{self, BALLAST, EXPORTS, GUEST_PATH};
use crate::guest;
use crate::interop::{self, InteropError};
use crate::interpreter::{Functions, Interpreter, Streams};
use crate::runtime::{self, Release, RuntimeError, RuntimeFile, RuntimeFiles};

const STDLIB: &str = "stdlib.zip";
const IMAGE: &str = "base.image";
/// Where the build puts what it makes, in the guest.
const BUILT_STDLIB: &str = "/tmp/stdlib.zip";
/// A standard library several times the size of Pyodide's is none.
const MAX_STDLIB: u64 = 256 << 20;

/// Reference count of an immortal object: `_Py_IMMORTAL_INITIAL_REFCNT` of CPython where pointers have 32 bits.
const IMMORTAL: u32 = 5 << 28;

/// What the guest answers when it has made itself ready to be copied.
#[derive(serde::Deserialize)]
struct Prepared {
    /// Addresses of objects that are to live as long as the interpreter. Counting references to them would make
    /// each copy write to, and so own, the pages that they lie on.
    immortals: Vec<u32>,
}

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
    image: Snapshot,
    functions: Functions,
    cache: Cache,
}

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
        let workshop = Workshop { release, cache: &cache, engine: &engine, options, progress };
        let program = workshop.program()?;
        let stdlib = workshop.stdlib(&program)?;
        let layers = [stdlib_layer(release, &stdlib.file(STDLIB)?)?, guest::layer(GUEST_PATH)?];
        let image = workshop.image(&program, &layers)?.file(IMAGE)?;
        let file = File::open(&image).map_err(|error| OpenError::File { path: image, error })?;
        let image = Snapshot::open(file, &program, &layers)?;
        let functions = serde_json::from_slice(image.extra())
            .map_err(|_| InstanceError::Snapshot("it was made by another build of belljar".into()))?;
        Ok(Self { shared: Arc::new(Shared { release, program, image, functions, cache }) })
    }

    /// A new interpreter, a copy of the base image.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub fn interpreter(&self, limits: Limits, streams: Streams) -> Result<Interpreter, OpenError> {
        let Shared { program, image, functions, .. } = &*self.shared;
        Ok(Interpreter::restore(program, image, *functions, limits, streams)?)
    }

    /// Names what runs: `Python 3.14 (Pyodide 314.0.7)`.
    pub fn description(&self) -> String {
        let (major, minor) = self.shared.release.python;
        format!("Python {major}.{minor} (Pyodide {})", self.shared.release.version)
    }

    /// The directory that holds what was downloaded and built.
    pub fn cache_directory(&self) -> &Path {
        self.shared.cache.root()
    }
}

/// Makes the parts of a [`Python`].
struct Workshop<'a> {
    release: &'static Release,
    cache: &'a Cache,
    engine: &'a Engine,
    options: &'a Options,
    progress: &'a dyn Progress,
}

impl Workshop<'_> {
    fn files(&self) -> Result<RuntimeFiles, OpenError> {
        let options = runtime::Options { directory: self.options.runtime.clone(), offline: self.options.offline };
        Ok(runtime::obtain(self.release, &options, self.cache, self.progress)?)
    }

    fn program(&self) -> Result<Program, OpenError> {
        let options = TranslateOptions {
            ballast: BALLAST.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect(),
            keep_exports: Some(EXPORTS.iter().map(|name| (*name).to_owned()).collect()),
            reserved_slots: 0,
            safepoints: true,
            inline: boot::INLINE,
        };
        let residents = vec![boot::trampoline()];
        let key = EntryKey::new("program")
            .part("engine", self.engine.fingerprint())
            .part("wasm", self.release.wasm.sha256)
            .part("options", format!("{options:?}{residents:?}"));
        let entry = self.cache.get_or_make(&key, self.progress, |new| {
            let wasm = self.files()?.read(RuntimeFile::Wasm)?;
            let step = self.progress.start(Step::unmeasured("compiling CPython to native code"));
            Program::compile(self.engine, &Source { wasm: &wasm, options, residents }, new.path())?;
            step.finish();
            Ok::<_, OpenError>(())
        })?;
        self.load(&entry)
    }

    #[expect(unsafe_code, reason = "the cache vouches for the files it hands out: see below")]
    fn load(&self, entry: &Entry) -> Result<Program, OpenError> {
        // SAFETY: the entry was made by `Program::compile` in `program` above, under a key that names this build's
        // compiler and its input. `Cache` hands an entry out only while each file is what was written: its stamp is
        // the one noted then, or else its SHA-256 is.
        Ok(unsafe { Program::open(self.engine, entry.directory(), None, boot::define_imports) }?)
    }

    fn stdlib(&self, program: &Program) -> Result<Entry, OpenError> {
        let key = EntryKey::new("stdlib")
            .part("program", program.identity())
            .part("archive", self.release.stdlib.sha256)
            .part("boot", include_str!("boot.rs"))
            .part("guest", guest::digest());
        self.cache.get_or_make(&key, self.progress, |new| self.build_stdlib(program, new))
    }

    /// Has CPython compile its own standard library: bytecode is only good for the very version that made it.
    fn build_stdlib(&self, program: &Program, new: &NewEntry) -> Result<(), OpenError> {
        let original = self.files()?.stdlib;
        let step = self.progress.start(Step::unmeasured("compiling the standard library to bytecode"));
        let layers = [stdlib_layer(self.release, &original)?, guest::layer(GUEST_PATH)?];
        let source = boot::stdlib_path(self.release.python);
        let request = serde_json::json!({ "source": source, "target": BUILT_STDLIB }).to_string();
        let bytes = self.build("the standard library", program, &layers, |instance| {
            let compile = interop::import(instance, "_belljar.build", "compile_zip")?;
            interop::call(instance, compile, "compile_zip", &request)?;
            Ok(instance.host_mut().files.read_file(BUILT_STDLIB, MAX_STDLIB))
        })??;
        new.write(STDLIB, &bytes)?;
        step.finish();
        Ok(())
    }

    fn image(&self, program: &Program, layers: &[Arc<Layer>]) -> Result<Entry, OpenError> {
        let key = EntryKey::new("image")
            .part("program", program.identity())
            .part("archive", self.release.stdlib.sha256)
            .part("boot", include_str!("boot.rs"))
            .part("guest", guest::digest());
        self.cache.get_or_make(&key, self.progress, |new| {
            let step = self.progress.start(Step::unmeasured("building the base image"));
            let path = new.path().join(IMAGE);
            let file = File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path)
                .map_err(|error| CacheError::writing(&path, None, error))?;
            self.build("the base image", program, layers, |instance| {
                let prepare = interop::import(instance, "_belljar", "prepare")?;
                let answer = interop::call(instance, prepare, "prepare", "{}")?;
                let prepared: Prepared =
                    serde_json::from_str(&answer).map_err(|_| InteropError::Raised(format!("prepare: {answer}")))?;
                for object in prepared.immortals {
                    instance.memory().write_u32(object, IMMORTAL)?;
                }
                let functions = Functions::import(instance)?;
                let extra = serde_json::to_vec(&functions).unwrap_or_default();
                Ok(instance.snapshot(&file, extra))
            })??;
            step.finish();
            Ok(())
        })
    }

    /// Boots an interpreter on `layers` and has it do `work`; its output becomes part of the error, if any.
    fn build<T>(
        &self,
        what: &'static str,
        program: &Program,
        layers: &[Arc<Layer>],
        work: impl FnOnce(&mut Instance) -> Result<T, InteropError>,
    ) -> Result<T, OpenError> {
        let capture = Capture::default();
        let mut files = Filesystem::new(belljar_emscripten::fs::Quota::default());
        for layer in layers {
            files.add_layer(layer.clone());
        }
        let console = Console::new(Box::new(capture.clone()), Box::new(std::io::empty()), 1 << 20);
        let environment = ["HOME=/home", "PATH=/bin", "TZ=UTC", "LANG=C.UTF-8"].map(String::from).to_vec();
        let setup = Setup { files, console, environment, limits: belljar_emscripten::Limits::default() };
        let failed = |error: InteropError| {
            let pieces = capture.take();
            let output: String = pieces.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes)).collect();
            let output = if output.is_empty() { output } else { format!("\n{output}") };
            OpenError::Build { what, reason: error.to_string(), output }
        };
        let mut instance = program.instantiate(setup)?;
        boot::boot(&mut instance, self.release.python).and_then(|()| work(&mut instance)).map_err(failed)
    }
}

/// A layer that holds the standard library's archive where CPython looks for it.
fn stdlib_layer(release: &Release, archive: &Path) -> Result<Arc<Layer>, OpenError> {
    let bytes = FileBytes::map(archive).map_err(|error| OpenError::File { path: archive.into(), error })?;
    let mut builder = LayerBuilder::new();
    builder.file(&boot::stdlib_path(release.python), bytes)?;
    builder.directory(&boot::site_packages(release.python))?;
    Ok(builder.finish(format!("stdlib-{}", release.version)))
}

impl From<LayerError> for OpenError {
    fn from(error: LayerError) -> Self {
        Self::Build { what: "the file system", reason: error.to_string(), output: String::new() }
    }
}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        Self::Build { what: "the standard library", reason: error.to_string(), output: String::new() }
    }
}
