//! Rewrites an Emscripten module into one that wasmtime runs, and that can be stopped and snapshotted.
//!
//! [`translate`] takes a main module or a side module (a shared library) as Emscripten links them, and changes:
//!
//! | what | becomes | why | where |
//! | --- | --- | --- | --- |
//! | legacy exceptions | standard ones | wasmtime has no others | `exceptions` |
//! | loops and tail calls | begin with a load from the safepoint page | taking that page away stops the program | `body` |
//! | data segments | [`Translated::segments`] | memory is mapped, never filled | `segments` |
//! | the start function | an export, [`START_EXPORT`] | a restored instance has been started already | `sections` |
//! | hidden mutable globals | exports, [`GLOBAL_EXPORT`] | a snapshot holds them too | `sections` |
//! | `GOT` imports of a main module | its own globals, null | nobody ever fills them in | `sections` |
//! | exported functions | slots of the function table too | C's function pointers, and `dlsym` | `symbols` |
//! | calls of small functions | the functions' bodies | speed | `inline` |
//! | chosen functions | take extra shadow stack | so that the program notices deep recursion | `body` |
//! | custom sections | nothing | names and debugging data are of no use here | |
//!
//! Whatever cannot be carried over faithfully is refused with a [`TranslateError`]. The input may be hostile: a library
//! that a guest made. It is validated first, and nothing in it makes the translator panic.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use wasmparser::{Validator, WasmFeatures};

mod body;
mod dylink;
mod error;
mod exceptions;
mod inline;
mod module;
mod sections;
mod segments;
mod symbols;
#[cfg(test)]
mod tests;
mod types;

pub use dylink::parse_dylink;
pub use error::TranslateError;

/// Where the safepoint page begins: far beyond what memory may grow to, in its last 64 KiB.
///
/// It is part of linear memory so that a safepoint needs no register that the code around it does not need anyway;
/// a memory of its own cost twice as much. What the guest reads there is zero, and writing there faults as it does
/// anywhere beyond the end of memory.
pub const SAFEPOINT_ADDRESS: u32 = 0xffff_0000;
/// How many bytes of it safepoints load from: the least that a host can protect.
pub const SAFEPOINT_LENGTH: u32 = 4096;
/// Export under which a module's start function is found: it is never run by instantiation.
pub const START_EXPORT: &str = "belljar:start";
/// Prefix of the exports under which a module's mutable globals are found that it does not export itself.
pub const GLOBAL_EXPORT: &str = "belljar:global:";

/// Version of the translation: raised whenever the same module would come out differently.
pub const VERSION: u32 = 2;

/// The WebAssembly that Emscripten's toolchain emits for wasm32 without threads.
const FEATURES: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::EXCEPTIONS)
    .union(WasmFeatures::LEGACY_EXCEPTIONS)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::RELAXED_SIMD);

/// Translates a module.
///
/// A module with a `dylink.0` section and without a memory of its own is a side module; any other is a main module.
/// A main module that has no function table, but exports functions, gets one (`__indirect_function_table`).
/// A side module that lacks the imports which its appended slots need (`env.__indirect_function_table`,
/// `env.__table_base`) gets them; every linker offers both.
///
/// # Errors
///
/// Refused are: modules that are not valid, or that need threads, a second or a 64-bit memory, garbage-collected
/// types, or any proposal but exceptions of either kind, bulk memory, reference types, SIMD, tail calls, sign
/// extension, multiple values, extended constants; passive data segments; segments whose place is no constant and
/// not relative to the module's base; functions with legacy and standard exceptions at once; ballast where there is
/// no such function or no stack pointer; exports under the names that the translation adds.
pub fn translate(wasm: &[u8], options: &Options) -> Result<Translated, TranslateError> {
    Validator::new_with_features(FEATURES).validate_all(wasm)?;
    let module = module::Module::read(wasm)?;
    let segments = segments::take(&module)?;
    let slots = symbols::assign(&module)?;
    let wasm = sections::Writer::new(&module, options, &slots).write()?;
    let reserved = if module.is_side() || options.reserved_slots == 0 { 0 } else { slots.end };
    let dylink = module.dylink.map(|dylink| Dylink { table_size: slots.end, ..dylink });
    Ok(Translated { wasm, segments, symbols: slots.symbols, dylink, reserved })
}

/// What to do besides translating exceptions.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Functions, by export name, that take extra shadow stack on entry, in bytes (a multiple of 16).
    pub ballast: Vec<(String, u32)>,
    /// Exports to keep; `None` keeps all. Functions that are dropped stay reachable through [`Symbols`].
    pub keep_exports: Option<BTreeSet<String>>,
    /// Empty table slots added behind the module's own, for the host's use. Main modules only.
    pub reserved_slots: u32,
    /// Whether loop headers, and tail calls, load from the safepoint page.
    pub safepoints: bool,
    /// Functions of at most so many bytes of code are put in place of calls to them; 0 is none.
    pub inline: usize,
}

/// A translated module. Its wasm has neither data segments nor a start section.
#[derive(Debug, Clone)]
pub struct Translated {
    /// The new binary.
    pub wasm: Vec<u8>,
    /// What memory holds at the start, in the order of the module's segments.
    pub segments: Vec<Segment>,
    /// Every exported function and data address.
    pub symbols: Symbols,
    /// The `dylink.0` section, of a side module.
    pub dylink: Option<Dylink>,
    /// First of the reserved slots, 0 when there are none.
    pub reserved: u32,
}

/// An active data segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Address of the first byte; relative to `__memory_base` in a side module.
    pub offset: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Names that a module offers to others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symbols(pub BTreeMap<String, Symbol>);

/// What an exported name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Symbol {
    /// A function: its slot in the indirect function table; relative to `__table_base` in a side module.
    Function(u32),
    /// Data: its address; relative to `__memory_base` in a side module.
    Data(u32),
}

/// The `dylink.0` section of a side module.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dylink {
    /// Bytes of memory that the module wants.
    pub memory_size: u32,
    /// Alignment of that memory in bytes.
    pub memory_align: u32,
    /// Table slots that the module wants, those that the translator added included.
    pub table_size: u32,
    /// Alignment of those slots.
    pub table_align: u32,
    /// Libraries to load first.
    pub needed: Vec<String>,
    /// Imports that may stay unresolved.
    pub weak: BTreeSet<String>,
    /// Exports that are offsets into thread-local storage.
    pub tls: BTreeSet<String>,
    /// Where to look for needed libraries (`runtime_path`).
    pub runtime_path: Vec<String>,
}
