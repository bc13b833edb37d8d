//! Rewrites an Emscripten module into one that wasmtime runs, and that can be stopped and snapshotted.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Export under which the safepoint memory of a main module is found; side modules import it as
/// [`SAFEPOINT_IMPORT`].
pub const SAFEPOINT_EXPORT: &str = "belljar:safepoint";
/// Module and name under which a side module imports the safepoint memory.
pub const SAFEPOINT_IMPORT: (&str, &str) = ("belljar", "safepoint");
/// Export under which a module's start function is found: it is never run by instantiation.
pub const START_EXPORT: &str = "belljar:start";

/// What to do besides translating exceptions.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Functions, by export name, that take extra shadow stack on entry, in bytes (a multiple of 16).
    pub ballast: Vec<(String, u32)>,
    /// Exports to keep; `None` keeps all. Functions that are dropped stay reachable through [`Symbols`].
    pub keep_exports: Option<BTreeSet<String>>,
    /// Empty table slots added behind the module's own, for the host's use. Main modules only.
    pub reserved_slots: u32,
    /// Whether loop headers load from the safepoint page.
    pub safepoints: bool,
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
