//! Writes the new module, section by section, in the order that WebAssembly requires.

use std::collections::BTreeMap;

use wasm_encoder::reencode::Reencode;
use wasm_encoder::{
    CodeSection, ConstExpr, ElementSection, Elements, EntityType, ExportKind, ExportSection, FunctionSection,
    GlobalSection, GlobalType, ImportSection, Instruction, MemorySection, RefType, TableSection, TableType, TagSection,
    TypeSection, ValType,
};
use wasmparser::{ExternalKind, Import, TypeRef};

use super::body::{Body, Safepoints, ShadowStackPadding};
use super::exceptions::ExceptionAnalysis;
use super::inline::Inlinable;
use super::module::{Module, Offset};
use super::stack_check::{StackChecks, StackEnd};
use super::symbols::Slots;
use super::types::{AddedTypes, GlobalIndexMapper};
use super::{GLOBAL_EXPORT, Options, START_EXPORT, TranslateError};

/// The name under which Emscripten exports and imports the function table.
const TABLE_NAME: &str = "__indirect_function_table";
/// The name under which a side module imports the first of its table slots.
const TABLE_BASE: &str = "__table_base";
/// The name under which a main module exports, and a side module imports, the pointer to the shadow stack.
const STACK_POINTER: &str = "__stack_pointer";
/// The name under which Emscripten exports the end of the shadow stack.
const STACK_LOW: &str = "__stack_low";

/// The input of the new module, determined before writing.
pub(super) struct Writer<'m, 'w> {
    module: &'m Module<'w>,
    options: &'m Options,
    slots: &'m Slots,
    /// The immutable globals that a side module lacks, by name. They are imported behind its own imports of globals.
    added_globals: Vec<&'static str>,
    global_indices: GlobalIndexMapper,
}

impl<'m, 'w> Writer<'m, 'w> {
    pub(super) fn new(module: &'m Module<'w>, options: &'m Options, slots: &'m Slots) -> Self {
        let mut added_globals = Vec::new();
        if module.is_side() {
            let needs_stack_low = options.stack_checks && module.imported_global(STACK_POINTER).is_some();
            let needed = [(TABLE_BASE, !slots.appended.is_empty()), (STACK_LOW, needs_stack_low)];
            let missing = |&(name, needed): &(&str, bool)| needed && module.imported_global(name).is_none();
            added_globals = needed.into_iter().filter(missing).map(|(name, _)| name).collect();
        }
        // At most two.
        let added_imports = added_globals.len() as u32;
        let global_indices = GlobalIndexMapper { first_defined: module.imported.globals, added_imports };
        Self { module, options, slots, added_globals, global_indices }
    }

