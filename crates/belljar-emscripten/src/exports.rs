//! Functions of the main module that the host calls by name: `malloc`, `__dl_seterr` and similar.

use wasmtime::{AsContextMut, Func, StoreContextMut, Val};

use crate::dylink;
use crate::guest_memory::Ptr;
use crate::host::{Host, MainModule};
use crate::termination::Termination;

/// Returns the main module's handles, given a store rather than a call.
pub(crate) fn main_module(store: &StoreContextMut<'_, Host>) -> Result<MainModule, Termination> {
    store.data().main.ok_or_else(|| Termination::Missing("memory".into()))
}

/// Returns the function that the main module defines as `name`: a retained export, or else a function in its table.
pub(crate) fn find(store: &mut StoreContextMut<'_, Host>, name: &str) -> Result<Func, Termination> {
    let main = main_module(store)?;
    if let Some(function) = main.instance.get_func(&mut *store, name) {
        return Ok(function);
    }
    dylink::main_function(store, name).ok_or_else(|| Termination::Missing(name.into()))
}

/// Calls the main module's function `name`, whose parameters are all 32-bit integers. Returns its result, or 0 if it
/// has none.
pub(crate) fn call(mut store: impl AsContextMut<Data = Host>, name: &str, arguments: &[u32]) -> wasmtime::Result<u32> {
    let mut store = store.as_context_mut();
    let function = find(&mut store, name)?;
    let arguments: Vec<Val> = arguments.iter().map(|&value| Val::I32(value.cast_signed())).collect();
    let mut results = vec![Val::I32(0); function.ty(&store).results().len()];
    function.call(&mut store, &arguments, &mut results)?;
    Ok(results.first().and_then(Val::i32).unwrap_or(0).cast_unsigned())
}

/// The guest's shadow stack pointer.
///
/// Host functions that put data on the guest's stack move the pointer and restore it. They set the global directly
/// instead of calling `emscripten_stack_*`, so that they can restore it while an exception propagates through the host.
pub(crate) struct ShadowStack {
    pointer: wasmtime::Global,
    before: Ptr,
    /// The lowest address of the stack; 0 if the program does not export it.
    end: Ptr,
}

impl ShadowStack {
    /// Records the present stack pointer.
    pub(crate) fn current(store: &mut StoreContextMut<'_, Host>) -> Result<Self, Termination> {
        let main = main_module(store)?;
        let missing = || Termination::Missing("__stack_pointer".into());
        let pointer = main.instance.get_global(&mut *store, "__stack_pointer").ok_or_else(missing)?;
        let before = pointer.get(&mut *store).i32().ok_or_else(missing)?.cast_unsigned();
        let end = main.instance.get_global(&mut *store, "__stack_low").map(|end| end.get(&mut *store));
        let end = end.and_then(|end| end.i32()).unwrap_or(0).cast_unsigned();
        Ok(Self { pointer, before, end })
    }

    /// Returns the lowest address of the stack.
    pub(crate) fn end(&self) -> Ptr {
        self.end
    }

    /// Returns the recorded stack pointer.
    pub(crate) fn top(&self) -> Ptr {
        self.before
    }

    /// Moves the stack pointer down to `address`.
    pub(crate) fn lower(&self, store: &mut StoreContextMut<'_, Host>, address: Ptr) -> wasmtime::Result<()> {
        self.pointer.set(&mut *store, Val::I32(address.cast_signed()))
    }

    /// Restores the recorded stack pointer.
    pub(crate) fn restore(self, store: &mut StoreContextMut<'_, Host>) -> wasmtime::Result<()> {
        self.pointer.set(&mut *store, Val::I32(self.before.cast_signed()))
    }
}
