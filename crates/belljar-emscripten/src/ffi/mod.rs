//! libffi's host functions: calls to functions whose signature is only known at run time, and functions created at run
//! time for others to call. They are needed by `ctypes`.
//!
//! Source: libffi's `src/wasm32/ffi.c`, whose four `EM_JS` functions these replace.
//!
//! Invariant: whatever pointers the guest passes, a call ends with a result or a [`Termination`], never a panic.

mod callback;
mod types;

use wasmtime::{AsContextMut, Func, Linker, Ref, Result, StoreContextMut, Val};

pub(crate) use callback::{ClosureSnapshot, Closures, restore};
use types::{FfiType, Signature, invalid_call};

use crate::Errno;
use crate::exports::{self, ShadowStack};
use crate::guest_memory::{GuestMemory, Ptr, field};
use crate::host::{Call, Host, split};
use crate::termination::Termination;

/// The alignment of the guest's stack pointer.
const STACK_ALIGN: u32 = 16;

pub(crate) fn define(linker: &mut Linker<Host>) -> Result<()> {
    linker.func_wrap("env", "ffi_call_js", ffi_call)?;
    linker.func_wrap("env", "ffi_closure_alloc_js", callback::alloc)?;
    linker.func_wrap("env", "ffi_closure_free_js", callback::free)?;
    linker.func_wrap("env", "ffi_prep_closure_loc_js", callback::prepare)?;
    Ok(())
}

/// Calls the function in table slot `function` as described by `cif`: `arguments` is an array of pointers to the
/// values, and the result is stored at `result`.
fn ffi_call(mut call: Call<'_>, cif: Ptr, function: u32, result: Ptr, arguments: Ptr) -> Result<()> {
    let callee = function_in_slot(&mut call.as_context_mut(), function)?;
    let stack = ShadowStack::current(&mut call.as_context_mut())?;
    let (mut memory, _) = split(&mut call)?;
    let signature = Signature::read(&memory, cif)?;
    let mut frame = Frame { memory: &mut memory, top: stack.top() };
    let values = frame.marshal(&signature, result, arguments)?;
    let top = frame.align(0, STACK_ALIGN)?;

    let callee_type = callee.ty(&call);
    let mut wanted = callee_type.params();
    let fits = wanted.len() == values.len()
        && values.iter().zip(&mut wanted).all(|(value, wanted)| value.ty(&call).is_ok_and(|ty| wanted.matches(&ty)));
    if !fits {
        let given = values.iter().filter_map(|value| value.ty(&call).ok()).map(|ty| ty.to_string());
        let given = given.collect::<Vec<_>>().join(", ");
        return Err(
            invalid_call(format!("function {function} has type {callee_type}, but was called with ({given})")).into()
        );
    }

    let mut results = vec![Val::I32(0); callee_type.results().len()];
    stack.lower(&mut call.as_context_mut(), top)?;
    let outcome = callee.call(&mut call, &values, &mut results);
    stack.restore(&mut call.as_context_mut())?;
    outcome?;

    // `ctypes` assumes that a function returns an int unless it is declared otherwise: no result counts as zero.
    let value = results.first().copied().unwrap_or(Val::I32(0));
    let (mut memory, _) = split(&mut call)?;
    match signature.result {
        FfiType::Void => Ok(()),
        kind if kind.is_by_pointer() => Ok(()),
        kind => Ok(kind.store(&mut memory, result, &value)?),
    }
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

/// The part of the guest's stack that is being built for a call. It grows downwards.
struct Frame<'a, 'memory> {
    memory: &'a mut GuestMemory<'memory>,
    top: Ptr,
}

impl Frame<'_, '_> {
    /// Converts the values that `arguments` points to into wasm values, according to the C ABI of wasm: structures by
    /// pointer to a copy, variable arguments by one pointer to all of them.
    fn marshal(&mut self, signature: &Signature, result: Ptr, arguments: Ptr) -> Result<Vec<Val>, Termination> {
        let mut values = Vec::with_capacity(signature.arguments.len() + 2);
        if signature.result.is_by_pointer() {
            values.push(pointer(result));
        }
        let sources = pointers(self.memory, arguments, signature.arguments.len())?;
        let (fixed, variable) = signature.arguments.split_at(signature.fixed);
        for (&kind, &source) in fixed.iter().zip(&sources) {
            match kind {
                FfiType::Struct { size, align } => values.push(pointer(self.copy(source, size, align)?)),
                kind => kind.load(self.memory, source, &mut values)?,
            }
        }
        if signature.variadic() {
            values.push(pointer(self.push_variable(variable, &sources[signature.fixed..])?));
        }
        Ok(values)
    }

    /// Lays out variable arguments as `va_arg` expects: each behind the previous one, at the next multiple of its
    /// alignment. (libffi itself proceeds by descending addresses, and so leaves gaps that `va_arg` does not expect.)
    fn push_variable(&mut self, kinds: &[FfiType], sources: &[Ptr]) -> Result<Ptr, Termination> {
        // Structures are passed by pointer here too.
        let passed = |kind: FfiType| if let FfiType::Struct { .. } = kind { (4, 4) } else { kind.layout() };
        let mut end = 0u32;
        let mut offsets = Vec::with_capacity(kinds.len());
        for &kind in kinds {
            // Cannot overflow: there are at most 1024 arguments of 16 bytes.
            let (size, align) = passed(kind);
            let offset = end.next_multiple_of(align);
            offsets.push(offset);
            end = offset + size;
        }
        let start = self.align(end, STACK_ALIGN)?;
        for ((&kind, &source), offset) in kinds.iter().zip(sources).zip(offsets) {
            let place = start + offset;
            let copied = match kind {
                FfiType::Struct { size, align } => {
                    let copy = self.copy(source, size, align)?;
                    self.memory.write_u32(place, copy)
                }
                kind => self.memory.copy_within(source, place, kind.layout().0),
            };
            copied.map_err(unreadable)?;
        }
        Ok(start)
    }

    /// Copies a value onto the stack.
    fn copy(&mut self, source: Ptr, size: u32, align: u32) -> Result<Ptr, Termination> {
        let place = self.align(size, align)?;
        self.memory.copy_within(source, place, size).map_err(unreadable)?;
        Ok(place)
    }

    /// Allocates `size` bytes at a multiple of `align`, which is a power of two.
    fn align(&mut self, size: u32, align: u32) -> Result<Ptr, Termination> {
        let below =
            self.top.checked_sub(size).ok_or_else(|| invalid_call("the arguments overflow the stack".into()))?;
        self.top = below & !(align - 1);
        Ok(self.top)
    }
}

/// Reads an array of `count` pointers.
fn pointers(memory: &GuestMemory<'_>, array: Ptr, count: usize) -> Result<Vec<Ptr>, Termination> {
    let count = u32::try_from(count).map_err(|_| unreadable(Errno::EFAULT))?;
    (0..count).map(|index| field(array, 4 * index).and_then(|at| memory.read_u32(at)).map_err(unreadable)).collect()
}

fn pointer(address: Ptr) -> Val {
    Val::I32(address.cast_signed())
}

fn unreadable(_: Errno) -> Termination {
    invalid_call("an argument lies outside of memory".into())
}
