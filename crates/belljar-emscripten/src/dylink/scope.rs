//! Symbol lookup: the definition of a name, and the address of a definition.
//!
//! The lookup scope of a library is, in this order: the main module, the host's functions, libraries loaded with
//! `RTLD_GLOBAL` in the order of loading, its dependencies, itself. That it comes last, as in Emscripten, gives C++ one
//! `type_info` for a class that a library and a dependency both define.

use std::sync::Arc;

use wasmtime::{Extern, Func, Ref, Val};

use super::error::{LinkError, LinkFailure};
use super::{Context, LinkState};
use crate::exports;
use crate::guest_memory::Ptr;
use crate::termination::Termination;
use crate::translate::{START_EXPORT, Symbol, Symbols};

/// The definition of a name.
#[derive(Debug, Clone, Copy)]
pub(super) enum Definition {
    /// A symbol of the main module, with its slot or address.
    Main(Symbol),
    /// A function of the host.
    Host(Func),
    /// A symbol of the library at this index, with its slot or address relative to the library's bases.
    Library(usize, Symbol),
}

/// Returns whether each module has its own definition of a name (`isInternalSym` in `libdylink.js`).
fn internal(name: &str) -> bool {
    const NAMES: [&str; 17] = [
        "memory",
        "__memory_base",
        "__table_base",
        "__stack_pointer",
        "__indirect_function_table",
        "__cpp_exception",
        "__c_longjmp",
        "__wasm_apply_data_relocs",
        "__wasm_apply_tls_relocs",
        "__dso_handle",
        "__tls_size",
        "__tls_align",
        "__tls_base",
        "__set_stack_limits",
        "_emscripten_tls_init",
        "__wasm_init_tls",
        "__wasm_call_ctors",
    ];
    NAMES.contains(&name) || name == START_EXPORT
}

/// Resolves `name` in the scope that all modules share: the main module, the host, and global libraries.
pub(super) fn resolve_global(store: &mut Context<'_>, name: &str) -> Result<Option<Definition>, LinkError> {
    if internal(name) {
        return Ok(None);
    }
    if let Some(&symbol) = main_symbols(store)?.0.get(name) {
        return Ok(Some(Definition::Main(symbol)));
    }
    if let Some(function) = host_function(store, name)? {
        return Ok(Some(Definition::Host(function)));
    }
    let linked = &store.data().linked;
    let globals = (0..linked.loaded.len()).filter(|&index| linked.get(index).is_some_and(|loaded| loaded.global));
    Ok(defined_in(linked, globals, name))
}

/// Resolves `name` in the scope of the library at `index`.
pub(super) fn resolve(store: &mut Context<'_>, index: usize, name: &str) -> Result<Option<Definition>, LinkError> {
    if let Some(definition) = resolve_global(store, name)? {
        return Ok(Some(definition));
    }
    let linked = &store.data().linked;
    let family = linked.with_dependencies(index);
    let own_last = family.iter().skip(1).chain(family.first()).copied();
    Ok(defined_in(linked, own_last, name))
}

/// Resolves `name` as `dlsym` does with the handle of a library: its own definition, else one of a dependency.
pub(super) fn resolve_in(linked: &LinkState, index: usize, name: &str) -> Option<Definition> {
    defined_in(linked, linked.with_dependencies(index), name)
}

fn defined_in(linked: &LinkState, libraries: impl IntoIterator<Item = usize>, name: &str) -> Option<Definition> {
    if internal(name) {
        return None;
    }
    libraries.into_iter().find_map(|index| {
        let symbol = linked.get(index)?.library.symbols.0.get(name)?;
        Some(Definition::Library(index, *symbol))
    })
}

/// Returns the main module's symbols, which are read on first use.
pub(super) fn main_symbols(store: &mut Context<'_>) -> Result<Arc<Symbols>, LinkError> {
    let linked = &mut store.data_mut().linked;
    if let Some(symbols) = &linked.main_symbols {
        return Ok(symbols.clone());
    }
    let symbols = linked.program()?.symbols().map_err(|error| LinkError::MainSymbols(error.to_string()))?;
    linked.main_symbols = Some(symbols.clone());
    Ok(symbols)
}

