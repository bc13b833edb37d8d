//! libffi's description of a function, `ffi_cif`, read from guest memory.

use wasmtime::{Engine, FuncType, Val, ValType};

use super::unreadable;
use crate::guest_memory::{GuestMemory, Ptr, field};
use crate::termination::Termination;

/// The maximum number of arguments of one call: the limit of `ctypes` (`CTYPES_MAX_ARGCOUNT`).
const MAX_ARGUMENTS: u32 = 1024;
/// The maximum nesting of structures of one member.
const MAX_NESTING: usize = 64;
/// The maximum alignment of a structure.
const MAX_ALIGN: u16 = 4096;

/// Creates the error for an invalid call.
pub(super) fn invalid_call(what: String) -> Termination {
    Termination::ForeignCall(what)
}

/// A type, as far as it affects how values are passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FfiType {
    Void,
    /// 32 bits: `int`, `long`, pointers.
    Word,
    U8,
    I8,
    U16,
    I16,
    I64,
    F32,
    F64,
    /// 128 bits, passed as two halves.
    LongDouble,
    /// A structure of more than one member; one with a single member is passed as its member.
    Struct {
        size: u32,
        align: u32,
    },
}

impl FfiType {
    /// Reads an `ffi_type`: size, alignment (u16), id (u16), pointer to the null-terminated members.
    fn read(memory: &GuestMemory<'_>, mut ty: Ptr) -> Result<Self, Termination> {
        let word = |base: Ptr, offset| field(base, offset).and_then(|at| memory.read_u32(at)).map_err(unreadable);
        let half = |base: Ptr, offset| field(base, offset).and_then(|at| memory.read_u16(at)).map_err(unreadable);
        for _ in 0..MAX_NESTING {
            return Ok(match half(ty, 6)? {
                0 => Self::Void,
                1 | 9 | 10 | 14 => Self::Word,
                2 => Self::F32,
                3 => Self::F64,
                4 => Self::LongDouble,
                5 => Self::U8,
                6 => Self::I8,
                7 => Self::U16,
                8 => Self::I16,
                11 | 12 => Self::I64,
                13 => {
                    let members = word(ty, 8)?;
                    let first = word(members, 0)?;
                    if first == 0 {
                        return Ok(Self::Void);
                    }
                    if word(members, 4)? == 0 {
                        ty = first;
                        continue;
                    }
                    let align = half(ty, 4)?;
                    if !align.is_power_of_two() || align > MAX_ALIGN {
                        return Err(invalid_call(format!("a structure is aligned to {align} bytes")));
                    }
                    Self::Struct { size: word(ty, 0)?, align: u32::from(align) }
                }
                15 => return Err(invalid_call("complex numbers cannot be passed".into())),
                id => return Err(invalid_call(format!("{id} is not a libffi type"))),
            });
        }
        Err(invalid_call("structures are nested too deeply".into()))
    }

    /// Returns whether a result of this type is written through a pointer that the caller passes first.
    pub(super) fn is_by_pointer(self) -> bool {
        matches!(self, Self::LongDouble | Self::Struct { .. })
    }

    /// Returns size and alignment in memory. Both are powers of two, except for structures and for `long double`, which
    /// is aligned to 8.
    pub(super) fn layout(self) -> (u32, u32) {
        match self {
            Self::Void | Self::Word | Self::F32 => (4, 4),
            Self::U8 | Self::I8 => (1, 1),
            Self::U16 | Self::I16 => (2, 2),
            Self::I64 | Self::F64 => (8, 8),
            Self::LongDouble => (16, 8),
            Self::Struct { size, align } => (size, align),
        }
    }

    /// Returns size and alignment among variable arguments. Structures are passed by pointer there too, and the other
    /// types after C's default argument promotions.
    pub(super) fn variable_layout(self) -> (u32, u32) {
        match self {
            Self::U8 | Self::I8 | Self::U16 | Self::I16 | Self::Struct { .. } => Self::Word.layout(),
            Self::F32 => Self::F64.layout(),
            kind => kind.layout(),
        }
    }

    /// Copies a value that is not a structure to its place among variable arguments.
    pub(super) fn promote(self, memory: &mut GuestMemory<'_>, source: Ptr, place: Ptr) -> Result<(), Termination> {
        match self {
            Self::U8 | Self::I8 | Self::U16 | Self::I16 => {
                let mut values = Vec::with_capacity(1);
                self.load(memory, source, &mut values)?;
                values.iter().try_for_each(|value| Self::Word.store(memory, place, value))
            }
            Self::F32 => {
                let value = f64::from(f32::from_bits(memory.read_u32(source).map_err(unreadable)?));
                memory.write_u64(place, value.to_bits()).map_err(unreadable)
            }
            kind => memory.copy_within(source, place, kind.layout().0).map_err(unreadable),
        }
    }

