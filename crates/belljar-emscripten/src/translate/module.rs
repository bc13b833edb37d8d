//! An input module: its sections, read once, and queries for the other parts of the translator.

use wasmparser::{
    CompositeInnerType, DataSectionReader, ElementSectionReader, Export, ExternalKind, FuncType, FunctionBody,
    FunctionSectionReader, Global, GlobalType, Import, MemoryType, Operator, Parser, Payload, Table, TagSectionReader,
    TypeRef, TypeSectionReader,
};

use super::{Dylink, TranslateError, dylink::parse_dylink};

/// A module. Its index spaces start with imports, as in WebAssembly.
#[derive(Default)]
pub(super) struct Module<'a> {
    pub(super) type_section: Option<TypeSectionReader<'a>>,
    pub(super) function_section: Option<FunctionSectionReader<'a>>,
    pub(super) tag_section: Option<TagSectionReader<'a>>,
    pub(super) element_section: Option<ElementSectionReader<'a>>,
    pub(super) data_section: Option<DataSectionReader<'a>>,
    pub(super) imports: Vec<Import<'a>>,
    pub(super) tables: Vec<Table<'a>>,
    pub(super) memories: Vec<MemoryType>,
    pub(super) globals: Vec<Global<'a>>,
    pub(super) exports: Vec<Export<'a>>,
    pub(super) bodies: Vec<FunctionBody<'a>>,
    pub(super) start: Option<u32>,
    /// The `dylink.0` section of a side module; `None` for a main module.
    pub(super) dylink: Option<Dylink>,
    /// The number of imported functions, tables, memories and globals.
    pub(super) imported: ImportCounts,
    types: Vec<FuncType>,
    /// The type index of every function, imports first.
    functions: Vec<u32>,
    /// The type index of every tag, imports first.
    tags: Vec<u32>,
}

/// The number of imports in each index space.
#[derive(Default, Clone, Copy)]
pub(super) struct ImportCounts {
    pub(super) functions: u32,
    pub(super) tables: u32,
    pub(super) memories: u32,
    pub(super) globals: u32,
}