    /// Writes the new module.
    pub(super) fn write(&self) -> Result<Vec<u8>, TranslateError> {
        let mut types = AddedTypes::behind(self.module);
        // The code is written first, since it determines the types to add.
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
            self.global_indices.clone().parse_type_section(&mut types, section)?;
        }
        added.write(&mut types);
        Ok(types)
    }

    /// Writes the module's imports, followed by those that a side module lacks.
    fn imports(&self) -> Result<ImportSection, TranslateError> {
        let mut imports = ImportSection::new();
        for import in &self.module.imports {
            if self.replaces_got_imports() && is_got(import) {
                continue;
            }
            imports.import(import.module, import.name, self.global_indices.clone().entity_type(import.ty)?);
        }
        if !self.module.is_side() {
            return Ok(imports);
        }
        if !self.slots.appended.is_empty() && self.module.imported.tables == 0 {
            imports.import("env", TABLE_NAME, EntityType::Table(function_table(0)));
        }
        for name in &self.added_globals {
            let ty = GlobalType { val_type: ValType::I32, mutable: false, shared: false };
            imports.import("env", name, EntityType::Global(ty));
        }
        Ok(imports)
    }

    /// Returns the index, in the new module, of the immutable global that a side module imports as `name`.
    fn imported_global(&self, name: &str) -> Option<u32> {
        self.module.imported_global(name).or_else(|| {
            let added = (self.global_indices.first_defined..).zip(&self.added_globals);
            added.into_iter().find(|(_, added)| **added == name).map(|(index, _)| index)
        })
    }

    fn functions(&self) -> Result<FunctionSection, TranslateError> {
        let mut functions = FunctionSection::new();
        if let Some(section) = self.module.function_section.clone() {
            self.global_indices.clone().parse_function_section(&mut functions, section)?;
        }
        Ok(functions)
    }

    /// Writes the tables. The first table of a main module grows by the appended and reserved slots; it is added if the
    /// module has none.
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
            self.global_indices.clone().parse_table(&mut tables, table)?;
        }
        if self.adds_table() {
            tables.table(function_table(size));
        }
        Ok(tables)
    }

    /// Returns whether this is a main module that has no table but needs one.
    fn adds_table(&self) -> bool {
        let needed = !self.slots.appended.is_empty() || self.reserved() > 0;
        !self.module.is_side() && self.module.tables.is_empty() && needed
    }

    /// Returns the number of slots reserved for the host, behind all others.
    fn reserved(&self) -> u32 {
        if self.module.is_side() { 0 } else { self.options.reserved_slots }
    }

    fn memories(&self) -> Result<MemorySection, TranslateError> {
        let mut memories = MemorySection::new();
        for memory in &self.module.memories {
            memories.memory(self.global_indices.clone().memory_type(*memory)?);
        }
        Ok(memories)
    }

    fn tags(&self) -> Result<TagSection, TranslateError> {
        let mut tags = TagSection::new();
        if let Some(section) = self.module.tag_section.clone() {
            self.global_indices.clone().parse_tag_section(&mut tags, section)?;
        }
        Ok(tags)
    }

    fn globals(&self) -> Result<GlobalSection, TranslateError> {
        let mut globals = GlobalSection::new();
        if self.replaces_got_imports() {
            let ty = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
            for _ in 0..self.module.imported.globals {
                globals.global(ty, &ConstExpr::i32_const(0));
            }
        }
        for global in &self.module.globals {
            self.global_indices.clone().parse_global(&mut globals, global.clone())?;
        }
        Ok(globals)
    }

    /// Returns whether the `GOT.*` imports of a main module become globals of its own.
    ///
    /// They are the addresses of functions that the main module does not define and that no module provides later. As
    /// globals that hold null, instances do not need to import them. Indices are unchanged only if all imported globals
    /// are replaced.
    fn replaces_got_imports(&self) -> bool {
        let mut imported = self.module.imports.iter().filter(|import| matches!(import.ty, TypeRef::Global(_)));
        !self.module.is_side() && imported.all(is_got)
    }

    fn exports(&self) -> Result<ExportSection, TranslateError> {
        let mut exports = ExportSection::new();
        for export in &self.module.exports {
            if self.keeps(export.name, export.kind) {
                self.global_indices.clone().parse_export(&mut exports, *export)?;
            }
        }
        let mut add = |name: &str, kind, index| {
            if self.module.exports.iter().any(|export| export.name == name) {
                return Err(TranslateError::ReservedName(name.to_owned()));
            }
            exports.export(name, kind, index);
            Ok(())
        };
        for index in self.unexported_mutable_globals() {
            let new_index = self.global_indices.clone().global_index(index)?;
            add(&format!("{GLOBAL_EXPORT}{index}"), ExportKind::Global, new_index)?;
        }
        if let Some(start) = self.module.start {
            add(START_EXPORT, ExportKind::Func, start)?;
        }
        if self.adds_table() {
            add(TABLE_NAME, ExportKind::Table, 0)?;
        }
        Ok(exports)
    }

    /// Returns the mutable globals that a module defines but does not export: a snapshot needs them. Side modules have
    /// them too: `wasm-ld` keeps addresses of a module's own data in globals that its start function sets.
    fn unexported_mutable_globals(&self) -> impl Iterator<Item = u32> {
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

    /// Writes the module's element segments, followed by one for the appended slots.
    fn elements(&self) -> Result<ElementSection, TranslateError> {
        let mut elements = ElementSection::new();
        if let Some(section) = self.module.element_section.clone() {
            self.global_indices.clone().parse_element_section(&mut elements, section)?;
        }
        if !self.slots.appended.is_empty() {
            let first = self.slots.first.cast_signed();
            let offset = if self.module.is_side() {
                let missing = TranslateError::Structure("no __table_base");
                let base = self.imported_global(TABLE_BASE).ok_or(missing)?;
                ConstExpr::extended([Instruction::GlobalGet(base), Instruction::I32Const(first), Instruction::I32Add])
            } else {
                ConstExpr::i32_const(first)
            };
            elements.active(None, &offset, Elements::Functions(self.slots.appended.as_slice().into()));
        }
        Ok(elements)
    }

    fn code(&self, types: &mut AddedTypes) -> Result<CodeSection, TranslateError> {
        let stack_padding = self.stack_padding()?;
        let mut safepoints = self.safepoints()?;
        let stack_checks = self.stack_checks()?;
        let inlinable =
            Inlinable::new(self.module, self.options.inline, |function| stack_padding.contains_key(&function))?;
        let mut code = CodeSection::new();
        for (function, original) in (self.module.imported.functions..).zip(&self.module.bodies) {
            let exceptions = ExceptionAnalysis::new(function, original)?;
            let stack_padding = stack_padding.get(&function).copied();
            let untouched = exceptions.tries.is_empty()
                && stack_padding.is_none()
                && self.global_indices.added_imports == 0
                && self.options.inline == 0
                && !(exceptions.can_run_forever && safepoints.is_some())
                && !(exceptions.sets_globals && stack_checks.is_some());
            if untouched {
                code.raw(original.as_bytes());
                continue;
            }
            let safepoints = safepoints.as_mut();
            code.function(&Body::rewrite(
                self.module,
                types,
                self.global_indices,
                &exceptions,
                safepoints,
                stack_checks,
                stack_padding,
                &inlinable,
                function,
                original,
            )?);
        }
        Ok(code)
    }

    /// Returns the state of safepoints if they are enabled: they need a memory to load from.
    fn safepoints(&self) -> Result<Option<Safepoints>, TranslateError> {
        let has_memory = self.module.imported.memories > 0 || !self.module.memories.is_empty();
        match self.options.safepoints {
            true if has_memory => Ok(Some(Safepoints::default())),
            true => Err(TranslateError::Structure("no memory for safepoints")),
            false => Ok(None),
        }
    }

    /// Returns the checks of the shadow stack, if they are enabled and the module has a stack pointer.
    fn stack_checks(&self) -> Result<Option<StackChecks>, TranslateError> {
        if !self.options.stack_checks {
            return Ok(None);
        }
        let Some((original_pointer, stack_pointer)) = self.stack_pointer() else { return Ok(None) };
        let end = if self.module.is_side() {
            self.imported_global(STACK_LOW).map(StackEnd::Global)
        } else {
            let low = self.module.exported(STACK_LOW, ExternalKind::Global);
            let low = low.and_then(|index| self.module.defined_global(index)).filter(|global| !global.ty.mutable);
            match low.map(|global| Offset::parse(&global.init_expr)).transpose()?.flatten() {
                Some(Offset::Absolute(address)) => Some(StackEnd::Address(address)),
                _ => None,
            }
        };
        let end = end.ok_or(TranslateError::StackChecks)?;
        Ok(Some(StackChecks { original_pointer, stack_pointer, end }))
    }

    /// Returns the functions that allocate extra shadow stack.
    fn stack_padding(&self) -> Result<BTreeMap<u32, ShadowStackPadding>, TranslateError> {
        let mut functions = BTreeMap::new();
        for (name, bytes) in &self.options.stack_padding {
            let refuse = |reason| TranslateError::ShadowStackPadding { name: name.clone(), reason };
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
            let (_, stack_pointer) =
                self.stack_pointer().ok_or_else(|| refuse("the module has no mutable i32 global `__stack_pointer`"))?;
            functions.insert(function, ShadowStackPadding { bytes, stack_pointer });
        }
        Ok(functions)
    }

    /// Returns the indices, in the original and in the new module, of the shadow stack's pointer: exported by a main
    /// module, imported by a side module.
    fn stack_pointer(&self) -> Option<(u32, u32)> {
        let exported = self.module.exported(STACK_POINTER, ExternalKind::Global);
        let original = exported.or_else(|| self.module.imported_global(STACK_POINTER))?;
        let ty = self.module.global_type(original)?;
        if !ty.mutable || ty.content_type != wasmparser::ValType::I32 {
            return None;
        }
        Some((original, self.global_indices.clone().global_index(original).ok()?))
    }
}

/// Returns whether this is an entry of the global offset table: the address of a symbol that another module defines.
fn is_got(import: &Import<'_>) -> bool {
    let TypeRef::Global(ty) = import.ty else { return false };
    matches!(import.module, "GOT.func" | "GOT.mem") && ty.mutable && ty.content_type == wasmparser::ValType::I32
}

/// Creates the type of a function table that may grow.
fn function_table(minimum: u64) -> TableType {
    TableType { element_type: RefType::FUNCREF, minimum, maximum: None, table64: false, shared: false }
}
