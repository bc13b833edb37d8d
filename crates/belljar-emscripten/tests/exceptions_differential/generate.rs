//! Random modules with legacy exceptions.
//!
//! Every module has the functions `f0` to `fN` of type `(i32) -> i32`, which call each other, and three tags. Each
//! value that a program could observe is mixed into the global `hash`; each call and each iteration of a loop
//! decrements the global `fuel`, and traps when it is zero, so every call ends.

use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, EntityType, ExportKind, ExportSection, Function, FunctionSection, GlobalSection,
    GlobalType, ImportSection, Instruction, MemorySection, MemoryType, Module, TagKind, TagSection, TagType,
    TypeSection, ValType,
};

/// The number of functions exported by each module.
pub(crate) const FUNCTIONS: u32 = 6;

/// The number of parameters and results of every block type used, all `i32`; the index is the type's.
const SIGNATURES: [(usize, usize); 8] = [(1, 1), (1, 0), (0, 0), (2, 0), (0, 1), (0, 2), (2, 1), (1, 2)];
/// The type of the exported functions. `MIX` and `BURN` are those of `mix` and `burn`.
const CALL: u32 = 0;
const MIX: u32 = 1;
const BURN: u32 = 2;
/// The type and number of values of each tag: imported, empty, pair.
const TAGS: [(u32, usize); 3] = [(1, 1), (2, 0), (3, 2)];
/// The index of the global `hash`; the other globals follow.
const HASH: u32 = 0;
const FUEL: u32 = 1;
const STACK_POINTER: u32 = 2;
/// The number of locals of each function: the parameter and two more.
const LOCALS: u32 = 3;

/// A random number generator (SplitMix64): a seed always results in the same module.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0be1_17a5)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Generates the module for a seed.
pub(crate) fn module(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut types = TypeSection::new();
    for (params, results) in SIGNATURES {
        types.ty().function(vec![ValType::I32; params], vec![ValType::I32; results]);
    }
    let tag = |(func_type_idx, _)| TagType { kind: TagKind::Exception, func_type_idx };
    let mut imports = ImportSection::new();
    imports.import("env", "imported", EntityType::Tag(tag(TAGS[0])));
    let mut tags = TagSection::new();
    tags.tag(tag(TAGS[1]));
    tags.tag(tag(TAGS[2]));

    let mut functions = FunctionSection::new();
    let mut exports = ExportSection::new();
    let mut code = CodeSection::new();
    for index in 0..FUNCTIONS {
        functions.function(CALL);
        exports.export(&format!("f{index}"), ExportKind::Func, index);
        code.function(&Writer::function(&mut random));
    }
    functions.function(MIX);
    code.function(&mix());
    functions.function(BURN);
    code.function(&burn());

    let mut globals = GlobalSection::new();
    for _ in [HASH, FUEL, STACK_POINTER] {
        let ty = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
        globals.global(ty, &ConstExpr::i32_const(1 << 20));
    }
    exports.export("hash", ExportKind::Global, HASH);
    exports.export("fuel", ExportKind::Global, FUEL);
    exports.export("__stack_pointer", ExportKind::Global, STACK_POINTER);
    exports.export("empty", ExportKind::Tag, 1);
    exports.export("pair", ExportKind::Tag, 2);

    // The code does not use memory, but safepoints need one.
    let mut memories = MemorySection::new();
    memories.memory(MemoryType { minimum: 1, maximum: None, memory64: false, shared: false, page_size_log2: None });

    let mut module = Module::new();
    module.section(&types).section(&imports).section(&functions).section(&memories).section(&tags);
    module.section(&globals).section(&exports).section(&code);
    module.finish()
}

/// Writes `hash = hash * 31 ^ value`.
fn mix() -> Function {
    let mut function = Function::new([]);
    let mut sink = function.instructions();
    sink.global_get(HASH).i32_const(31).i32_mul().local_get(0).i32_xor().global_set(HASH).end();
    function
}

/// Writes `fuel = fuel - 1`, or a trap.
fn burn() -> Function {
    let mut function = Function::new([]);
    let mut sink = function.instructions();
    sink.global_get(FUEL).i32_eqz().if_(BlockType::Empty).unreachable().end();
    sink.global_get(FUEL).i32_const(1).i32_sub().global_set(FUEL).end();
    function
}

