//! Libraries whose functions are compiled when they are first called.
//!
//! Compiling a large library takes seconds, and programs use a small part of it. The module of such a library is a
//! skeleton (see [`crate::translate::lazy`]). Its slots of the function table contain functions of the host, which
//! replace themselves when they are called: they compile a fragment with the function and functions that it calls, once
//! for all instances of the process, and instantiate it. Stubs in fragments call the *loader*, which does the same.
//!
//! A compiled function does the same in a fragment as in the whole module, and the table of functions is not part of
//! snapshots. Therefore instances and images do not depend on the functions that have been compiled.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use wasmtime::{AsContextMut, Extern, Func, FuncType, Instance, Module, Ref, Table, ValType};

use super::Context;
use super::error::LinkFailure;
use super::library::LibraryError;
use crate::engine::{CompileTier, Engine};
use crate::exports;
use crate::host::Call;
use crate::termination::Termination;
use crate::translate::TranslateError;
use crate::translate::lazy::{Item, LazyModule, Origin, TABLE_EXPORT};
use crate::watchdog::Pause;

/// The length in bytes of functions that a called function is compiled with, its own included: a fragment has a cost of
/// its own, and functions of a fragment call each other directly.
const FRAGMENT_SIZE: usize = 4 << 10;
/// The number of compiled functions of a library after which the size of further fragments doubles, once for each such
/// number: a fragment takes some of the mappings that the system allows.
const FUNCTIONS_PER_SIZE: usize = 1024;
/// The length in bytes from which a fragment is compiled quickly. Functions of that length mostly initialise tables,
/// and run once.
const MIN_QUICK_SIZE: usize = 16 << 10;

/// The functions of a library, compiled one by one, for all instances of the process.
pub(super) struct LazyFunctions {
    engine: Engine,
    module: LazyModule,
    /// The type of each function that the module defines.
    types: Vec<FuncType>,
    /// The slots of the function table for each function that is in it.
    pointers: HashMap<u32, Vec<u32>>,
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
    pub(super) fn new(engine: &Engine, module: LazyModule) -> Result<Self, LibraryError> {
        let types = function_types(engine, &module)?;
        let mut pointers: HashMap<u32, Vec<u32>> = HashMap::new();
        for (pointer, function) in module.elements() {
            if let Some(slot) = function.checked_sub(module.imported_functions()) {
                pointers.entry(slot).or_default().push(pointer);
            }
        }
        Ok(Self { engine: engine.clone(), module, types, pointers, state: Mutex::default(), compiled: Condvar::new() })
    }

