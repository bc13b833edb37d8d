//! A compiled program: translated, compiled and written to a directory once, and opened from there by later processes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::{fmt, fs};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wasmtime::{Instance as WasmInstance, InstancePre, Linker, Module, Store};

use crate::dylink::Libraries;
use crate::engine::{CompileTier, Engine};
use crate::ffi::{ForeignCalls, variadic_slots};
use crate::host::Host;
use crate::memory::WASM_PAGE;
use crate::syscall;
use crate::termination::Termination;
use crate::translate::{self, Options, Segment, Symbol, Symbols, TranslateError};
use crate::versions::SNAPSHOT_VERSION;

/// The compiled main module.
const CODE: &str = "program.cwasm";
/// The [`Description`] of the program.
const DESCRIPTION: &str = "program.description";
/// The exported names; read only at the first dynamic linking.
const SYMBOLS: &str = "program.symbols";
/// The initial contents of linear memory.
const MEMORY: &str = "program.memory";

/// Exports that host functions call often. Other exports are found through [`Program::symbols`], which reads a file.
const MACHINE_EXPORTS: [&str; 6] =
    ["__stack_low", "__stack_pointer", "emscripten_builtin_memalign", "free", "malloc", "memset"];

/// A small module that is instantiated with every instance and whose functions have their own table slots.
///
/// It may import the main module's `env.memory` and `env.__indirect_function_table`, and functions of the host.
/// Exporting such a host function gives it a slot.
#[derive(Clone)]
pub struct HelperModule {
    /// The module in binary form.
    pub module: Vec<u8>,
    /// The exported functions to put into slots, in order.
    pub exports: Vec<String>,
}

/// Prints the text that is part of the keys of cached programs: it must not change.
impl fmt::Debug for HelperModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { module, exports } = self;
        f.debug_struct("Resident").field("module", module).field("exports", exports).finish()
    }
}

/// The input of [`Program::compile`].
#[derive(Debug, Clone)]
pub struct Source<'a> {
    /// The main module's binary, as Emscripten's linker wrote it (`-sMAIN_MODULE`).
    pub wasm: &'a [u8],
    /// Translation options. `reserved_slots` is set to the number of slots that the helper modules need.
    pub options: Options,
    /// The helper modules.
    pub helpers: Vec<HelperModule>,
}

/// An error in compiling or opening a program.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The module is not of the kind that this host runs.
    #[error("failed to translate the program: {0}")]
    Translate(#[from] TranslateError),
    /// wasmtime refused the module, or its compiled form.
    #[error("failed to compile or load the program: {0:#}")]
    Engine(wasmtime::Error),
    /// A file could not be read or written.
    #[error("failed to access {path}: {error}")]
    File {
        /// The path of the file.
        path: PathBuf,
        /// The underlying I/O error.
        error: std::io::Error,
    },
    /// The files were written by another build of this library or for another processor.
    #[error("{path} was written by another build")]
    OtherBuild {
        /// The directory.
        path: PathBuf,
    },
    /// The module lacks a required memory, table or export.
    #[error("the program lacks a usable `{0}`")]
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
    /// The exports of each helper module.
    helpers: Vec<Vec<String>>,
}

/// A program that can be instantiated or restored. Cheap to clone.
#[derive(Clone)]
pub struct Program {
    shared: Arc<Shared>,
}

struct Shared {
    engine: Engine,
    main: InstancePre<Host>,
    linker: Arc<Linker<Host>>,
    helpers: Vec<(Module, Vec<String>)>,
    description: Description,
    directory: PathBuf,
    symbols: OnceLock<Arc<Symbols>>,
    /// The file of the symbols and its length, if it was opened beforehand.
    symbols_file: OnceLock<(fs::File, usize)>,
    foreign_calls: OnceLock<ForeignCalls>,
    /// The slots of variadic functions, once a function was called through libffi.
    variadic: OnceLock<BTreeSet<u32>>,
    libraries: Option<Arc<dyn Libraries>>,
}