    /// Returns the wasm types as which a value is passed, in order.
    fn passed_as(self) -> &'static [ValType] {
        match self {
            Self::Void => &[],
            Self::Word | Self::U8 | Self::I8 | Self::U16 | Self::I16 | Self::Struct { .. } => &[ValType::I32],
            Self::I64 => &[ValType::I64],
            Self::F32 => &[ValType::F32],
            Self::F64 => &[ValType::F64],
            Self::LongDouble => &[ValType::I64, ValType::I64],
        }
    }

    /// Reads a value and appends the wasm values that pass it: none for void. For a structure, the caller must copy it.
    pub(super) fn load(self, memory: &GuestMemory<'_>, at: Ptr, values: &mut Vec<Val>) -> Result<(), Termination> {
        let value = match self {
            Self::Void => return Ok(()),
            Self::Word | Self::Struct { .. } => Val::I32(memory.read_i32(at).map_err(unreadable)?),
            Self::U8 => Val::I32(memory.read_u8(at).map_err(unreadable)?.into()),
            Self::I8 => Val::I32(memory.read_u8(at).map_err(unreadable)?.cast_signed().into()),
            Self::U16 => Val::I32(memory.read_u16(at).map_err(unreadable)?.into()),
            Self::I16 => Val::I32(memory.read_u16(at).map_err(unreadable)?.cast_signed().into()),
            Self::I64 => Val::I64(memory.read_i64(at).map_err(unreadable)?),
            Self::F32 => Val::F32(memory.read_u32(at).map_err(unreadable)?),
            Self::F64 => Val::F64(memory.read_u64(at).map_err(unreadable)?),
            Self::LongDouble => {
                values.push(Val::I64(memory.read_i64(at).map_err(unreadable)?));
                let high = field(at, 8).map_err(unreadable)?;
                Val::I64(memory.read_i64(high).map_err(unreadable)?)
            }
        };
        values.push(value);
        Ok(())
    }

    /// Writes a value that wasm passed as one value. Fails if it does not match the type.
    pub(super) fn store(self, memory: &mut GuestMemory<'_>, at: Ptr, value: &Val) -> Result<(), Termination> {
        let written = match (self, *value) {
            (Self::U8 | Self::I8, Val::I32(value)) => memory.write(at, &value.to_le_bytes()[..1]),
            (Self::U16 | Self::I16, Val::I32(value)) => memory.write(at, &value.to_le_bytes()[..2]),
            (Self::Word | Self::Struct { .. }, Val::I32(value)) => memory.write_i32(at, value),
            (Self::I64, Val::I64(value)) => memory.write_i64(at, value),
            (Self::F32, Val::F32(bits)) => memory.write_u32(at, bits),
            (Self::F64, Val::F64(bits)) => memory.write_u64(at, bits),
            // A function without a result that is declared to have one.
            (_, Val::I32(0)) => {
                let (size, _) = self.layout();
                memory.slice_mut(at, size).map(|bytes| bytes.fill(0))
            }
            _ => return Err(invalid_call("the function's result does not have the declared type".into())),
        };
        written.map_err(unreadable)
    }
}

/// The signature that an `ffi_cif` describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) result: FfiType,
    pub(super) arguments: Vec<FfiType>,
    /// The index of the first variable argument of a variadic function, which may be behind the last argument.
    pub(super) variable_from: Option<usize>,
}

impl Signature {
    /// Reads an `ffi_cif`: abi, nargs, arg_types, rtype, bytes, flags, nfixedargs, of four bytes each.
    pub(super) fn read(memory: &GuestMemory<'_>, cif: Ptr) -> Result<Self, Termination> {
        let word = |base: Ptr, offset| field(base, offset).and_then(|at| memory.read_u32(at)).map_err(unreadable);
        let (count, types, result, fixed) = (word(cif, 4)?, word(cif, 8)?, word(cif, 12)?, word(cif, 24)?);
        if count > MAX_ARGUMENTS || fixed > count {
            return Err(invalid_call(format!(
                "a call with {fixed} fixed of {count} arguments; the maximum is {MAX_ARGUMENTS}"
            )));
        }
        let argument = |index| match FfiType::read(memory, word(types, 4 * index)?)? {
            FfiType::Void => Err(invalid_call("an argument is of type void".into())),
            kind => Ok(kind),
        };
        let arguments = (0..count).map(argument).collect::<Result<_, _>>()?;
        let variable_from = (fixed < count).then_some(fixed as usize);
        Ok(Self { result: FfiType::read(memory, result)?, arguments, variable_from })
    }

    /// Returns the wasm function type of a signature that is not variadic.
    pub(super) fn wasm_type(&self, engine: &Engine) -> FuncType {
        let hidden = self.result.is_by_pointer().then_some(ValType::I32);
        let passed = self.arguments.iter().flat_map(|kind| kind.passed_as()).cloned();
        let results = if self.result.is_by_pointer() { &[] } else { self.result.passed_as() };
        FuncType::new(engine, hidden.into_iter().chain(passed), results.iter().cloned())
    }
}
