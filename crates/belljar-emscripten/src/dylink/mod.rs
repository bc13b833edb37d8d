//! Dynamic linking as in Emscripten: `dlopen` of side modules, `dlsym`, and restoring libraries in a copy of a
//! snapshot.
//!
//! A side module shares the main module's memory and function table, and gets a part of each: its data starts at
//! `__memory_base`, its functions have the table slots from `__table_base` on. Its dependencies are imported by name:
//! functions to call from `env`, addresses from `GOT.mem` and `GOT.func`. This follows the
//! [convention](https://github.com/WebAssembly/tool-conventions/blob/main/DynamicLinking.md) and Emscripten's
//! `libdylink.js`, with these differences:
//!
//! - Only libraries that the host installed can be loaded. Files that the guest wrote or changed are refused.
//! - Each library has its own addresses (its own GOT), so that `RTLD_LOCAL` symbols stay local. Emscripten has one GOT
//!   for all.
//! - A library's direct and indirect dependencies are found and compiled before any state changes: a load either
//!   succeeds or has no effect.
//!
//! As in Emscripten, an undefined function is an error when it is called, even with `RTLD_NOW`: wheels have undefined
//! functions that they never call. An undefined address is an error at once, unless it is weak: then it is null.

mod calls;
mod compiled;
mod error;
mod instantiate;
mod lazy;
mod library;
mod load;
mod scope;
mod search;
mod snapshot;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use wasmtime::{Func, Global, Instance, StoreContextMut};

use crate::fs::FileBytes;
use crate::guest_memory::Ptr;
use crate::host::Host;
use crate::program::Program;
use crate::translate::Symbols;
use error::LinkError;
use instantiate::Binding;
use lazy::LazyInstance;

pub(crate) use calls::define;
pub use library::{Data, Library, LibraryError, LibraryHash};
pub(crate) use scope::{main_data, main_function};
pub(crate) use snapshot::{LinkSnapshot, capture, find_libraries, restore};

/// A source of compiled libraries, which may cache them. It serves any number of instances.
pub trait Libraries: Send + Sync {
    /// Returns the library in `bytes`, compiled for the engine of the main module.
    ///
    /// # Errors
    /// Fails if the bytes are not a side module, or one that this host cannot run.
    fn library(&self, bytes: &FileBytes) -> Result<Arc<Library>, LibraryError>;

    /// Returns the library whose file has this hash, if it was compiled before. Restoring a snapshot calls this, so
    /// that a library can be restored even if the guest has removed its file.
    fn known(&self, hash: &LibraryHash) -> Option<Arc<Library>> {
        let _ = hash;
        None
    }
}

/// The libraries that one instance has loaded.
#[derive(Default)]
pub(crate) struct LinkState {
    /// The main module; `None` before it is instantiated.
    program: Option<Program>,
    /// The main module's symbols, once they were used.
    main_symbols: Option<Arc<Symbols>>,
    /// The libraries in the order of loading; `None` where a load failed.
    loaded: Vec<Option<LoadedLibrary>>,
    /// The indices of libraries by the address of their `struct dso`.
    handles: BTreeMap<Ptr, usize>,
    /// The host functions that libraries import, so that each is created once.
    host_functions: HashMap<String, Func>,
    /// The table slots of host functions whose address was taken.
    host_slots: BTreeMap<String, u32>,
}

/// A library in an instance.
struct LoadedLibrary {
    path: Arc<str>,
    library: Arc<Library>,
    /// The instance; `None` while it is being loaded.
    instance: Option<Instance>,
    memory_base: Ptr,
    table_base: u32,
    /// Set if every library sees its symbols (`RTLD_GLOBAL`).
    global: bool,
    /// The indices of its dependencies.
    needed: Vec<usize>,
    /// Its GOT: the addresses it imports.
    addresses: BTreeMap<String, Global>,
    /// The origins of its imported functions, in the order of its imports.
    bindings: Vec<Binding>,
    /// The state of a library whose functions are compiled when they are called.
    lazy: Option<LazyInstance>,
}

impl LoadedLibrary {
    /// Creates the entry of a library that is about to be loaded.
    fn new(path: impl Into<Arc<str>>, library: Arc<Library>, needed: Vec<usize>, global: bool) -> Self {
        Self {
            path: path.into(),
            library,
            instance: None,
            memory_base: 0,
            table_base: 0,
            global,
            needed,
            addresses: BTreeMap::new(),
            bindings: Vec::new(),
            lazy: None,
        }
    }
}

impl LinkState {
    /// Creates the state of an instance of `program` without libraries.
    pub(crate) fn new(program: &Program) -> Self {
        Self { program: Some(program.clone()), ..Self::default() }
    }

    /// Returns the main module's program; `None` before it is instantiated.
    pub(crate) fn main_program(&self) -> Option<&Program> {
        self.program.as_ref()
    }

    fn program(&self) -> Result<&Program, LinkError> {
        self.program.as_ref().ok_or(LinkError::Disabled)
    }

    fn get(&self, index: usize) -> Option<&LoadedLibrary> {
        self.loaded.get(index)?.as_ref()
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut LoadedLibrary> {
        self.loaded.get_mut(index)?.as_mut()
    }

    fn by_path(&self, path: &str) -> Option<usize> {
        self.loaded.iter().position(|loaded| loaded.as_ref().is_some_and(|loaded| &*loaded.path == path))
    }

    /// Returns a library and its direct and indirect dependencies, itself first, nearer ones before farther ones.
    fn with_dependencies(&self, index: usize) -> Vec<usize> {
        let mut found = vec![index];
        let mut next = 0;
        while let Some(&index) = found.get(next) {
            next += 1;
            for &needed in self.get(index).map_or(&[][..], |loaded| &loaded.needed) {
                if !found.contains(&needed) {
                    found.push(needed);
                }
            }
        }
        found
    }
}

/// The store in use by the linker: a call's or the embedder's.
type Context<'a> = StoreContextMut<'a, Host>;
