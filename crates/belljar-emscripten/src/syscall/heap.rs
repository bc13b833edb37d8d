//! The size of linear memory, as `malloc` requests it through `sbrk`.

use wasmtime::{Linker, Result};

use crate::host::{Call, Host, main_module, split};

const PAGE: u64 = 65_536;
/// The size of the 32-bit address space, less a page, so that the size itself fits 32 bits (`getHeapMax` in
/// Emscripten).
const ADDRESS_SPACE: u64 = (1 << 32) - PAGE;
/// The maximum growth beyond the requested size.
const MAX_EXTRA_GROWTH: u64 = 96 << 20;

pub(super) fn define(linker: &mut Linker<Host>) -> Result<()> {
    linker.func_wrap("env", "emscripten_get_heap_max", |call: Call<'_>| heap_max(call.data()) as u32)?;
    linker.func_wrap("env", "emscripten_resize_heap", resize_heap)?;
    linker.func_wrap("env", "_emscripten_memcpy_js", memcpy)?;
    Ok(())
}

/// Returns the maximum size of the heap: whole pages, within the memory limit.
fn heap_max(host: &Host) -> u64 {
    let limit = (host.memory_budget.limit() as u64).min(ADDRESS_SPACE);
    limit - limit % PAGE
}

/// Grows memory to at least `wanted` bytes. Returns 1, or 0 on failure.
fn resize_heap(mut call: Call<'_>, wanted: u32) -> Result<i32> {
    let memory = main_module(&call)?.memory;
    let size = memory.data_size(&call) as u64;
    for target in targets(size, u64::from(wanted), heap_max(call.data())) {
        if memory.grow(&mut call, target.saturating_sub(size).div_ceil(PAGE)).is_ok() {
            return Ok(1);
        }
    }
    Ok(0)
}

/// Returns the sizes to try, as in Emscripten: a fifth more than the present size so that growth is rare, then less,
/// then exactly the requested size.
fn targets(size: u64, wanted: u64, max: u64) -> impl Iterator<Item = u64> {
    let generous = [5, 10, 20].map(move |part| (size + size / part).min(wanted + MAX_EXTRA_GROWTH));
    generous
        .into_iter()
        .chain([wanted])
        .map(move |target| target.max(wanted).next_multiple_of(PAGE).min(max))
        .filter(move |&target| target >= wanted)
}

/// Implements `memcpy` for libcs that leave long copies to the host.
fn memcpy(mut call: Call<'_>, to: u32, from: u32, length: u32) -> Result<()> {
    let (mut memory, _) = split(&mut call)?;
    memory.copy_within(from, to, length).map_err(|_| wasmtime::Trap::MemoryOutOfBounds.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_grows_by_a_fifth_or_the_requested_size() {
        let megabyte = 1 << 20;
        assert_eq!(targets(100 * megabyte, 101 * megabyte, ADDRESS_SPACE).next(), Some(120 * megabyte));
        assert_eq!(targets(100 * megabyte, 300 * megabyte, ADDRESS_SPACE).next(), Some(300 * megabyte));
        // Never more than 96 MiB ahead.
        assert_eq!(targets(1000 * megabyte, 1001 * megabyte, ADDRESS_SPACE).next(), Some(1097 * megabyte));
    }

    #[test]
    fn growth_targets_stay_between_request_and_limit() {
        let all: Vec<u64> = targets(10 * PAGE, 10 * PAGE + 1, 11 * PAGE).collect();
        assert_eq!(all, [11 * PAGE; 4]);
        assert_eq!(targets(10 * PAGE, 12 * PAGE, 11 * PAGE).next(), None);
        assert_eq!(targets(PAGE, u64::from(u32::MAX), ADDRESS_SPACE).next(), None);
    }
}
