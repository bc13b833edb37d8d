//! A compiled program: translated, compiled and written to a directory once, opened by every process after that.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wasmtime::{Instance as WasmInstance, InstancePre, Linker, Module, Store};

use crate::dylink::Libraries;
use crate::engine::{Effort, Engine, hex};
use crate::host::{Host, Termination};
use crate::instance::{Instance, InstanceError, Setup};
use crate::memory::{MemoryImage, WASM_PAGE};
use crate::snapshot::Snapshot;
use crate::syscall;
use crate::translate::{self, Options, Segment, Symbols, TranslateError};

/// The main module, compiled.
const CODE: &str = "program.cwasm";
/// What to know before instantiating it.
const DESCRIPTION: &str = "program.description";
/// Its exported names; read at the first dynamic linking only.
const SYMBOLS: &str = "program.symbols";
/// What its memory holds before any of its code has run.
const MEMORY: &str = "program.memory";

/// Exports that host functions call often. Others are found through [`Program::symbols`], which takes reading a file.
const MACHINE_EXPORTS: [&str; 5] = ["__stack_pointer", "emscripten_builtin_memalign", "free", "malloc", "memset"];

/// A small module that belongs to every instance, with its functions in table slots of their own.
///
/// It may import `env.memory` and `env.__indirect_function_table`, the main module's, and functions of the host. To
/// export such a function is to give it a slot.
#[derive(Debug, Clone)]
pub struct Resident {
    /// Its text or binary form.
    pub module: Vec<u8>,
    /// The exported functions to put into slots, in order.
    pub exports: Vec<String>,
}

/// What a program is compiled from.
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// The main module's binary, as Emscripten's linker wrote it (`-sMAIN_MODULE`).
    pub wasm: &'a [u8],
    /// How to translate it. `reserved_slots` is set to what the residents need.
    pub options: Options,
    /// Modules to live beside it.
    pub residents: Vec<Resident>,
}

/// Why a program cannot be compiled or opened.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The module is not one that this host runs.
    #[error("cannot translate the program: {0}")]
    Translate(#[from] TranslateError),
    /// wasmtime refused the module, or its compiled form.
    #[error("cannot compile or load the program: {0:#}")]
    Engine(wasmtime::Error),
    /// A file could not be read or written.
    #[error("cannot use {path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// What happened.
        error: std::io::Error,
    },
    /// The files belong to another build of this library or another processor.
    #[error("{path} was made by another build; remove it and compile the program again")]
    OtherBuild {
        /// The directory.
        path: PathBuf,
    },
    /// The module has no memory, table or export that it must have.
    #[error("the program has no usable `{0}`: is it an Emscripten main module?")]
    Missing(String),
}

impl From<wasmtime::Error> for ProgramError {
    fn from(error: wasmtime::Error) -> Self {
        Self::Engine(error)
    }
}

#[derive(Serialize, Deserialize)]
struct Description {
    fingerprint: String,
    identity: String,
    memory_pages: u64,
    reserved: u32,
    /// Per resident, its exports.
    residents: Vec<Vec<String>>,
}

/// A program, ready to be instantiated or restored. Cheap to clone.
#[derive(Clone)]
pub struct Program {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine,
    main: InstancePre<Host>,
    linker: Arc<Linker<Host>>,
    residents: Vec<(Module, Vec<String>)>,
    description: Description,
    directory: PathBuf,
    symbols: OnceLock<Arc<Symbols>>,
    libraries: Option<Arc<dyn Libraries>>,
}

