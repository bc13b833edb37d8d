//! Libraries whose functions are compiled when they are first called.
//!
//! Compiling a large library takes seconds, of which programs use a small part. Such a library has a stub module (see
//! [`crate::translate::lazy`]), whose stubs call the *loader* of the instance. The loader compiles a fragment with the
//! function and functions that it calls, once for all instances of the process, and instantiates it.
//!
//! A compiled function does the same in a fragment as in the whole module, and the table of functions is not part of
//! snapshots. Therefore instances and images do not depend on the functions that have been compiled.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use wasmtime::{AsContextMut, Extern, Func, Instance, Module, Ref, Table};

use super::Context;
use super::error::LinkFailure;
use super::library::LibraryError;
use crate::engine::{CompileTier, Engine};
use crate::host::Call;
use crate::termination::Termination;
use crate::translate::TranslateError;
use crate::translate::lazy::{Item, LazyModule, Origin, TABLE_EXPORT};
use crate::watchdog::Pause;

/// The length in bytes of functions that a called function is compiled with, its own included: a fragment has a cost of
/// its own, and functions of a fragment call each other directly.
const FRAGMENT_SIZE: usize = 4 << 10;
/// The length in bytes from which a function is compiled quickly. Such functions mostly initialise tables, and run once.
const MIN_QUICK_SIZE: usize = 16 << 10;

/// The functions of a library, compiled one by one, for all instances of the process.
pub(super) struct LazyFunctions {
    engine: Engine,
    module: LazyModule,
    state: Mutex<State>,
    /// Notified when a fragment has been compiled.
    compiled: Condvar,
}

#[derive(Default)]
struct State {
    /// The fragments by the slots of their functions.
    fragments: HashMap<u32, Arc<CompiledFragment>>,
    /// The slots of functions that are being compiled.
    compiling: HashSet<u32>,
}

impl State {
    fn has(&self, slot: u32) -> bool {
        self.fragments.contains_key(&slot) || self.compiling.contains(&slot)
    }
}

struct CompiledFragment {
    module: Module,
    imports: Vec<Item>,
    slots: Vec<u32>,
}

impl LazyFunctions {
    pub(super) fn new(engine: &Engine, module: LazyModule) -> Self {
        Self { engine: engine.clone(), module, state: Mutex::default(), compiled: Condvar::new() }
    }

    /// Compiles the exported functions for whose names `is_needed` returns true.
    pub(super) fn compile_exports(&self, is_needed: impl Fn(&str) -> bool) -> Result<(), LibraryError> {
        let needed = self.module.exported_functions().filter(|(name, _)| is_needed(name));
        needed.map(|(_, slot)| self.fragment(slot).map(drop)).collect()
    }

    /// Returns the fragment with the function in `slot`, after compiling it if necessary.
    fn fragment(&self, slot: u32) -> Result<Arc<CompiledFragment>, LibraryError> {
        let mut state = self.state.lock();
        loop {
            if let Some(fragment) = state.fragments.get(&slot) {
                return Ok(fragment.clone());
            }
            if !state.compiling.contains(&slot) {
                break;
            }
            self.compiled.wait(&mut state);
        }
        let slots = self.select(slot, &state).map_err(|error| LibraryError::Compile(error.to_string()))?;
        state.compiling.extend(&slots);
        drop(state);
        let begin = std::time::Instant::now();
        let result = self.compile(slots.clone());
        let mut state = self.state.lock();
        if std::env::var("LAZY_TRACE").is_ok() {
            let bytes: usize = slots.iter().map(|slot| self.module.length(*slot)).sum();
            eprintln!("lazy: slot {slot}: {} functions, {bytes} bytes, {:?}", slots.len(), begin.elapsed());
        }
        for slot in slots {
            state.compiling.remove(&slot);
            if let Ok(fragment) = &result {
                state.fragments.insert(slot, fragment.clone());
            }
        }
        self.compiled.notify_all();
        result
    }

    /// Returns the slots of the functions to compile together with that in `slot`: callees, the nearest first.
    fn select(&self, slot: u32, state: &State) -> Result<Vec<u32>, TranslateError> {
        let mut slots = vec![slot];
        let mut size = self.module.length(slot);
        let mut next = 0;
        while let Some(&caller) = slots.get(next) {
            next += 1;
            if size >= FRAGMENT_SIZE {
                break;
            }
            for callee in self.module.callees(caller)? {
                let length = self.module.length(callee);
                if size + length <= FRAGMENT_SIZE && !slots.contains(&callee) && !state.has(callee) {
                    size += length;
                    slots.push(callee);
                }
            }
        }
        Ok(slots)
    }

