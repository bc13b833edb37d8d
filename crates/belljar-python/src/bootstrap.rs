//! Builds the parts that every interpreter needs. Each is a cache entry, built when it is missing:
//!
//! | entry | holds | made from |
//! | --- | --- | --- |
//! | `program` | native code of CPython | `pyodide.asm.wasm`, by translation and compilation |
//! | `stdlib` | the standard library with bytecode, uncompressed | `python_stdlib.zip`, by the same CPython |
//! | `base` | the memory and files of a booted interpreter | the two above and the guest's part of Belljar |

use std::path::Path;
use std::sync::Arc;

use belljar_cache::{Cache, Entry, EntryKey, NewEntry};
use belljar_core::Progress;
use belljar_core::progress::ProgressStep;
use belljar_emscripten::console::{Capture, Console};
use belljar_emscripten::dylink::Libraries;
use belljar_emscripten::fs::{FileBytes, Filesystem, Layer, LayerBuilder};
use belljar_emscripten::program::Source;
use belljar_emscripten::translate::Options as TranslateOptions;
use belljar_emscripten::{Engine, Instance, InstanceConfig, Program};

use crate::boot::{self, EXPORTS, GUEST_PATH, SHADOW_STACK_PADDING};
use crate::c_api::{self, CApiError};
use crate::error::OpenError;
use crate::foreign_calls::FOREIGN_CALLS;
use crate::guest;
use crate::guest_protocol::GuestFunctions;
use crate::image::{self, Image, ImageKind, ImageMetadata};
use crate::libraries::CompiledLibraries;
use crate::packages::PackageSet;
use crate::runtime::{self, Release, RuntimeFile, RuntimeFiles};

const STDLIB: &str = "stdlib.zip";
const IMAGE: &str = "base.image";
/// The path of the built archive in the guest.
const BUILT_STDLIB: &str = "/tmp/stdlib.zip";
/// The maximum size of the built archive: several times the size of Pyodide's.
const MAX_STDLIB: u64 = 256 << 20;

/// A builder of the parts of a [`Python`].
pub(crate) struct RuntimeBuilder<'a> {
    pub(crate) release: &'static Release,
    pub(crate) cache: &'a Cache,
    pub(crate) engine: &'a Engine,
    pub(crate) options: &'a runtime::Options,
    pub(crate) progress: &'a dyn Progress,
}

