//! A side module, compiled and ready to be linked into any number of instances.

use wasmtime::{ExternType, Module, Mutability};

use crate::fs::FileBytes;
use crate::translate::{Dylink, Segment, Symbol, Symbols};

/// sha256 of a library's file, by which a snapshot names it.
pub type LibraryHash = [u8; 32];

/// A compiled side module. Nothing in it belongs to one instance.
pub struct Library {
    pub(super) hash: LibraryHash,
    pub(super) module: Module,
    pub(super) segments: Vec<Data>,
    pub(super) symbols: Symbols,
    pub(super) dylink: Dylink,
    pub(super) imports: Vec<Import>,
}

/// One piece of what a library's memory holds at the start.
#[derive(Debug, Clone)]
pub struct Data {
    /// Address of the first byte, relative to `__memory_base`.
    pub offset: u32,
    /// The bytes.
    pub bytes: FileBytes,
}

impl From<Segment> for Data {
    fn from(segment: Segment) -> Self {
        Self { offset: segment.offset, bytes: segment.bytes.into() }
    }
}

/// Why a file cannot be used as a library.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LibraryError {
    /// It is no WebAssembly, or lacks a `dylink.0` section.
    #[error("it is not a side module: {0}")]
    NotASideModule(String),
    /// It uses something that this host does not know, or does not compile.
    #[error("it cannot be compiled: {0}")]
    Compile(String),
    /// It says one thing and does another.
    #[error("it contradicts itself: {0}")]
    Malformed(String),
    /// What is known of the main module, or of the library, could not be read.
    #[error("the host could not read what it needs: {0}")]
    Unavailable(String),
}

/// One import of a side module, by what the dynamic linker does for it.
pub(super) enum Import {
    MemoryBase,
    TableBase,
    /// Any function: of the main module, of another library or of the host.
    Function(String),
    /// `GOT.mem` and `GOT.func`: an address, in a global of the library's own.
    Address(String),
    /// An export of the main module: its memory, table, stack pointer, tags.
    Main(String),
}

impl Library {
    /// Puts a library together: `module` is compiled from the `Translated` that `segments`, `symbols` and `dylink`
    /// come from, and `hash` is that of the file it was translated from.
    ///
    /// # Errors
    ///
    /// [`LibraryError::Malformed`] when the parts do not fit each other.
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
                return Err(malformed("a data segment lies outside of the memory that it asks for"));
            }
        }
        for (name, symbol) in &symbols.0 {
            if matches!(symbol, Symbol::Function(slot) if *slot >= dylink.table_size) {
                return Err(malformed(format!("`{name}` lies outside of the table slots that it asks for")));
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
        Ok(Self { hash, module, segments, symbols, dylink, imports })
    }

    /// sha256 of the file.
    pub fn hash(&self) -> &LibraryHash {
        &self.hash
    }

    /// Names of the symbols whose addresses the library takes.
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
        _ => return Err(malformed(format!("it imports `{module}.{name}`, which no linker offers"))),
    })
}

fn malformed(what: impl Into<String>) -> LibraryError {
    LibraryError::Malformed(what.into())
}
