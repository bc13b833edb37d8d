//! Saving and restoring an instance's libraries.
//!
//! A library's memory is part of the snapshot, so restoring a library means to instantiate it again at the same bases,
//! which fills its table slots, and to set its addresses and other globals. Memory is not written, and no guest code
//! runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wasmtime::{AsContextMut, Global, Instance, Mutability, Ref, Store, Val, ValType};

use super::error::LinkFailure;
use super::instantiate::{Binding, instantiate};
use super::{Context, Library, LibraryHash, LoadedLibrary, scope};
use crate::exports;
use crate::ffi::{self, ClosureSnapshot};
use crate::fs::Filesystem;
use crate::guest_memory::Ptr;
use crate::host::Host;
use crate::instance::InstanceError;
use crate::program::Program;

/// The state of the dynamic linker and libffi. Contains no compiled code: libraries are identified by their hash.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct LinkSnapshot {
    libraries: Vec<LibrarySnapshot>,
    handles: BTreeMap<Ptr, usize>,
    host_slots: BTreeMap<String, u32>,
    closures: ClosureSnapshot,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct LibrarySnapshot {
    path: Arc<str>,
    hash: LibraryHash,
    memory_base: Ptr,
    table_base: u32,
    global: bool,
    needed: Vec<usize>,
    addresses: BTreeMap<String, u32>,
    /// The library's mutable globals, as bits.
    globals: BTreeMap<String, u64>,
    bindings: Vec<Binding>,
}

/// Returns the libraries of a snapshot, for [`restore`].
///
/// # Errors
/// Fails if the host does not have one of them, or has another in its place.
pub(crate) fn find_libraries(
    link: &LinkSnapshot,
    files: &mut Filesystem,
    program: &Program,
) -> Result<Vec<Arc<Library>>, InstanceError> {
    link.libraries.iter().map(|saved| find_library(saved, files, program)).collect()
}

fn find_library(
    saved: &LibrarySnapshot,
    files: &mut Filesystem,
    program: &Program,
) -> Result<Arc<Library>, InstanceError> {
    let libraries = program
        .libraries()
        .ok_or_else(|| snapshot_error("it contains libraries, but dynamic loading is not available".into()))?;
    if let Some(library) = libraries.known(&saved.hash) {
        return Ok(library);
    }
    let path = &saved.path;
    let bytes = files.unmodified(path).ok_or_else(|| snapshot_error(format!("its library {path} is missing")))?;
    let library = libraries
        .library(&bytes)
        .map_err(|error| snapshot_error(format!("failed to load its library {path}: {error}")))?;
    if library.hash != saved.hash {
        return Err(snapshot_error(format!("its library {path} has another version")));
    }
    Ok(library)
}

fn snapshot_error(what: String) -> InstanceError {
    InstanceError::Snapshot(what)
}

impl From<LinkFailure> for InstanceError {
    fn from(failure: LinkFailure) -> Self {
        match failure {
            LinkFailure::Link(error) => snapshot_error(error.to_string()),
            LinkFailure::Unwind(error) => error.into(),
        }
    }
}

/// Captures the libraries and closures of an instance that is not running.
pub(crate) fn capture(store: &mut Store<Host>) -> LinkSnapshot {
    let mut store = store.as_context_mut();
    let linked = &store.data().linked;
    // Entries of failed loads are left out.
    let live: Vec<usize> = (0..linked.loaded.len()).filter(|&index| linked.get(index).is_some()).collect();
    let renumbered = |index: usize| live.binary_search(&index).ok();
    let handles = linked.handles.iter().filter_map(|(&handle, &index)| Some((handle, renumbered(index)?))).collect();
    let host_slots = linked.host_slots.clone();
    let closures = store.data().closures.snapshot();

    let mut libraries = Vec::with_capacity(live.len());
    for &index in &live {
        let addresses = store.data().linked.get(index).map(|loaded| loaded.addresses.clone()).unwrap_or_default();
        let values = addresses.into_iter().map(|(name, global)| {
            let value = global.get(&mut store).i32().unwrap_or(0);
            (name, value.cast_unsigned())
        });
        let addresses = values.collect();
        let instance = store.data().linked.get(index).and_then(|loaded| loaded.instance);
        let globals = instance.map(|instance| global_values(&mut store, instance)).unwrap_or_default();
        let Some(loaded) = store.data().linked.get(index) else { continue };
        libraries.push(LibrarySnapshot {
            path: loaded.path.clone(),
            hash: loaded.library.hash,
            memory_base: loaded.memory_base,
            table_base: loaded.table_base,
            global: loaded.global,
            needed: loaded.needed.iter().filter_map(|&needed| renumbered(needed)).collect(),
            addresses,
            globals,
            bindings: loaded.bindings.clone(),
        });
    }
    LinkSnapshot { libraries, handles, host_slots, closures }
}

