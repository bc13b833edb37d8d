//! Random bytes.

use wasmtime::{Linker, Result};

use crate::guest_memory::Ptr;
use crate::host::{Call, Host, split};

/// The number of bytes generated between two checks for a stop: about a tenth of a millisecond.
const CHUNK: usize = 32 << 10;

pub(super) fn define(linker: &mut Linker<Host>) -> Result<()> {
    linker.func_wrap("wasi_snapshot_preview1", "random_get", random_get)?;
    Ok(())
}

fn random_get(mut call: Call<'_>, buffer: Ptr, length: u32) -> Result<i32> {
    let (mut memory, host) = split(&mut call)?;
    let bytes = match memory.slice_mut(buffer, length) {
        Ok(bytes) => bytes,
        Err(errno) => return Ok(errno.positive()),
    };
    for chunk in bytes.chunks_mut(CHUNK) {
        host.stop.check()?;
        if let Err(errno) = host.clock.sources().fill_random(chunk) {
            return Ok(errno.positive());
        }
    }
    Ok(0)
}
