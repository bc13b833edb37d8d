//! libffi closures: functions made at run time. Each is a table slot with a host function in it, which calls back
//! into the guest with pointers to its arguments.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use wasmtime::{AsContextMut, Func, FuncType, Ref, Result, StoreContextMut, Val};

use super::types::{Kind, Signature, forged};
use super::{STACK_ALIGN, function_in_slot, unreadable};
use crate::exports::{self, ShadowStack};
use crate::guest::{Ptr, field};
use crate::host::{Call, Host, Termination, split};

/// `ffi_status` values.
const FFI_OK: i32 = 0;
const FFI_BAD_TYPEDEF: i32 = 1;
/// Host functions that one instance can have made: they live as long as it does, so a guest that makes closures for
/// ever must come to an end.
const FUNCTIONS_MAX: usize = 1 << 16;
/// Bytes on the stack for each argument: room for the largest that is passed by value.
const CELL: u32 = 16;

/// The closures of one instance.
#[derive(Default)]
pub(crate) struct Closures {
    /// By table slot.
    live: BTreeMap<u32, Closure>,
    free_slots: Vec<u32>,
    /// Host functions made, kept for the next closure of the same type in the same slot.
    functions: HashMap<u32, Vec<(FuncType, Func)>>,
    made: usize,
}

/// One `ffi_closure`.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Closure {
    /// Its address in guest memory.
    address: Ptr,
    /// What to do when it is called, once it is prepared.
    target: Option<Target>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Target {
    cif: Ptr,
    /// Table slot of the function to call: `void (*)(ffi_cif *, void *result, void **arguments, void *user_data)`.
    function: u32,
    user_data: Ptr,
}

/// The closures of an instance in a snapshot. All that they refer to is in guest memory.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct ClosureImage {
    live: BTreeMap<u32, Closure>,
    free_slots: Vec<u32>,
}

impl Closures {
    /// What a snapshot keeps.
    pub(crate) fn image(&self) -> ClosureImage {
        ClosureImage { live: self.live.clone(), free_slots: self.free_slots.clone() }
    }
}

/// Puts the closures of a snapshot back into their slots, which the table must already have.
pub(crate) fn restore(store: &mut StoreContextMut<'_, Host>, image: &ClosureImage) -> Result<()> {
    for (&slot, closure) in &image.live {
        store.data_mut().closures.live.insert(slot, *closure);
        if let Some(target) = closure.target {
            install(store, slot, target)?;
        }
    }
    store.data_mut().closures.free_slots.clone_from(&image.free_slots);
    Ok(())
}

/// `ffi_closure_alloc`: memory for a closure and a table slot for it, whose number is the code pointer.
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

/// `ffi_closure_free`. What is not a closure of this instance is left alone.
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

/// `ffi_prep_closure_loc`: makes the closure at `address` call `function` whenever its slot, `code`, is called.
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

/// Puts a host function of the right type into `slot`; `false` when there can be none.
fn install(store: &mut StoreContextMut<'_, Host>, slot: u32, target: Target) -> Result<bool> {
    let main = exports::main_module(store)?;
    let (bytes, _) = main.memory.data_and_store_mut(&mut *store);
    let signature = match Signature::read(&crate::guest::GuestMemory::new(bytes), target.cif) {
        Ok(signature) if !signature.variadic() => signature,
        _ => return Ok(false),
    };
    let ty = signature.wasm_type(store.engine());
    let closures = &store.data().closures;
    let known = closures.functions.get(&slot).into_iter().flatten().find(|(known, _)| FuncType::eq(known, &ty));
    let function = match known {
        Some(&(_, function)) => function,
        None if closures.made >= FUNCTIONS_MAX => return Ok(false),
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

/// What runs when the closure in `slot` is called.
fn run(call: &mut Call<'_>, slot: u32, arguments: &[Val], results: &mut [Val]) -> Result<()> {
    let closure = call.data().closures.live.get(&slot).copied();
    let target = closure.and_then(|closure| closure.target);
    let target = target.ok_or_else(|| forged(format!("the callback at {slot:#x} was freed")))?;
    let callee = function_in_slot(&mut call.as_context_mut(), target.function)?;
    let callee = callee
        .typed::<(u32, u32, u32, u32), ()>(&*call)
        .map_err(|_| forged(format!("{:#x} is not libffi's callback", target.function)))?;
    let stack = ShadowStack::enter(&mut call.as_context_mut())?;

    let (memory, _) = split(call)?;
    // The guest may have overwritten what it prepared; only then does the type no longer fit.
    let signature = Signature::read(&memory, target.cif)?;
    if signature.wasm_type(call.engine()).params().len() != arguments.len() {
        return Err(forged("a callback's description has changed".into()).into());
    }
    let frame = write_frame(call, &signature, stack.top(), arguments)?;
    stack.lower(&mut call.as_context_mut(), frame.bottom)?;
    let outcome = callee.call(&mut *call, (target.cif, frame.result, frame.arguments, target.user_data));
    stack.leave(&mut call.as_context_mut())?;
    outcome?;

    if let Some(result) = results.first_mut() {
        let (memory, _) = split(call)?;
        let mut value = Vec::with_capacity(1);
        signature.result.load(&memory, frame.result, &mut value)?;
        *result = value.pop().unwrap_or(Val::I32(0));
    }
    Ok(())
}

/// What a callback is given, on the guest's stack.
struct Frame {
    /// Where it puts its result.
    result: Ptr,
    /// An array of pointers to its arguments.
    arguments: Ptr,
    bottom: Ptr,
}

fn write_frame(call: &mut Call<'_>, signature: &Signature, top: Ptr, values: &[Val]) -> Result<Frame, Termination> {
    // From below: the pointers, then a cell for each argument, then the result's.
    let count = u32::try_from(signature.arguments.len()).map_err(|_| forged("too many arguments".into()))?;
    let overflow = || forged("a callback's arguments overflow the stack".into());
    let cells = top.checked_sub(CELL).ok_or_else(overflow)? & !(STACK_ALIGN - 1);
    let own_result = cells;
    let cells = cells.checked_sub(CELL * count).ok_or_else(overflow)?;
    let arguments = cells.checked_sub(4 * count).ok_or_else(overflow)? & !(STACK_ALIGN - 1);

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
            // A structure comes as a pointer to the caller's copy.
            (Kind::Struct { .. }, Val::I32(address)) => address.cast_unsigned(),
            (Kind::LongDouble, low) => {
                Kind::I64.store(&mut memory, cell, &low)?;
                Kind::I64.store(&mut memory, field(cell, 8).map_err(unreadable)?, &next())?;
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

/// The pointer that a caller passes for a large result, if the result is large.
fn next_hidden(signature: &Signature, next: &mut impl FnMut() -> Val) -> Option<Ptr> {
    signature.result.by_pointer().then(|| next().i32().unwrap_or(0).cast_unsigned())
}
