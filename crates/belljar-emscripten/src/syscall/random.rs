//! Random bytes, from the host's own source.

use wasmtime::{Linker, Result};

use crate::Errno;
use crate::guest::Ptr;
use crate::host::{Call, Host, split};

/// Bytes made between two looks at the stop switch: a tenth of a millisecond's worth.
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
        if getrandom::fill(chunk).is_err() {
            return Ok(Errno::EIO.positive());
        }
    }
    Ok(0)
}