/// An open construct.
#[derive(Clone, Copy)]
struct Label {
    /// The number of values that a branch to it carries.
    arity: usize,
    is_loop: bool,
    is_handler: bool,
}

struct Writer<'r> {
    random: &'r mut Random,
    function: Function,
    labels: Vec<Label>,
    /// The number of statements that may still be written, which keeps functions small.
    budget: usize,
}

impl<'r> Writer<'r> {
    fn function(random: &'r mut Random) -> Function {
        let budget = 8 + random.below(50);
        let mut writer = Self { random, function: Function::new([(LOCALS - 1, ValType::I32)]), labels: vec![], budget };
        writer.labels.push(Label { arity: 1, is_loop: false, is_handler: false });
        writer.emit(Instruction::Call(FUNCTIONS + 1));
        writer.statements(1);
        writer.emit(Instruction::End);
        writer.function
    }

    fn emit(&mut self, instruction: Instruction<'_>) {
        self.function.instruction(&instruction);
    }

    fn mix(&mut self) {
        self.emit(Instruction::Call(FUNCTIONS));
    }

    /// Writes statements that end with `results` values on the stack, or do not end normally.
    fn statements(&mut self, results: usize) {
        for _ in 0..1 + self.random.below(5) {
            if self.budget == 0 {
                break;
            }
            self.budget -= 1;
            if !self.statement() {
                // The code after it is unreachable; sometimes it is generated all the same.
                if self.random.chance(80) {
                    return;
                }
            }
        }
        for _ in 0..results {
            self.value();
        }
    }

    /// Writes code that runs only if a value is not zero.
    fn sometimes(&mut self, what: impl FnOnce(&mut Self)) {
        self.value();
        self.emit(Instruction::If(BlockType::Empty));
        self.labels.push(Label { arity: 0, is_loop: false, is_handler: false });
        what(self);
        self.end();
    }

    /// Writes one statement. Returns whether the next one is reachable.
    fn statement(&mut self) -> bool {
        // In nested handlers, rethrow more often: each should throw its own exception.
        if self.handlers().len() > 1 && self.random.chance(25) {
            self.sometimes(|writer| {
                writer.rethrow();
            });
            return true;
        }
        match self.random.below(28) {
            0..=2 => {
                self.value();
                self.mix();
            }
            3 => {
                self.value();
                let local = self.random.below(LOCALS as usize) as u32;
                self.emit(Instruction::LocalSet(local));
            }
            4..=6 => {
                self.value();
                let callee = self.random.below(FUNCTIONS as usize) as u32;
                self.emit(Instruction::Call(callee));
                self.mix();
            }
            7..=8 => {
                self.throw();
                return false;
            }
            9 => self.sometimes(Self::throw),
            10..=15 => self.block(Kind::Try),
            16 => self.block(Kind::Block),
            17 => self.block(Kind::Loop),
            18 => self.block(Kind::If),
            19..=20 => self.branch_if(),
            21 => return self.branch(),
            22 => return self.branch_table(),
            23 => return self.rethrow(),
            _ => self.sometimes(|writer| {
                writer.rethrow();
            }),
        }
        true
    }

    fn value(&mut self) {
        match self.random.below(4) {
            0 => {
                let constant = self.random.below(7) as i32 - 3;
                self.emit(Instruction::I32Const(constant));
            }
            1 => self.emit(Instruction::GlobalGet(HASH)),
            2 => {
                let local = self.random.below(LOCALS as usize) as u32;
                self.emit(Instruction::LocalGet(local));
            }
            _ => {
                let local = self.random.below(LOCALS as usize) as u32;
                let constant = 1 + self.random.below(3) as i32;
                self.emit(Instruction::LocalGet(local));
                self.emit(Instruction::GlobalGet(HASH));
                self.emit(Instruction::I32Xor);
                self.emit(Instruction::I32Const(constant));
                self.emit(Instruction::I32And);
            }
        }
    }

    fn values(&mut self, count: usize) {
        for _ in 0..count {
            self.value();
        }
    }

    fn throw(&mut self) {
        let tag = self.random.below(TAGS.len());
        self.values(TAGS[tag].1);
        self.emit(Instruction::Throw(tag as u32));
    }

