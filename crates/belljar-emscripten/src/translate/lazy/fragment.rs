//! Writes fragments.

use std::collections::BTreeMap;
use std::convert::Infallible;

use wasm_encoder::reencode::{self, Reencode};
use wasm_encoder::{
    CodeSection, EntityType, ExportKind, ExportSection, FunctionSection, GlobalType, ImportSection, TypeSection,
    ValType,
};
use wasmparser::{BinaryReader, FunctionBody, Operator};

use super::super::TranslateError;
use super::skeleton::lazy_table;
use super::{Item, LazyModule, Stub};

/// A module of some of the functions of a [`LazyModule`].
#[derive(Debug)]
pub(crate) struct Fragment {
    pub(crate) wasm: Vec<u8>,
    /// The imports, in order.
    pub(crate) imports: Vec<Item>,
    /// The slots of the exported functions, in the order of the exports.
    pub(crate) slots: Vec<u32>,
}

impl LazyModule {
    /// Returns the length of a function's body in bytes, given its slot.
    pub(crate) fn length(&self, slot: u32) -> usize {
        self.bodies.get(slot as usize).map_or(0, |range| range.len())
    }

    /// Returns the slots of the functions that the function in `slot` calls, in the order of the calls.
    pub(crate) fn callees(&self, slot: u32) -> Result<Vec<u32>, TranslateError> {
        let mut callees = Vec::new();
        let mut operators = self.body(slot)?.get_operators_reader()?;
        while !operators.eof() {
            if let Operator::Call { function_index } | Operator::ReturnCall { function_index } = operators.read()?
                && let Some(callee) = function_index.checked_sub(self.imported_functions)
                && !callees.contains(&callee)
            {
                callees.push(callee);
            }
        }
        Ok(callees)
    }

    /// Writes the module of the functions with these slots.
    pub(crate) fn fragment(&self, slots: Vec<u32>) -> Result<Fragment, TranslateError> {
        let own = slots.iter().copied().zip(0..).collect();
        let mut writer = Writer { module: self, own, ..Writer::new(self) };
        // The first pass finds the items that the functions use, which determines the indices.
        for &slot in &slots {
            writer.parse_function_body(&mut CodeSection::new(), self.body(slot)?)?;
        }
        let mut code = CodeSection::new();
        for &slot in &slots {
            writer.parse_function_body(&mut code, self.body(slot)?)?;
        }
        writer.finish(slots, code)
    }

    fn body(&self, slot: u32) -> Result<FunctionBody<'_>, TranslateError> {
        let range = self.bodies.get(slot as usize).cloned().ok_or(TranslateError::Structure("function slot"))?;
        let bytes = self.wasm.get(range).ok_or(TranslateError::Structure("function body"))?;
        Ok(FunctionBody::new(BinaryReader::new(bytes, 0)))
    }

    pub(super) fn type_of(&self, function: u32) -> Result<u32, TranslateError> {
        self.functions.get(function as usize).copied().ok_or(TranslateError::Structure("function index"))
    }
}

/// Items of one kind in the order in which they were first used.
#[derive(Default)]
struct Used {
    positions: BTreeMap<u32, u32>,
    in_order: Vec<u32>,
}

impl Used {
    fn position(&mut self, item: u32) -> u32 {
        let next = self.in_order.len() as u32;
        *self.positions.entry(item).or_insert_with(|| {
            self.in_order.push(item);
            next
        })
    }

    fn len(&self) -> u32 {
        self.in_order.len() as u32
    }
}

/// A fragment that is being written.
struct Writer<'a> {
    module: &'a LazyModule,
    /// The positions of the fragment's functions by slot.
    own: BTreeMap<u32, u32>,
    types: Used,
    /// The imported functions of the module.
    functions: Used,
    /// The slots of functions of other fragments.
    others: Used,
    tables: Used,
    memories: Used,
    globals: Used,
    tags: Used,
}

impl<'a> Writer<'a> {
    fn new(module: &'a LazyModule) -> Self {
        Self {
            module,
            own: BTreeMap::new(),
            types: Used::default(),
            functions: Used::default(),
            others: Used::default(),
            tables: Used::default(),
            memories: Used::default(),
            globals: Used::default(),
            tags: Used::default(),
        }
    }

