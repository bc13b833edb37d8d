//! Checks that the shadow stack does not overflow.
//!
//! The shadow stack grows downwards, and below its end (`__stack_low`) lies the program's data. A recursion that uses
//! more shadow stack than native stack would overwrite it. Therefore a comparison with the end follows each assignment
//! to `__stack_pointer`, except where the pointer is raised: a constant that is not negative was just added to it.
//!
//! Pages without access would not do: a host function that copies memory, such as the one behind `memory.copy`, would
//! fault in the host.

use wasm_encoder::{BlockType, Instruction};
use wasmparser::Operator;

use super::body::Body;

/// The end of the shadow stack.
#[derive(Debug, Clone, Copy)]
pub(super) enum StackEnd {
    /// An address: that of a main module.
    Address(u32),
    /// The index in the output of the imported global that contains the address: that of a side module.
    Global(u32),
}

/// The checks of a module.
#[derive(Debug, Clone, Copy)]
pub(super) struct StackChecks {
    /// The index of `__stack_pointer` in the input.
    pub(super) original_pointer: u32,
    /// The index of `__stack_pointer` in the output.
    pub(super) stack_pointer: u32,
    pub(super) end: StackEnd,
}

/// The end of the instructions so far, as far as it matters to an assignment of the stack pointer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Preceding {
    /// A constant that is not negative.
    Constant,
    /// Such a constant, and an addition.
    Addition,
    #[default]
    Other,
}

impl Preceding {
    /// Returns the state behind an instruction.
    pub(super) fn then(self, operator: &Operator<'_>) -> Self {
        match (self, operator) {
            (_, Operator::I32Const { value: 0.. }) => Self::Constant,
            (Self::Constant, Operator::I32Add) => Self::Addition,
            _ => Self::Other,
        }
    }
}

impl Body<'_, '_> {
    /// Writes the check behind an assignment to a global, if it can lower the stack pointer.
    pub(super) fn check_assignment(&mut self, global: u32, preceding: Preceding) {
        if let Some(checks) = self.stack_checks
            && checks.original_pointer == global
            && preceding != Preceding::Addition
        {
            self.check_stack(checks);
        }
    }

    /// Writes a comparison of the stack pointer with the stack's end, and a trap if it is below.
    pub(super) fn check_stack(&mut self, checks: StackChecks) {
        self.emit(&Instruction::GlobalGet(checks.stack_pointer));
        self.emit(&match checks.end {
            StackEnd::Address(address) => Instruction::I32Const(address.cast_signed()),
            StackEnd::Global(global) => Instruction::GlobalGet(global),
        });
        self.emit(&Instruction::I32LtU);
        self.emit(&Instruction::If(BlockType::Empty));
        self.emit(&Instruction::Unreachable);
        self.emit(&Instruction::End);
    }
}
