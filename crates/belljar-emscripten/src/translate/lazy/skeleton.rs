//! Writes the skeleton.

use wasm_encoder::reencode::{Reencode, RoundtripReencoder};
use wasm_encoder::{
    ExportKind, ExportSection, GlobalSection, ImportSection, MemorySection, RefType, TableSection, TableType,
    TagSection, TypeSection,
};
use wasmparser::{ExternalKind, Operator};

use super::super::TranslateError;
use super::super::module::Module;
use super::{Item, TABLE_EXPORT, elements, exports};

/// Returns the skeleton of a module that the translator has written, or `None` if its functions cannot be compiled one
/// by one: if they refer to segments or take references of functions, which no compiler of C or Rust writes.
///
/// # Errors
/// Fails if the module exports a name that the skeleton needs.
pub(crate) fn write(wasm: &[u8]) -> Result<Option<Vec<u8>>, TranslateError> {
    let module = Module::read(wasm)?;
    if !is_splittable(&module)? {
        return Ok(None);
    }
    let mut indices = RoundtripReencoder;
    let count = |length: usize| u32::try_from(length).map_err(|_| TranslateError::Structure("an index"));
    let table = module.imported.tables + count(module.tables.len())?;

    let mut output = wasm_encoder::Module::new();
    let mut types = TypeSection::new();
    if let Some(section) = module.type_section.clone() {
        indices.parse_type_section(&mut types, section)?;
    }
    output.section(&types);

    let mut imports = ImportSection::new();
    for import in &module.imports {
        imports.import(import.module, import.name, indices.entity_type(import.ty)?);
    }
    output.section(&imports);

    let mut tables = TableSection::new();
    for table in &module.tables {
        indices.parse_table(&mut tables, table.clone())?;
    }
    tables.table(lazy_table(count(module.bodies.len())?));
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
    Ok(Some(output.finish()))
}

/// Returns the type of the table of functions.
pub(super) fn lazy_table(functions: u32) -> TableType {
    let size = u64::from(functions) + 1;
    TableType { element_type: RefType::FUNCREF, minimum: size, maximum: Some(size), table64: false, shared: false }
}

fn write_exports(
    module: &Module<'_>,
    indices: &mut RoundtripReencoder,
    lazy_table: u32,
) -> Result<ExportSection, TranslateError> {
    let mut section = ExportSection::new();
    for export in &module.exports {
        if export.name == TABLE_EXPORT {
            return Err(TranslateError::ReservedName(export.name.to_owned()));
        }
        if !matches!(export.kind, ExternalKind::Func | ExternalKind::FuncExact) {
            indices.parse_export(&mut section, *export)?;
        }
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

/// Returns whether the functions can be compiled one by one.
fn is_splittable(module: &Module<'_>) -> Result<bool, TranslateError> {
    for global in &module.globals {
        for operator in global.init_expr.get_operators_reader() {
            if matches!(operator?, Operator::RefFunc { .. }) {
                return Ok(false);
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
                return Ok(false);
            }
        }
    }
    Ok(elements(module).is_ok())
}
