//! The heap of an image, arranged so that copies of the image write to few pages.
//!
//! Building an image leaves free chunks between its objects, all over the heap. The allocator hands these out first,
//! and each allocation writes to the chunk and to its neighbours in a list of free chunks: pages that every copy then
//! has to itself. Therefore the free chunks are allocated before the image is written, and never freed. Copies allocate
//! from the end of the heap, where the memory that they use is contiguous.

use belljar_emscripten::guest_memory::Ptr;
use belljar_emscripten::{Instance, InstanceError};

use crate::c_api::CApiError;

/// The size of the largest requests, in bytes. Larger holes are filled by several.
const LARGEST: u32 = 1 << 20;
/// An upper bound of what the allocator adds to a request, in bytes.
const MAX_HEADER: u32 = 64;
/// Chunks up to this size are requested in steps of [`STEP`], for each of which the allocator (dlmalloc) has a list.
const LARGEST_SMALL: u32 = 256;
const STEP: u32 = 8;
/// The size of the end of memory that is not cleared, in bytes.
const UNCLEARED: u32 = 128 << 10;
/// The maximum number of requests, which no real heap reaches.
const MAX_REQUESTS: u32 = 1 << 20;

/// Allocates the free chunks below the end of the heap and clears them. Returns their number.
///
/// # Errors
/// Fails if the interpreter has crashed.
pub(crate) fn fill_holes(instance: &mut Instance) -> Result<u32, CApiError> {
    let Some(end) = clear_large_chunks(instance)? else { return Ok(0) };
    // Large sizes first: requests of the smallest size alone would fill all holes, but there would be too many.
    let powers = (LARGEST_SMALL.ilog2() + 1..=LARGEST.ilog2()).rev().map(|power| 1 << power);
    let steps = (1..=LARGEST_SMALL / STEP).rev().map(|step| step * STEP);
    let mut filled = 0;
    for size in powers.chain(steps) {
        while filled < MAX_REQUESTS {
            let chunk = allocate(instance, size)?;
            if chunk == 0 {
                break;
            }
            if chunk >= end {
                free(instance, chunk)?;
                break;
            }
            instance.memory().slice_mut(chunk, size)?.fill(0);
            filled += 1;
        }
    }
    Ok(filled)
}

/// Clears the free memory at the end of the heap and the holes that are larger than [`LARGEST`], where building the
/// image has left objects: an image is compressed for the wheel, and its pages of zeroes take no space. Returns the end
/// of the heap: the address from which on all is free. The holes stay allocated.
///
/// The allocator takes chunks from the end of the heap only when no hole is large enough, and one after the other.
fn clear_large_chunks(instance: &mut Instance) -> Result<Option<Ptr>, CApiError> {
    let mut chunks: Vec<Ptr> = Vec::new();
    loop {
        let chunk = allocate(instance, LARGEST)?;
        if chunk == 0 {
            break;
        }
        instance.memory().slice_mut(chunk, LARGEST)?.fill(0);
        chunks.push(chunk);
        // The allocator needs a part of the rest, and must not make memory grow.
        let length = u32::try_from(instance.memory().len()).unwrap_or(u32::MAX);
        if chunk.saturating_add(2 * LARGEST + UNCLEARED) > length {
            break;
        }
    }
    let Some(&last) = chunks.last() else { return Ok(None) };
    let mut end = last;
    while let Some(chunk) = chunks.pop() {
        if end.abs_diff(chunk) > LARGEST + MAX_HEADER {
            break;
        }
        free(instance, chunk)?;
        end = chunk;
    }
    Ok(Some(end))
}

fn allocate(instance: &mut Instance, size: u32) -> Result<Ptr, InstanceError> {
    instance.call("malloc", size)
}

fn free(instance: &mut Instance, chunk: Ptr) -> Result<(), InstanceError> {
    instance.call("free", chunk)
}
