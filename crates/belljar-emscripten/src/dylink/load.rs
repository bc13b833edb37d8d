//! Loading: finds a library and its dependencies, allocates memory and table slots for each, and initialises them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use wasmtime::{Ref, Trap, Val};

use super::error::{LinkError, LinkFailure};
use super::search::{self, LibraryFile};
use super::{Context, Library, LibraryError, LinkState, LoadedLibrary, instantiate, lazy, scope};
use crate::exports;
use crate::fs::FileBytes;
use crate::guest_memory::{GuestMemory, Ptr, field};
use crate::translate::START_EXPORT;

/// The maximum number of libraries that one `dlopen` can load.
const MAX_LIBRARIES: usize = 256;

/// The mode argument of `dlopen`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mode {
    /// `RTLD_GLOBAL`: the symbols are visible to every library.
    pub(super) global: bool,
    /// `RTLD_NOLOAD`: fail unless the library is loaded already.
    pub(super) only_loaded: bool,
}

/// Loads a library by the name that a program passes, unless it is loaded already. Returns its index, and whether it is
/// new.
pub(super) fn open(store: &mut Context<'_>, name: &str, mode: Mode) -> Result<(usize, bool), LinkFailure> {
    let LibraryFile { path, file } = search::resolve_dlopen(store, name)?;
    match file {
        Ok(index) => {
            if mode.global {
                make_global(&mut store.data_mut().linked, index);
            }
            Ok((index, false))
        }
        Err(_) if mode.only_loaded => Err(LinkError::NotLoaded { path }.into()),
        Err(bytes) => {
            let mut plan = LoadPlan::default();
            plan.discover(store, path, &bytes)?;
            let new = plan.register(&mut store.data_mut().linked, mode.global);
            let started = start(store, new.clone());
            if started.is_err() {
                rollback(&mut store.data_mut().linked, new.clone());
            }
            // Dependencies come first, so the requested library is the last.
            started.map(|()| (new.end - 1, true))
        }
    }
}

/// Applies `RTLD_GLOBAL` to a library that was loaded without it, and to its dependencies.
fn make_global(linked: &mut LinkState, index: usize) {
    for index in linked.with_dependencies(index) {
        if let Some(loaded) = linked.get_mut(index) {
            loaded.global = true;
        }
    }
}

/// Removes libraries whose load failed.
fn rollback(linked: &mut LinkState, failed: Range<usize>) {
    for index in failed {
        if let Some(place) = linked.loaded.get_mut(index) {
            *place = None;
        }
    }
    while linked.loaded.last().is_some_and(Option::is_none) {
        linked.loaded.pop();
    }
}

/// The libraries that one `dlopen` loads. Planning does not change the guest.
#[derive(Default)]
struct LoadPlan {
    /// The libraries in the order in which they were found.
    planned: Vec<PlannedLibrary>,
    /// The order in which to load them: dependencies first, as far as possible in a cycle.
    order: Vec<usize>,
}

struct PlannedLibrary {
    path: String,
    library: Arc<Library>,
    needed: Vec<Dependency>,
}

enum Dependency {
    /// The index of a library that is already loaded.
    Loaded(usize),
    /// The index in the plan of a library that is to be loaded.
    Planned(usize),
}

impl LoadPlan {
    /// Adds the library at `path` and all its dependencies. Returns its index in the plan.
    fn discover(&mut self, store: &mut Context<'_>, path: String, bytes: &FileBytes) -> Result<usize, LinkFailure> {
        if self.planned.len() >= MAX_LIBRARIES {
            return Err(LinkError::TooMany { path, limit: MAX_LIBRARIES }.into());
        }
        let libraries = store.data().linked.program()?.libraries().ok_or(LinkError::Disabled)?.clone();
        let library = libraries.library(bytes).map_err(|source| LinkError::Library { path: path.clone(), source })?;
        // Compiling may have taken long.
        store.data().stop.check()?;

        let place = self.planned.len();
        self.planned.push(PlannedLibrary { path: path.clone(), library: library.clone(), needed: Vec::new() });
        for name in &library.dylink.needed {
            let found = search::resolve_needed(store, &path, &library.dylink.runtime_path, name)?;
            let needed = match found.file {
                Ok(index) => Dependency::Loaded(index),
                Err(bytes) => {
                    Dependency::Planned(match self.planned.iter().position(|other| other.path == found.path) {
                        Some(place) => place,
                        None => self.discover(store, found.path, &bytes)?,
                    })
                }
            };
            if let Some(planned) = self.planned.get_mut(place) {
                planned.needed.push(needed);
            }
        }
        self.order.push(place);
        Ok(place)
    }

    /// Appends the planned libraries, without instances, to the loaded ones. Returns their indices.
    fn register(self, linked: &mut LinkState, global: bool) -> Range<usize> {
        let first = linked.loaded.len();
        let index_of: HashMap<usize, usize> = self.order.iter().copied().zip(first..).collect();
        let mut planned: Vec<Option<PlannedLibrary>> = self.planned.into_iter().map(Some).collect();
        for place in self.order {
            let Some(planned) = planned.get_mut(place).and_then(Option::take) else { continue };
            let needed = planned.needed.into_iter().filter_map(|needed| match needed {
                Dependency::Loaded(index) => Some(index),
                Dependency::Planned(place) => index_of.get(&place).copied(),
            });
            linked.loaded.push(Some(LoadedLibrary::new(planned.path, planned.library, needed.collect(), global)));
        }
        if global && let Some(last) = linked.loaded.len().checked_sub(1) {
            make_global(linked, last);
        }
        first..linked.loaded.len()
    }
}