impl Program {
    /// Translates and compiles `source` and writes the result into `directory`, which must exist. An engine of another
    /// platform ([`Engine::for_target`]) writes files for that platform.
    ///
    /// # Errors
    /// Fails if the module cannot be translated or compiled, or if a file cannot be written.
    pub fn compile(engine: &Engine, source: &Source<'_>, directory: &Path) -> Result<(), ProgramError> {
        let mut options = source.options.clone();
        let slots: usize = source.helpers.iter().map(|helper| helper.exports.len()).sum();
        options.reserved_slots =
            u32::try_from(slots).map_err(|_| ProgramError::Missing("slots for helper modules".into()))?;
        if let Some(keep) = &mut options.keep_exports {
            keep.extend(MACHINE_EXPORTS.map(String::from));
        }
        let translated = translate::translate(source.wasm, &options)?;
        // Neither the engine nor the processor is part of it: the state of an instance does not depend on them.
        let mut identity = Sha256::new();
        identity.update(SNAPSHOT_VERSION.to_le_bytes());
        identity.update(&translated.wasm);
        for segment in &translated.segments {
            identity.update(segment.offset.to_le_bytes());
            identity.update(&segment.bytes);
        }
        let memory_pages = memory_pages(&translated.wasm)?;
        write(directory, CODE, &engine.compile(CompileTier::Optimized, &translated.wasm)?)?;
        for (number, helper) in source.helpers.iter().enumerate() {
            identity.update(&helper.module);
            write(directory, &helper_file(number), &engine.compile(CompileTier::Optimized, &helper.module)?)?;
        }
        write_memory(directory, &translated.segments, memory_pages)?;
        write(directory, SYMBOLS, &encode(&translated.symbols)?)?;
        let description = Description {
            fingerprint: engine.fingerprint(),
            identity: hex::encode(&identity.finalize()[..16]),
            memory_pages,
            reserved: translated.reserved,
            helpers: source.helpers.iter().map(|helper| helper.exports.clone()).collect(),
        };
        write(directory, DESCRIPTION, &encode(&description)?)
    }

