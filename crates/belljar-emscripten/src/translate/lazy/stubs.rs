//! Writes the stub module.

use std::collections::BTreeMap;
use std::convert::Infallible;

use wasm_encoder::reencode::{self, Reencode};
use wasm_encoder::{
    CodeSection, ElementSection, ExportKind, ExportSection, FunctionSection, GlobalSection, ImportSection, MemorySection,
    RefType, TableSection, TableType, TagSection, TypeSection, ValType,
};
use wasmparser::{ElementItems, ExternalKind, Operator};

use super::super::TranslateError;
use super::super::module::Module;
use super::{Item, Stub, TABLE_EXPORT, exports};

/// Returns the stub module of a module that the translator has written, or `None` if its functions cannot be compiled
/// one by one: if they refer to segments or take references of functions, which no compiler of C or Rust writes.
///
/// # Errors
/// Fails if the module exports a name that the stub module needs.
pub(crate) fn write(wasm: &[u8]) -> Result<Option<Vec<u8>>, TranslateError> {
    let module = Module::read(wasm)?;
    let Some(escaping) = escaping(&module)? else { return Ok(None) };
    let mut indices = Indices { imported: module.imported.functions, stubs: BTreeMap::new() };
    for (function, position) in escaping.iter().zip(0..) {
        indices.stubs.insert(*function, module.imported.functions + position);
    }
    let types = |module: &Module<'_>| u32::try_from(module.type_count()).map_err(|_| TranslateError::Structure("types"));
    let loader_type = types(&module)?;
    let defined = u32::try_from(module.bodies.len()).map_err(|_| TranslateError::Structure("functions"))?;
    let table = module.imported.tables + u32::try_from(module.tables.len()).unwrap_or(u32::MAX);

    let mut output = wasm_encoder::Module::new();
    let mut types = TypeSection::new();
    if let Some(section) = module.type_section.clone() {
        indices.parse_type_section(&mut types, section)?;
    }
    types.ty().function([ValType::I32], []);
    output.section(&types);

    let mut imports = ImportSection::new();
    for import in &module.imports {
        imports.import(import.module, import.name, indices.entity_type(import.ty)?);
    }
    output.section(&imports);

    let mut functions = FunctionSection::new();
    let mut code = CodeSection::new();
    for &function in &escaping {
        let ty = module.type_index_of_function(function)?;
        let params = module.function_type(ty)?.params().len();
        functions.function(ty);
        let slot = function - module.imported.functions;
        Stub { table, ty, loader_type, slot, loader: defined, params }.write(&mut code);
    }
    output.section(&functions);

    let mut tables = TableSection::new();
    for table in &module.tables {
        indices.parse_table(&mut tables, table.clone())?;
    }
    tables.table(lazy_table(defined));
    output.section(&tables);

    let mut memories = MemorySection::new();
    for memory in &module.memories {
        memories.memory(indices.memory_type(*memory)?);
    }
    output.section(&memories);

    let mut tags = TagSection::new();
    if let Some(section) = module.tag_section.clone() {
        indices.parse_tag_section(&mut tags, section)?;
    }
    output.section(&tags);

    let mut globals = GlobalSection::new();
    for global in &module.globals {
        indices.parse_global(&mut globals, global.clone())?;
    }
    output.section(&globals);

    output.section(&write_exports(&module, &mut indices, table)?);

    let mut elements = ElementSection::new();
    if let Some(section) = module.element_section.clone() {
        indices.parse_element_section(&mut elements, section)?;
    }
    output.section(&elements);
    output.section(&code);
    Ok(Some(output.finish()))
}

/// Returns the type of the table of functions.
pub(super) fn lazy_table(functions: u32) -> TableType {
    let size = u64::from(functions) + 1;
    TableType { element_type: RefType::FUNCREF, minimum: size, maximum: Some(size), table64: false, shared: false }
}

fn write_exports(
    module: &Module<'_>,
    indices: &mut Indices,
    lazy_table: u32,
) -> Result<ExportSection, TranslateError> {
    let mut section = ExportSection::new();
    for export in &module.exports {
        if export.name == TABLE_EXPORT {
            return Err(TranslateError::ReservedName(export.name.to_owned()));
        }
        indices.parse_export(&mut section, *export)?;
    }
    for (item, name) in exports(module) {
        let (kind, index) = match item {
            Item::Table(index) => (ExportKind::Table, index),
            Item::Memory(index) => (ExportKind::Memory, index),
            Item::Global(index) => (ExportKind::Global, index),
            Item::Tag(index) => (ExportKind::Tag, index),
            Item::Function(_) | Item::LazyTable => continue,
        };
        let own = module.exports.iter().find(|export| export.name == name);
        match own {
            None => {
                section.export(&name, kind, index);
            }
            Some(own) if kind_of(own.kind) == kind && own.index == index => {}
            Some(_) => return Err(TranslateError::ReservedName(name)),
        }
    }
    section.export(TABLE_EXPORT, ExportKind::Table, lazy_table);
    Ok(section)
}

fn kind_of(kind: ExternalKind) -> ExportKind {
    match kind {
        ExternalKind::Func | ExternalKind::FuncExact => ExportKind::Func,
        ExternalKind::Table => ExportKind::Table,
        ExternalKind::Memory => ExportKind::Memory,
        ExternalKind::Global => ExportKind::Global,
        ExternalKind::Tag => ExportKind::Tag,
    }
}

/// Returns the functions that the module defines and that others can call: those that are exported or in a table.
fn escaping(module: &Module<'_>) -> Result<Option<Vec<u32>>, TranslateError> {
    let mut escaping = std::collections::BTreeSet::new();
    for export in &module.exports {
        if matches!(export.kind, ExternalKind::Func | ExternalKind::FuncExact) {
            escaping.insert(export.index);
        }
    }
    for element in module.element_section.clone().into_iter().flatten() {
        match element?.items {
            ElementItems::Functions(functions) => {
                for function in functions {
                    escaping.insert(function?);
                }
            }
            ElementItems::Expressions(_, expressions) => {
                for expression in expressions {
                    for operator in expression?.get_operators_reader() {
                        if let Operator::RefFunc { function_index } = operator? {
                            escaping.insert(function_index);
                        }
                    }
                }
            }
        }
    }
    for global in &module.globals {
        for operator in global.init_expr.get_operators_reader() {
            if let Operator::RefFunc { function_index } = operator? {
                escaping.insert(function_index);
            }
        }
    }
    for body in &module.bodies {
        let mut operators = body.get_operators_reader()?;
        while !operators.eof() {
            if matches!(
                operators.read()?,
                Operator::RefFunc { .. }
                    | Operator::TableInit { .. }
                    | Operator::ElemDrop { .. }
                    | Operator::MemoryInit { .. }
                    | Operator::DataDrop { .. }
            ) {
                return Ok(None);
            }
        }
    }
    escaping.retain(|function| *function >= module.imported.functions);
    Ok(Some(escaping.into_iter().collect()))
}

/// The indices of functions in the stub module.
struct Indices {
    imported: u32,
    stubs: BTreeMap<u32, u32>,
}

impl Reencode for Indices {
    type Error = Infallible;

    fn function_index(&mut self, function: u32) -> Result<u32, reencode::Error<Infallible>> {
        if function < self.imported {
            return Ok(function);
        }
        // `escaping` finds every function to which a section refers.
        self.stubs.get(&function).copied().ok_or(reencode::Error::InvalidConstExpr)
    }
}