impl Program {
    /// Translates and compiles `source` and writes the result into `directory`, which must exist.
    ///
    /// # Errors
    /// When the module cannot be translated or compiled, or a file cannot be written.
    pub fn compile(engine: &Engine, source: &Source<'_>, directory: &Path) -> Result<(), ProgramError> {
        let mut options = source.options.clone();
        let slots: usize = source.residents.iter().map(|resident| resident.exports.len()).sum();
        options.reserved_slots =
            u32::try_from(slots).map_err(|_| ProgramError::Missing("room for residents".into()))?;
        if let Some(keep) = &mut options.keep_exports {
            keep.extend(MACHINE_EXPORTS.map(String::from));
        }
        let translated = translate::translate(source.wasm, &options)?;
        let mut identity = Sha256::new();
        identity.update(engine.fingerprint());
        identity.update(&translated.wasm);
        let code = engine.compile(Effort::Full, &translated.wasm)?;
        let memory_pages = memory_pages(engine, &code)?;
        write(directory, CODE, &code)?;
        for (number, resident) in source.residents.iter().enumerate() {
            let module = wat::parse_bytes(&resident.module).map_err(wasmtime::Error::from)?;
            identity.update(&module);
            write(directory, &resident_file(number), &engine.compile(Effort::Full, &module)?)?;
        }
        write_memory(directory, &translated.segments, memory_pages)?;
        write(directory, SYMBOLS, &encode(&translated.symbols)?)?;
        let description = Description {
            fingerprint: engine.fingerprint(),
            identity: hex(&identity.finalize()[..16]),
            memory_pages,
            reserved: translated.reserved,
            residents: source.residents.iter().map(|resident| resident.exports.clone()).collect(),
        };
        write(directory, DESCRIPTION, &encode(&description)?)
    }