/// Allocates memory and table slots for new libraries, and runs their initialisers.
fn start(store: &mut Context<'_>, new: Range<usize>) -> Result<(), LinkFailure> {
    for index in new.clone() {
        check_addresses(store, index)?;
    }
    let mut allocated = Vec::new();
    let allocation = (|| {
        for index in new.clone() {
            allocate(store, index, &mut allocated)?;
            instantiate::instantiate(store, index, None)?;
        }
        new.clone().try_for_each(|index| fill_addresses(store, index))
    })();
    if let Err(LinkFailure::Link(error)) = allocation {
        for address in allocated {
            exports::call(&mut *store, "free", &[address])?;
        }
        return Err(error.into());
    }
    allocation?;

    for index in new.clone() {
        fill_memory(store, index)?;
        run(store, index, START_EXPORT)?;
    }
    for index in new.clone() {
        run(store, index, "__wasm_apply_data_relocs")?;
        run(store, index, "__wasm_apply_tls_relocs")?;
    }
    for index in new {
        run(store, index, "__wasm_call_ctors")?;
    }
    Ok(())
}

/// Fails unless every address that a library imports is defined or weak.
fn check_addresses(store: &mut Context<'_>, index: usize) -> Result<(), LinkError> {
    let Some(loaded) = store.data().linked.get(index) else { return Ok(()) };
    let (library, path) = (loaded.library.clone(), loaded.path.clone());
    for name in library.addresses() {
        if !library.dylink.weak.contains(name) && scope::resolve(store, index, name)?.is_none() {
            return Err(LinkError::Undefined { symbol: name.to_owned(), library: path.to_string() });
        }
    }
    Ok(())
}

/// Allocates memory and table slots for a library.
fn allocate(store: &mut Context<'_>, index: usize, allocated: &mut Vec<Ptr>) -> Result<(), LinkFailure> {
    let Some(loaded) = store.data().linked.get(index) else { return Ok(()) };
    let (library, path) = (loaded.library.clone(), loaded.path.clone());
    let full = || LinkError::OutOfMemory { path: path.to_string() };
    let dylink = &library.dylink;

    let mut memory_base = 0;
    if dylink.memory_size > 0 {
        // `Library::new` checked that alignments are powers of two.
        let mask = dylink.memory_align - 1;
        let size = dylink.memory_size.checked_add(mask).ok_or_else(full)?;
        let address = exports::call(&mut *store, "calloc", &[size, 1])?;
        if address == 0 {
            return Err(full().into());
        }
        allocated.push(address);
        memory_base = address.checked_add(mask).ok_or_else(full)? & !mask;
    }

    let mut table_base = 0;
    if dylink.table_size > 0 {
        let table = exports::main_module(store)?.table;
        let size = table.size(&*store);
        let base = size.next_multiple_of(u64::from(dylink.table_align));
        let delta = base - size + u64::from(dylink.table_size);
        table.grow(&mut *store, delta, Ref::Func(None)).map_err(|_| full())?;
        table_base = u32::try_from(base).map_err(|_| full())?;
    }

    if let Some(loaded) = store.data_mut().linked.get_mut(index) {
        loaded.memory_base = memory_base;
        loaded.table_base = table_base;
    }
    Ok(())
}

/// Sets the addresses that a library imports. Undefined ones are weak, and null.
fn fill_addresses(store: &mut Context<'_>, index: usize) -> Result<(), LinkFailure> {
    let Some(loaded) = store.data().linked.get(index) else { return Ok(()) };
    for (name, global) in loaded.addresses.clone() {
        let address = match scope::resolve(store, index, &name)? {
            Some(definition) => scope::address(store, &name, definition)?,
            None => 0,
        };
        global.set(&mut *store, Val::I32(address.cast_signed()))?;
    }
    Ok(())
}

/// Copies a library's data into its memory.
fn fill_memory(store: &mut Context<'_>, index: usize) -> Result<(), LinkFailure> {
    let Some(loaded) = store.data().linked.get(index) else { return Ok(()) };
    let (library, memory_base) = (loaded.library.clone(), loaded.memory_base);
    let main = exports::main_module(store)?;
    let mut memory = GuestMemory::new(main.memory.data_mut(&mut *store));
    for segment in &library.segments {
        let written = field(memory_base, segment.offset).and_then(|at| memory.write(at, &segment.bytes));
        written.map_err(|_| wasmtime::Error::from(Trap::MemoryOutOfBounds))?;
    }
    Ok(())
}

/// Calls an initialiser of a library, if it exists.
fn run(store: &mut Context<'_>, index: usize, name: &str) -> Result<(), LinkFailure> {
    let instance = store.data().linked.get(index).and_then(|loaded| loaded.instance);
    let function = match lazy::exported(store, index, name)? {
        Some(function) => Some(function),
        None => instance.and_then(|instance| instance.get_func(&mut *store, name)),
    };
    let Some(function) = function else { return Ok(()) };
    function.call(&mut *store, &[], &mut [])?;
    Ok(())
}

/// Converts an engine error to an error of the library at `path`.
pub(super) fn library_error(path: &str, error: &wasmtime::Error) -> LinkError {
    LinkError::Library { path: path.to_owned(), source: LibraryError::Malformed(format!("{error:#}")) }
}