/// Returns the function that the main module defines as `name`, exported or not.
pub(crate) fn main_function(store: &mut Context<'_>, name: &str) -> Option<Func> {
    let symbols = main_symbols(store).ok()?;
    match symbols.0.get(name)? {
        Symbol::Function(slot) => function_in_slot(store, *slot).ok().flatten(),
        Symbol::Data(_) => None,
    }
}

/// Returns the address of the data that the main module defines as `name`, exported or not.
pub(crate) fn main_data(store: &mut Context<'_>, name: &str) -> Option<Ptr> {
    match main_symbols(store).ok()?.0.get(name)? {
        Symbol::Data(address) => Some(*address),
        Symbol::Function(_) => None,
    }
}

/// Returns the host's function `name`, which is created once per instance.
pub(super) fn host_function(store: &mut Context<'_>, name: &str) -> Result<Option<Func>, LinkError> {
    if let Some(&function) = store.data().linked.host_functions.get(name) {
        return Ok(Some(function));
    }
    let functions = store.data().linked.program()?.linker().clone();
    for module in ["env", "wasi_snapshot_preview1"] {
        if let Ok(Extern::Func(function)) = functions.get(&mut *store, module, name) {
            store.data_mut().linked.host_functions.insert(name.to_owned(), function);
            return Ok(Some(function));
        }
    }
    Ok(None)
}

/// Returns the function in a table slot; `None` if the slot is empty.
pub(super) fn function_in_slot(store: &mut Context<'_>, slot: u32) -> Result<Option<Func>, Termination> {
    let table = exports::main_module(store)?.table;
    Ok(match table.get(&mut *store, u64::from(slot)) {
        Some(Ref::Func(function)) => function,
        _ => None,
    })
}

/// Returns the address of a definition in C. A host function gets a table slot when its address is first taken.
pub(super) fn address(store: &mut Context<'_>, name: &str, definition: Definition) -> Result<Ptr, LinkFailure> {
    match definition {
        Definition::Main(Symbol::Function(address) | Symbol::Data(address)) => Ok(address),
        Definition::Host(function) => host_slot(store, name, function),
        Definition::Library(index, symbol) => Ok(library_address(store, index, name, symbol)),
    }
}

fn library_address(store: &mut Context<'_>, index: usize, name: &str, symbol: Symbol) -> Ptr {
    let Some(loaded) = store.data().linked.get(index) else { return 0 };
    let (base, offset) = match symbol {
        Symbol::Function(slot) => (loaded.table_base, slot),
        Symbol::Data(offset) => (loaded.memory_base, offset),
    };
    // Without threads there is one copy of thread-local data, which the linker places at `__tls_base`.
    let thread_local = loaded.library.dylink.tls.contains(name).then_some(loaded.instance).flatten();
    let thread_local = thread_local.and_then(|instance| instance.get_global(&mut *store, "__tls_base"));
    let base = match thread_local.map(|global| global.get(&mut *store)) {
        Some(Val::I32(tls_base)) => tls_base.cast_unsigned(),
        _ => base,
    };
    base.wrapping_add(offset)
}

fn host_slot(store: &mut Context<'_>, name: &str, function: Func) -> Result<Ptr, LinkFailure> {
    if let Some(&slot) = store.data().linked.host_slots.get(name) {
        return Ok(slot);
    }
    let table = exports::main_module(store)?.table;
    let grown = table.grow(&mut *store, 1, Ref::Func(Some(function))).ok();
    let slot = grown.and_then(|slot| u32::try_from(slot).ok());
    let slot = slot.ok_or_else(|| LinkError::OutOfMemory { path: name.to_owned() })?;
    store.data_mut().linked.host_slots.insert(name.to_owned(), slot);
    Ok(slot)
}
