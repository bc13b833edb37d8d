//! Instantiates a library at given bases. Used for loading, which determines the origin of each imported function, and
//! for restoring, where the origins are known.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use wasmtime::{
    AsContextMut, Extern, ExternType, Func, FuncType, Global, GlobalType, Instance, Mutability, Val, ValType,
};

use super::Context;
use super::error::{LinkError, LinkFailure};
use super::lazy::LazyInstance;
use super::library::Import;
use super::load::library_error;
use super::scope::{self, Definition};
use crate::exports;
use crate::host::Call;
use crate::termination::Termination;
use crate::translate::Symbol;

/// The origin of an imported function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Binding {
    /// The function in this table slot, of the main module or of a library instantiated earlier.
    Slot(u32),
    /// The host's function of the import's name.
    Host,
    /// Looked up when it is first called: a function of the library itself or of one instantiated later, or undefined.
    Lazy,
}

/// Instantiates the library at `index`, whose bases are set. `bindings` are the origins of its functions, which are
/// looked up if it is `None`. Writes the library's functions into the table, but does not write to memory.
pub(super) fn instantiate(
    store: &mut Context<'_>,
    index: usize,
    bindings: Option<Vec<Binding>>,
) -> Result<(), LinkFailure> {
    let Some(loaded) = store.data().linked.get(index) else { return Ok(()) };
    let (library, path) = (loaded.library.clone(), loaded.path.clone());
    let (memory_base, table_base) = (loaded.memory_base, loaded.table_base);
    let main = exports::main_module(store)?;

    let mut imports: Vec<Extern> = Vec::with_capacity(library.imports.len());
    let mut addresses: BTreeMap<String, Global> = BTreeMap::new();
    let mut bound = Vec::new();
    let mut known = bindings.map(Vec::into_iter);
    for (import, declared) in library.imports.iter().zip(library.module.imports()) {
        let mismatch = |symbol: &str, reason: String| LinkError::Mismatch {
            symbol: symbol.to_owned(),
            library: path.to_string(),
            reason,
        };
        imports.push(match import {
            Import::MemoryBase => global(store, memory_base, Mutability::Const)?.into(),
            Import::TableBase => global(store, table_base, Mutability::Const)?.into(),
            Import::Address(name) => match addresses.get(name) {
                Some(&known) => known.into(),
                None => {
                    let address = global(store, 0, Mutability::Var)?;
                    addresses.insert(name.clone(), address);
                    address.into()
                }
            },
            Import::Main(name) => main
                .instance
                .get_export(&mut *store, name)
                .ok_or_else(|| LinkError::Undefined { symbol: name.clone(), library: path.to_string() })?,
            Import::Function(name) => {
                let ExternType::Func(ty) = declared.ty() else { continue };
                let binding = match known.as_mut().map(Iterator::next) {
                    Some(binding) => binding.unwrap_or(Binding::Lazy),
                    None => bind(store, index, name)?,
                };
                let function = match binding {
                    Binding::Slot(slot) => scope::function_in_slot(store, slot)?
                        .ok_or_else(|| mismatch(name, format!("slot {slot} holds no function")))?,
                    Binding::Host => scope::host_function(store, name)?
                        .ok_or_else(|| mismatch(name, "the host has no such function".into()))?,
                    Binding::Lazy => forwarder(store, index, name, ty.clone()),
                };
                let defined = function.ty(&*store);
                if !FuncType::eq(&defined, &ty) {
                    return Err(mismatch(name, format!("it is called as {ty} and defined as {defined}")).into());
                }
                bound.push(binding);
                function.into()
            }
        });
    }

    // No guest code runs here, so an error concerns the library.
    let instance =
        Instance::new(&mut *store, &library.module, &imports).map_err(|error| library_error(&path, &error))?;
    let lazy = match library.lazy {
        Some(_) => Some(LazyInstance::new(store, index, instance, imports)?),
        None => None,
    };
    if let Some(loaded) = store.data_mut().linked.get_mut(index) {
        loaded.instance = Some(instance);
        loaded.lazy = lazy;
        loaded.addresses = addresses;
        loaded.bindings = bound;
    }
    Ok(())
}

fn global(store: &mut Context<'_>, value: u32, mutability: Mutability) -> wasmtime::Result<Global> {
    Global::new(&mut *store, GlobalType::new(ValType::I32, mutability), Val::I32(value.cast_signed()))
}

/// Returns the origin of the function `name`, which the library at `index` imports.
fn bind(store: &mut Context<'_>, index: usize, name: &str) -> Result<Binding, LinkError> {
    Ok(match scope::resolve(store, index, name)? {
        Some(Definition::Main(Symbol::Function(slot))) => Binding::Slot(slot),
        Some(Definition::Host(_)) => Binding::Host,
        Some(Definition::Library(owner, Symbol::Function(slot))) => match store.data().linked.get(owner) {
            Some(owner) if owner.instance.is_some() => Binding::Slot(owner.table_base.wrapping_add(slot)),
            _ => Binding::Lazy,
        },
        Some(Definition::Main(Symbol::Data(_)) | Definition::Library(_, Symbol::Data(_))) | None => Binding::Lazy,
    })
}

/// Creates a function that looks its target up when it is first called.
fn forwarder(store: &mut Context<'_>, index: usize, name: &str, ty: FuncType) -> Func {
    let name: Arc<str> = name.into();
    let found: OnceLock<Func> = OnceLock::new();
    Func::new(&mut *store, ty, move |mut call: Call<'_>, arguments, results| {
        let function = match found.get() {
            Some(&function) => function,
            None => {
                let function = find(&mut call.as_context_mut(), index, &name)?;
                *found.get_or_init(|| function)
            }
        };
        function.call(&mut call, arguments, results)
    })
}

fn find(store: &mut Context<'_>, index: usize, name: &str) -> Result<Func, Termination> {
    let slot = match scope::resolve(store, index, name) {
        Ok(Some(Definition::Host(function))) => return Ok(function),
        Ok(Some(Definition::Main(Symbol::Function(slot)))) => Some(slot),
        Ok(Some(Definition::Library(owner, Symbol::Function(slot)))) => {
            store.data().linked.get(owner).map(|owner| owner.table_base.wrapping_add(slot))
        }
        _ => None,
    };
    let function = match slot {
        Some(slot) => scope::function_in_slot(store, slot)?,
        None => None,
    };
    function.ok_or_else(|| {
        let library = store.data().linked.get(index).map(|loaded| loaded.path.to_string()).unwrap_or_default();
        Termination::Undefined { symbol: name.to_owned(), library }
    })
}