    /// Opens the files that [`Program::compile`] wrote.
    ///
    /// `extend` adds the imports that this crate does not define; calling an import that is still missing traps with an
    /// error that names it. `libraries` compiles the side modules that the program may load.
    ///
    /// # Safety
    /// The files in `directory` must be exactly those that [`Program::compile`] wrote: they contain native code.
    ///
    /// # Errors
    /// Fails if a file is missing or was written by another build.
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
            // SAFETY: the caller guarantees that the files are those that `compile` wrote.
            unsafe { Module::deserialize_file(engine.wasmtime(), directory.join(file)) }
        };
        let module = load(CODE)?;
        let helpers = description
            .helpers
            .iter()
            .enumerate()
            .map(|(number, exports)| Ok((load(&helper_file(number))?, exports.clone())))
            .collect::<wasmtime::Result<_>>()?;
        let mut linker = Linker::new(engine.wasmtime());
        syscall::define(&mut linker)?;
        syscall::adapt_signatures(&mut linker, &module)?;
        extend(&mut linker)?;
        trap_missing_imports(&mut linker, &module)?;
        let main = linker.instantiate_pre(&module)?;
        let shared = Shared {
            engine: engine.clone(),
            main,
            linker: Arc::new(linker),
            helpers,
            description,
            directory: directory.into(),
            symbols: OnceLock::new(),
            symbols_file: OnceLock::new(),
            foreign_calls: OnceLock::new(),
            variadic: OnceLock::new(),
            libraries,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Sets the embedder's part in calls through libffi. Without it an invalid call ends the program, and only
    /// functions of the C library are known to be variadic. The first setting is kept.
    pub fn set_foreign_calls(&self, foreign_calls: ForeignCalls) {
        self.shared.foreign_calls.get_or_init(|| foreign_calls);
    }

    pub(crate) fn foreign_calls(&self) -> Option<ForeignCalls> {
        self.shared.foreign_calls.get().copied()
    }

    /// Returns whether the main module's function in this table slot is known to take variable arguments.
    pub(crate) fn is_variadic(&self, slot: u32) -> bool {
        let slots = self.shared.variadic.get_or_init(|| {
            let more = self.foreign_calls().map_or(&[][..], |foreign_calls| foreign_calls.variadic);
            self.symbols().map(|symbols| variadic_slots(&symbols, more)).unwrap_or_default()
        });
        slots.contains(&slot)
    }

    /// Returns the names of the main module's function in this table slot. Equal functions share a slot.
    pub(crate) fn names_of(&self, slot: u32) -> Vec<String> {
        let Ok(symbols) = self.symbols() else { return Vec::new() };
        let names = symbols.0.iter().filter(|(_, symbol)| **symbol == Symbol::Function(slot));
        names.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the identity of this program: snapshots can be restored where it is equal, whichever build compiled it.
    pub fn identity(&self) -> &str {
        &self.shared.description.identity
    }

    /// Returns the engine that compiled the program.
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// Opens the file of [`Program::symbols`], for a process that will not be able to open it when they are needed.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub fn open_symbols(&self) -> Result<(), ProgramError> {
        let path = self.shared.directory.join(SYMBOLS);
        let opened = fs::File::open(&path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (length, file) = opened.map_err(|error| ProgramError::File { path, error })?;
        self.shared.symbols_file.get_or_init(|| (file, usize::try_from(length).unwrap_or(0)));
        Ok(())
    }

    /// Returns the names that the program exports to libraries.
    ///
    /// # Errors
    /// Fails if their file cannot be read.
    pub fn symbols(&self) -> Result<Arc<Symbols>, ProgramError> {
        if let Some(symbols) = self.shared.symbols.get() {
            return Ok(symbols.clone());
        }
        let symbols = Arc::new(match self.shared.symbols_file.get() {
            Some((file, length)) => {
                let path = self.shared.directory.join(SYMBOLS);
                let mut bytes = vec![0; *length];
                // At an offset: forks of this process share the position in the file.
                crate::os::read_exact_at(file, &mut bytes, 0)
                    .map_err(|error| ProgramError::File { path: path.clone(), error })?;
                postcard::from_bytes(&bytes).map_err(|_| ProgramError::OtherBuild { path })?
            }
            None => decode(&self.shared.directory, SYMBOLS)?,
        });
        Ok(self.shared.symbols.get_or_init(|| symbols).clone())
    }

    pub(crate) fn linker(&self) -> &Arc<Linker<Host>> {
        &self.shared.linker
    }

    pub(crate) fn libraries(&self) -> Option<&Arc<dyn Libraries>> {
        self.shared.libraries.as_ref()
    }

    /// Returns the path of the file with the initial contents of linear memory.
    pub(crate) fn memory_file(&self) -> PathBuf {
        self.shared.directory.join(MEMORY)
    }

    pub(crate) fn memory_pages(&self) -> u64 {
        self.shared.description.memory_pages
    }

    pub(crate) fn instantiate_main(&self, store: &mut Store<Host>) -> wasmtime::Result<WasmInstance> {
        self.shared.main.instantiate(store)
    }

    /// Returns the helper modules with their exports, and the table slot of the first export.
    pub(crate) fn helpers(&self) -> (&[(Module, Vec<String>)], u32) {
        (&self.shared.helpers, self.shared.description.reserved)
    }
}

/// Defines every import that is still missing as a trap that names it.
fn trap_missing_imports(linker: &mut Linker<Host>, module: &Module) -> wasmtime::Result<()> {
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

/// Returns the number of pages that the main module's memory starts with. They are read from the module: compiled code
/// may be for another platform, and is not opened here.
fn memory_pages(wasm: &[u8]) -> Result<u64, ProgramError> {
    for payload in wasmparser::Parser::new(0).parse_all(wasm) {
        if let wasmparser::Payload::MemorySection(memories) = payload.map_err(wasmtime::Error::from)?
            && let Some(memory) = memories.into_iter().next()
        {
            return Ok(memory.map_err(wasmtime::Error::from)?.initial);
        }
    }
    Err(ProgramError::Missing("memory".into()))
}

fn write_memory(directory: &Path, segments: &[Segment], pages: u64) -> Result<(), ProgramError> {
    let path = directory.join(MEMORY);
    let length = pages * WASM_PAGE as u64;
    let fill = || {
        let file = fs::File::create_new(&path)?;
        crate::os::set_sparse_length(&file, length)?;
        for segment in segments {
            if u64::from(segment.offset) + segment.bytes.len() as u64 > length {
                return Err(std::io::Error::other("a data segment lies outside of memory"));
            }
            crate::os::write_all_at(&file, &segment.bytes, segment.offset.into())?;
        }
        Ok(())
    };
    fill().map_err(|error| ProgramError::File { path: path.clone(), error })
}

fn helper_file(number: usize) -> String {
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
