//! A side module, compiled and ready to be linked into any number of instances.

use wasmtime::{ExternType, Module, Mutability};

use super::lazy::LazyFunctions;
use crate::fs::FileBytes;
use crate::translate::{Dylink, START_EXPORT, Segment, Symbol, Symbols};

/// The exported functions that initialise a library.
const INITIALIZERS: [&str; 4] =
    [START_EXPORT, "__wasm_apply_data_relocs", "__wasm_apply_tls_relocs", "__wasm_call_ctors"];

/// The SHA-256 of a library's file, by which a snapshot identifies it.
pub type LibraryHash = [u8; 32];

/// A compiled side module, independent of any instance.
pub struct Library {
    pub(super) hash: LibraryHash,
    pub(super) module: Module,
    pub(super) segments: Vec<Data>,
    pub(super) symbols: Symbols,
    pub(super) dylink: Dylink,
    pub(super) imports: Vec<Import>,
    /// The functions, if `module` is a skeleton.
    pub(super) lazy: Option<LazyFunctions>,
}

/// A part of a library's initial memory.
#[derive(Debug, Clone)]
pub struct Data {
    /// The address of the first byte, relative to `__memory_base`.
    pub offset: u32,
    /// The bytes.
    pub bytes: FileBytes,
}

impl From<Segment> for Data {
    fn from(segment: Segment) -> Self {
        Self { offset: segment.offset, bytes: segment.bytes.into() }
    }
}

/// An error in using a file as a library.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LibraryError {
    /// The file is not a WebAssembly module, or lacks a `dylink.0` section.
    #[error("not a side module: {0}")]
    NotASideModule(String),
    /// The library uses a feature that this host does not support, or failed to compile.
    #[error("failed to compile: {0}")]
    Compile(String),
    /// The library is inconsistent.
    #[error("inconsistent: {0}")]
    Malformed(String),
    /// A file that describes the main module or the library could not be read.
    #[error("failed to read: {0}")]
    Unavailable(String),
}

/// An import of a side module, classified by how the dynamic linker resolves it.
pub(super) enum Import {
    MemoryBase,
    TableBase,
    /// Any function: of the main module, of another library or of the host.
    Function(String),
    /// `GOT.mem` and `GOT.func`: an address, in one of the library's own globals.
    Address(String),
    /// An export of the main module: its memory, table, stack pointer or tags.
    Main(String),
}

impl Library {
    /// Assembles a library: `module` is compiled from the `Translated` that `segments`, `symbols` and `dylink` belong
    /// to, and `hash` is that of the file it was translated from.
    ///
    /// # Errors
    ///
    /// Fails with [`LibraryError::Malformed`] if the parts are inconsistent.
    pub fn new(
        hash: LibraryHash,
        module: Module,
        segments: Vec<Data>,
        symbols: Symbols,
        dylink: Dylink,
    ) -> Result<Self, LibraryError> {
        for segment in &segments {
            let end = u64::from(segment.offset) + segment.bytes.len() as u64;
            if end > u64::from(dylink.memory_size) {
                return Err(malformed("a data segment lies outside of the memory that it requests"));
            }
        }
        for (name, symbol) in &symbols.0 {
            if matches!(symbol, Symbol::Function(slot) if *slot >= dylink.table_size) {
                return Err(malformed(format!("`{name}` lies outside of the table slots that it requests")));
            }
        }
        if !dylink.memory_align.is_power_of_two() || !dylink.table_align.is_power_of_two() {
            return Err(malformed("an alignment is not a power of two"));
        }
        for export in module.exports() {
            if let ExternType::Global(global) = export.ty()
                && global.mutability() == Mutability::Var
                && !global.content().is_num()
            {
                return Err(malformed(format!("a snapshot cannot hold its variable `{}`", export.name())));
            }
        }
        let imports = module.imports().map(|import| classify(import.module(), import.name(), &import.ty()));
        let imports = imports.collect::<Result<_, _>>()?;
        Ok(Self { hash, module, segments, symbols, dylink, imports, lazy: None })
    }

    /// Sets the functions of a library whose module is a skeleton.
    pub(super) fn with_functions(self, lazy: LazyFunctions) -> Self {
        Self { lazy: Some(lazy), ..self }
    }

    /// Compiles those functions of a library whose functions are compiled one by one that initialise it, and the
    /// exported functions for whose names `is_needed` returns true.
    ///
    /// # Errors
    /// Fails if the compiler does.
    pub fn compile_needed(&self, is_needed: impl Fn(&str) -> bool) -> Result<(), LibraryError> {
        let Some(lazy) = &self.lazy else { return Ok(()) };
        lazy.compile_exports(|name| INITIALIZERS.contains(&name) || is_needed(name))
    }

    /// Returns the SHA-256 of the file.
    pub fn hash(&self) -> &LibraryHash {
        &self.hash
    }

    /// Returns the names of the symbols whose addresses the library imports.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &str> {
        self.imports.iter().filter_map(|import| match import {
            Import::Address(name) => Some(name.as_str()),
            _ => None,
        })
    }
}

fn classify(module: &str, name: &str, ty: &ExternType) -> Result<Import, LibraryError> {
    Ok(match (module, name, ty) {
        ("env", "__memory_base", ExternType::Global(_)) => Import::MemoryBase,
        ("env", "__table_base", ExternType::Global(_)) => Import::TableBase,
        ("GOT.mem" | "GOT.func", _, ExternType::Global(_)) => Import::Address(name.to_owned()),
        (_, _, ExternType::Func(_)) => Import::Function(name.to_owned()),
        ("env", _, _) => Import::Main(name.to_owned()),
        _ => {
            return Err(malformed(format!(
                "it imports `{module}.{name}`, which is not a known import of the dynamic linker"
            )));
        }
    })
}

fn malformed(what: impl Into<String>) -> LibraryError {
    LibraryError::Malformed(what.into())
}
