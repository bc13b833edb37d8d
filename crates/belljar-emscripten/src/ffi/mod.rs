//! libffi's host functions: calls to functions whose signature is only known at run time, and functions created at run
//! time for others to call. They are needed by `ctypes`.
//!
//! Source: libffi's `src/wasm32/ffi.c`, whose four `EM_JS` functions these replace.
//!
//! Invariant: whatever pointers the guest passes, a call ends with a result, an error that the embedder reports to the
//! guest ([`ForeignCalls`]), or a [`Termination`], never a panic.

mod call;
mod callback;
mod types;
mod variadic;

use wasmtime::{Func, Linker, Ref, Result, StoreContextMut};

pub(crate) use callback::{ClosureSnapshot, Closures, restore};
use types::invalid_call;
pub(crate) use variadic::variadic_slots;

use crate::Errno;
use crate::exports;
use crate::guest_caller::GuestCaller;
use crate::host::Host;
use crate::termination::Termination;

/// The alignment of the guest's stack pointer.
const STACK_ALIGN: u32 = 16;

/// The embedder's part in the guest's calls through libffi: see
/// [`Program::set_foreign_calls`](crate::Program::set_foreign_calls).
#[derive(Debug, Clone, Copy)]
pub struct ForeignCalls {
    /// The program's variadic functions other than those of the C library.
    pub variadic: &'static [&'static str],
    /// Reports an invalid call, which was not made, to the code that tried to make it. That code then continues with a
    /// result of zeros. The text describes the error.
    pub report: fn(&mut GuestCaller<'_, '_>, &str) -> Result<()>,
}

pub(crate) fn define(linker: &mut Linker<Host>) -> Result<()> {
    linker.func_wrap("env", "ffi_call_js", call::ffi_call)?;
    linker.func_wrap("env", "ffi_closure_alloc_js", callback::alloc)?;
    linker.func_wrap("env", "ffi_closure_free_js", callback::free)?;
    linker.func_wrap("env", "ffi_prep_closure_loc_js", callback::prepare)?;
    Ok(())
}

/// Returns the function in a slot of the table. The error describes the contents of the slot.
fn function_in_slot(store: &mut StoreContextMut<'_, Host>, slot: u32) -> Result<Func, Termination> {
    let table = exports::main_module(store)?.table;
    match table.get(&mut *store, u64::from(slot)) {
        Some(Ref::Func(Some(function))) => Ok(function),
        Some(_) => Err(invalid_call(format!("no function at {slot:#x}"))),
        None => Err(invalid_call(format!("{slot:#x} is not a function pointer"))),
    }
}

fn unreadable(_: Errno) -> Termination {
    invalid_call("an argument lies outside of memory".into())
}
