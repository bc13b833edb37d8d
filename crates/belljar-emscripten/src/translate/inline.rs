//! Puts small functions in place of calls to them.
//!
//! LLVM inlines within a source file, but CPython's hot paths call small functions of other files. Done here, in
//! WebAssembly, it costs a few thousand instructions more to compile. (wasmtime's own inliner gains a little more, but
//! keeps every function in memory at once: 9 GB for CPython.)
//!
//! A call becomes a block: the arguments move from the operand stack into locals, and a `return` is a branch to the
//! block's end.

use wasm_encoder::reencode::Reencode;
use wasm_encoder::{Ieee32, Ieee64, Instruction, RefType, ValType};
use wasmparser::FunctionBody;

use super::TranslateError;
use super::body::{Body, Frame, FrameKind};
use super::exceptions::Survey;
use super::module::Module;
use super::types::{Signature, val_types};

/// How deep functions are put into functions that are themselves put in place of a call.
const MAX_DEPTH: usize = 3;

/// How many bytes of code a function may gain for each byte that it has, and on top of that.
const GROWTH: (usize, usize) = (1, 512);

/// Which functions are put in place of calls to them.
#[derive(Debug, Default)]
pub(super) struct Inlinable {
    /// By the function's place among those that the module defines.
    small: Vec<bool>,
}

impl Inlinable {
    /// Functions of at most `limit` bytes of code, except where `excluded`, and those with exceptions or tail calls.
    pub(super) fn of(
        module: &Module<'_>,
        limit: usize,
        excluded: impl Fn(u32) -> bool,
    ) -> Result<Self, TranslateError> {
        let mut small = Vec::new();
        for (function, body) in (module.imported.functions..).zip(&module.bodies) {
            let fits = body.as_bytes().len() <= limit && !excluded(function);
            small.push(
                fits && {
                    let survey = Survey::of(function, body)?;
                    survey.tries.is_empty() && !survey.tail_calls
                },
            );
        }
        Ok(Self { small })
    }

    /// The body of a function that is to be put in place of calls.
    fn body<'m, 'w>(&self, module: &'m Module<'w>, function: u32) -> Option<&'m FunctionBody<'w>> {
        let index = function.checked_sub(module.imported.functions)? as usize;
        self.small.get(index).filter(|small| **small)?;
        module.bodies.get(index)
    }
}

/// A function that is being written in place of a call.
pub(super) struct Inlined {
    function: u32,
    /// Position of the block that stands for it.
    pub(super) label: u32,
    /// The caller's locals that serve as its own.
    locals: Vec<u32>,
}

impl Body<'_, '_> {
    /// Writes the body of `function` in place of a call to it; `false` when it is to be called.
    pub(super) fn inline(&mut self, function: u32) -> Result<bool, TranslateError> {
        let module = self.module;
        let Some(original) = self.inlinable.body(module, function) else { return Ok(false) };
        let recursive = function == self.function || self.inlined.iter().any(|inlined| inlined.function == function);
        let gained = self.gained + original.as_bytes().len();
        if recursive || self.inlined.len() == MAX_DEPTH || gained > self.length * GROWTH.0 + GROWTH.1 {
            return Ok(false);
        }
        self.gained = gained;
        let ty = module.type_of_function(function)?;
        let params = val_types(&mut self.renumber, ty.params())?;
        let mut types = params.clone();
        for run in original.get_locals_reader()? {
            let (length, ty) = run?;
            let ty = self.renumber.val_type(ty)?;
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
        let results = val_types(&mut self.renumber, ty.results())?;
        let block = self.types.block(&Signature { params: vec![], results })?;
        let label = self.open(&Instruction::Block(block));
        self.frames.push(Frame { label, kind: FrameKind::Plain });
        self.inlined.push(Inlined { function, label, locals });
        let mut operators = original.get_operators_reader()?;
        while !operators.eof() {
            self.operator(operators.read()?)?;
        }
        let inlined = self.inlined.pop().ok_or(TranslateError::Structure("unbalanced blocks"))?;
        self.spare_locals.extend(inlined.locals.into_iter().zip(types));
        Ok(true)
    }

    /// The local that an instruction of the function that is being written means.
    pub(super) fn local(&self, index: u32) -> Result<u32, TranslateError> {
        match self.inlined.last() {
            Some(inlined) => {
                let local = inlined.locals.get(index as usize);
                local.copied().ok_or(TranslateError::Structure("local index"))
            }
            None => Ok(index),
        }
    }

    /// A local of this type that nobody uses now.
    fn borrow_local(&mut self, ty: ValType) -> Result<u32, TranslateError> {
        match self.spare_locals.iter().position(|(_, other)| *other == ty) {
            Some(spare) => Ok(self.spare_locals.swap_remove(spare).0),
            None => self.add_local(ty),
        }
    }
}

/// What a local of this type holds at the start of a function.
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
