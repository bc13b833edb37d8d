//! Dynamic linking as Emscripten does it: `dlopen` of side modules, `dlsym`, and back into a snapshot's copy.
//!
//! A side module shares the main module's memory and function table, and gets a piece of each: its data lies from
//! `__memory_base` on, its functions have the table slots from `__table_base` on. What it needs of others it imports
//! by name: functions to call from `env`, addresses from `GOT.mem` and `GOT.func`. Source of all this is the
//! [convention](https://github.com/WebAssembly/tool-conventions/blob/main/DynamicLinking.md) and Emscripten's
//! `libdylink.js`. What is done differently:
//!
//! - Only libraries that the host installed can be loaded. What the guest wrote, or changed, is refused.
//! - Each library has addresses (a GOT) of its own, so that `RTLD_LOCAL` symbols stay local. Emscripten has one GOT for all.
//! - A library's needed libraries, and theirs, are found and compiled before anything is changed: a load either
//!   happens or leaves nothing behind.
//!
//! As there, an undefined function is an error when it is called, whatever `RTLD_NOW` asks for: wheels have undefined
//! functions that they never call. An undefined address is an error at once, unless it is weak: then it is null.

mod calls;
mod compiled;
mod error;
mod image;
mod instantiate;
mod library;
mod load;
mod scope;
mod search;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use wasmtime::{Func, Global, Instance, StoreContextMut};

use crate::fs::FileBytes;
use crate::guest::Ptr;
use crate::host::Host;
use crate::program::Program;
use crate::translate::Symbols;
use error::LinkError;
use instantiate::Binding;

pub(crate) use calls::define;
pub(crate) use image::{LinkImage, capture, libraries_of, restore};
pub use library::{Data, Library, LibraryError, LibraryHash};
pub(crate) use scope::main_function;

/// Makes libraries of files, or takes them from a cache. One serves any number of instances.
pub trait Libraries: Send + Sync {
    /// The library in `bytes`, compiled for the engine of the main module.
    ///
    /// # Errors
    /// When the bytes are no side module, or one that this host cannot run.
    fn library(&self, bytes: &FileBytes) -> Result<Arc<Library>, LibraryError>;

    /// The library whose file has this hash, if it was made before. Snapshots ask for it, so that a library is there
    /// to be restored even when the guest has removed its file.
    fn known(&self, hash: &LibraryHash) -> Option<Arc<Library>> {
        let _ = hash;
        None
    }
}

/// The libraries that one instance has loaded.
#[derive(Default)]
pub(crate) struct Linked {
    /// The main module; `None` while there is none.
    program: Option<Program>,
    /// Known after the first use.
    main_symbols: Option<Arc<Symbols>>,
    /// In the order of loading; `None` where a load failed.
    loaded: Vec<Option<Loaded>>,
    /// Libraries by the address of their `struct dso`.
    handles: BTreeMap<Ptr, usize>,
    /// Host functions that libraries asked for, so that each is made once.
    host_functions: HashMap<String, Func>,
    /// Table slots of host functions whose address was taken.
    host_slots: BTreeMap<String, u32>,
}

/// A library in an instance.
struct Loaded {
    path: Arc<str>,
    library: Arc<Library>,
    /// `None` while it is being loaded.
    instance: Option<Instance>,
    memory_base: Ptr,
    table_base: u32,
    /// Whether every library sees its symbols (`RTLD_GLOBAL`).
    global: bool,
    /// The libraries it needs, by index.
    needed: Vec<usize>,
    /// Its GOT: the addresses it imports.
    addresses: BTreeMap<String, Global>,
    /// Where its imported functions come from, in the order of its imports.
    bindings: Vec<Binding>,
}

impl Loaded {
    /// A library that is about to be loaded.
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
        }
    }
}

impl Linked {
    /// An instance without libraries that may load some.
    pub(crate) fn new(program: &Program) -> Self {
        Self { program: Some(program.clone()), ..Self::default() }
    }

    fn program(&self) -> Result<&Program, LinkError> {
        self.program.as_ref().ok_or(LinkError::Disabled)
    }

    fn get(&self, index: usize) -> Option<&Loaded> {
        self.loaded.get(index)?.as_ref()
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut Loaded> {
        self.loaded.get_mut(index)?.as_mut()
    }

    fn by_path(&self, path: &str) -> Option<usize> {
        self.loaded.iter().position(|loaded| loaded.as_ref().is_some_and(|loaded| &*loaded.path == path))
    }

    /// A library and everything it needs, itself first, nearer ones before farther ones.
    fn with_needed(&self, index: usize) -> Vec<usize> {
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

/// The store that linking works on: a call's or the embedder's.
type Context<'a> = StoreContextMut<'a, Host>;
