//! Types of the blocks that the translation adds: interned behind the module's own types.

use std::collections::BTreeMap;
use std::convert::Infallible;

use wasm_encoder::reencode::Reencode;
use wasm_encoder::{BlockType, TypeSection, ValType};

use super::TranslateError;
use super::module::Module;

/// The parameters and results of a block.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Signature {
    pub(super) params: Vec<ValType>,
    pub(super) results: Vec<ValType>,
}

impl Signature {
    /// Returns the signature of a block type.
    pub(super) fn from_block(
        module: &Module<'_>,
        global_indices: &mut GlobalIndexMapper,
        block: wasmparser::BlockType,
    ) -> Result<Self, TranslateError> {
        Ok(match block {
            wasmparser::BlockType::Empty => Self::default(),
            wasmparser::BlockType::Type(ty) => Self { params: vec![], results: vec![global_indices.val_type(ty)?] },
            wasmparser::BlockType::FuncType(index) => {
                let ty = module.function_type(index)?;
                Self {
                    params: val_types(global_indices, ty.params())?,
                    results: val_types(global_indices, ty.results())?,
                }
            }
        })
    }
}

/// Converts types from the parser's to the encoder's representation.
pub(super) fn val_types(
    global_indices: &mut GlobalIndexMapper,
    types: &[wasmparser::ValType],
) -> Result<Vec<ValType>, TranslateError> {
    types.iter().map(|ty| global_indices.val_type(*ty).map_err(TranslateError::from)).collect()
}

/// The types that were added so far.
pub(super) struct AddedTypes {
    first: usize,
    indices: BTreeMap<Signature, u32>,
    in_order: Vec<Signature>,
}

impl AddedTypes {
    /// Creates an empty list of types to be added behind the module's own.
    pub(super) fn behind(module: &Module<'_>) -> Self {
        Self { first: module.type_count(), indices: BTreeMap::new(), in_order: vec![] }
    }

    /// Returns the block type for a signature, which is added to the type section if the short forms do not fit.
    pub(super) fn block(&mut self, signature: &Signature) -> Result<BlockType, TranslateError> {
        match (&signature.params[..], &signature.results[..]) {
            ([], []) => return Ok(BlockType::Empty),
            ([], [result]) => return Ok(BlockType::Result(*result)),
            _ => {}
        }
        if let Some(index) = self.indices.get(signature) {
            return Ok(BlockType::FunctionType(*index));
        }
        let index = u32::try_from(self.first + self.in_order.len())
            .map_err(|_| TranslateError::Structure("more types than can be numbered"))?;
        self.indices.insert(signature.clone(), index);
        self.in_order.push(signature.clone());
        Ok(BlockType::FunctionType(index))
    }

    /// Appends the added types to the module's type section.
    pub(super) fn write(&self, section: &mut TypeSection) {
        for signature in &self.in_order {
            section.ty().function(signature.params.iter().copied(), signature.results.iter().copied());
        }
    }
}

/// A re-encoder that copies items and maps the indices of globals, the only index space that can shift.
///
/// A side module may lack the import of a global that the translation needs: `__table_base`, if it has no function
/// pointers of its own, and `__stack_low`. Such imports are added, and every global that the module defines moves up.
#[derive(Debug, Clone, Copy)]
pub(super) struct GlobalIndexMapper {
    /// The index of the first global that the module defines.
    pub(super) first_defined: u32,
    /// The number of imports of globals that are added.
    pub(super) added_imports: u32,
}

impl Reencode for GlobalIndexMapper {
    type Error = Infallible;

    fn global_index(&mut self, global: u32) -> Result<u32, wasm_encoder::reencode::Error<Infallible>> {
        let moved = if global >= self.first_defined { self.added_imports } else { 0 };
        Ok(global.saturating_add(moved))
    }
}
