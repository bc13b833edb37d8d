//! Rewrites an Emscripten module so that wasmtime can run it, and that it can be stopped and saved in a snapshot.
//!
//! [`translate`] takes a main module or a side module (a shared library) as linked by Emscripten, and changes:
//!
//! | input | output | reason | module |
//! | --- | --- | --- | --- |
//! | legacy exceptions | standard ones | wasmtime supports no others | `exceptions` |
//! | loops and tail calls | begin with a load from the safepoint page | making that page inaccessible stops the program | `body` |
//! | data segments | [`Translated::segments`] | memory is mapped, never filled | `segments` |
//! | the start function | an export, [`START_EXPORT`] | a restored instance has been started already | `sections` |
//! | unexported mutable globals | exports, [`GLOBAL_EXPORT`] | a snapshot contains them too | `sections` |
//! | `GOT` imports of a main module | its own globals, null | no module defines them | `sections` |
//! | exported functions | slots of the function table too | C's function pointers, and `dlsym` | `symbols` |
//! | calls of small functions | the functions' bodies | speed | `inline` |
//! | chosen functions | allocate extra shadow stack | so that the program detects deep recursion | `body` |
//! | assignments to `__stack_pointer` | compare it with the stack's end, and trap below it | data lies there | `stack_check` |
//! | custom sections | removed | names and debugging data are not used | |
//!
//! A module that cannot be translated faithfully is refused with a [`TranslateError`]. The input may be hostile: a
//! library that a guest created. It is validated first, and no input makes the translator panic.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use wasmparser::{Validator, WasmFeatures};

mod body;
mod dylink;
mod error;
mod exceptions;
mod inline;
pub(crate) mod lazy;
mod module;
mod sections;
mod segments;
mod stack_check;
mod symbols;
#[cfg(test)]
mod tests;
mod types;

pub use dylink::parse_dylink;
pub use error::TranslateError;

/// The start of the safepoint page: in the last 64 KiB of memory's address space, beyond its maximum size.
///
/// It is part of linear memory so that a safepoint does not need another register; a separate memory cost twice as
/// much. The guest reads zeros from it, and writing to it faults as it does anywhere beyond the end of memory.
pub const SAFEPOINT_ADDRESS: u32 = 0xffff_0000;
/// The number of its bytes that safepoints load from: the smallest unit that a host can protect.
pub const SAFEPOINT_LENGTH: u32 = 4096;
/// The export of a module's start function, which instantiation never runs.
pub const START_EXPORT: &str = "belljar:start";
/// The prefix of the exports of mutable globals that a module does not export itself.
pub const GLOBAL_EXPORT: &str = "belljar:global:";

/// The version of the translation: raised whenever its output for the same module changes.
pub const VERSION: u32 = 3;

/// The WebAssembly features that Emscripten's toolchain uses for wasm32 without threads.
const FEATURES: WasmFeatures = WasmFeatures::WASM2
    .union(WasmFeatures::EXCEPTIONS)
    .union(WasmFeatures::LEGACY_EXCEPTIONS)
    .union(WasmFeatures::EXTENDED_CONST)
    .union(WasmFeatures::TAIL_CALL)
    .union(WasmFeatures::RELAXED_SIMD);

/// Translates a module.
///
/// A module with a `dylink.0` section and without a memory of its own is a side module; any other is a main module. A
/// main module that has no function table, but exports functions, gets one (`__indirect_function_table`). A side module
/// that lacks the imports which its appended slots need (`env.__indirect_function_table`, `env.__table_base`) gets
/// them; every linker offers both.
///
/// # Errors
///
/// Fails for: modules that are not valid, or that need threads, a second or a 64-bit memory, garbage-collected types,
/// or any proposal but exceptions of either kind, bulk memory, reference types, SIMD, tail calls, sign extension,
/// multiple values, extended constants; passive data segments; segments whose offset is neither constant nor relative
/// to the module's base; functions with both legacy and standard exceptions; stack padding without such a function or
/// without a stack pointer; stack checks of a main module that does not export the stack's end; exports under the names
/// that the translation adds.
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

/// Options of the translation.
#[derive(Clone, Default)]
pub struct Options {
    /// Functions, by export name, that allocate extra shadow stack on entry, in bytes (a multiple of 16).
    pub stack_padding: Vec<(String, u32)>,
    /// The exports to keep; `None` keeps all. Functions whose exports are dropped stay reachable through [`Symbols`].
    pub keep_exports: Option<BTreeSet<String>>,
    /// The number of empty table slots added behind the module's own, for the host's use. Main modules only.
    pub reserved_slots: u32,
    /// Makes loop headers and tail calls load from the safepoint page.
    pub safepoints: bool,
    /// Makes functions trap when they allocate more shadow stack than there is: when they set `__stack_pointer` to an
    /// address below the main module's `__stack_low`.
    pub stack_checks: bool,
    /// The maximum size in bytes of functions that are inlined; 0 disables inlining.
    pub inline: usize,
}

/// Prints the text that is part of the keys of cached programs: it must not change.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stack_padding, keep_exports, reserved_slots, safepoints, stack_checks, inline } = self;
        f.debug_struct("Options")
            .field("ballast", stack_padding)
            .field("keep_exports", keep_exports)
            .field("reserved_slots", reserved_slots)
            .field("safepoints", safepoints)
            .field("stack_checks", stack_checks)
            .field("inline", inline)
            .finish()
    }
}

/// A translated module. Its wasm has neither data segments nor a start section.
#[derive(Debug, Clone)]
pub struct Translated {
    /// The new binary.
    pub wasm: Vec<u8>,
    /// The initial contents of memory, in the order of the module's segments.
    pub segments: Vec<Segment>,
    /// Every exported function and data address.
    pub symbols: Symbols,
    /// The `dylink.0` section, of a side module.
    pub dylink: Option<Dylink>,
    /// The first of the reserved slots; 0 if no slots are reserved.
    pub reserved: u32,
}

/// An active data segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// The address of the first byte; relative to `__memory_base` in a side module.
    pub offset: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The names that a module exports to others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symbols(pub BTreeMap<String, Symbol>);

/// The definition of an exported name.
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
    /// The number of bytes of memory that the module needs.
    pub memory_size: u32,
    /// The alignment of that memory in bytes.
    pub memory_align: u32,
    /// The number of table slots that the module needs, including those that the translator added.
    pub table_size: u32,
    /// The alignment of those slots.
    pub table_align: u32,
    /// The libraries to load first.
    pub needed: Vec<String>,
    /// The imports that may stay unresolved.
    pub weak: BTreeSet<String>,
    /// The exports that are offsets into thread-local storage.
    pub tls: BTreeSet<String>,
    /// The directories to search for needed libraries (`runtime_path`).
    pub runtime_path: Vec<String>,
}
