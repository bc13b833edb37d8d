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

use wasmtime::Linker;

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