    /// Opens what [`Program::compile`] wrote.
    ///
    /// `extend` adds the imports that this crate does not know; what is still missing then becomes a trap that
    /// names the import. `libraries` compiles the side modules that the program may load.
    ///
    /// # Safety
    /// The files in `directory` must be exactly those that [`Program::compile`] wrote: they hold native code.
    ///
    /// # Errors
    /// When a file is missing or was made by another build.
    pub unsafe fn open(
        engine: &Engine,
        directory: &Path,
        libraries: Option<Arc<dyn Libraries>>,
        extend: impl FnOnce(&mut Linker<Host>) -> wasmtime::Result<()>,
    ) -> Result<Self, ProgramError> {
        let description: Description = decode(directory, DESCRIPTION)?;
        if description.fingerprint != engine.fingerprint() {
            return Err(ProgramError::OtherBuild { path: directory.into() });
        }
        let load = |file: &str| {
            // SAFETY: the caller vouches for the files.
            unsafe { Module::deserialize_file(engine.wasmtime(), directory.join(file)) }
        };
        let module = load(CODE)?;
        let residents = description
            .residents
            .iter()
            .enumerate()
            .map(|(number, exports)| Ok((load(&resident_file(number))?, exports.clone())))
            .collect::<wasmtime::Result<_>>()?;
        let mut linker = Linker::new(engine.wasmtime());
        syscall::define(&mut linker)?;
        syscall::fit(&mut linker, &module)?;
        extend(&mut linker)?;
        define_missing(&mut linker, &module)?;
        let main = linker.instantiate_pre(&module)?;
        let shared = Shared {
            engine: engine.clone(),
            main,
            linker: Arc::new(linker),
            residents,
            description,
            directory: directory.into(),
            symbols: OnceLock::new(),
            libraries,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A new instance, none of whose code has run.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub fn instantiate(&self, setup: Setup) -> Result<Instance, InstanceError> {
        let path = self.shared.directory.join(MEMORY);
        let length = self.shared.description.memory_pages * WASM_PAGE as u64;
        let image = fs::File::open(&path)
            .and_then(|file| MemoryImage::new(file, 0, length))
            .map_err(|error| InstanceError::File { path, error })?;
        Instance::new(self, &image, setup)
    }

    /// A copy of the instance that `snapshot` was taken of.
    ///
    /// # Errors
    /// When the snapshot is of another program or build, or memory cannot be had.
    pub fn restore(&self, snapshot: &Snapshot, setup: Setup) -> Result<Instance, InstanceError> {
        snapshot.restore(self, setup)
    }

    /// Tells this program, as compiled by this build, from all others: snapshots fit where it is equal.
    pub fn identity(&self) -> &str {
        &self.shared.description.identity
    }

    /// The engine that compiled the program.
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// The names that the program offers to libraries.
    ///
    /// # Errors
    /// When their file cannot be read.
    pub fn symbols(&self) -> Result<Arc<Symbols>, ProgramError> {
        if let Some(symbols) = self.shared.symbols.get() {
            return Ok(symbols.clone());
        }
        let symbols = Arc::new(decode(&self.shared.directory, SYMBOLS)?);
        Ok(self.shared.symbols.get_or_init(|| symbols).clone())
    }

    pub(crate) fn linker(&self) -> &Arc<Linker<Host>> {
        &self.shared.linker
    }

    pub(crate) fn libraries(&self) -> Option<&Arc<dyn Libraries>> {
        self.shared.libraries.as_ref()
    }

    pub(crate) fn memory_pages(&self) -> u64 {
        self.shared.description.memory_pages
    }

    pub(crate) fn instantiate_main(&self, store: &mut Store<Host>) -> wasmtime::Result<WasmInstance> {
        self.shared.main.instantiate(store)
    }

    /// The residents' modules with their exports, and the table slot of the first export.
    pub(crate) fn residents(&self) -> (&[(Module, Vec<String>)], u32) {
        (&self.shared.residents, self.shared.description.reserved)
    }
}

/// Makes every import that nobody serves a trap that names it.
fn define_missing(linker: &mut Linker<Host>, module: &Module) -> wasmtime::Result<()> {
    let shadowing = linker.clone();
    let mut probe = Store::new(module.engine(), Host::empty());
    for import in module.imports() {
        let Some(ty) = import.ty().func().cloned() else { continue };
        if shadowing.get_by_import(&mut probe, &import).is_none() {
            let name = format!("{}.{}", import.module(), import.name());
            linker.func_new(import.module(), import.name(), ty, move |_, _, _| {
                Err(Termination::Unsupported(name.clone()).into())
            })?;
        }
    }
    Ok(())
}

/// Pages that the main module's memory starts with.
fn memory_pages(engine: &Engine, code: &[u8]) -> Result<u64, ProgramError> {
    // SAFETY: the bytes come straight from `precompile_module` of the same engine.
    let module = unsafe { Module::deserialize(engine.wasmtime(), code) }?;
    let memory = module.exports().find(|export| export.name() == "memory").and_then(|e| e.ty().memory().cloned());
    Ok(memory.ok_or_else(|| ProgramError::Missing("memory".into()))?.minimum())
}

fn write_memory(directory: &Path, segments: &[Segment], pages: u64) -> Result<(), ProgramError> {
    use std::os::unix::fs::FileExt;
    let path = directory.join(MEMORY);
    let length = pages * WASM_PAGE as u64;
    let fill = || {
        let file = fs::File::create_new(&path)?;
        file.set_len(length)?;
        for segment in segments {
            if u64::from(segment.offset) + segment.bytes.len() as u64 > length {
                return Err(std::io::Error::other("a data segment lies outside of memory"));
            }
            file.write_all_at(&segment.bytes, segment.offset.into())?;
        }
        Ok(())
    };
    fill().map_err(|error| ProgramError::File { path: path.clone(), error })
}

fn resident_file(number: usize) -> String {
    format!("resident-{number}.cwasm")
}

fn write(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), ProgramError> {
    let path = directory.join(name);
    fs::write(&path, bytes).map_err(|error| ProgramError::File { path, error })
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, ProgramError> {
    postcard::to_stdvec(value).map_err(|error| ProgramError::Engine(error.into()))
}

fn decode<T: for<'de> Deserialize<'de>>(directory: &Path, name: &str) -> Result<T, ProgramError> {
    let path = directory.join(name);
    let bytes = fs::read(&path).map_err(|error| ProgramError::File { path: path.clone(), error })?;
    postcard::from_bytes(&bytes).map_err(|_| ProgramError::OtherBuild { path })
}
