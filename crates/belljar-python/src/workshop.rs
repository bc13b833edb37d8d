//! The parts that every interpreter needs, each a cache entry of its own, made when it is missing:
//!
//! | entry | holds | made from |
//! | --- | --- | --- |
//! | `program` | native code of CPython | `pyodide.asm.wasm`, by translation and compilation |
//! | `stdlib` | the standard library with bytecode, uncompressed | `python_stdlib.zip`, by that very CPython |
//! | `base` | the memory and files of a booted interpreter | the two above and the guest's part of Belljar |

use std::path::Path;
use std::sync::Arc;

use belljar_cache::{Cache, Entry, EntryKey, NewEntry};
use belljar_core::progress::{Progress, Step};
use belljar_emscripten::console::{Capture, Console};
use belljar_emscripten::dylink::Libraries;
use belljar_emscripten::fs::{FileBytes, FileError, Filesystem, Layer, LayerBuilder, LayerError};
use belljar_emscripten::program::Source;
use belljar_emscripten::translate::Options as TranslateOptions;
use belljar_emscripten::{Engine, Instance, Program, Setup};

use crate::boot::{self, BALLAST, EXPORTS, GUEST_PATH};
use crate::guest;
use crate::image::{self, Extra, Image, Runs};
use crate::interop::{self, InteropError};
use crate::interpreter::Functions;
use crate::libraries::CompiledLibraries;
use crate::packages::PackageSet;
use crate::python::{OpenError, Options};
use crate::runtime::{self, Release, RuntimeFile, RuntimeFiles};

const STDLIB: &str = "stdlib.zip";
const IMAGE: &str = "base.image";
/// Where the build puts what it makes, in the guest.
const BUILT_STDLIB: &str = "/tmp/stdlib.zip";
/// A standard library several times the size of Pyodide's is none.
const MAX_STDLIB: u64 = 256 << 20;

/// Makes the parts of a [`Python`].
pub(crate) struct Workshop<'a> {
    pub(crate) release: &'static Release,
    pub(crate) cache: &'a Cache,
    pub(crate) engine: &'a Engine,
    pub(crate) options: &'a Options,
    pub(crate) progress: &'a dyn Progress,
}

impl Workshop<'_> {
    fn files(&self) -> Result<RuntimeFiles, OpenError> {
        let options = runtime::Options { directory: self.options.runtime.clone(), offline: self.options.offline };
        Ok(runtime::obtain(self.release, &options, self.cache, self.progress)?)
    }

    pub(crate) fn program(&self, libraries: &Arc<CompiledLibraries>) -> Result<Program, OpenError> {
        let options = TranslateOptions {
            ballast: BALLAST.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect(),
            keep_exports: Some(EXPORTS.iter().map(|name| (*name).to_owned()).collect()),
            reserved_slots: 0,
            safepoints: true,
            inline: boot::INLINE,
        };
        let residents = vec![boot::resident()];
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
        self.load(&entry, libraries.clone())
    }

    #[expect(unsafe_code, reason = "the cache vouches for the files it hands out: see below")]
    fn load(&self, entry: &Entry, libraries: Arc<dyn Libraries>) -> Result<Program, OpenError> {
        // SAFETY: the entry was made by `Program::compile` in `program` above, under a key that names this build's
        // compiler and its input. `Cache` hands an entry out only while each file is what was written: its stamp is
        // the one noted then, or else its SHA-256 is.
        Ok(unsafe { Program::open(self.engine, entry.directory(), Some(libraries), boot::define_imports) }?)
    }

    /// The layers that the base image stands on: the standard library, and the guest's part of Belljar.
    pub(crate) fn layers(&self, program: &Program) -> Result<Vec<Arc<Layer>>, OpenError> {
        let stdlib = self.stdlib(program)?.file(STDLIB)?;
        Ok(vec![stdlib_layer(self.release, &stdlib)?, guest::layer(GUEST_PATH)?])
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

    /// What the base image is known by.
    pub(crate) fn image_key(&self, program: &Program) -> EntryKey {
        EntryKey::new("base")
            .part("program", program.identity())
            .part("archive", self.release.stdlib.sha256)
            .part("boot", include_str!("boot.rs"))
            .part("guest", guest::digest())
    }

    /// The image that every other begins with.
    pub(crate) fn image(&self, program: &Program, layers: &[Arc<Layer>]) -> Result<Image, OpenError> {
        let entry = self.cache.get_or_make(&self.image_key(program), self.progress, |new| {
            let step = self.progress.start(Step::unmeasured("building the base image"));
            let file = image::create(&new.path().join(IMAGE))?;
            let id = image::new_id()?;
            self.build("the base image", program, layers, |instance| {
                boot::install_host_call(instance)?;
                let mut further_modules = image::prepare(instance, Runs::Programs)?;
                further_modules.retain(|module| !belljar_packages::needs::in_standard_library(module));
                let functions = Functions::import(instance)?;
                let extra = Extra { functions, left_out: Vec::new(), further_modules, id: id.clone() };
                image::write(instance, &file, &extra, "1 + 1", Runs::Programs)
            })?;
            step.finish();
            Ok::<_, OpenError>(())
        })?;
        Image::open(&entry.file(IMAGE)?, program, layers, PackageSet::none())
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
        // matplotlib draws into files: there is no window.
        let environment =
            ["HOME=/home", "PATH=/bin", "TZ=UTC", "LANG=C.UTF-8", "MPLBACKEND=agg"].map(String::from).to_vec();
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
