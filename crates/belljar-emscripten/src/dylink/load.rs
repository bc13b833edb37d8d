//! Loading: finds a library and what it needs, gives each its place, and starts them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use wasmtime::{Ref, Trap, Val};

use super::error::{Failure, LinkError};
use super::search::{self, Found};
use super::{Context, Library, LibraryError, Linked, Loaded, instantiate, scope};
use crate::exports;
use crate::fs::FileBytes;
use crate::guest::{GuestMemory, Ptr, field};
use crate::translate::START_EXPORT;

/// Libraries that one `dlopen` can bring in.
const LIBRARIES_MAX: usize = 256;

/// What `dlopen` was asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mode {
    /// `RTLD_GLOBAL`: every library sees the symbols.
    pub(super) global: bool,
    /// `RTLD_NOLOAD`: only a library that is there already will do.
    pub(super) only_loaded: bool,
}

/// Loads the library that a program names, unless it is loaded already. Gives its index, and whether it is new.
pub(super) fn open(store: &mut Context<'_>, name: &str, mode: Mode) -> Result<(usize, bool), Failure> {
    let Found { path, file } = search::for_program(store, name)?;
    match file {
        Ok(index) => {
            if mode.global {
                make_global(&mut store.data_mut().linked, index);
            }
            Ok((index, false))
        }
        Err(_) if mode.only_loaded => Err(LinkError::NotLoaded { path }.into()),
        Err(bytes) => {
            let mut plan = Plan::default();
            plan.discover(store, path, &bytes)?;
            let new = plan.enter(&mut store.data_mut().linked, mode.global);
            let started = start(store, new.clone());
            if started.is_err() {
                abandon(&mut store.data_mut().linked, new.clone());
            }
            // What is needed comes first, so that what was asked for is the last.
            started.map(|()| (new.end - 1, true))
        }
    }
}

/// `RTLD_GLOBAL` for a library that was loaded without, and for those it needs.
fn make_global(linked: &mut Linked, index: usize) {
    for index in linked.with_needed(index) {
        if let Some(loaded) = linked.get_mut(index) {
            loaded.global = true;
        }
    }
}

/// Forgets libraries whose load failed.
fn abandon(linked: &mut Linked, failed: Range<usize>) {
    for index in failed {
        if let Some(place) = linked.loaded.get_mut(index) {
            *place = None;
        }
    }
    while linked.loaded.last().is_some_and(Option::is_none) {
        linked.loaded.pop();
    }
}

/// The libraries that one `dlopen` brings in. Making a plan changes nothing in the guest.
#[derive(Default)]
struct Plan {
    /// In the order in which they were found.
    planned: Vec<Planned>,
    /// In the order in which they are to be loaded: what is needed first, as far as that is possible in a circle.
    order: Vec<usize>,
}

struct Planned {
    path: String,
    library: Arc<Library>,
    needed: Vec<Needed>,
}

enum Needed {
    /// There already, by index.
    Loaded(usize),
    /// To be loaded too, by place in the plan.
    Planned(usize),
}

impl Plan {
    /// Adds the library at `path` and all that it needs; gives its place in the plan.
    fn discover(&mut self, store: &mut Context<'_>, path: String, bytes: &FileBytes) -> Result<usize, Failure> {
        if self.planned.len() >= LIBRARIES_MAX {
            return Err(LinkError::TooMany { path, limit: LIBRARIES_MAX }.into());
        }
        let libraries = store.data().linked.program()?.libraries().ok_or(LinkError::Disabled)?.clone();
        let library = libraries.library(bytes).map_err(|source| LinkError::Library { path: path.clone(), source })?;
        // Compiling may have taken long.
        store.data().stop.check()?;

        let place = self.planned.len();
        self.planned.push(Planned { path: path.clone(), library: library.clone(), needed: Vec::new() });
        for name in &library.dylink.needed {
            let found = search::for_library(store, &path, &library.dylink.runtime_path, name)?;
            let needed = match found.file {
                Ok(index) => Needed::Loaded(index),
                Err(bytes) => Needed::Planned(match self.planned.iter().position(|other| other.path == found.path) {
                    Some(place) => place,
                    None => self.discover(store, found.path, &bytes)?,
                }),
            };
            if let Some(planned) = self.planned.get_mut(place) {
                planned.needed.push(needed);
            }
        }
        self.order.push(place);
        Ok(place)
    }

    /// Puts the planned libraries behind those that are loaded, without an instance as yet; gives their indices.
    fn enter(self, linked: &mut Linked, global: bool) -> Range<usize> {
        let first = linked.loaded.len();
        let index_of: HashMap<usize, usize> = self.order.iter().copied().zip(first..).collect();
        let mut planned: Vec<Option<Planned>> = self.planned.into_iter().map(Some).collect();
        for place in self.order {
            let Some(planned) = planned.get_mut(place).and_then(Option::take) else { continue };
            let needed = planned.needed.into_iter().filter_map(|needed| match needed {
                Needed::Loaded(index) => Some(index),
                Needed::Planned(place) => index_of.get(&place).copied(),
            });
            linked.loaded.push(Some(Loaded::new(planned.path, planned.library, needed.collect(), global)));
        }
        if global && let Some(last) = linked.loaded.len().checked_sub(1) {
            make_global(linked, last);
        }
        first..linked.loaded.len()
    }
}

/// Gives new libraries their places and runs their initialisers.
fn start(store: &mut Context<'_>, new: Range<usize>) -> Result<(), Failure> {
    for index in new.clone() {
        check_addresses(store, index)?;
    }
    let mut allocated = Vec::new();
    let placed = (|| {
        for index in new.clone() {
            place(store, index, &mut allocated)?;
            instantiate::instantiate(store, index, None)?;
        }
        new.clone().try_for_each(|index| fill_addresses(store, index))
    })();
    if let Err(Failure::Link(error)) = placed {
        for address in allocated {
            exports::call(&mut *store, "free", &[address])?;
        }
        return Err(error.into());
    }
    placed?;

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

/// Sees that every address a library takes is defined, or weak.
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

/// Allocates memory and table slots.
fn place(store: &mut Context<'_>, index: usize, allocated: &mut Vec<Ptr>) -> Result<(), Failure> {
    let Some(loaded) = store.data().linked.get(index) else { return Ok(()) };
    let (library, path) = (loaded.library.clone(), loaded.path.clone());
    let full = || LinkError::OutOfMemory { path: path.to_string() };
    let dylink = &library.dylink;

    let mut memory_base = 0;
    if dylink.memory_size > 0 {
        // `Library::new` saw to it that alignments are powers of two.
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

/// Sets the addresses that a library takes. Undefined ones are weak, and null.
fn fill_addresses(store: &mut Context<'_>, index: usize) -> Result<(), Failure> {
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

/// Copies a library's data to where it belongs.
fn fill_memory(store: &mut Context<'_>, index: usize) -> Result<(), Failure> {
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

/// Calls an initialiser of a library, if it has it.
fn run(store: &mut Context<'_>, index: usize, name: &str) -> Result<(), Failure> {
    let instance = store.data().linked.get(index).and_then(|loaded| loaded.instance);
    let Some(function) = instance.and_then(|instance| instance.get_func(&mut *store, name)) else { return Ok(()) };
    function.call(&mut *store, &[], &mut [])?;
    Ok(())
}

/// The text of an error of the engine's, as one about a library.
pub(super) fn unfit(path: &str, error: &wasmtime::Error) -> LinkError {
    LinkError::Library { path: path.to_owned(), source: LibraryError::Malformed(format!("{error:#}")) }
}
