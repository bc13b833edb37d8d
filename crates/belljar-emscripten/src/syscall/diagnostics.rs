//! Messages that Emscripten writes to a browser's console. They are written to the program's own standard streams.

use wasmtime::{Linker, Result};

use crate::console::Stream;
use crate::guest_memory::Ptr;
use crate::host::{Call, Host, split};

/// The maximum length in bytes of one message.
const MAX_MESSAGE: usize = 64 << 10;
/// `EM_LOG_WARN | EM_LOG_ERROR`.
const WARN_OR_ERROR: i32 = 2 | 4;

pub(super) fn define(linker: &mut Linker<Host>) -> Result<()> {
    linker.func_wrap("env", "emscripten_out", |mut call: Call<'_>, text: Ptr| {
        write_line(&mut call, Stream::Stdout, text)
    })?;
    for name in ["emscripten_err", "emscripten_dbg", "emscripten_log_impl_js"] {
        linker.func_wrap("env", name, |mut call: Call<'_>, text: Ptr| write_line(&mut call, Stream::Stderr, text))?;
    }
    linker.func_wrap("env", "_emscripten_log_formatted", |mut call: Call<'_>, flags: i32, text: Ptr| {
        let stream = if flags & WARN_OR_ERROR == 0 { Stream::Stdout } else { Stream::Stderr };
        write_line(&mut call, stream, text)
    })?;
    linker.func_wrap("env", "emscripten_debugger", || {})?;
    Ok(())
}

fn write_line(call: &mut Call<'_>, stream: Stream, text: Ptr) -> Result<()> {
    let (memory, host) = split(call)?;
    // An unreadable message is ignored rather than ending the program.
    let Ok(bytes) = memory.c_bytes(text, MAX_MESSAGE) else { return Ok(()) };
    let mut line = bytes.to_vec();
    line.push(b'\n');
    Ok(host.console.write(stream, &line)?)
}
