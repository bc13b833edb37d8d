//! Rewrites a function body, and tracks the open constructs so that branches keep their targets.

use wasm_encoder::reencode::Reencode;
use wasm_encoder::{BlockType, Encode, Function, Instruction, MemArg, ValType};
use wasmparser::{FunctionBody, Operator};

use super::exceptions::{EXNREF, ExceptionAnalysis};
use super::inline::{Inlinable, InlinedCall};
use super::module::Module;
use super::stack_check::{Preceding, StackChecks};
use super::types::{AddedTypes, GlobalIndexMapper, Signature, val_types};
use super::{SAFEPOINT_ADDRESS, SAFEPOINT_LENGTH, TranslateError};

/// The number of safepoints with distinct addresses: the number of 32-bit words in the safepoint page.
const DISTINCT_SAFEPOINTS: u32 = SAFEPOINT_LENGTH / 4;

/// An open construct of the original, and its counterpart in the output.
pub(super) struct Frame {
    /// The position of the output's construct that a branch to this one targets: the number of constructs around it.
    pub(super) label: u32,
    pub(super) kind: FrameKind,
}

/// The way in which a construct ends.
#[derive(Clone, Copy)]
pub(super) enum FrameKind {
    /// `end` stays `end`.
    Plain,
    /// A `try` with or without handlers; `in_handler` is set once a handler has begun.
    Catching { id: usize, in_handler: bool },
    /// A `try` that ends in `delegate`.
    Delegating { id: usize },
}

/// Loads at loop headers and tail calls, which fault when the safepoint page is made inaccessible.
#[derive(Debug, Default)]
pub(super) struct Safepoints {
    /// The number of safepoints placed so far.
    placed: u32,
}

const TOO_MANY_LOCALS: TranslateError = TranslateError::Structure("more locals than can be numbered");

/// Extra shadow stack for one function.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShadowStackPadding {
    /// The number of bytes to allocate on entry and to release on every normal exit.
    pub(super) bytes: i32,
    /// The index of `__stack_pointer` in the output.
    pub(super) stack_pointer: u32,
}

/// A body that is being written.
pub(super) struct Body<'m, 'w> {
    pub(super) module: &'m Module<'w>,
    pub(super) types: &'m mut AddedTypes,
    pub(super) global_indices: GlobalIndexMapper,
    pub(super) exceptions: &'m ExceptionAnalysis,
    pub(super) frames: Vec<Frame>,
    /// The number of constructs that are open in the output, including the function itself.
    pub(super) depth: u32,
    /// The position of each `try`'s relay block, while it is open.
    pub(super) relays: Vec<Option<u32>>,
    /// The position of the relay block around the whole body.
    pub(super) relay_to_caller: Option<u32>,
    pub(super) next_try: usize,
    safepoints: Option<&'m mut Safepoints>,
    pub(super) stack_checks: Option<StackChecks>,
    /// The instructions before the next one.
    preceding: Preceding,
    stack_padding: Option<ShadowStackPadding>,
    /// The local that holds the exception of each `try` that is rethrown.
    exception_locals: Vec<Option<u32>>,
    pub(super) inlinable: &'m Inlinable,
    /// The index of the function. `length` is its length in bytes.
    pub(super) function: u32,
    pub(super) length: usize,
    /// The functions that are being inlined, the innermost last.
    pub(super) inlined: Vec<InlinedCall>,
    /// The number of bytes that inlining added.
    pub(super) gained: usize,
    /// Locals of functions that were inlined before, for reuse.
    pub(super) spare_locals: Vec<(u32, ValType)>,
    /// The locals without parameters, in runs.
    locals: Vec<(u32, ValType)>,
    /// The number of locals, including parameters.
    local_count: u32,
    /// The instructions so far.
    out: Vec<u8>,
}

impl<'m, 'w> Body<'m, 'w> {
    /// Rewrites the body of the function with this index.
    #[expect(clippy::too_many_arguments, reason = "one caller; a struct would only repeat `Body`")]
    pub(super) fn rewrite(
        module: &'m Module<'w>,
        types: &'m mut AddedTypes,
        global_indices: GlobalIndexMapper,
        exceptions: &'m ExceptionAnalysis,
        safepoints: Option<&'m mut Safepoints>,
        stack_checks: Option<StackChecks>,
        stack_padding: Option<ShadowStackPadding>,
        inlinable: &'m Inlinable,
        function: u32,
        original: &FunctionBody<'w>,
    ) -> Result<Function, TranslateError> {
        let ty = module.type_of_function(function)?;
        let mut body = Self {
            module,
            types,
            global_indices,
            exceptions,
            frames: vec![],
            depth: 1,
            relays: vec![None; exceptions.tries.len()],
            relay_to_caller: None,
            next_try: 0,
            safepoints,
            stack_checks,
            preceding: Preceding::default(),
            stack_padding,
            exception_locals: vec![],
            inlinable,
            function,
            length: original.as_bytes().len(),
            inlined: vec![],
            gained: 0,
            spare_locals: vec![],
            locals: vec![],
            local_count: 0,
            out: vec![],
        };
        body.declare_locals(ty.params().len(), original)?;
        body.begin(ty)?;
        let mut operators = original.get_operators_reader()?;
        while !operators.eof() {
            body.operator(operators.read()?)?;
        }
        if body.depth != 0 {
            return Err(TranslateError::Structure("unbalanced blocks"));
        }
        let mut function = Function::new(body.locals);
        function.raw(body.out);
        Ok(function)
    }

