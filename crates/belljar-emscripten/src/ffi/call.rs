//! Calls of a function that the guest describes with an `ffi_cif`.

use wasmtime::{AsContextMut, Func, Result, Val};

use super::types::{FfiType, Signature, invalid_call};
use super::{STACK_ALIGN, function_in_slot, unreadable};
use crate::Errno;
use crate::exports::ShadowStack;
use crate::guest_caller::GuestCaller;
use crate::guest_memory::{GuestMemory, Ptr, field};
use crate::host::{Call, split};
use crate::termination::Termination;

/// The reason why a call did not return.
enum CallError {
    /// The call is invalid. No code of the guest has run, or all of it has returned.
    Invalid(Termination),
    /// The guest is unwinding: the function threw an exception or ended the program.
    Unwinding(wasmtime::Error),
}

impl From<Termination> for CallError {
    fn from(termination: Termination) -> Self {
        Self::Invalid(termination)
    }
}

/// Calls the function in table slot `function` as described by `cif`: `arguments` is an array of pointers to the
/// values, and the result is stored at `result`.
pub(super) fn ffi_call(mut call: Call<'_>, cif: Ptr, function: u32, result: Ptr, arguments: Ptr) -> Result<()> {
    match call_function(&mut call, cif, function, result, arguments) {
        Ok(()) => Ok(()),
        Err(CallError::Unwinding(error)) => Err(error),
        Err(CallError::Invalid(Termination::ForeignCall(what))) => report(&mut call, cif, result, what),
        Err(CallError::Invalid(termination)) => Err(termination.into()),
    }
}

/// Has the embedder report an invalid call, and sets its result to zeros. Ends the program if neither is possible.
fn report(call: &mut Call<'_>, cif: Ptr, result: Ptr, what: String) -> Result<()> {
    let foreign_calls = call.data().linked.main_program().and_then(|program| program.foreign_calls());
    let Some(foreign_calls) = foreign_calls else { return Err(invalid_call(what).into()) };
    let (mut memory, _) = split(call)?;
    let kind = Signature::read(&memory, cif).map_err(|_| invalid_call(what.clone()))?.result;
    if kind != FfiType::Void {
        memory.slice_mut(result, kind.layout().0).map_err(|_| invalid_call(what.clone()))?.fill(0);
    }
    (foreign_calls.report)(&mut GuestCaller::new(call), &what)
}

fn call_function(call: &mut Call<'_>, cif: Ptr, function: u32, result: Ptr, arguments: Ptr) -> Result<(), CallError> {
    let callee = function_in_slot(&mut call.as_context_mut(), function)?;
    let stack = ShadowStack::current(&mut call.as_context_mut())?;
    let (memory, _) = split(call)?;
    let mut signature = Signature::read(&memory, cif)?;
    find_variable_arguments(call, &mut signature, function, callee);
    let (mut memory, _) = split(call)?;
    let mut frame = Frame { memory: &mut memory, top: stack.top(), end: stack.end() };
    let values = frame.marshal(&signature, result, arguments)?;
    let top = frame.align(0, STACK_ALIGN)?;
    check_type(call, function, callee, &values)?;

    let mut results = vec![Val::I32(0); callee.ty(&*call).results().len()];
    stack.lower(&mut call.as_context_mut(), top).map_err(CallError::Unwinding)?;
    let outcome = callee.call(&mut *call, &values, &mut results);
    stack.restore(&mut call.as_context_mut()).map_err(CallError::Unwinding)?;
    outcome.map_err(CallError::Unwinding)?;

    // `ctypes` assumes that a function returns an int unless it is declared otherwise: no result counts as zero.
    let value = results.first().copied().unwrap_or(Val::I32(0));
    let (mut memory, _) = split(call)?;
    match signature.result {
        FfiType::Void => Ok(()),
        kind if kind.is_by_pointer() => Ok(()),
        kind => Ok(kind.store(&mut memory, result, &value)?),
    }
}

/// Corrects the signature of a call to a variadic function: a caller such as `ctypes` without declared types describes
/// all arguments as fixed. Its last parameter in WebAssembly is the pointer to the variable arguments, and all others
/// are 32-bit values.
fn find_variable_arguments(call: &Call<'_>, signature: &mut Signature, function: u32, callee: Func) {
    let program = call.data().linked.main_program();
    if program.is_some_and(|program| program.is_variadic(function)) {
        let fixed = callee.ty(call).params().len().saturating_sub(1);
        if fixed <= signature.arguments.len() && !signature.result.is_by_pointer() {
            signature.variable_from = Some(fixed);
        }
    }
}

/// Refuses values that do not have the types of the callee's parameters.
fn check_type(call: &Call<'_>, function: u32, callee: Func, values: &[Val]) -> Result<(), Termination> {
    let callee_type = callee.ty(call);
    let mut wanted = callee_type.params();
    let fits = wanted.len() == values.len()
        && values.iter().zip(&mut wanted).all(|(value, wanted)| value.ty(call).is_ok_and(|ty| wanted.matches(&ty)));
    if fits {
        return Ok(());
    }
    let given = values.iter().filter_map(|value| value.ty(call).ok()).map(|ty| ty.to_string());
    let given = given.collect::<Vec<_>>().join(", ");
    let names = call.data().linked.main_program().map(|program| program.names_of(function)).unwrap_or_default();
    let name = if names.is_empty() { function.to_string() } else { names.join(" or ") };
    Err(invalid_call(format!("function {name} has type {callee_type}, but was called with ({given})")))
}

/// The part of the guest's stack that is being built for a call. It grows downwards.
struct Frame<'a, 'memory> {
    memory: &'a mut GuestMemory<'memory>,
    top: Ptr,
    /// The lowest address of the stack.
    end: Ptr,
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
        let fixed = signature.variable_from.unwrap_or(signature.arguments.len());
        let (fixed_kinds, variable_kinds) = signature.arguments.split_at(fixed);
        for (&kind, &source) in fixed_kinds.iter().zip(&sources) {
            match kind {
                FfiType::Struct { size, align } => values.push(pointer(self.copy(source, size, align)?)),
                kind => kind.load(self.memory, source, &mut values)?,
            }
        }
        if signature.variable_from.is_some() {
            values.push(pointer(self.push_variable(variable_kinds, &sources[fixed..])?));
        }
        Ok(values)
    }

    /// Lays out variable arguments as `va_arg` expects: each behind the previous one, at the next multiple of its
    /// alignment. (libffi itself proceeds by descending addresses, and so leaves gaps that `va_arg` does not expect.)
    fn push_variable(&mut self, kinds: &[FfiType], sources: &[Ptr]) -> Result<Ptr, Termination> {
        let mut end = 0u32;
        let mut offsets = Vec::with_capacity(kinds.len());
        for &kind in kinds {
            // Cannot overflow: there are at most 1024 arguments of 16 bytes.
            let (size, align) = kind.variable_layout();
            let offset = end.next_multiple_of(align);
            offsets.push(offset);
            end = offset + size;
        }
        let start = self.align(end, STACK_ALIGN)?;
        for ((&kind, &source), offset) in kinds.iter().zip(sources).zip(offsets) {
            let place = start + offset;
            match kind {
                FfiType::Struct { size, align } => {
                    let copy = self.copy(source, size, align)?;
                    self.memory.write_u32(place, copy).map_err(unreadable)?;
                }
                kind => kind.promote(self.memory, source, place)?,
            }
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
        let place = self.top.checked_sub(size).map(|place| place & !(align - 1)).filter(|place| *place >= self.end);
        self.top = place.ok_or_else(|| invalid_call("the arguments overflow the stack".into()))?;
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
