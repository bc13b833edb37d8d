//! Splits a side module, so that each function is compiled when it is first called.
//!
//! ```text
//! translated module ──▶ stub module: the same imports, exports, globals and elements; each function is a stub
//!                  └──▶ fragments: modules of a few functions each, which are made when one of them is called
//! ```
//!
//! The stub module has one more table, [`TABLE_EXPORT`]: slot *n* is for function *n* of those that the module defines,
//! and is empty until the fragment with this function has been instantiated. The last slot is the host's *loader*,
//! which takes the number of a function, and fills its slot. A *stub* of a function calls the loader if the function's
//! slot is empty, and then the function in the slot. Functions that are neither exported nor in a table have no stub in
//! the stub module, as no one can call them from outside. A fragment has stubs for the functions of other fragments
//! that it calls.
//!
//! A fragment imports the memory, tables, globals, tags and functions that it uses from the origin that they have for
//! the stub module, or from the stub module. Therefore the functions do the same as those of the whole module.

use std::collections::BTreeMap;
use std::ops::Range;

use wasm_encoder::{BlockType, CodeSection, Function, Instruction};
use wasmparser::{ExternalKind, FuncType, FunctionBody, GlobalType, MemoryType, TableType, TypeRef};

use super::TranslateError;
use super::module::Module;
use crate::fs::FileBytes;

mod fragment;
mod stubs;

pub(crate) use fragment::Fragment;
pub(crate) use stubs::write as write_stubs;

/// The export of a stub module's table of functions.
pub(crate) const TABLE_EXPORT: &str = "belljar:lazy";

/// An item of the module, by its index there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Item {
    Function(u32),
    Table(u32),
    Memory(u32),
    Global(u32),
    Tag(u32),
    /// The table of functions, which the module does not have.
    LazyTable,
}

impl Item {
    /// Returns the name under which the stub module exports an item that the module does not export.
    fn export_name(self) -> String {
        match self {
            Self::Function(index) => format!("belljar:function:{index}"),
            Self::Table(index) => format!("belljar:table:{index}"),
            Self::Memory(index) => format!("belljar:memory:{index}"),
            Self::Global(index) => format!("belljar:constant:{index}"),
            Self::Tag(index) => format!("belljar:tag:{index}"),
            Self::LazyTable => TABLE_EXPORT.to_owned(),
        }
    }
}

/// The origin of an item for an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The import at this position.
    Import(usize),
    /// The stub module's export of this name.
    Export(String),
}

/// A translated module whose functions are compiled one by one.
pub(crate) struct LazyModule {
    wasm: FileBytes,
    types: Vec<FuncType>,
    /// The type of each function, imports first.
    functions: Vec<u32>,
    imported_functions: u32,
    /// The body of each function that the module defines.
    bodies: Vec<Range<usize>>,
    tables: Vec<TableType>,
    memories: Vec<MemoryType>,
    globals: Vec<GlobalType>,
    tags: Vec<u32>,
    origins: BTreeMap<Item, Origin>,
    /// The slots of the exported functions.
    exports: BTreeMap<String, u32>,
}

impl LazyModule {
    /// Reads a module that the translator has written.
    pub(crate) fn read(wasm: FileBytes) -> Result<Self, TranslateError> {
        let module = Module::read(&wasm)?;
        let mut origins = BTreeMap::new();
        let (mut functions, mut tables, mut memories, mut globals, mut tags) = (0, 0, 0, 0, 0);
        let (mut table_types, mut memory_types, mut global_types) = (vec![], vec![], vec![]);
        let next = |count: &mut u32| {
            *count += 1;
            *count - 1
        };
        for (position, import) in module.imports.iter().enumerate() {
            let item = match import.ty {
                TypeRef::Func(_) | TypeRef::FuncExact(_) => Item::Function(next(&mut functions)),
                TypeRef::Table(ty) => {
                    table_types.push(ty);
                    Item::Table(next(&mut tables))
                }
                TypeRef::Memory(ty) => {
                    memory_types.push(ty);
                    Item::Memory(next(&mut memories))
                }
                TypeRef::Global(ty) => {
                    global_types.push(ty);
                    Item::Global(next(&mut globals))
                }
                TypeRef::Tag(_) => Item::Tag(next(&mut tags)),
            };
            origins.insert(item, Origin::Import(position));
        }
        table_types.extend(module.tables.iter().map(|table| table.ty));
        memory_types.extend(&module.memories);
        global_types.extend(module.globals.iter().map(|global| global.ty));
        let tag_types = module.tag_types().to_vec();
        for (item, name) in exports(&module) {
            origins.entry(item).or_insert(Origin::Export(name));
        }
        let imported_functions = functions;
        let exports = module.exports.iter().filter_map(|export| match export.kind {
            ExternalKind::Func | ExternalKind::FuncExact => {
                Some((export.name.to_owned(), export.index.checked_sub(imported_functions)?))
            }
            _ => None,
        });
        let exports = exports.collect();
        let bodies = module.bodies.iter().map(FunctionBody::range).collect();
        let (types, functions) = module.into_function_types();
        Ok(Self {
            types,
            functions,
            imported_functions,
            bodies,
            tables: table_types,
            memories: memory_types,
            globals: global_types,
            tags: tag_types,
            origins,
            exports,
            wasm,
        })
    }

