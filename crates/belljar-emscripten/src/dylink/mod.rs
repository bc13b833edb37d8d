//! Dynamic linking as Emscripten does it: `dlopen` of side modules.

use wasmtime::{Func, Linker, StoreContextMut};

use crate::host::Host;

/// The libraries that one instance has loaded.
#[derive(Default)]
pub(crate) struct Linked {}

pub(crate) fn define(_: &mut Linker<Host>) -> wasmtime::Result<()> {
    Ok(())
}

pub(crate) fn main_function(_: &mut StoreContextMut<'_, Host>, _: &str) -> Option<Func> {
    None
}
