//! The system interface: every import of an Emscripten program that this host serves.
//!
//! One file a subject; each has a `define` that adds its functions to the linker. `env.__syscall_*` functions answer
//! a negative errno, `wasi_snapshot_preview1.*` functions a positive one.

mod calendar;
mod diagnostics;
mod heap;
mod process;
mod random;
mod sockets;
mod time;

use wasmtime::Linker;

use crate::host::Host;

/// Adds the whole interface to `linker`.
pub(crate) fn define(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    diagnostics::define(linker)?;
    heap::define(linker)?;
    process::define(linker)?;
    random::define(linker)?;
    sockets::define(linker)?;
    time::define(linker)?;
    crate::dylink::define(linker)?;
    crate::ffi::define(linker)?;
    Ok(())
}
