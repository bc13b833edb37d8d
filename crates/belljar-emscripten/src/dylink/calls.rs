//! The host functions behind libc's `dlopen`, `dlsym` and `dlerror`. libc implements `dlclose` alone: libraries are
//! never unloaded.

use wasmtime::{AsContextMut, Linker, Result, Trap};

use super::error::{LinkError, LinkFailure};
use super::load::{self, Mode};
use super::{Context, scope};
use crate::Errno;
use crate::exports::{self, ShadowStack};
use crate::guest_memory::{GuestMemory, PATH_MAX, Ptr, field};
use crate::host::{Call, Host};
use crate::termination::Termination;

/// Offsets into `struct dso` (`system/lib/libc/dynlink.c`, read by `libdylink.js`).
///
/// libc also reads the whole file into memory and stores its address at offset 28. The guest can change those bytes, so
/// they are never used: the host has the file itself.
mod dso {
    pub(super) const FLAGS: u32 = 4;
    pub(super) const MEMORY_ALLOCATED: u32 = 8;
    pub(super) const MEMORY_BASE: u32 = 12;
    pub(super) const MEMORY_SIZE: u32 = 16;
    pub(super) const TABLE_BASE: u32 = 20;
    pub(super) const TABLE_SIZE: u32 = 24;
    pub(super) const NAME: u32 = 36;
}

const RTLD_NOLOAD: u32 = 4;
const RTLD_GLOBAL: u32 = 256;
/// The handle of the main module and of all global symbols.
const RTLD_DEFAULT: Ptr = 0;
/// The maximum length in bytes of an error message for the guest.
const MAX_MESSAGE: usize = 1000;

pub(crate) fn define(linker: &mut Linker<Host>) -> Result<()> {
    linker.func_wrap("env", "_dlopen_js", dlopen)?;
    linker.func_wrap("env", "_emscripten_dlopen_js", dlopen_with_callbacks)?;
    linker.func_wrap("env", "_dlsym_js", dlsym)?;
    // With threads, this shares a resolved symbol with other threads. Here there is only one.
    linker.func_wrap("env", "_dlsym_catchup_js", |_: i32, _: i32| 0)?;
    Ok(())
}

/// Loads the library that the `struct dso` at `handle` names. Returns 1, or 0 after setting `dlerror`.
fn dlopen(mut call: Call<'_>, handle: Ptr) -> Result<i32> {
    let mut store = call.as_context_mut();
    match open(&mut store, handle) {
        Ok(()) => Ok(1),
        Err(failure) => report(&mut store, failure).map(|()| 0),
    }
}

/// Implements `emscripten_dlopen`: loads the library at once like `dlopen`, and then calls one of two functions.
fn dlopen_with_callbacks(mut call: Call<'_>, handle: Ptr, success: u32, error: u32, user_data: Ptr) -> Result<()> {
    let mut store = call.as_context_mut();
    let callback = match open(&mut store, handle) {
        Ok(()) => success,
        Err(failure) => {
            report(&mut store, failure)?;
            error
        }
    };
    let callback = scope::function_in_slot(&mut store, callback)?.ok_or(Trap::IndirectCallToNull)?;
    let callback = callback.typed::<(u32, u32), ()>(&call).map_err(|_| Trap::BadSignature)?;
    callback.call(&mut call, (handle, user_data))
}

fn open(store: &mut Context<'_>, handle: Ptr) -> Result<(), LinkFailure> {
    let request = with_memory(store, |memory| read_request(memory, handle))?.map_err(|_| LinkError::Name)?;
    let (index, new) = load::open(store, &request.name, request.mode)?;
    store.data_mut().linked.handles.insert(handle, index);
    if !new {
        return Ok(());
    }
    let Some(loaded) = store.data().linked.get(index) else { return Ok(()) };
    let (memory_base, table_base) = (loaded.memory_base, loaded.table_base);
    let (memory_size, table_size) = (loaded.library.dylink.memory_size, loaded.library.dylink.table_size);
    let written = with_memory(store, |memory| {
        memory.write_u8(field(handle, dso::MEMORY_ALLOCATED)?, 1)?;
        memory.write_u32(field(handle, dso::MEMORY_BASE)?, memory_base)?;
        memory.write_u32(field(handle, dso::MEMORY_SIZE)?, memory_size)?;
        memory.write_u32(field(handle, dso::TABLE_BASE)?, table_base)?;
        memory.write_u32(field(handle, dso::TABLE_SIZE)?, table_size)
    })?;
    Ok(written.map_err(|_| LinkError::Name)?)
}

