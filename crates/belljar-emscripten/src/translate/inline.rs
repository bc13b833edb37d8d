//! Inlines small functions.
//!
//! LLVM inlines within a source file, but CPython's hot paths call small functions of other files. Inlining them here,
//! in WebAssembly, costs a few thousand more instructions to compile. (wasmtime's own inliner gains a little more, but
//! keeps every function in memory at once: 9 GB for CPython.)
//!
//! A call becomes a block: the arguments move from the operand stack into locals, and a `return` is a branch to the
//! block's end.

use wasm_encoder::reencode::Reencode;
use wasm_encoder::{Ieee32, Ieee64, Instruction, RefType, ValType};
use wasmparser::FunctionBody;

use super::TranslateError;
use super::body::{Body, Frame, FrameKind};
use super::exceptions::ExceptionAnalysis;
use super::module::Module;
use super::types::{Signature, val_types};

/// The maximum depth of inlining into inlined functions.
const MAX_DEPTH: usize = 3;

/// The maximum growth of a function: bytes of code for each byte that it has, and a number of bytes in addition.
const MAX_GROWTH: (usize, usize) = (1, 512);

/// The set of functions to inline.
#[derive(Debug, Default)]
pub(super) struct Inlinable {
    /// For each function, by its index among those that the module defines: true if it is inlined.
    small: Vec<bool>,
}

impl Inlinable {
    /// Selects functions of at most `limit` bytes of code, except those that `excluded` returns true for, and those
    /// with exceptions or tail calls.
    pub(super) fn new(
        module: &Module<'_>,
        limit: usize,
        excluded: impl Fn(u32) -> bool,
    ) -> Result<Self, TranslateError> {
        let mut small = Vec::new();
        for (function, body) in (module.imported.functions..).zip(&module.bodies) {
            let fits = body.as_bytes().len() <= limit && !excluded(function);
            small.push(
                fits && {
                    let exceptions = ExceptionAnalysis::new(function, body)?;
                    exceptions.tries.is_empty() && !exceptions.tail_calls
                },
            );
        }
        Ok(Self { small })
    }

    /// Returns the body of a function that is to be inlined.
    fn body<'m, 'w>(&self, module: &'m Module<'w>, function: u32) -> Option<&'m FunctionBody<'w>> {
        let index = function.checked_sub(module.imported.functions)? as usize;
        self.small.get(index).filter(|small| **small)?;
        module.bodies.get(index)
    }
}

/// A function that is being inlined.
pub(super) struct InlinedCall {
    function: u32,
    /// The position of its block.
    pub(super) label: u32,
    /// The caller's locals that replace its own.
    locals: Vec<u32>,
}

impl Body<'_, '_> {
    /// Writes the body of `function` in place of a call to it. Returns `false` if it is to be called instead.
    pub(super) fn inline(&mut self, function: u32) -> Result<bool, TranslateError> {
        let module = self.module;
        let Some(original) = self.inlinable.body(module, function) else { return Ok(false) };
        let recursive = function == self.function || self.inlined.iter().any(|inlined| inlined.function == function);
        let gained = self.gained + original.as_bytes().len();
        if recursive || self.inlined.len() == MAX_DEPTH || gained > self.length * MAX_GROWTH.0 + MAX_GROWTH.1 {
            return Ok(false);
        }
        self.gained = gained;
        let ty = module.type_of_function(function)?;
        let params = val_types(&mut self.global_indices, ty.params())?;
        let mut types = params.clone();
        for run in original.get_locals_reader()? {
            let (length, ty) = run?;
            let ty = self.global_indices.val_type(ty)?;
            types.extend(std::iter::repeat_n(ty, length as usize));
        }
        let locals = types.iter().map(|ty| self.borrow_local(*ty)).collect::<Result<Vec<_>, _>>()?;
        let (arguments, zeroed) = locals.split_at(params.len());
        for local in arguments.iter().rev() {
            self.emit(&Instruction::LocalSet(*local));
        }
        for (local, ty) in zeroed.iter().zip(&types[params.len()..]) {
            self.emit(&zero(*ty)?);
            self.emit(&Instruction::LocalSet(*local));
        }
        let results = val_types(&mut self.global_indices, ty.results())?;
        let block = self.types.block(&Signature { params: vec![], results })?;
        let label = self.open(&Instruction::Block(block));
        self.frames.push(Frame { label, kind: FrameKind::Plain });
        self.inlined.push(InlinedCall { function, label, locals });
        let mut operators = original.get_operators_reader()?;
        while !operators.eof() {
            self.operator(operators.read()?)?;
        }
        let inlined = self.inlined.pop().ok_or(TranslateError::Structure("unbalanced blocks"))?;
        self.spare_locals.extend(inlined.locals.into_iter().zip(types));
        Ok(true)
    }

    /// Returns the local of the output for a local of the function that is being written.
    pub(super) fn local(&self, index: u32) -> Result<u32, TranslateError> {
        match self.inlined.last() {
            Some(inlined) => {
                let local = inlined.locals.get(index as usize);
                local.copied().ok_or(TranslateError::Structure("local index"))
            }
            None => Ok(index),
        }
    }

    /// Returns an unused local of this type.
    fn borrow_local(&mut self, ty: ValType) -> Result<u32, TranslateError> {
        match self.spare_locals.iter().position(|(_, other)| *other == ty) {
            Some(spare) => Ok(self.spare_locals.swap_remove(spare).0),
            None => self.add_local(ty),
        }
    }
}

/// Returns the initial value of a local of this type.
fn zero(ty: ValType) -> Result<Instruction<'static>, TranslateError> {
    Ok(match ty {
        ValType::I32 => Instruction::I32Const(0),
        ValType::I64 => Instruction::I64Const(0),
        ValType::F32 => Instruction::F32Const(Ieee32::new(0)),
        ValType::F64 => Instruction::F64Const(Ieee64::new(0)),
        ValType::V128 => Instruction::V128Const(0),
        ValType::Ref(RefType { nullable: true, heap_type }) => Instruction::RefNull(heap_type),
        ValType::Ref(_) => return Err(TranslateError::Structure("a local without a default")),
    })
}
