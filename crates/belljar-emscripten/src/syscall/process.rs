//! The process: its exit, environment and identity.

use wasmtime::{AsContextMut, Linker, Ref, Result, Trap};

use crate::exports;
use crate::guest_memory::{GuestMemory, Ptr};
use crate::host::{Call, Host, main_module, split};
use crate::termination::Termination;
use crate::{Errno, guest_memory};

/// The program name that Emscripten uses.
const PROGRAM: &[u8] = b"./this.program";
/// The maximum length in bytes of a reported assertion.
const MAX_ASSERTION: usize = 512;

pub(super) fn define(linker: &mut Linker<Host>) -> Result<()> {
    const WASI: &str = "wasi_snapshot_preview1";
    linker.func_wrap(WASI, "proc_exit", |status: i32| Err::<(), _>(Termination::Exit(status).into()))?;
    linker.func_wrap(WASI, "environ_sizes_get", environ_sizes_get)?;
    linker.func_wrap(WASI, "environ_get", environ_get)?;
    linker.func_wrap("env", "exit", exit)?;
    linker.func_wrap("env", "_abort_js", || Err::<(), _>(Termination::Abort("abort() was called".into()).into()))?;
    linker.func_wrap("env", "__assert_fail", assert_fail)?;
    linker.func_wrap("env", "_emscripten_system", system)?;
    linker.func_wrap("env", "_emscripten_get_progname", get_progname)?;
    linker.func_wrap("env", "__call_sighandler", call_sighandler)?;
    // libc itself returns the effective user and the groups, as 0 too.
    for name in ["__syscall_getuid32_js", "__syscall_geteuid32", "__syscall_getgid32", "__syscall_getegid32"] {
        linker.func_wrap("env", name, || 0)?;
    }
    for keepalive in
        ["emscripten_runtime_keepalive_push", "emscripten_runtime_keepalive_pop", "_emscripten_runtime_keepalive_clear"]
    {
        // These control whether the program stays alive after `main`. Here it always does, until the host drops it.
        linker.func_wrap("env", keepalive, || {})?;
    }
    Ok(())
}

/// Implements `exit`: runs the functions registered with `atexit` and flushes `stdio`, as Emscripten's `exitRuntime`
/// does, and then ends the program.
fn exit(mut call: Call<'_>, status: i32) -> Result<()> {
    for (finisher, arguments) in [("__funcs_on_exit", &[][..]), ("fflush", &[0][..])] {
        match exports::find(&mut call.as_context_mut(), finisher) {
            Ok(_) => exports::call(&mut call, finisher, arguments)?,
            Err(_) => continue,
        };
    }
    Err(Termination::Exit(status).into())
}

fn assert_fail(mut call: Call<'_>, condition: Ptr, file: Ptr, line: i32, function: Ptr) -> Result<()> {
    let (memory, _) = split(&mut call)?;
    let text = |ptr| match memory.c_bytes(ptr, MAX_ASSERTION) {
        Ok(bytes) if ptr != 0 => String::from_utf8_lossy(bytes).into_owned(),
        _ => "?".to_owned(),
    };
    let (condition, file, function) = (text(condition), text(file), text(function));
    Err(Termination::Abort(format!("assertion failed: {condition}, at {file}:{line}, in {function}")).into())
}

fn environ_sizes_get(mut call: Call<'_>, count: Ptr, bytes: Ptr) -> Result<i32> {
    let (mut memory, host) = split(&mut call)?;
    let total: usize = host.environment.iter().map(|entry| entry.len() + 1).sum();
    let mut write = || -> Result<(), Errno> {
        memory.write_u32(count, u32::try_from(host.environment.len()).map_err(|_| Errno::EOVERFLOW)?)?;
        memory.write_u32(bytes, u32::try_from(total).map_err(|_| Errno::EOVERFLOW)?)
    };
    Ok(write().map_or_else(Errno::positive, |()| 0))
}

fn environ_get(mut call: Call<'_>, pointers: Ptr, strings: Ptr) -> Result<i32> {
    fn write(memory: &mut GuestMemory<'_>, entries: &[String], pointers: Ptr, strings: Ptr) -> Result<(), Errno> {
        let (mut pointer, mut string) = (pointers, strings);
        for entry in entries {
            memory.write_u32(pointer, string)?;
            pointer = guest_memory::field(pointer, 4)?;
            let length = u32::try_from(entry.len()).map_err(|_| Errno::EOVERFLOW)?;
            memory.write(string, entry.as_bytes())?;
            string = guest_memory::field(string, length)?;
            memory.write_u8(string, 0)?;
            string = guest_memory::field(string, 1)?;
        }
        Ok(())
    }
    let (mut memory, host) = split(&mut call)?;
    Ok(write(&mut memory, &host.environment, pointers, strings).map_or_else(Errno::positive, |()| 0))
}

/// Implements `system`: returns 0 if asked whether a shell exists, and fails with `ENOSYS` otherwise.
fn system(command: Ptr) -> i32 {
    if command == 0 { 0 } else { Errno::ENOSYS.negative() }
}

fn get_progname(mut call: Call<'_>, buffer: Ptr, length: i32) -> Result<()> {
    let (mut memory, _) = split(&mut call)?;
    if let Some(room) = usize::try_from(length).ok().and_then(|length| length.checked_sub(1)) {
        let mut name = PROGRAM[..PROGRAM.len().min(room)].to_vec();
        name.push(0);
        // An error cannot be reported.
        let _ = memory.write(buffer, &name);
    }
    Ok(())
}

/// Calls the guest's signal handler `handler` with `signal`.
fn call_sighandler(mut call: Call<'_>, handler: u32, signal: i32) -> Result<()> {
    let table = main_module(&call)?.table;
    match table.get(&mut call, u64::from(handler)) {
        Some(Ref::Func(Some(function))) => {
            let function = function.typed::<i32, ()>(&call).map_err(|_| Trap::BadSignature)?;
            function.call(&mut call, signal)
        }
        Some(_) => Err(Trap::IndirectCallToNull.into()),
        None => Err(Trap::TableOutOfBounds.into()),
    }
}