struct DlopenRequest {
    name: String,
    mode: Mode,
}

fn read_request(memory: &mut GuestMemory<'_>, handle: Ptr) -> Result<DlopenRequest, Errno> {
    let flags = memory.read_u32(field(handle, dso::FLAGS)?)?;
    Ok(DlopenRequest {
        name: memory.path(field(handle, dso::NAME)?)?.to_owned(),
        mode: Mode { global: flags & RTLD_GLOBAL != 0, only_loaded: flags & RTLD_NOLOAD != 0 },
    })
}

/// Returns the address of `symbol` in the library of `handle` and those it needs, or 0 after setting `dlerror`.
fn dlsym(mut call: Call<'_>, handle: Ptr, symbol: Ptr, _index: Ptr) -> Result<Ptr> {
    let mut store = call.as_context_mut();
    match find(&mut store, handle, symbol) {
        Ok(address) => Ok(address),
        Err(failure) => report(&mut store, failure).map(|()| 0),
    }
}

fn find(store: &mut Context<'_>, handle: Ptr, symbol: Ptr) -> Result<Ptr, LinkFailure> {
    let name = with_memory(store, |memory| Ok(memory.c_bytes(symbol, PATH_MAX)?.to_vec()))?;
    let name = name.ok().and_then(|name| String::from_utf8(name).ok()).ok_or(LinkError::Name)?;
    let definition = if handle == RTLD_DEFAULT {
        scope::resolve_global(store, &name)?
    } else {
        let linked = &store.data().linked;
        let index = *linked.handles.get(&handle).ok_or(LinkError::Handle(handle))?;
        scope::resolve_in(linked, index, &name)
    };
    match definition {
        Some(definition) => scope::address(store, &name, definition),
        None => {
            let linked = &store.data().linked;
            let loaded = linked.handles.get(&handle).and_then(|&index| linked.get(index));
            let library = loaded.map_or_else(|| "__main__".to_owned(), |loaded| loaded.path.to_string());
            Err(LinkError::Symbol { symbol: name, library }.into())
        }
    }
}

fn with_memory<R>(
    store: &mut Context<'_>,
    f: impl FnOnce(&mut GuestMemory<'_>) -> Result<R, Errno>,
) -> Result<Result<R, Errno>, Termination> {
    let main = exports::main_module(store)?;
    Ok(f(&mut GuestMemory::new(main.memory.data_mut(&mut *store))))
}

/// Sets `dlerror`, or continues unwinding.
fn report(store: &mut Context<'_>, failure: LinkFailure) -> Result<()> {
    let error = match failure {
        LinkFailure::Link(error) => error,
        LinkFailure::Unwind(error) => return Err(error),
    };
    // `__dl_seterr` takes a format string like `printf`.
    let mut message = error.to_string().replace('%', "%%").replace('\0', " ").into_bytes();
    message.truncate(MAX_MESSAGE);
    message.push(0);

    let stack = ShadowStack::current(store)?;
    let length = u32::try_from(message.len()).map_err(|_| Trap::MemoryOutOfBounds)?;
    let text = stack.top().saturating_sub(length) & !15;
    with_memory(store, |memory| memory.write(text, &message))?.map_err(|_| Trap::MemoryOutOfBounds)?;
    stack.lower(store, text)?;
    let set = exports::call(&mut *store, "__dl_seterr", &[text, 0]);
    stack.restore(store)?;
    set.map(drop)
}