impl RuntimeBuilder<'_> {
    fn files(&self) -> Result<RuntimeFiles, OpenError> {
        Ok(runtime::locate_or_fetch(self.release, self.options, self.cache, self.progress)?)
    }

    pub(crate) fn program(&self, libraries: &Arc<CompiledLibraries>) -> Result<Program, OpenError> {
        self.load(&self.compiled()?, libraries.clone())
    }

    /// Returns the compiled program, which may be for another platform.
    pub(crate) fn compiled(&self) -> Result<Entry, OpenError> {
        self.cache.get_or_create(&program_key(self.release, self.engine), self.progress, |new| {
            let (options, helpers) = (translate_options(), vec![boot::helper_module()]);
            let wasm = self.files()?.read(RuntimeFile::Wasm)?;
            let step = self.progress.start(ProgressStep::indeterminate("compiling CPython to native code"));
            Program::compile(self.engine, &Source { wasm: &wasm, options, helpers }, new.path())?;
            step.finish();
            Ok::<_, OpenError>(())
        })
    }

    #[expect(unsafe_code, reason = "the cache verifies the files that it returns: see below")]
    fn load(&self, entry: &Entry, libraries: Arc<dyn Libraries>) -> Result<Program, OpenError> {
        // SAFETY: `Program::compile` made the entry in `compiled` above, under a key that includes this build's
        // compiler and its input. `Cache` returns an entry only while each file has its original content: either its
        // stamp is unchanged since it was written, or its SHA-256 matches; or the entry was installed with this
        // program.
        let program = unsafe { Program::open(self.engine, entry.directory(), Some(libraries), boot::define_imports) }?;
        program.set_foreign_calls(FOREIGN_CALLS);
        Ok(program)
    }

    /// Returns the layers below the base image: the standard library and the guest package.
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
        self.cache.get_or_create(&key, self.progress, |new| self.build_stdlib(program, new))
    }

    /// Compiles the standard library with the same CPython that will run it: bytecode is specific to the version.
    fn build_stdlib(&self, program: &Program, new: &NewEntry) -> Result<(), OpenError> {
        let original = self.files()?.stdlib;
        let step = self.progress.start(ProgressStep::indeterminate("compiling the standard library to bytecode"));
        let layers = [stdlib_layer(self.release, &original)?, guest::layer(GUEST_PATH)?];
        let source = boot::stdlib_path(self.release.python);
        let request = serde_json::json!({ "source": source, "target": BUILT_STDLIB }).to_string();
        let bytes = self.build("the standard library", program, &layers, |instance| {
            let compile = c_api::import(instance, "_belljar.compile_stdlib", "compile_zip")?;
            c_api::call(instance, compile, "compile_zip", &request)?;
            Ok(instance.host_mut().files.read_file(BUILT_STDLIB, MAX_STDLIB))
        })??;
        new.write(STDLIB, &bytes)?;
        step.finish();
        Ok(())
    }

    /// Returns the cache key of the base image. The engine is not part of it: see [`Engine::snapshot_fingerprint`].
    pub(crate) fn image_key(&self, program: &Program) -> EntryKey {
        EntryKey::new("base")
            .part("snapshots", Engine::snapshot_fingerprint())
            .part("program", program.identity())
            .part("archive", self.release.stdlib.sha256)
            .part("boot", include_str!("boot.rs"))
            .part("heap", include_str!("heap.rs"))
            .part("guest", guest::digest())
    }

    /// Returns the base image, from which all other images are built.
    pub(crate) fn image(&self, program: &Program, layers: &[Arc<Layer>]) -> Result<Image, OpenError> {
        let entry = self.cache.get_or_create(&self.image_key(program), self.progress, |new| {
            let step = self.progress.start(ProgressStep::indeterminate("building the base image"));
            let file = image::create(&new.path().join(IMAGE))?;
            self.build("the base image", program, layers, |instance| {
                boot::install_host_call(instance)?;
                let mut extra_stdlib_modules = image::prepare(instance, ImageKind::Script)?;
                extra_stdlib_modules.retain(|module| !belljar_packages::inference::in_standard_library(module));
                let functions = GuestFunctions::import(instance)?;
                let metadata =
                    ImageMetadata { functions, preload_failures: Vec::new(), extra_stdlib_modules, id: String::new() };
                image::write(instance, &file, metadata, "1 + 1", ImageKind::Script)
            })?;
            step.finish();
            Ok::<_, OpenError>(())
        })?;
        Image::open(&entry.file(IMAGE)?, program, layers, PackageSet::empty())
    }

    /// Boots an interpreter on `layers` and runs `work` in it. An error includes the interpreter's output.
    fn build<T>(
        &self,
        what: &'static str,
        program: &Program,
        layers: &[Arc<Layer>],
        work: impl FnOnce(&mut Instance) -> Result<T, CApiError>,
    ) -> Result<T, OpenError> {
        let capture = Capture::default();
        let mut files = Filesystem::new(belljar_emscripten::fs::Quota::default());
        for layer in layers {
            files.add_layer(layer.clone());
        }
        let console = Console::new(Box::new(capture.clone()), Box::new(std::io::empty()), 1 << 20);
        // matplotlib renders to files: no display is available.
        let environment = ["HOME=/home", "USER=user", "PATH=/bin", "TZ=UTC", "LANG=C.UTF-8", "MPLBACKEND=agg"]
            .map(String::from)
            .to_vec();
        let setup = InstanceConfig { files, console, environment, limits: belljar_emscripten::Limits::default() };
        let failed = |error: CApiError| {
            let pieces = capture.take();
            let output: String = pieces.iter().map(|(_, bytes)| String::from_utf8_lossy(bytes)).collect();
            let output = if output.is_empty() { output } else { format!("\n{output}") };
            OpenError::Build { what, reason: error.to_string(), output }
        };
        let mut instance = program.instantiate(setup)?;
        image::observe(&mut instance);
        boot::boot(&mut instance, self.release.python).and_then(|()| work(&mut instance)).map_err(failed)
    }
}

/// Returns the options for translating CPython.
fn translate_options() -> TranslateOptions {
    TranslateOptions {
        stack_padding: SHADOW_STACK_PADDING.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect(),
        keep_exports: Some(EXPORTS.iter().map(|name| (*name).to_owned()).collect()),
        reserved_slots: 0,
        safepoints: true,
        stack_checks: true,
        inline: boot::INLINE,
    }
}

/// Returns the cache key of the program that `engine` compiles.
pub(crate) fn program_key(release: &Release, engine: &Engine) -> EntryKey {
    let (options, helpers) = (translate_options(), vec![boot::helper_module()]);
    EntryKey::new("program")
        .part("engine", engine.fingerprint())
        .part("wasm", release.wasm.sha256)
        .part("options", format!("{options:?}{helpers:?}"))
}

/// Creates a layer that holds the standard library's archive at the path where CPython looks for it.
fn stdlib_layer(release: &Release, archive: &Path) -> Result<Arc<Layer>, OpenError> {
    let bytes = FileBytes::map(archive).map_err(|error| OpenError::File { path: archive.into(), error })?;
    let mut builder = LayerBuilder::new();
    builder.file(&boot::stdlib_path(release.python), bytes)?;
    builder.directory(&boot::site_packages(release.python))?;
    Ok(builder.finish(format!("stdlib-{}", release.version)))
}
