//! Which definition a name stands for, and the address that stands for a definition.
//!
//! A library sees, in this order: the main module, the host's functions, libraries loaded with `RTLD_GLOBAL` in the
//! order of loading, the libraries it needs, itself. That it comes last, as in Emscripten, lets C++ have one `type_info`
//! for a class that a library and a needed one both define.

use std::sync::Arc;

use wasmtime::{Extern, Func, Ref, Val};

use super::error::{Failure, LinkError};
use super::{Context, Linked};
use crate::exports;
use crate::guest::Ptr;
use crate::host::Termination;
use crate::translate::{START_EXPORT, Symbol, Symbols};

/// Where a name is defined.
#[derive(Debug, Clone, Copy)]
pub(super) enum Definition {
    /// In the main module; slot or address as they are.
    Main(Symbol),
    /// By the host.
    Host(Func),
    /// In a library, by index; slot or address relative to its bases.
    Library(usize, Symbol),
}

/// Names that each module has for itself (`isInternalSym` in `libdylink.js`).
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

/// What `name` is to every module: in the main module, the host, or a global library.
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

/// What `name` is to the library at `index`.
pub(super) fn resolve(store: &mut Context<'_>, index: usize, name: &str) -> Result<Option<Definition>, LinkError> {
    if let Some(definition) = resolve_global(store, name)? {
        return Ok(Some(definition));
    }
    let linked = &store.data().linked;
    let family = linked.with_needed(index);
    let own_last = family.iter().skip(1).chain(family.first()).copied();
    Ok(defined_in(linked, own_last, name))
}

/// What `dlsym` finds with the handle of a library: its own definition, else one of a library that it needs.
pub(super) fn resolve_in(linked: &Linked, index: usize, name: &str) -> Option<Definition> {
    defined_in(linked, linked.with_needed(index), name)
}

fn defined_in(linked: &Linked, libraries: impl IntoIterator<Item = usize>, name: &str) -> Option<Definition> {
    if internal(name) {
        return None;
    }
    libraries.into_iter().find_map(|index| {
        let symbol = linked.get(index)?.library.symbols.0.get(name)?;
        Some(Definition::Library(index, *symbol))
    })
}

/// The main module's symbols, asked for when they are first needed.
pub(super) fn main_symbols(store: &mut Context<'_>) -> Result<Arc<Symbols>, LinkError> {
    let linked = &mut store.data_mut().linked;
    if let Some(symbols) = &linked.main_symbols {
        return Ok(symbols.clone());
    }
    let symbols = linked.program()?.symbols().map_err(|error| LinkError::MainSymbols(error.to_string()))?;
    linked.main_symbols = Some(symbols.clone());
    Ok(symbols)
}

/// The function that the main module defines as `name`, exported or not.
pub(crate) fn main_function(store: &mut Context<'_>, name: &str) -> Option<Func> {
    let symbols = main_symbols(store).ok()?;
    match symbols.0.get(name)? {
        Symbol::Function(slot) => function_in_slot(store, *slot).ok().flatten(),
        Symbol::Data(_) => None,
    }
}

/// The host's function `name`. It is made once in an instance, however often it is asked for.
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

/// The function in a table slot, if there is one.
pub(super) fn function_in_slot(store: &mut Context<'_>, slot: u32) -> Result<Option<Func>, Termination> {
    let table = exports::main_module(store)?.table;
    Ok(match table.get(&mut *store, u64::from(slot)) {
        Some(Ref::Func(function)) => function,
        _ => None,
    })
}

/// The address that C knows a definition by. A host function gets a table slot when its address is first taken.
pub(super) fn address(store: &mut Context<'_>, name: &str, definition: Definition) -> Result<Ptr, Failure> {
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
    // Without threads there is one copy of thread-local data, which the linker lets begin at `__tls_base`.
    let thread_local = loaded.library.dylink.tls.contains(name).then_some(loaded.instance).flatten();
    let thread_local = thread_local.and_then(|instance| instance.get_global(&mut *store, "__tls_base"));
    let base = match thread_local.map(|global| global.get(&mut *store)) {
        Some(Val::I32(tls_base)) => tls_base.cast_unsigned(),
        _ => base,
    };
    base.wrapping_add(offset)
}

fn host_slot(store: &mut Context<'_>, name: &str, function: Func) -> Result<Ptr, Failure> {
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