    fn compile(&self, slots: Vec<u32>) -> Result<Arc<CompiledFragment>, LibraryError> {
        let failed = |error: wasmtime::Error| LibraryError::Compile(format!("{error:#}"));
        let size: usize = slots.iter().map(|slot| self.module.length(*slot)).sum();
        let tier = if size >= MIN_QUICK_SIZE { CompileTier::Quick } else { CompileTier::Optimized };
        let fragment = self.module.fragment(slots).map_err(|error| LibraryError::Compile(error.to_string()))?;
        let module = self.engine.module(tier, &fragment.wasm).map_err(failed)?;
        Ok(Arc::new(CompiledFragment { module, imports: fragment.imports, slots: fragment.slots }))
    }
}

/// The part of a library's instance that fragments need.
pub(super) struct LazyInstance {
    instance: Instance,
    table: Table,
    /// The imports of the stub module.
    imports: Vec<Extern>,
    /// The exports of the stub module that fragments have imported.
    exports: BTreeMap<Item, Extern>,
}

impl LazyInstance {
    /// Prepares the instance of a stub module: the library at `index`.
    pub(super) fn new(
        store: &mut Context<'_>,
        index: usize,
        instance: Instance,
        imports: Vec<Extern>,
    ) -> Result<Self, LinkFailure> {
        let table = instance.get_table(&mut *store, TABLE_EXPORT);
        let table = table.ok_or_else(|| Termination::Missing(TABLE_EXPORT.into()))?;
        let loader = move |mut call: Call<'_>, slot: u32| load(&mut call.as_context_mut(), index, slot);
        let loader = Func::wrap(&mut *store, loader);
        let last = table.size(&*store).saturating_sub(1);
        table.set(&mut *store, last, Ref::Func(Some(loader)))?;
        Ok(Self { instance, table, imports, exports: BTreeMap::new() })
    }
}

/// Fills the slot of a function of the library at `index`, and those of the functions that are compiled with it.
fn load(store: &mut Context<'_>, index: usize, slot: u32) -> wasmtime::Result<()> {
    let unavailable = || Termination::Missing(TABLE_EXPORT.into());
    let loaded = store.data().linked.get(index).ok_or_else(unavailable)?;
    let (library, path) = (loaded.library.clone(), loaded.path.clone());
    let functions = library.lazy.as_ref().ok_or_else(unavailable)?;
    // The time of the compiler is not the program's, as it is not when a whole library is compiled.
    let pause = Pause::start(&store.data().stop);
    let fragment = functions.fragment(slot);
    drop(pause);
    store.data().stop.check()?;
    let fragment = fragment.map_err(|error| Termination::Abort(format!("failed to load '{path}': {error}")))?;
    let mut imports = Vec::with_capacity(fragment.imports.len());
    for &item in &fragment.imports {
        imports.push(origin(store, index, functions, item).ok_or_else(unavailable)?);
    }
    let instance = Instance::new(&mut *store, &fragment.module, &imports)?;
    let loaded = store.data().linked.get(index).and_then(|loaded| loaded.lazy.as_ref());
    let table = loaded.ok_or_else(unavailable)?.table;
    let functions: Vec<Func> = instance.exports(&mut *store).filter_map(|export| export.into_func()).collect();
    for (&slot, function) in fragment.slots.iter().zip(functions) {
        table.set(&mut *store, slot.into(), Ref::Func(Some(function)))?;
    }
    Ok(())
}

/// Returns an item of the library at `index`.
fn origin(store: &mut Context<'_>, index: usize, functions: &LazyFunctions, item: Item) -> Option<Extern> {
    let lazy = store.data().linked.get(index)?.lazy.as_ref()?;
    if let Some(known) = lazy.exports.get(&item) {
        return Some(known.clone());
    }
    let instance = lazy.instance;
    match functions.module.origin(item)? {
        Origin::Import(position) => lazy.imports.get(position).cloned(),
        Origin::Export(name) => {
            let export = instance.get_export(&mut *store, &name)?;
            store.data_mut().linked.get_mut(index)?.lazy.as_mut()?.exports.insert(item, export.clone());
            Some(export)
        }
    }
}