impl<'a> Module<'a> {
    /// Reads a module that the validator has accepted.
    pub(super) fn read(wasm: &'a [u8]) -> Result<Self, TranslateError> {
        let mut module = Self::default();
        for payload in Parser::new(0).parse_all(wasm) {
            match payload? {
                Payload::TypeSection(section) => module.read_types(section)?,
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        module.read_import(import?);
                    }
                }
                Payload::FunctionSection(section) => {
                    for ty in section.clone() {
                        module.functions.push(ty?);
                    }
                    module.function_section = Some(section);
                }
                Payload::TableSection(section) => module.tables = section.into_iter().collect::<Result<_, _>>()?,
                Payload::MemorySection(section) => module.memories = section.into_iter().collect::<Result<_, _>>()?,
                Payload::TagSection(section) => {
                    for tag in section.clone() {
                        module.tags.push(tag?.func_type_idx);
                    }
                    module.tag_section = Some(section);
                }
                Payload::GlobalSection(section) => module.globals = section.into_iter().collect::<Result<_, _>>()?,
                Payload::ExportSection(section) => module.exports = section.into_iter().collect::<Result<_, _>>()?,
                Payload::StartSection { func, .. } => module.start = Some(func),
                Payload::ElementSection(section) => module.element_section = Some(section),
                Payload::DataSection(section) => module.data_section = Some(section),
                Payload::CodeSectionEntry(body) => module.bodies.push(body),
                _ => {}
            }
        }
        // A main module built for dynamic linking has a `dylink.0` section too, but defines its memory itself.
        if module.memories.is_empty() {
            module.dylink = parse_dylink(wasm)?;
        }
        Ok(module)
    }

    fn read_types(&mut self, section: TypeSectionReader<'a>) -> Result<(), TranslateError> {
        for group in section.clone() {
            for ty in group?.into_types() {
                match ty.composite_type.inner {
                    CompositeInnerType::Func(ty) => self.types.push(ty),
                    _ => return Err(TranslateError::Structure("a type that is not a function type")),
                }
            }
        }
        self.type_section = Some(section);
        Ok(())
    }

    fn read_import(&mut self, import: Import<'a>) {
        match import.ty {
            TypeRef::Func(ty) | TypeRef::FuncExact(ty) => {
                self.functions.push(ty);
                self.imported.functions += 1;
            }
            TypeRef::Table(_) => self.imported.tables += 1,
            TypeRef::Memory(_) => self.imported.memories += 1,
            TypeRef::Global(_) => self.imported.globals += 1,
            TypeRef::Tag(ty) => self.tags.push(ty.func_type_idx),
        }
        self.imports.push(import);
    }

    /// Returns whether this is a side module, which a dynamic linker places in another module's memory.
    pub(super) fn is_side(&self) -> bool {
        self.dylink.is_some()
    }

    /// Returns the number of types that the module declares.
    pub(super) fn type_count(&self) -> usize {
        self.types.len()
    }

    /// Returns the function type with this index.
    pub(super) fn function_type(&self, index: u32) -> Result<&FuncType, TranslateError> {
        self.types.get(index as usize).ok_or(TranslateError::Structure("type index"))
    }

    /// Returns the type of the function with this index.
    pub(super) fn type_of_function(&self, function: u32) -> Result<&FuncType, TranslateError> {
        let index = self.functions.get(function as usize).ok_or(TranslateError::Structure("function index"))?;
        self.function_type(*index)
    }

    /// Returns the types, and the type index of every function, imports first.
    pub(super) fn into_function_types(self) -> (Vec<FuncType>, Vec<u32>) {
        (self.types, self.functions)
    }

    /// Returns the type index of every tag, imports first.
    pub(super) fn tag_types(&self) -> &[u32] {
        &self.tags
    }

    /// Returns the type of the tag with this index.
    pub(super) fn type_of_tag(&self, tag: u32) -> Result<&FuncType, TranslateError> {
        let index = self.tags.get(tag as usize).ok_or(TranslateError::Structure("tag index"))?;
        self.function_type(*index)
    }

    /// Returns the index of the imported global `env.NAME`.
    pub(super) fn imported_global(&self, name: &str) -> Option<u32> {
        let globals = self.imports.iter().filter(|import| matches!(import.ty, TypeRef::Global(_)));
        (0u32..).zip(globals).find(|(_, import)| import.module == "env" && import.name == name).map(|(index, _)| index)
    }

    /// Returns the index of the item of this kind that is exported under `name`.
    pub(super) fn exported(&self, name: &str, kind: ExternalKind) -> Option<u32> {
        self.exports.iter().find(|export| export.name == name && export.kind == kind).map(|export| export.index)
    }

    /// Returns the type of the global with this index.
    pub(super) fn global_type(&self, index: u32) -> Option<GlobalType> {
        let imported = self.imports.iter().filter_map(|import| match import.ty {
            TypeRef::Global(ty) => Some(ty),
            _ => None,
        });
        imported.chain(self.globals.iter().map(|global| global.ty)).nth(index as usize)
    }

    /// Returns the global with this index, unless it is imported.
    pub(super) fn defined_global(&self, index: u32) -> Option<&Global<'a>> {
        self.globals.get(index.checked_sub(self.imported.globals)? as usize)
    }
}

/// The start of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offset {
    /// A constant.
    Absolute(u32),
    /// The value of an imported global (`__memory_base` or `__table_base`) plus a constant.
    Relative { base: u32, plus: u32 },
}

impl Offset {
    /// Evaluates a constant expression: `i32.const`, `global.get`, or the sum of the two as the extended constant
    /// expressions of `wasm-ld` write it. Returns `None` for any other.
    pub(super) fn parse(expr: &wasmparser::ConstExpr<'_>) -> Result<Option<Self>, TranslateError> {
        let mut operators = vec![];
        for operator in expr.get_operators_reader() {
            operators.push(operator?);
        }
        Ok(match operators[..] {
            [Operator::I32Const { value }, Operator::End] => Some(Self::Absolute(value.cast_unsigned())),
            [Operator::GlobalGet { global_index: base }, Operator::End] => Some(Self::Relative { base, plus: 0 }),
            [
                Operator::GlobalGet { global_index: base },
                Operator::I32Const { value },
                Operator::I32Add,
                Operator::End,
            ]
            | [
                Operator::I32Const { value },
                Operator::GlobalGet { global_index: base },
                Operator::I32Add,
                Operator::End,
            ] => Some(Self::Relative { base, plus: value.cast_unsigned() }),
            _ => None,
        })
    }
}
