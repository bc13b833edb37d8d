//! Writes the new module, section by section, in the order that WebAssembly wants.

use std::collections::BTreeMap;

use wasm_encoder::reencode::Reencode;
use wasm_encoder::{
    CodeSection, ConstExpr, ElementSection, Elements, EntityType, ExportKind, ExportSection, FunctionSection,
    GlobalSection, GlobalType, ImportSection, Instruction, MemorySection, RefType, TableSection, TableType, TagSection,
    TypeSection, ValType,
};
use wasmparser::{ExternalKind, Import, TypeRef};

use super::body::{Ballast, Body, Safepoints};
use super::exceptions::Survey;
use super::inline::Inlinable;
use super::module::Module;
use super::symbols::Slots;
use super::types::{AddedTypes, Renumber};
use super::{GLOBAL_EXPORT, Options, START_EXPORT, TranslateError};

/// Name under which Emscripten exports, and imports, the function table.
const TABLE_NAME: &str = "__indirect_function_table";
/// Name under which a side module imports the first of its table slots.
const TABLE_BASE: &str = "__table_base";

/// What is written, decided beforehand.
pub(super) struct Writer<'m, 'w> {
    module: &'m Module<'w>,
    options: &'m Options,
    slots: &'m Slots,
    renumber: Renumber,
}

impl<'m, 'w> Writer<'m, 'w> {
    pub(super) fn new(module: &'m Module<'w>, options: &'m Options, slots: &'m Slots) -> Self {
        let added_import =
            module.is_side() && !slots.appended.is_empty() && module.imported_global(TABLE_BASE).is_none();
        let renumber = Renumber { first_defined: module.imported.globals, added_import };
        Self { module, options, slots, renumber }
    }

    /// The new module.
    pub(super) fn write(&self) -> Result<Vec<u8>, TranslateError> {
        let mut types = AddedTypes::behind(self.module);
        // The code comes first, for it tells which types are to be added.
        let code = self.code(&mut types)?;
        let mut wasm = wasm_encoder::Module::new();
        wasm.section(&self.types(&types)?);
        wasm.section(&self.imports()?);
        wasm.section(&self.functions()?);
        wasm.section(&self.tables()?);
        wasm.section(&self.memories()?);
        wasm.section(&self.tags()?);
        wasm.section(&self.globals()?);
        wasm.section(&self.exports()?);
        wasm.section(&self.elements()?);
        wasm.section(&code);
        Ok(wasm.finish())
    }

    fn types(&self, added: &AddedTypes) -> Result<TypeSection, TranslateError> {
        let mut types = TypeSection::new();
        if let Some(section) = self.module.type_section.clone() {
            self.renumber.clone().parse_type_section(&mut types, section)?;
        }
        added.write(&mut types);
        Ok(types)
    }

    /// The module's imports, and behind them what a side module has to be given besides.
    fn imports(&self) -> Result<ImportSection, TranslateError> {
        let mut imports = ImportSection::new();
        for import in &self.module.imports {
            if self.fills_got() && is_got(import) {
                continue;
            }
            imports.import(import.module, import.name, self.renumber.clone().entity_type(import.ty)?);
        }
        if !self.module.is_side() {
            return Ok(imports);
        }
        if !self.slots.appended.is_empty() && self.module.imported.tables == 0 {
            imports.import("env", TABLE_NAME, EntityType::Table(function_table(0)));
        }
        if self.renumber.added_import {
            let ty = GlobalType { val_type: ValType::I32, mutable: false, shared: false };
            imports.import("env", TABLE_BASE, EntityType::Global(ty));
        }
        Ok(imports)
    }

    fn functions(&self) -> Result<FunctionSection, TranslateError> {
        let mut functions = FunctionSection::new();
        if let Some(section) = self.module.function_section.clone() {
            self.renumber.clone().parse_function_section(&mut functions, section)?;
        }
        Ok(functions)
    }

    /// The first table of a main module grows by what is appended and reserved; there is one if there was none.
    fn tables(&self) -> Result<TableSection, TranslateError> {
        const FULL: TranslateError = TranslateError::Table("it is full");
        let mut tables = TableSection::new();
        let mut grown = !self.module.is_side();
        let size = self.slots.end.checked_add(self.reserved()).map(u64::from).ok_or(FULL)?;
        for table in &self.module.tables {
            let mut table = table.clone();
            if std::mem::take(&mut grown) {
                let added = size.checked_sub(table.ty.initial).ok_or(FULL)?;
                table.ty.initial = size;
                table.ty.maximum = table.ty.maximum.map(|maximum| (maximum + added).min(u64::from(u32::MAX)));
            }
            self.renumber.clone().parse_table(&mut tables, table)?;
        }
        if self.adds_table() {
            tables.table(function_table(size));
        }
        Ok(tables)
    }

