//! libffi closures: functions created at run time. Each is a table slot with a host function, which calls back into the
//! guest with pointers to its arguments.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use wasmtime::{AsContextMut, Func, FuncType, Ref, Result, StoreContextMut, Val};

use super::types::{FfiType, Signature, invalid_call};
use super::{STACK_ALIGN, function_in_slot, unreadable};
use crate::exports::{self, ShadowStack};
use crate::guest_memory::{Ptr, field};
use crate::host::{Call, Host, split};
use crate::termination::Termination;

/// Values of `ffi_status`.
const FFI_OK: i32 = 0;
const FFI_BAD_TYPEDEF: i32 = 1;
/// The maximum number of host functions that one instance can create: they live as long as the instance, so a guest
/// that creates closures forever must be stopped.
const MAX_FUNCTIONS: usize = 1 << 16;
/// The number of bytes on the stack for each argument: enough for the largest that is passed by value.
const CELL: u32 = 16;

/// The closures of one instance.
#[derive(Default)]
pub(crate) struct Closures {
    /// The closures by table slot.
    live: BTreeMap<u32, Closure>,
    free_slots: Vec<u32>,
    /// The host functions that were created, kept for the next closure of the same type in the same slot.
    functions: HashMap<u32, Vec<(FuncType, Func)>>,
    made: usize,
}

/// One `ffi_closure`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Closure {
    /// The address of the closure in guest memory.
    address: Ptr,
    /// The target of calls, once the closure is prepared.
    target: Option<Target>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Target {
    cif: Ptr,
    /// The table slot of the function to call: `void (*)(ffi_cif *, void *result, void **arguments, void *user_data)`.
    function: u32,
    user_data: Ptr,
}

/// The closures of an instance in a snapshot. All data that they refer to is in guest memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ClosureSnapshot {
    live: BTreeMap<u32, Closure>,
    free_slots: Vec<u32>,
}

impl Closures {
    /// Returns the state that a snapshot stores.
    pub(crate) fn snapshot(&self) -> ClosureSnapshot {
        ClosureSnapshot { live: self.live.clone(), free_slots: self.free_slots.clone() }
    }
}

/// Puts the closures of a snapshot back into their slots, which the table must already have.
pub(crate) fn restore(store: &mut StoreContextMut<'_, Host>, closures: &ClosureSnapshot) -> Result<()> {
    for (&slot, closure) in &closures.live {
        store.data_mut().closures.live.insert(slot, *closure);
        if let Some(target) = closure.target {
            install(store, slot, target)?;
        }
    }
    store.data_mut().closures.free_slots.clone_from(&closures.free_slots);
    Ok(())
}

/// Implements `ffi_closure_alloc`: allocates memory and a table slot, whose number is the code pointer, for a closure.
pub(super) fn alloc(mut call: Call<'_>, size: u32, code: Ptr) -> Result<Ptr> {
    let address = exports::call(&mut call, "malloc", &[size.max(4)])?;
    if address == 0 {
        return Ok(0);
    }
    let slot = match call.data_mut().closures.free_slots.pop() {
        Some(slot) => slot,
        None => {
            let table = exports::main_module(&call.as_context_mut())?.table;
            let grown = table.grow(&mut call, 1, Ref::Func(None)).ok();
            let Some(slot) = grown.and_then(|slot| u32::try_from(slot).ok()) else {
                exports::call(&mut call, "free", &[address])?;
                return Ok(0);
            };
            slot
        }
    };
    call.data_mut().closures.live.insert(slot, Closure { address, target: None });
    let (mut memory, _) = split(&mut call)?;
    memory.write_u32(code, slot).and_then(|()| memory.write_u32(address, slot)).map_err(unreadable)?;
    Ok(address)
}

/// Implements `ffi_closure_free`. Ignores addresses that are not closures of this instance.
pub(super) fn free(mut call: Call<'_>, address: Ptr) -> Result<()> {
    let (memory, host) = split(&mut call)?;
    let slot = memory.read_u32(address).map_err(unreadable)?;
    let closures = &mut host.closures;
    if closures.live.get(&slot).is_none_or(|closure| closure.address != address) {
        return Ok(());
    }
    closures.live.remove(&slot);
    closures.free_slots.push(slot);
    let table = exports::main_module(&call.as_context_mut())?.table;
    table.set(&mut call, u64::from(slot), Ref::Func(None))?;
    exports::call(&mut call, "free", &[address])?;
    Ok(())
}

/// Implements `ffi_prep_closure_loc`: makes the closure at `address` call `function` whenever its slot, `code`, is
/// called.
pub(super) fn prepare(
    mut call: Call<'_>,
    address: Ptr,
    cif: Ptr,
    function: u32,
    user_data: Ptr,
    code: u32,
) -> Result<i32> {
    let closures = &mut call.data_mut().closures;
    let target = Target { cif, function, user_data };
    match closures.live.get_mut(&code) {
        Some(closure) if closure.address == address => closure.target = Some(target),
        _ => return Ok(FFI_BAD_TYPEDEF),
    }
    let installed = install(&mut call.as_context_mut(), code, target)?;
    Ok(if installed { FFI_OK } else { FFI_BAD_TYPEDEF })
}