/// Restores the state that [`capture`] returned, in a fresh instance of the same main module whose memory and table
/// size are already those of the snapshot. `libraries` is the result of [`find_libraries`].
pub(crate) fn restore(
    store: &mut Store<Host>,
    link: &LinkSnapshot,
    libraries: &[Arc<Library>],
) -> Result<(), InstanceError> {
    let mut store = store.as_context_mut();
    for (index, (saved, library)) in link.libraries.iter().zip(libraries).enumerate() {
        let loaded = LoadedLibrary::new(saved.path.clone(), library.clone(), saved.needed.clone(), saved.global);
        let loaded = LoadedLibrary { memory_base: saved.memory_base, table_base: saved.table_base, ..loaded };
        store.data_mut().linked.loaded.push(Some(loaded));
        instantiate(&mut store, index, Some(saved.bindings.clone()))?;
        set_addresses(&mut store, index, &saved.addresses)?;
        set_globals(&mut store, index, &saved.globals)?;
    }
    restore_host_slots(&mut store, &link.host_slots)?;
    store.data_mut().linked.handles.clone_from(&link.handles);
    Ok(ffi::restore(&mut store, &link.closures)?)
}

fn set_addresses(store: &mut Context<'_>, index: usize, saved: &BTreeMap<String, u32>) -> Result<(), InstanceError> {
    let Some(loaded) = store.data().linked.get(index) else { return Ok(()) };
    for (name, global) in loaded.addresses.clone() {
        let address = saved.get(&name).ok_or_else(|| snapshot_error(format!("it lacks the address of `{name}`")))?;
        global.set(&mut *store, Val::I32(address.cast_signed()))?;
    }
    Ok(())
}

/// Returns the mutable globals of a library; the translator exports them all.
fn mutable_globals(store: &mut Context<'_>, instance: Instance) -> Vec<(String, Global)> {
    let exports = instance.exports(&mut *store);
    let globals: Vec<_> =
        exports.filter_map(|export| Some((export.name().to_owned(), export.into_global()?))).collect();
    globals.into_iter().filter(|(_, global)| global.ty(&*store).mutability() == Mutability::Var).collect()
}

fn global_values(store: &mut Context<'_>, instance: Instance) -> BTreeMap<String, u64> {
    let globals = mutable_globals(store, instance);
    let mut value = |global: Global| match global.get(&mut *store) {
        Val::I32(value) => value.cast_unsigned().into(),
        Val::I64(value) => value.cast_unsigned(),
        Val::F32(bits) => bits.into(),
        Val::F64(bits) => bits,
        // `Library::new` refuses other types.
        _ => 0,
    };
    globals.into_iter().map(|(name, global)| (name, value(global))).collect()
}

fn set_globals(store: &mut Context<'_>, index: usize, saved: &BTreeMap<String, u64>) -> Result<(), InstanceError> {
    let Some(instance) = store.data().linked.get(index).and_then(|loaded| loaded.instance) else { return Ok(()) };
    for (name, global) in mutable_globals(store, instance) {
        let bits = *saved.get(&name).ok_or_else(|| snapshot_error(format!("it lacks the global `{name}`")))?;
        let low = u32::try_from(bits & u64::from(u32::MAX)).unwrap_or_default();
        let value = match global.ty(&*store).content() {
            ValType::I64 => Val::I64(bits.cast_signed()),
            ValType::F32 => Val::F32(low),
            ValType::F64 => Val::F64(bits),
            _ => Val::I32(low.cast_signed()),
        };
        global.set(&mut *store, value)?;
    }
    Ok(())
}

fn restore_host_slots(store: &mut Context<'_>, slots: &BTreeMap<String, u32>) -> Result<(), InstanceError> {
    let table = exports::main_module(store)?.table;
    for (name, &slot) in slots {
        let function = scope::host_function(store, name).map_err(LinkFailure::from)?;
        let function = function.ok_or_else(|| snapshot_error(format!("the host has no function `{name}`")))?;
        table.set(&mut *store, u64::from(slot), Ref::Func(Some(function)))?;
    }
    store.data_mut().linked.host_slots.clone_from(slots);
    Ok(())
}
