//! Assigns every exported function a slot in the function table, and lists the names that the module exports.
//!
//! In C a function's address is its slot in the indirect function table, and each function must have one address,
//! however many modules take it. The slot is therefore assigned here, before any instance exists: the one that the
//! module's own element segments give the function, or else one appended behind them.

use std::collections::BTreeMap;

use wasmparser::{ElementItems, ElementKind, ExternalKind, Operator, RefType, TypeRef};

use super::module::{Module, Offset};
use super::{Symbol, Symbols, TranslateError};

/// The layout of the function table.
pub(super) struct Slots {
    /// The exports of the module.
    pub(super) symbols: Symbols,
    /// The functions with an appended slot, in order.
    pub(super) appended: Vec<u32>,
    /// The first appended slot; relative to `__table_base` in a side module.
    pub(super) first: u32,
    /// The number of slots in use, `first` plus the number appended.
    pub(super) end: u32,
}

/// Assigns the slots of all exported functions.
pub(super) fn assign(module: &Module<'_>) -> Result<Slots, TranslateError> {
    let filled = filled_slots(module)?;
    let first = first_free(module, &filled)?;
    let mut slots: BTreeMap<u32, u32> = BTreeMap::new();
    for (slot, function) in filled {
        if let Some(function) = function {
            slots.entry(function).or_insert(slot);
        }
    }

    let mut symbols = Symbols::default();
    let mut appended = vec![];
    let mut end = first;
    for export in &module.exports {
        let symbol = match export.kind {
            ExternalKind::Func | ExternalKind::FuncExact => {
                let slot = match slots.get(&export.index) {
                    Some(slot) => *slot,
                    None => {
                        let slot = end;
                        end = end.checked_add(1).ok_or(TranslateError::Table("it is full"))?;
                        slots.insert(export.index, slot);
                        appended.push(export.index);
                        slot
                    }
                };
                Symbol::Function(slot)
            }
            ExternalKind::Global => match address(module, export.index)? {
                Some(address) => Symbol::Data(address),
                None => continue,
            },
            ExternalKind::Table | ExternalKind::Memory | ExternalKind::Tag => continue,
        };
        symbols.0.insert(export.name.to_owned(), symbol);
    }
    check_table(module, !appended.is_empty())?;
    Ok(Slots { symbols, appended, first, end })
}

/// Returns the slots that the module's own element segments fill. Later segments overwrite earlier ones.
fn filled_slots(module: &Module<'_>) -> Result<BTreeMap<u32, Option<u32>>, TranslateError> {
    let mut filled = BTreeMap::new();
    let Some(section) = module.element_section.clone() else { return Ok(filled) };
    let table_base = module.imported_global("__table_base");
    for (index, element) in section.into_iter().enumerate() {
        let element = element?;
        let refuse = |reason| TranslateError::ElementSegment { index, reason };
        let ElementKind::Active { table_index: None | Some(0), offset_expr } = element.kind else { continue };
        let mut slot = match Offset::parse(&offset_expr)? {
            Some(Offset::Absolute(offset)) if !module.is_side() => offset,
            Some(Offset::Relative { base, plus }) if module.is_side() && Some(base) == table_base => plus,
            _ if module.is_side() => return Err(refuse("its offset is not relative to `__table_base`")),
            _ => return Err(refuse("its offset is not a constant")),
        };
        let mut fill = |function| {
            filled.insert(slot, function);
            slot = slot.checked_add(1).ok_or(refuse("it reaches beyond the end of the table"))?;
            Ok::<_, TranslateError>(())
        };
        match element.items {
            ElementItems::Functions(functions) => {
                for function in functions {
                    fill(Some(function?))?;
                }
            }
            ElementItems::Expressions(_, expressions) => {
                for expression in expressions {
                    match expression?.get_operators_reader().read()? {
                        Operator::RefFunc { function_index } => fill(Some(function_index))?,
                        _ => fill(None)?,
                    }
                }
            }
        }
    }
    Ok(filled)
}

/// Returns the first slot behind those that the module uses itself.
fn first_free(module: &Module<'_>, filled: &BTreeMap<u32, Option<u32>>) -> Result<u32, TranslateError> {
    let claimed = match (&module.dylink, module.tables.first()) {
        (Some(dylink), _) => dylink.table_size,
        (None, Some(table)) => u32::try_from(table.ty.initial).map_err(|_| TranslateError::Table("it is full"))?,
        // The null pointer's slot stays empty in an added table.
        (None, None) => 1,
    };
    let behind_filled = match filled.last_key_value() {
        Some((slot, _)) => slot.checked_add(1).ok_or(TranslateError::Table("it is full"))?,
        None => 0,
    };
    if behind_filled > claimed && !module.is_side() {
        return Err(TranslateError::Table("an element segment reaches beyond its end"));
    }
    Ok(claimed.max(behind_filled))
}

/// Checks that table 0 is the program's function table: defined by a main module, and imported by a side module.
fn check_table(module: &Module<'_>, needed: bool) -> Result<(), TranslateError> {
    let imported = module.imports.iter().find_map(|import| match import.ty {
        TypeRef::Table(ty) => Some(ty),
        _ => None,
    });
    let ty = match (imported, module.tables.first(), module.is_side()) {
        (Some(_), _, false) => return Err(TranslateError::Table("a main module must define it, not import it")),
        (None, Some(_), true) if needed => {
            return Err(TranslateError::Table("a side module must import it, not define it"));
        }
        (Some(ty), _, true) => ty,
        (None, Some(table), _) => table.ty,
        (None, None, _) => return Ok(()),
    };
    if ty.element_type == RefType::FUNCREF {
        Ok(())
    } else {
        Err(TranslateError::Table("the module's first table does not hold functions"))
    }
}

/// Returns the address that an exported global denotes: `wasm-ld` exports data as immutable globals.
fn address(module: &Module<'_>, global: u32) -> Result<Option<u32>, TranslateError> {
    let Some(global) = module.defined_global(global) else { return Ok(None) };
    if global.ty.mutable || global.ty.content_type != wasmparser::ValType::I32 {
        return Ok(None);
    }
    Ok(match Offset::parse(&global.init_expr)? {
        Some(Offset::Absolute(address)) => Some(address),
        _ => None,
    })
}