    /// Declares the original's locals, followed by one for the exception of each `try` that is rethrown.
    fn declare_locals(&mut self, params: usize, original: &FunctionBody<'w>) -> Result<(), TranslateError> {
        self.local_count = u32::try_from(params).map_err(|_| TOO_MANY_LOCALS)?;
        for run in original.get_locals_reader()? {
            let (length, ty) = run?;
            let ty = self.global_indices.val_type(ty)?;
            self.add_locals(length, ty)?;
        }
        for this in &self.exceptions.tries {
            let local = if this.rethrown { Some(self.add_locals(1, EXNREF)?) } else { None };
            self.exception_locals.push(local);
        }
        Ok(())
    }

    /// Declares locals and returns the index of the first.
    fn add_locals(&mut self, count: u32, ty: ValType) -> Result<u32, TranslateError> {
        let first = self.local_count;
        self.local_count = first.checked_add(count).ok_or(TOO_MANY_LOCALS)?;
        match self.locals.last_mut() {
            Some((length, last)) if *last == ty => *length += count,
            _ => self.locals.push((count, ty)),
        }
        Ok(first)
    }

    /// Declares one more local and returns its index.
    pub(super) fn add_local(&mut self, ty: ValType) -> Result<u32, TranslateError> {
        self.add_locals(1, ty)
    }

    /// Writes the instructions before the original's first.
    fn begin(&mut self, ty: &wasmparser::FuncType) -> Result<(), TranslateError> {
        let mut label = 0;
        if let Some(stack_padding) = self.stack_padding {
            self.move_stack_pointer(stack_padding, stack_padding.bytes.saturating_neg());
            if let Some(checks) = self.stack_checks {
                self.check_stack(checks);
            }
            let results = val_types(&mut self.global_indices, ty.results())?;
            let block = self.types.block(&Signature { params: vec![], results })?;
            label = self.open(&Instruction::Block(block));
        }
        if self.exceptions.relay_to_caller {
            self.relay_to_caller = Some(self.open(&Instruction::Block(BlockType::Result(EXNREF))));
        }
        self.frames.push(Frame { label, kind: FrameKind::Plain });
        Ok(())
    }

