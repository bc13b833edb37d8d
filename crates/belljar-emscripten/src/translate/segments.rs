//! Takes the data segments out of a module, so that memory is filled once and then mapped, never copied.

use wasmparser::DataKind;

use super::module::{Module, Offset};
use super::{Segment, TranslateError};

/// Returns the module's data segments, in order; later ones overwrite earlier ones.
pub(super) fn take(module: &Module<'_>) -> Result<Vec<Segment>, TranslateError> {
    let Some(section) = module.data_section.clone() else { return Ok(vec![]) };
    let memory_base = module.imported_global("__memory_base");
    let mut segments = vec![];
    for (index, data) in section.into_iter().enumerate() {
        let data = data?;
        let refuse = |reason| Err(TranslateError::DataSegment { index, reason });
        let DataKind::Active { offset_expr, .. } = data.kind else {
            return refuse("it is passive");
        };
        let offset = match Offset::parse(&offset_expr)? {
            Some(Offset::Absolute(offset)) if !module.is_side() => offset,
            Some(Offset::Relative { base, plus }) if module.is_side() && Some(base) == memory_base => plus,
            _ if module.is_side() => return refuse("its offset is not relative to `__memory_base`"),
            _ => return refuse("its offset is not a constant"),
        };
        let end = u64::from(offset) + data.data.len() as u64;
        // A side module's segment lies in the memory that the linker allocates, and is checked when that is known.
        let limit = match module.memories.first() {
            Some(memory) => memory.initial.saturating_mul(64 << 10),
            None => 1 << 32,
        };
        if end > limit {
            return refuse("it reaches beyond the end of memory");
        }
        segments.push(Segment { offset, bytes: data.data.to_vec() });
    }
    Ok(segments)
}