    fn block(&mut self, kind: Kind) {
        let index = self.random.below(SIGNATURES.len());
        let (params, results) = SIGNATURES[index];
        let ty = match (params, results) {
            (0, 0) => BlockType::Empty,
            (0, 1) => BlockType::Result(ValType::I32),
            _ => BlockType::FunctionType(index as u32),
        };
        self.values(params);
        let arity = if matches!(kind, Kind::Loop) { params } else { results };
        let label = Label { arity, is_loop: matches!(kind, Kind::Loop), is_handler: false };
        match kind {
            Kind::Block => self.emit(Instruction::Block(ty)),
            Kind::Loop => self.emit(Instruction::Loop(ty)),
            Kind::Try => self.emit(Instruction::Try(ty)),
            Kind::If => {
                self.value();
                self.emit(Instruction::If(ty));
            }
        }
        self.labels.push(label);
        if matches!(kind, Kind::Try) && self.random.chance(50) {
            self.sometimes(Self::throw);
        }
        self.body(params, results, matches!(kind, Kind::Loop));
        match kind {
            Kind::If => {
                self.emit(Instruction::Else);
                self.body(params, results, false);
                self.end();
            }
            Kind::Try => self.end_try(results),
            Kind::Block | Kind::Loop => self.end(),
        }
        for _ in 0..results {
            self.mix();
        }
    }

    /// Writes the contents of a construct: its parameters are mixed in, followed by statements.
    fn body(&mut self, params: usize, results: usize, is_loop: bool) {
        for _ in 0..params {
            self.mix();
        }
        if is_loop {
            self.emit(Instruction::Call(FUNCTIONS + 1));
        }
        self.statements(results);
    }

    fn end(&mut self) {
        self.labels.pop();
        self.emit(Instruction::End);
    }

    /// Writes handlers, a delegate, or neither.
    fn end_try(&mut self, results: usize) {
        if self.random.chance(30) {
            self.labels.pop();
            let depth = self.random.below(self.labels.len()) as u32;
            self.emit(Instruction::Delegate(depth));
            return;
        }
        if let Some(label) = self.labels.last_mut() {
            label.is_handler = true;
        }
        for (tag, (_, values)) in TAGS.iter().enumerate() {
            if self.random.chance(35) {
                self.emit(Instruction::Catch(tag as u32));
                self.body(*values, results, false);
            }
        }
        if self.random.chance(40) {
            self.emit(Instruction::CatchAll);
            self.body(0, results, false);
        }
        self.end();
    }

    /// Chooses a label. Returns its depth and description.
    fn label(&mut self) -> (u32, Label) {
        let depth = self.random.below(self.labels.len());
        (depth as u32, self.labels[self.labels.len() - 1 - depth])
    }

    fn branch(&mut self) -> bool {
        let (depth, label) = self.label();
        self.values(label.arity);
        if depth as usize == self.labels.len() - 1 && self.random.chance(50) {
            self.emit(Instruction::Return);
        } else {
            self.emit(Instruction::Br(depth));
        }
        false
    }

    fn branch_if(&mut self) {
        let (depth, label) = self.label();
        // Back edges that are always taken only burn fuel.
        if label.is_loop && self.random.chance(50) {
            return;
        }
        self.values(label.arity);
        self.value();
        self.emit(Instruction::BrIf(depth));
        for _ in 0..label.arity {
            self.mix();
        }
    }

    fn branch_table(&mut self) -> bool {
        let (default, label) = self.label();
        let mut targets = vec![];
        for _ in 0..self.random.below(4) {
            let (depth, other) = self.label();
            if other.arity == label.arity {
                targets.push(depth);
            }
        }
        self.values(label.arity);
        self.value();
        self.emit(Instruction::BrTable(targets.into(), default));
        false
    }

    /// Returns the positions of the open handlers.
    fn handlers(&self) -> Vec<usize> {
        (0..self.labels.len()).filter(|position| self.labels[*position].is_handler).collect()
    }

    fn rethrow(&mut self) -> bool {
        let handlers = self.handlers();
        if handlers.is_empty() {
            return true;
        }
        let position = handlers[self.random.below(handlers.len())];
        self.emit(Instruction::Rethrow((self.labels.len() - 1 - position) as u32));
        false
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Block,
    Loop,
    If,
    Try,
}