    pub(super) fn operator(&mut self, operator: Operator<'_>) -> Result<(), TranslateError> {
        let preceding = self.preceding;
        self.preceding = preceding.then(&operator);
        match operator {
            Operator::Loop { .. } => {
                self.copy_open(operator)?;
                self.safepoint();
            }
            Operator::Block { .. } | Operator::If { .. } => self.copy_open(operator)?,
            Operator::Try { blockty } => self.open_try(blockty)?,
            Operator::Catch { .. } | Operator::CatchAll => self.begin_handler()?,
            Operator::Rethrow { relative_depth } => self.rethrow(relative_depth)?,
            Operator::Delegate { .. } => self.close_delegating()?,
            Operator::TryTable { try_table } => self.open_try_table(try_table)?,
            Operator::End => self.end()?,
            Operator::Br { relative_depth } => {
                let label = self.branch(relative_depth)?;
                self.emit(&Instruction::Br(label));
            }
            Operator::BrIf { relative_depth } => {
                let label = self.branch(relative_depth)?;
                self.emit(&Instruction::BrIf(label));
            }
            Operator::BrTable { targets } => {
                let mut labels = Vec::with_capacity(targets.len() as usize);
                for target in targets.targets() {
                    labels.push(self.branch(target?)?);
                }
                let default = self.branch(targets.default())?;
                self.emit(&Instruction::BrTable(labels.into(), default));
            }
            Operator::LocalGet { local_index } => self.emit(&Instruction::LocalGet(self.local(local_index)?)),
            Operator::LocalSet { local_index } => self.emit(&Instruction::LocalSet(self.local(local_index)?)),
            Operator::LocalTee { local_index } => self.emit(&Instruction::LocalTee(self.local(local_index)?)),
            Operator::GlobalSet { global_index } => {
                self.copy(operator)?;
                self.check_assignment(global_index, preceding);
            }
            Operator::Call { function_index } if self.inline(function_index)? => {}
            Operator::Return if !self.inlined.is_empty() => {
                let inlined = self.inlined.last().ok_or(TranslateError::Structure("unbalanced blocks"))?;
                let label = self.depth_of(inlined.label)?;
                self.emit(&Instruction::Br(label));
            }
            Operator::Return if self.stack_padding.is_some() => {
                // Leave the block around the body: the shadow stack is released behind it.
                let outermost = self.frames.first().ok_or(TranslateError::Structure("unbalanced blocks"))?;
                let label = self.depth_of(outermost.label)?;
                self.emit(&Instruction::Br(label));
            }
            Operator::ReturnCall { .. } | Operator::ReturnCallIndirect { .. } => {
                // The callee replaces this function: its arguments are on the operand stack, which does not change.
                self.safepoint();
                if let Some(stack_padding) = self.stack_padding {
                    self.move_stack_pointer(stack_padding, stack_padding.bytes);
                }
                self.copy(operator)?;
            }
            _ => self.copy(operator)?,
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), TranslateError> {
        let frame = self.frames.pop().ok_or(TranslateError::Structure("unbalanced blocks"))?;
        match frame.kind {
            FrameKind::Plain if self.frames.is_empty() => self.end_function(frame.label),
            FrameKind::Plain => {
                self.close();
                Ok(())
            }
            FrameKind::Catching { id, in_handler } => self.close_catching(id, in_handler),
            FrameKind::Delegating { .. } => Err(TranslateError::Structure("delegate without its instruction")),
        }
    }

    fn end_function(&mut self, label: u32) -> Result<(), TranslateError> {
        if self.relay_to_caller.is_some() {
            self.close_relay(label)?;
        }
        if let Some(stack_padding) = self.stack_padding {
            self.close();
            self.move_stack_pointer(stack_padding, stack_padding.bytes);
        }
        self.close();
        Ok(())
    }

    fn move_stack_pointer(&mut self, stack_padding: ShadowStackPadding, by: i32) {
        self.emit(&Instruction::GlobalGet(stack_padding.stack_pointer));
        self.emit(&Instruction::I32Const(by));
        self.emit(&Instruction::I32Add);
        self.emit(&Instruction::GlobalSet(stack_padding.stack_pointer));
    }

    /// Writes a load from the safepoint page, whose value is discarded.
    ///
    /// Cranelift replaces a load by an earlier one from the same address, which would prevent an inner loop from
    /// faulting. So every loop, and every tail call, loads from its own address. Addresses repeat only after more loops
    /// than any function has.
    fn safepoint(&mut self) {
        let Some(safepoints) = &mut self.safepoints else { return };
        let offset = u64::from(safepoints.placed % DISTINCT_SAFEPOINTS) * 4;
        safepoints.placed = safepoints.placed.wrapping_add(1);
        self.emit(&Instruction::I32Const(SAFEPOINT_ADDRESS.cast_signed()));
        self.emit(&Instruction::I32Load(MemArg { offset, align: 2, memory_index: 0 }));
        self.emit(&Instruction::Drop);
    }

    /// Returns the local that holds the exception that the `try` caught.
    pub(super) fn exception_local(&self, id: usize) -> Result<u32, TranslateError> {
        let local = self.exception_locals.get(id).copied().flatten();
        local.ok_or(TranslateError::Structure("rethrow of an exception that was not kept"))
    }

    /// Returns the depth, at the present position of the output, of the construct at `position`.
    pub(super) fn depth_of(&self, position: u32) -> Result<u32, TranslateError> {
        self.depth
            .checked_sub(1)
            .and_then(|innermost| innermost.checked_sub(position))
            .ok_or(TranslateError::Structure("branch out of the function"))
    }

    /// Converts a branch depth of the original to one of the output.
    pub(super) fn branch(&self, relative_depth: u32) -> Result<u32, TranslateError> {
        self.depth_of(self.target(relative_depth)?.label)
    }

    /// Writes an instruction that opens a construct, and returns its position.
    pub(super) fn open(&mut self, instruction: &Instruction<'_>) -> u32 {
        let position = self.depth;
        self.emit(instruction);
        self.depth += 1;
        position
    }

    /// Writes an `end`.
    pub(super) fn close(&mut self) {
        self.emit(&Instruction::End);
        self.depth = self.depth.saturating_sub(1);
    }

    pub(super) fn emit(&mut self, instruction: &Instruction<'_>) {
        instruction.encode(&mut self.out);
    }

    fn copy(&mut self, operator: Operator<'_>) -> Result<(), TranslateError> {
        let instruction = self.global_indices.instruction(operator)?;
        self.emit(&instruction);
        Ok(())
    }

    fn copy_open(&mut self, operator: Operator<'_>) -> Result<(), TranslateError> {
        let instruction = self.global_indices.instruction(operator)?;
        let label = self.open(&instruction);
        self.frames.push(Frame { label, kind: FrameKind::Plain });
        Ok(())
    }
}
