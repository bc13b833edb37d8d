//! The system interface: every import of an Emscripten program that this host provides.
//!
//! One file per subject, each with a `define` that adds its functions to the linker. `env.__syscall_*` functions return
//! a negative errno, `wasi_snapshot_preview1.*` functions a positive one.

mod attributes;
mod calendar;
mod descriptors;
mod diagnostics;
mod directory_ops;
mod heap;
mod mapping;
mod name_lookup;
mod poll;
mod process;
mod random;
mod read_write;
mod result;
mod socket_address;
mod sockets;
mod time;

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
    directory_ops::define(linker)?;
    poll::define(linker)?;
    process::define(linker)?;
    random::define(linker)?;
    sockets::define(linker)?;
    time::define(linker)?;
    read_write::define(linker)?;
    crate::dylink::define(linker)?;
    crate::ffi::define(linker)?;
    Ok(())
}

/// Adapts the interface to the Emscripten release that built `module`, where function types differ between releases.
pub(crate) fn adapt_signatures(linker: &mut Linker<Host>, module: &Module) -> wasmtime::Result<()> {
    let answers = |import: ImportType<'_>| {
        import.name() == "_gmtime_js" && import.ty().func().is_some_and(|ty| ty.results().len() > 0)
    };
    if module.imports().any(answers) { time::define_answering(linker) } else { Ok(()) }
}