/// Puts a host function of the right type into `slot`. Returns `false` if that is impossible.
fn install(store: &mut StoreContextMut<'_, Host>, slot: u32, target: Target) -> Result<bool> {
    let main = exports::main_module(store)?;
    let (bytes, _) = main.memory.data_and_store_mut(&mut *store);
    let signature = match Signature::read(&crate::guest_memory::GuestMemory::new(bytes), target.cif) {
        Ok(signature) if signature.variable_from.is_none() => signature,
        _ => return Ok(false),
    };
    let ty = signature.wasm_type(store.engine());
    let closures = &store.data().closures;
    let known = closures.functions.get(&slot).into_iter().flatten().find(|(known, _)| FuncType::eq(known, &ty));
    let function = match known {
        Some(&(_, function)) => function,
        None if closures.made >= MAX_FUNCTIONS => return Ok(false),
        None => {
            let function = Func::new(&mut *store, ty.clone(), move |mut call: Call<'_>, arguments, results| {
                run(&mut call, slot, arguments, results)
            });
            let closures = &mut store.data_mut().closures;
            closures.made += 1;
            closures.functions.entry(slot).or_default().push((ty, function));
            function
        }
    };
    main.table.set(&mut *store, u64::from(slot), Ref::Func(Some(function)))?;
    Ok(true)
}

/// Runs the closure in `slot`.
fn run(call: &mut Call<'_>, slot: u32, arguments: &[Val], results: &mut [Val]) -> Result<()> {
    let closure = call.data().closures.live.get(&slot).copied();
    let target = closure.and_then(|closure| closure.target);
    let target = target.ok_or_else(|| invalid_call(format!("the callback at {slot:#x} was freed")))?;
    let callee = function_in_slot(&mut call.as_context_mut(), target.function)?;
    let callee = callee
        .typed::<(u32, u32, u32, u32), ()>(&*call)
        .map_err(|_| invalid_call(format!("{:#x} is not libffi's callback", target.function)))?;
    let stack = ShadowStack::current(&mut call.as_context_mut())?;

    let (memory, _) = split(call)?;
    // The guest may have overwritten the description after preparing the closure; only then does the type not match.
    let signature = Signature::read(&memory, target.cif)?;
    if signature.wasm_type(call.engine()).params().len() != arguments.len() {
        return Err(invalid_call("a callback's description has changed".into()).into());
    }
    let frame = write_frame(call, &signature, (stack.end(), stack.top()), arguments)?;
    stack.lower(&mut call.as_context_mut(), frame.bottom)?;
    let outcome = callee.call(&mut *call, (target.cif, frame.result, frame.arguments, target.user_data));
    stack.restore(&mut call.as_context_mut())?;
    outcome?;

    if let Some(result) = results.first_mut() {
        let (memory, _) = split(call)?;
        let mut value = Vec::with_capacity(1);
        signature.result.load(&memory, frame.result, &mut value)?;
        *result = value.pop().unwrap_or(Val::I32(0));
    }
    Ok(())
}

/// The arguments of a callback, on the guest's stack.
struct Frame {
    /// The address where the callback stores its result.
    result: Ptr,
    /// The address of an array of pointers to the arguments.
    arguments: Ptr,
    bottom: Ptr,
}

fn write_frame(
    call: &mut Call<'_>,
    signature: &Signature,
    (end, top): (Ptr, Ptr),
    values: &[Val],
) -> Result<Frame, Termination> {
    // In ascending order of addresses: the pointers, a cell for each argument, and the cell of the result.
    let count = u32::try_from(signature.arguments.len()).map_err(|_| invalid_call("too many arguments".into()))?;
    let overflow = || invalid_call("a callback's arguments overflow the stack".into());
    let cells = top.checked_sub(CELL).ok_or_else(overflow)? & !(STACK_ALIGN - 1);
    let own_result = cells;
    let cells = cells.checked_sub(CELL * count).ok_or_else(overflow)?;
    let arguments = cells.checked_sub(4 * count).ok_or_else(overflow)? & !(STACK_ALIGN - 1);
    if arguments < end {
        return Err(overflow());
    }

    let (mut memory, _) = split(call)?;
    memory.write(own_result, &[0; CELL as usize]).map_err(unreadable)?;
    let mut values = values.iter();
    let mut next = || values.next().copied().unwrap_or(Val::I32(0));
    let result = match next_hidden(signature, &mut next) {
        Some(address) => address,
        None => own_result,
    };
    for (index, &kind) in (0..count).zip(&signature.arguments) {
        let cell = field(cells, CELL * index).map_err(unreadable)?;
        let slot = field(arguments, 4 * index).map_err(unreadable)?;
        let value = next();
        let place = match (kind, value) {
            // A structure is passed as a pointer to the caller's copy.
            (FfiType::Struct { .. }, Val::I32(address)) => address.cast_unsigned(),
            (FfiType::LongDouble, low) => {
                FfiType::I64.store(&mut memory, cell, &low)?;
                FfiType::I64.store(&mut memory, field(cell, 8).map_err(unreadable)?, &next())?;
                cell
            }
            (kind, value) => {
                kind.store(&mut memory, cell, &value)?;
                cell
            }
        };
        memory.write_u32(slot, place).map_err(unreadable)?;
    }
    Ok(Frame { result, arguments, bottom: arguments })
}

/// Returns the pointer that a caller passes for a large result, if the result is large.
fn next_hidden(signature: &Signature, next: &mut impl FnMut() -> Val) -> Option<Ptr> {
    signature.result.is_by_pointer().then(|| next().i32().unwrap_or(0).cast_unsigned())
}
