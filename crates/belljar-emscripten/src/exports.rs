//! Functions of the main module that the host calls by name: `malloc`, `__dl_seterr` and the like.

use wasmtime::{AsContextMut, Func, StoreContextMut, Val};

use crate::dylink;
use crate::guest::Ptr;
use crate::host::{Host, MainModule, Termination};

/// The main module's handles, from a store rather than a call.
pub(crate) fn main_module(store: &StoreContextMut<'_, Host>) -> Result<MainModule, Termination> {
    store.data().main.ok_or_else(|| Termination::Missing("memory".into()))
}

/// The function that the main module defines as `name`: one of the exports it kept, or else one of its table's.
pub(crate) fn find(store: &mut StoreContextMut<'_, Host>, name: &str) -> Result<Func, Termination> {
    let main = main_module(store)?;
    if let Some(function) = main.instance.get_func(&mut *store, name) {
        return Ok(function);
    }
    dylink::main_function(store, name).ok_or_else(|| Termination::Missing(name.into()))
}

/// Calls such a function, whose parameters are all 32-bit integers, and gives the result or 0 when it has none.
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
/// Host functions that put something on the guest's stack move it and put it back. It is a global and not one of
/// `emscripten_stack_*`, so that it can be put back while an exception is on its way through the host.
pub(crate) struct ShadowStack {
    pointer: wasmtime::Global,
    before: Ptr,
}

impl ShadowStack {
    /// Where the stack stands now.
    pub(crate) fn enter(store: &mut StoreContextMut<'_, Host>) -> Result<Self, Termination> {
        let main = main_module(store)?;
        let missing = || Termination::Missing("__stack_pointer".into());
        let pointer = main.instance.get_global(&mut *store, "__stack_pointer").ok_or_else(missing)?;
        let before = pointer.get(&mut *store).i32().ok_or_else(missing)?.cast_unsigned();
        Ok(Self { pointer, before })
    }

    /// Its address on entry.
    pub(crate) fn top(&self) -> Ptr {
        self.before
    }

    /// Moves it down to `address`.
    pub(crate) fn lower(&self, store: &mut StoreContextMut<'_, Host>, address: Ptr) -> wasmtime::Result<()> {
        self.pointer.set(&mut *store, Val::I32(address.cast_signed()))
    }

    /// Puts it back where it was on entry.
    pub(crate) fn leave(self, store: &mut StoreContextMut<'_, Host>) -> wasmtime::Result<()> {
        self.pointer.set(&mut *store, Val::I32(self.before.cast_signed()))
    }
}