    /// Whether this is a main module that has no table but needs one.
    fn adds_table(&self) -> bool {
        let needed = !self.slots.appended.is_empty() || self.reserved() > 0;
        !self.module.is_side() && self.module.tables.is_empty() && needed
    }

    /// Slots reserved for the host, behind all others.
    fn reserved(&self) -> u32 {
        if self.module.is_side() { 0 } else { self.options.reserved_slots }
    }

    fn memories(&self) -> Result<MemorySection, TranslateError> {
        let mut memories = MemorySection::new();
        for memory in &self.module.memories {
            memories.memory(self.renumber.clone().memory_type(*memory)?);
        }
        Ok(memories)
    }

    fn tags(&self) -> Result<TagSection, TranslateError> {
        let mut tags = TagSection::new();
        if let Some(section) = self.module.tag_section.clone() {
            self.renumber.clone().parse_tag_section(&mut tags, section)?;
        }
        Ok(tags)
    }

    fn globals(&self) -> Result<GlobalSection, TranslateError> {
        let mut globals = GlobalSection::new();
        if self.fills_got() {
            let ty = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
            for _ in 0..self.module.imported.globals {
                globals.global(ty, &ConstExpr::i32_const(0));
            }
        }
        for global in &self.module.globals {
            self.renumber.clone().parse_global(&mut globals, global.clone())?;
        }
        Ok(globals)
    }

    /// Whether the `GOT.*` imports of a main module become globals of its own.
    ///
    /// They are the addresses of functions that the main module does not have; nobody will ever provide them, and
    /// as globals that hold null they need no import of each instance. Indices stay only if all of them go.
    fn fills_got(&self) -> bool {
        let mut imported = self.module.imports.iter().filter(|import| matches!(import.ty, TypeRef::Global(_)));
        !self.module.is_side() && imported.all(is_got)
    }

    fn exports(&self) -> Result<ExportSection, TranslateError> {
        let mut exports = ExportSection::new();
        for export in &self.module.exports {
            if self.keeps(export.name, export.kind) {
                self.renumber.clone().parse_export(&mut exports, *export)?;
            }
        }
        let mut add = |name: &str, kind, index| {
            if self.module.exports.iter().any(|export| export.name == name) {
                return Err(TranslateError::ReservedName(name.to_owned()));
            }
            exports.export(name, kind, index);
            Ok(())
        };
        for index in self.hidden_state() {
            add(&format!("{GLOBAL_EXPORT}{index}"), ExportKind::Global, index)?;
        }
        if let Some(start) = self.module.start {
            add(START_EXPORT, ExportKind::Func, start)?;
        }
        if self.adds_table() {
            add(TABLE_NAME, ExportKind::Table, 0)?;
        }
        Ok(exports)
    }

    /// The mutable globals that a module has but does not export: a snapshot needs them. Side modules have them too:
    /// `wasm-ld` keeps addresses of a module's own data in globals that its start function sets.
    fn hidden_state(&self) -> impl Iterator<Item = u32> {
        let exported = |index| {
            let mut globals = self.module.exports.iter().filter(|export| export.kind == ExternalKind::Global);
            globals.any(|export| export.index == index && self.keeps(export.name, export.kind))
        };
        (self.module.imported.globals..)
            .zip(&self.module.globals)
            .filter(move |(index, global)| global.ty.mutable && !exported(*index))
            .map(|(index, _)| index)
    }

    fn keeps(&self, name: &str, kind: ExternalKind) -> bool {
        match kind {
            ExternalKind::Memory | ExternalKind::Table | ExternalKind::Tag => true,
            ExternalKind::Func | ExternalKind::FuncExact | ExternalKind::Global => {
                self.options.keep_exports.as_ref().is_none_or(|keep| keep.contains(name))
            }
        }
    }

