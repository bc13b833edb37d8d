//! The system interface: every import of an Emscripten program that this host serves.
//!
//! One file a subject; each has a `define` that adds its functions to the linker. `env.__syscall_*` functions answer
//! a negative errno, `wasi_snapshot_preview1.*` functions a positive one.

mod answer;
mod attributes;
mod calendar;
mod descriptors;
mod diagnostics;
mod heap;
mod mapping;
mod names;
mod poll;
mod process;
mod random;
mod sockets;
mod time;
mod transfer;

#[cfg(test)]
mod tests;

use wasmtime::{ImportType, Linker, Module};

use crate::host::Host;

/// Adds the whole interface to `linker`.
pub(crate) fn define(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    attributes::define(linker)?;
    descriptors::define(linker)?;
    diagnostics::define(linker)?;
    heap::define(linker)?;
    mapping::define(linker)?;
    names::define(linker)?;
    poll::define(linker)?;
    process::define(linker)?;
    random::define(linker)?;
    sockets::define(linker)?;
    time::define(linker)?;
    transfer::define(linker)?;
    crate::dylink::define(linker)?;
    crate::ffi::define(linker)?;
    Ok(())
}

/// Fits the interface to the Emscripten release that `module` was made with, where their types differ.
pub(crate) fn fit(linker: &mut Linker<Host>, module: &Module) -> wasmtime::Result<()> {
    let answers = |import: ImportType<'_>| {
        import.name() == "_gmtime_js" && import.ty().func().is_some_and(|ty| ty.results().len() > 0)
    };
    if module.imports().any(answers) { time::define_answering(linker) } else { Ok(()) }
}