    fn finish(mut self, slots: Vec<u32>, mut code: CodeSection) -> Result<Fragment, TranslateError> {
        let module = self.module;
        let mut section = ImportSection::new();
        let mut imports = Vec::new();
        let missing = TranslateError::Structure("index");
        let mut import = |item: Item, ty: EntityType| {
            section.import("", "", ty);
            imports.push(item);
        };
        for function in self.functions.in_order.clone() {
            let ty = self.types.position(module.type_of(function)?);
            import(Item::Function(function), EntityType::Function(ty));
        }
        for table in self.tables.in_order.clone() {
            let ty = *module.tables.get(table as usize).ok_or(TranslateError::Structure("table index"))?;
            import(Item::Table(table), EntityType::Table(self.table_type(ty)?));
        }
        let defined = u32::try_from(module.bodies.len()).map_err(|_| missing)?;
        let table = self.tables.len();
        if !self.others.in_order.is_empty() {
            import(Item::LazyTable, EntityType::Table(lazy_table(defined)));
        }
        for memory in self.memories.in_order.clone() {
            let ty = *module.memories.get(memory as usize).ok_or(TranslateError::Structure("memory index"))?;
            import(Item::Memory(memory), EntityType::Memory(self.memory_type(ty)?));
        }
        for global in self.globals.in_order.clone() {
            let ty = *module.globals.get(global as usize).ok_or(TranslateError::Structure("global index"))?;
            let ty = GlobalType { val_type: self.val_type(ty.content_type)?, mutable: ty.mutable, shared: ty.shared };
            import(Item::Global(global), EntityType::Global(ty));
        }
        for tag in self.tags.in_order.clone() {
            let ty = *module.tags.get(tag as usize).ok_or(TranslateError::Structure("tag index"))?;
            let func_type_idx = self.types.position(ty);
            let kind = wasm_encoder::TagKind::Exception;
            import(Item::Tag(tag), EntityType::Tag(wasm_encoder::TagType { kind, func_type_idx }));
        }

        let mut functions = FunctionSection::new();
        let mut exports = ExportSection::new();
        for (&slot, index) in slots.iter().zip(self.functions.len()..) {
            functions.function(self.types.position(module.type_of(module.imported_functions + slot)?));
            exports.export(&slot.to_string(), ExportKind::Func, index);
        }
        let others = self.others.in_order.clone();
        let mut stubs = Vec::with_capacity(others.len());
        for slot in others {
            let original = module.type_of(module.imported_functions + slot)?;
            let ty = self.types.position(original);
            functions.function(ty);
            let params = module.types.get(original as usize).ok_or(TranslateError::Structure("type index"))?;
            stubs.push((slot, ty, params.params().len()));
        }
        // The loader's type is behind the module's types that are in use.
        let loader_type = self.types.len();
        for (slot, ty, params) in stubs {
            Stub { table, ty, loader_type, slot, loader: defined, params }.write(&mut code);
        }

        let mut types = TypeSection::new();
        for ty in self.types.in_order.clone() {
            let ty = module.types.get(ty as usize).ok_or(TranslateError::Structure("type index"))?;
            let params = self.val_types(ty.params().to_vec())?;
            let results = self.val_types(ty.results().to_vec())?;
            types.ty().function(params, results);
        }
        types.ty().function([ValType::I32], []);

        let mut output = wasm_encoder::Module::new();
        output.section(&types).section(&section).section(&functions).section(&exports).section(&code);
        Ok(Fragment { wasm: output.finish(), imports, slots })
    }
}

type Indexed = Result<u32, reencode::Error<Infallible>>;

impl Reencode for Writer<'_> {
    type Error = Infallible;

    fn type_index(&mut self, ty: u32) -> Indexed {
        Ok(self.types.position(ty))
    }

    fn function_index(&mut self, function: u32) -> Indexed {
        let Some(slot) = function.checked_sub(self.module.imported_functions) else {
            return Ok(self.functions.position(function));
        };
        let position = match self.own.get(&slot) {
            Some(position) => *position,
            None => self.own.len() as u32 + self.others.position(slot),
        };
        Ok(self.functions.len() + position)
    }

    fn table_index(&mut self, table: u32) -> Indexed {
        Ok(self.tables.position(table))
    }

    fn memory_index(&mut self, memory: u32) -> Indexed {
        Ok(self.memories.position(memory))
    }

    fn global_index(&mut self, global: u32) -> Indexed {
        Ok(self.globals.position(global))
    }

    fn tag_index(&mut self, tag: u32) -> Indexed {
        Ok(self.tags.position(tag))
    }

    // Modules that refer to segments from code are compiled as a whole.
    fn element_index(&mut self, _: u32) -> Indexed {
        Err(reencode::Error::InvalidConstExpr)
    }

    fn data_index(&mut self, _: u32) -> Indexed {
        Err(reencode::Error::InvalidConstExpr)
    }
}