    /// The module's element segments, and one behind them for the slots that are appended.
    fn elements(&self) -> Result<ElementSection, TranslateError> {
        let mut elements = ElementSection::new();
        if let Some(section) = self.module.element_section.clone() {
            self.renumber.clone().parse_element_section(&mut elements, section)?;
        }
        if !self.slots.appended.is_empty() {
            let first = self.slots.first.cast_signed();
            let offset = if self.module.is_side() {
                let base = match self.module.imported_global(TABLE_BASE) {
                    Some(base) => base,
                    None => self.renumber.first_defined,
                };
                ConstExpr::extended([Instruction::GlobalGet(base), Instruction::I32Const(first), Instruction::I32Add])
            } else {
                ConstExpr::i32_const(first)
            };
            elements.active(None, &offset, Elements::Functions(self.slots.appended.as_slice().into()));
        }
        Ok(elements)
    }

    fn code(&self, types: &mut AddedTypes) -> Result<CodeSection, TranslateError> {
        let ballast = self.ballast()?;
        let mut safepoints = self.safepoints()?;
        let inlinable = Inlinable::of(self.module, self.options.inline, |function| ballast.contains_key(&function))?;
        let mut code = CodeSection::new();
        for (function, original) in (self.module.imported.functions..).zip(&self.module.bodies) {
            let survey = Survey::of(function, original)?;
            let ballast = ballast.get(&function).copied();
            let untouched = survey.tries.is_empty()
                && ballast.is_none()
                && !self.renumber.added_import
                && self.options.inline == 0
                && !(survey.can_run_forever && safepoints.is_some());
            if untouched {
                code.raw(original.as_bytes());
                continue;
            }
            let safepoints = safepoints.as_mut();
            code.function(&Body::rewrite(
                self.module,
                types,
                self.renumber,
                &survey,
                safepoints,
                ballast,
                &inlinable,
                function,
                original,
            )?);
        }
        Ok(code)
    }

    /// Safepoints, if they are wanted: they need a memory to load from.
    fn safepoints(&self) -> Result<Option<Safepoints>, TranslateError> {
        let has_memory = self.module.imported.memories > 0 || !self.module.memories.is_empty();
        match self.options.safepoints {
            true if has_memory => Ok(Some(Safepoints::default())),
            true => Err(TranslateError::Structure("no memory, and so no place for safepoints")),
            false => Ok(None),
        }
    }

    /// The functions that take extra shadow stack.
    fn ballast(&self) -> Result<BTreeMap<u32, Ballast>, TranslateError> {
        let mut functions = BTreeMap::new();
        for (name, bytes) in &self.options.ballast {
            let refuse = |reason| TranslateError::Ballast { name: name.clone(), reason };
            let function = self
                .module
                .exported(name, ExternalKind::Func)
                .ok_or_else(|| refuse("no function is exported under that name"))?;
            if function < self.module.imported.functions {
                return Err(refuse("the function is imported"));
            }
            let bytes = i32::try_from(*bytes)
                .ok()
                .filter(|bytes| bytes % 16 == 0)
                .ok_or_else(|| refuse("the shadow stack moves in multiples of 16 bytes"))?;
            let stack_pointer =
                self.stack_pointer().ok_or_else(|| refuse("the module has no mutable i32 global `__stack_pointer`"))?;
            functions.insert(function, Ballast { bytes, stack_pointer });
        }
        Ok(functions)
    }

    /// The index, in the new module, of the shadow stack's pointer: exported by a main module, imported by a side one.
    fn stack_pointer(&self) -> Option<u32> {
        const NAME: &str = "__stack_pointer";
        let original =
            self.module.exported(NAME, ExternalKind::Global).or_else(|| self.module.imported_global(NAME))?;
        let ty = self.module.global_type(original)?;
        if !ty.mutable || ty.content_type != wasmparser::ValType::I32 {
            return None;
        }
        self.renumber.clone().global_index(original).ok()
    }
}

/// Whether this is an entry of the global offset table: the address of a symbol that some other module defines.
fn is_got(import: &Import<'_>) -> bool {
    let TypeRef::Global(ty) = import.ty else { return false };
    matches!(import.module, "GOT.func" | "GOT.mem") && ty.mutable && ty.content_type == wasmparser::ValType::I32
}

/// A table of functions that may grow.
fn function_table(minimum: u64) -> TableType {
    TableType { element_type: RefType::FUNCREF, minimum, maximum: None, table64: false, shared: false }
}