    /// Compiles the exported functions for whose names `is_needed` returns true.
    pub(super) fn compile_exports(&self, is_needed: impl Fn(&str) -> bool) -> Result<(), LibraryError> {
        let mut needed = self.module.exported_functions().filter(|(name, _)| is_needed(name));
        needed.try_for_each(|(_, slot)| self.fragment(slot).map(drop))
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
        let begin = Instant::now();
        let result = self.compile(slots.clone());
        tracing::trace!(slot, functions = slots.len(), time = ?begin.elapsed(), "compiled functions of a library");
        let mut state = self.state.lock();
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
        let doublings = state.fragments.len() / FUNCTIONS_PER_SIZE;
        let limit = FRAGMENT_SIZE << doublings.min(8);
        let mut slots = vec![slot];
        let mut size = self.module.length(slot);
        let mut next = 0;
        while let Some(&caller) = slots.get(next) {
            next += 1;
            if size >= limit {
                break;
            }
            for callee in self.module.callees(caller)? {
                let length = self.module.length(callee);
                if size + length <= limit && !slots.contains(&callee) && !state.has(callee) {
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

/// Returns the type of each function that the module defines.
fn function_types(engine: &Engine, module: &LazyModule) -> Result<Vec<FuncType>, LibraryError> {
    let failed = |error: &dyn std::fmt::Display| LibraryError::Unavailable(error.to_string());
    let convert = |types: &[wasmparser::ValType]| types.iter().map(|ty| value_type(*ty)).collect::<Option<Vec<_>>>();
    let mut types = Vec::with_capacity(module.types().len());
    for ty in module.types() {
        let (params, results) = (convert(ty.params()), convert(ty.results()));
        let (Some(params), Some(results)) = (params, results) else {
            return Err(failed(&"a function has parameters of an unknown type"));
        };
        types.push(FuncType::new(engine.wasmtime(), params, results));
    }
    let of_functions = module.function_types().iter().map(|ty| types.get(*ty as usize).cloned());
    of_functions.collect::<Option<_>>().ok_or_else(|| failed(&"a function has no type"))
}

fn value_type(ty: wasmparser::ValType) -> Option<ValType> {
    Some(match ty {
        wasmparser::ValType::I32 => ValType::I32,
        wasmparser::ValType::I64 => ValType::I64,
        wasmparser::ValType::F32 => ValType::F32,
        wasmparser::ValType::F64 => ValType::F64,
        wasmparser::ValType::V128 => ValType::V128,
        wasmparser::ValType::FUNCREF => ValType::FUNCREF,
        wasmparser::ValType::EXTERNREF => ValType::EXTERNREF,
        wasmparser::ValType::EXNREF => ValType::EXNREF,
        wasmparser::ValType::Ref(_) => return None,
    })
}

/// The part of a library's instance that fragments need.
pub(super) struct LazyInstance {
    instance: Instance,
    table: Table,
    /// The imports of the skeleton.
    imports: Vec<Extern>,
    /// The exports of the skeleton that fragments have imported.
    exports: BTreeMap<Item, Extern>,
}

impl LazyInstance {
    /// Prepares the instance of a skeleton: the library at `index`. Fills its slots of the function table.
    pub(super) fn new(
        store: &mut Context<'_>,
        index: usize,
        instance: Instance,
        imports: Vec<Extern>,
    ) -> Result<Self, LinkFailure> {
        let unavailable = || Termination::Missing(TABLE_EXPORT.into());
        let table = instance.get_table(&mut *store, TABLE_EXPORT).ok_or_else(unavailable)?;
        let loader = move |mut call: Call<'_>, slot: u32| function(&mut call.as_context_mut(), index, slot).map(drop);
        let loader = Func::wrap(&mut *store, loader);
        let last = table.size(&*store).saturating_sub(1);
        table.set(&mut *store, last, Ref::Func(Some(loader)))?;

        let loaded = store.data().linked.get(index).ok_or_else(unavailable)?;
        let (library, table_base) = (loaded.library.clone(), loaded.table_base);
        let functions = library.lazy.as_ref().ok_or_else(unavailable)?;
        let main_table = exports::main_module(store)?.table;
        let mut placeholders: HashMap<u32, Func> = HashMap::new();
        for (slot, number) in functions.module.elements() {
            let function = match number.checked_sub(functions.module.imported_functions()) {
                None => match functions.module.origin(Item::Function(number)) {
                    Some(Origin::Import(position)) => {
                        imports.get(position).and_then(|import| import.clone().into_func())
                    }
                    _ => None,
                },
                Some(number) => match placeholders.get(&number) {
                    Some(known) => Some(*known),
                    None => {
                        let created = placeholder(store, index, functions, number)?;
                        placeholders.insert(number, created);
                        Some(created)
                    }
                },
            };
            let slot = table_base.checked_add(slot).ok_or_else(unavailable)?;
            main_table.set(&mut *store, slot.into(), Ref::Func(function))?;
        }
        Ok(Self { instance, table, imports, exports: BTreeMap::new() })
    }
}

/// Creates a function of the host that behaves like the function in `slot` of the library at `index`.
fn placeholder(
    store: &mut Context<'_>,
    index: usize,
    functions: &LazyFunctions,
    slot: u32,
) -> Result<Func, LinkFailure> {
    let missing = || Termination::Missing(TABLE_EXPORT.into());
    let ty = functions.types.get(slot as usize).ok_or_else(missing)?.clone();
    Ok(Func::new(&mut *store, ty, move |mut call: Call<'_>, arguments, results| {
        let function = function(&mut call.as_context_mut(), index, slot)?;
        function.call(&mut call, arguments, results)
    }))
}

/// Returns the exported function `name` of a library whose functions are compiled one by one.
pub(super) fn exported(store: &mut Context<'_>, index: usize, name: &str) -> wasmtime::Result<Option<Func>> {
    let Some(loaded) = store.data().linked.get(index) else { return Ok(None) };
    let slot = loaded.library.lazy.as_ref().and_then(|functions| functions.module.exported_function(name));
    slot.map(|slot| function(store, index, slot)).transpose()
}

/// Returns the function in `slot` of the library at `index`, after loading it if necessary.
fn function(store: &mut Context<'_>, index: usize, slot: u32) -> wasmtime::Result<Func> {
    let unavailable = || Termination::Missing(TABLE_EXPORT.into());
    let loaded = store.data().linked.get(index).ok_or_else(unavailable)?;
    let table = loaded.lazy.as_ref().ok_or_else(unavailable)?.table;
    if let Some(Ref::Func(Some(function))) = table.get(&mut *store, slot.into()) {
        return Ok(function);
    }
    load(store, index, slot)?;
    match table.get(&mut *store, slot.into()) {
        Some(Ref::Func(Some(function))) => Ok(function),
        _ => Err(unavailable().into()),
    }
}

/// Fills the slot of a function of the library at `index`, and those of the functions that are compiled with it.
fn load(store: &mut Context<'_>, index: usize, slot: u32) -> wasmtime::Result<()> {
    let unavailable = || Termination::Missing(TABLE_EXPORT.into());
    let loaded = store.data().linked.get(index).ok_or_else(unavailable)?;
    let table = loaded.lazy.as_ref().ok_or_else(unavailable)?.table;
    let (library, path, table_base) = (loaded.library.clone(), loaded.path.clone(), loaded.table_base);
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
    let main_table = exports::main_module(store)?.table;
    let exported: Vec<Func> = instance.exports(&mut *store).filter_map(|export| export.into_func()).collect();
    for (&slot, function) in fragment.slots.iter().zip(exported) {
        table.set(&mut *store, slot.into(), Ref::Func(Some(function)))?;
        // From now on, calls through pointers do not pass the host.
        for &pointer in functions.pointers.get(&slot).map_or(&[][..], Vec::as_slice) {
            main_table.set(&mut *store, u64::from(table_base) + u64::from(pointer), Ref::Func(Some(function)))?;
        }
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