    /// Returns the names and slots of the exported functions.
    pub(crate) fn exported_functions(&self) -> impl Iterator<Item = (&str, u32)> {
        self.exports.iter().map(|(name, slot)| (name.as_str(), *slot))
    }

    /// Returns the origin of an item.
    pub(crate) fn origin(&self, item: Item) -> Option<Origin> {
        if item == Item::LazyTable { Some(Origin::Export(TABLE_EXPORT.to_owned())) } else { self.origins.get(&item).cloned() }
    }
}

/// Returns the names under which the stub module exports the tables, memories, globals and tags that the module
/// defines.
fn exports(module: &Module<'_>) -> Vec<(Item, String)> {
    let imported = module.imported;
    let imported_tags = module.imports.iter().filter(|import| matches!(import.ty, TypeRef::Tag(_))).count();
    let mut items = Vec::new();
    let count = |imported: u32, defined: usize| imported..imported.saturating_add(u32::try_from(defined).unwrap_or(u32::MAX));
    items.extend(count(imported.tables, module.tables.len()).map(Item::Table));
    items.extend(count(imported.memories, module.memories.len()).map(Item::Memory));
    items.extend(count(imported.globals, module.globals.len()).map(Item::Global));
    let imported_tags = u32::try_from(imported_tags).unwrap_or(u32::MAX);
    items.extend((imported_tags..u32::try_from(module.tag_types().len()).unwrap_or(u32::MAX)).map(Item::Tag));
    let mut names: BTreeMap<Item, String> = BTreeMap::new();
    for export in &module.exports {
        let item = match export.kind {
            ExternalKind::Func | ExternalKind::FuncExact => Item::Function(export.index),
            ExternalKind::Table => Item::Table(export.index),
            ExternalKind::Memory => Item::Memory(export.index),
            ExternalKind::Global => Item::Global(export.index),
            ExternalKind::Tag => Item::Tag(export.index),
        };
        names.entry(item).or_insert_with(|| export.name.to_owned());
    }
    items.into_iter().map(|item| (item, names.remove(&item).unwrap_or_else(|| item.export_name()))).collect()
}

/// The numbers that a stub needs, in the module that it is written to.
struct Stub {
    /// The index of the table of functions.
    table: u32,
    /// The type of the function.
    ty: u32,
    /// The type of the loader.
    loader_type: u32,
    /// The slot of the function.
    slot: u32,
    /// The slot of the loader.
    loader: u32,
    /// The number of parameters.
    params: usize,
}

impl Stub {
    fn write(&self, code: &mut CodeSection) {
        let mut function = Function::new([]);
        let slot = Instruction::I32Const(self.slot.cast_signed());
        let table_index = self.table;
        for instruction in [
            slot.clone(),
            Instruction::TableGet(table_index),
            Instruction::RefIsNull,
            Instruction::If(BlockType::Empty),
            slot.clone(),
            Instruction::I32Const(self.loader.cast_signed()),
            Instruction::CallIndirect { type_index: self.loader_type, table_index },
            Instruction::End,
        ] {
            function.instruction(&instruction);
        }
        for param in (0..).take(self.params) {
            function.instruction(&Instruction::LocalGet(param));
        }
        function.instruction(&slot);
        function.instruction(&Instruction::ReturnCallIndirect { type_index: self.ty, table_index });
        function.instruction(&Instruction::End);
        code.function(&function);
    }
}
