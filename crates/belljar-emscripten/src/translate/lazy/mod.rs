//! Splits a side module, so that each function is compiled when it is first called.
//!
//! ```text
//! translated module ──▶ skeleton: the same imports, globals, tables and tags, and no functions
//!                  └──▶ fragments: modules of a few functions each, which are made when one of them is called
//! ```
//!
//! The skeleton has one more table, [`TABLE_EXPORT`]: slot *n* is for function *n* of those that the module defines,
//! and is empty until the fragment with this function has been instantiated. The last slot is the host's *loader*,
//! which takes the number of a function, and fills its slot.
//!
//! A fragment imports the memory, tables, globals, tags and functions that it uses from the origin that they have for
//! the module, or from the skeleton. For each function of another fragment that it calls it has a *stub*, which calls
//! the loader if the function's slot is empty, and then the function in the slot. Therefore the functions do the same
//! as those of the whole module. The host fills the slots of the function table to which the module's element segments
//! assign functions.

use std::collections::BTreeMap;
use std::ops::Range;

use wasm_encoder::{BlockType, CodeSection, Function, Instruction};
use wasmparser::{
    ElementItems, ElementKind, ExternalKind, FuncType, FunctionBody, GlobalType, MemoryType, TableType, TypeRef,
};

use super::TranslateError;
use super::module::{Module, Offset};
use crate::fs::FileBytes;

mod fragment;
mod skeleton;

pub(crate) use skeleton::write as write_skeleton;

/// The export of a skeleton's table of functions.
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
    /// Returns the name under which the skeleton exports an item that the module does not export.
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
    /// The skeleton's export of this name.
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
    /// The function in each slot of the function table that the module fills, relative to `__table_base`.
    elements: BTreeMap<u32, u32>,
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
        let elements = elements(&module)?;
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
            elements,
            wasm,
        })
    }

    /// Returns the names and slots of the exported functions.
    pub(crate) fn exported_functions(&self) -> impl Iterator<Item = (&str, u32)> {
        self.exports.iter().map(|(name, slot)| (name.as_str(), *slot))
    }

    /// Returns the slots of the function table that the module fills, relative to `__table_base`, with the index of the
    /// function in each.
    pub(crate) fn elements(&self) -> impl Iterator<Item = (u32, u32)> {
        self.elements.iter().map(|(slot, function)| (*slot, *function))
    }

    /// Returns the number of imported functions: the index of the function of slot 0.
    pub(crate) fn imported_functions(&self) -> u32 {
        self.imported_functions
    }

    /// Returns the types of functions.
    pub(crate) fn types(&self) -> &[FuncType] {
        &self.types
    }

    /// Returns the index of the type of each function that the module defines.
    pub(crate) fn function_types(&self) -> &[u32] {
        self.functions.get(self.imported_functions as usize..).unwrap_or_default()
    }

    /// Returns the slot of the exported function `name`.
    pub(crate) fn exported_function(&self, name: &str) -> Option<u32> {
        self.exports.get(name).copied()
    }

    /// Returns the origin of an item.
    pub(crate) fn origin(&self, item: Item) -> Option<Origin> {
        match item {
            Item::LazyTable => Some(Origin::Export(TABLE_EXPORT.to_owned())),
            _ => self.origins.get(&item).cloned(),
        }
    }
}

/// Returns the function in each slot of the function table that the module fills. Later segments overwrite earlier
/// ones.
fn elements(module: &Module<'_>) -> Result<BTreeMap<u32, u32>, TranslateError> {
    let refuse = |reason| TranslateError::Table(reason);
    let mut filled = BTreeMap::new();
    for element in module.element_section.clone().into_iter().flatten() {
        let element = element?;
        let ElementKind::Active { table_index: None | Some(0), offset_expr } = element.kind else {
            return Err(refuse("an element segment is not active in it"));
        };
        let Some(Offset::Relative { plus: first, .. }) = Offset::parse(&offset_expr)? else {
            return Err(refuse("the offset of an element segment is not relative"));
        };
        let ElementItems::Functions(functions) = element.items else {
            return Err(refuse("an element segment contains expressions"));
        };
        for (position, function) in (0..).zip(functions) {
            let slot: u32 = first.checked_add(position).ok_or(refuse("a segment reaches beyond its end"))?;
            filled.insert(slot, function?);
        }
    }
    Ok(filled)
}

/// Returns the names under which the skeleton exports the tables, memories, globals and tags that the module
/// defines.
fn exports(module: &Module<'_>) -> Vec<(Item, String)> {
    let imported = module.imported;
    let imported_tags = module.imports.iter().filter(|import| matches!(import.ty, TypeRef::Tag(_))).count();
    let mut items = Vec::new();
    let count =
        |imported: u32, defined: usize| imported..imported.saturating_add(u32::try_from(defined).unwrap_or(u32::MAX));
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
