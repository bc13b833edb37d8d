//! Finds the pages of a private mapping that were written to, and so belong to this process alone.
//!
//! Linux reports them in `/proc/self/pagemap` (the kernel's Documentation/admin-guide/mm/pagemap.rst): since 6.7 by a
//! request for the pages of a kind, before that by an entry for each page, which takes longer. If that file cannot be
//! read, the result is an error.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use crate::os::{PAGE, page_size, push_run};

/// The bit of a page that is in memory.
const PRESENT: u64 = 1 << 63;
/// The bit of a page that is in swap.
const SWAPPED: u64 = 1 << 62;
/// The bit of a page that belongs to a file or is shared.
const FILE_BACKED: u64 = 1 << 61;

/// This process's `/proc/self/pagemap`, if it was opened beforehand.
static OPENED: OnceLock<File> = OnceLock::new();

/// Sets this process's `/proc/self/pagemap`, for a process that will not be able to open it. Must be called after the
/// last fork: an open descriptor describes the process that opened it. The first setting is kept.
pub fn set_pagemap(file: File) {
    OPENED.get_or_init(|| file);
}

/// Returns the first page and length of each maximal run of private dirty pages in the `length` bytes from `base` on,
/// in order, in units of [`PAGE`]. `base` must be the beginning of a page of this host.
///
/// A private page that is still backed by its file is not included: it was never written to.
pub(crate) fn private_dirty_pages(base: *const u8, length: usize) -> io::Result<Vec<(u32, u32)>> {
    let for_query;
    let pagemap = match OPENED.get() {
        Some(opened) => opened,
        None => {
            // Opened for each query: an open descriptor describes the process that opened it, also after a fork.
            for_query = File::open("/proc/self/pagemap")?;
            &for_query
        }
    };
    let pages = length / page_size();
    scan(pagemap, base.addr(), pages).or_else(|_| read_entries(pagemap, base.addr(), pages))
}

/// Finds the pages by an entry for each of the host's `pages`.
fn read_entries(pagemap: &File, base: usize, pages: usize) -> io::Result<Vec<(u32, u32)>> {
    let mut entries = vec![0; pages * 8];
    pagemap.read_exact_at(&mut entries, (base / page_size() * 8) as u64)?;
    let count = (page_size() / PAGE) as u32;
    let mut runs = Vec::new();
    for (page, entry) in (0u32..).step_by(count as usize).zip(entries.as_chunks().0) {
        let entry = u64::from_ne_bytes(*entry);
        if entry & (PRESENT | SWAPPED) != 0 && entry & FILE_BACKED == 0 {
            push_run(&mut runs, page, count);
        }
    }
    Ok(runs)
}

/// Finds the host's `pages` by the request `PAGEMAP_SCAN`. Fails on systems without it.
fn scan(pagemap: &File, base: usize, pages: usize) -> io::Result<Vec<(u32, u32)>> {
    /// `PAGEMAP_SCAN` of the kernel's `linux/fs.h`: `_IOWR('f', 16, struct pm_scan_arg)`.
    const PAGEMAP_SCAN: u64 = 0xc060_6610;
    // The categories `PAGE_IS_FILE`, `PAGE_IS_PRESENT` and `PAGE_IS_SWAPPED`.
    const IS_FILE: u64 = 1 << 2;
    const IS_PRESENT: u64 = 1 << 3;
    const IS_SWAPPED: u64 = 1 << 4;
    let end = base + pages * page_size();
    let mut regions = [PageRegion::default(); 128];
    let mut runs = Vec::new();
    let mut start = base;
    while start < end {
        let mut request = ScanRequest {
            size: size_of::<ScanRequest>() as u64,
            start: start as u64,
            end: end as u64,
            // Exposed, since the kernel writes to the array through this number.
            regions: regions.as_mut_ptr().expose_provenance() as u64,
            region_count: regions.len() as u64,
            inverted: IS_FILE,
            required: IS_FILE,
            any_of: IS_PRESENT | IS_SWAPPED,
            returned: IS_PRESENT,
            ..ScanRequest::default()
        };
        // SAFETY: the kernel reads and writes the request, and writes at most `region_count` regions to the array.
        let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN as _, &raw mut request) };
        let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
        for region in &regions[..found.min(regions.len())] {
            let (first, last) = ((region.start as usize - base) / PAGE, (region.end as usize - base) / PAGE);
            push_run(&mut runs, first as u32, (last - first) as u32);
        }
        let reached = request.walk_end as usize;
        if reached <= start {
            return Err(io::ErrorKind::Unsupported.into());
        }
        start = reached;
    }
    Ok(runs)
}

/// `struct page_region` of the kernel's `linux/fs.h`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of the kernel's `linux/fs.h`.
#[derive(Default)]
#[repr(C)]
struct ScanRequest {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    /// Set by the kernel: the address at which it stopped.
    walk_end: u64,
    regions: u64,
    region_count: u64,
    max_pages: u64,
    /// The categories that a page must not have, of those that are required.
    inverted: u64,
    required: u64,
    any_of: u64,
    /// The categories that the regions report.
    returned: u64,
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::{PAGE, page_size, private_dirty_pages, read_entries};

    #[test]
    fn only_written_pages_are_private_dirty() {
        let host = page_size();
        let count = (host / PAGE) as u32;
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 * host as u64).unwrap();
        // SAFETY: no other code has access to the file.
        let mut mapping = unsafe { memmap2::MmapOptions::new().map_copy(&file).unwrap() };
        for page in [3, 4, 40] {
            mapping[page * host + 9] = 1;
        }
        assert_eq!(mapping[50 * host], 0);
        let expected = [(3 * count, 2 * count), (40 * count, count)];
        assert_eq!(private_dirty_pages(mapping.as_ptr(), mapping.len()).unwrap(), expected);
    }

    #[test]
    fn both_ways_find_the_same_pages() {
        let host = page_size();
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096 * host as u64).unwrap();
        // SAFETY: no other code has access to the file.
        let mut mapping = unsafe { memmap2::MmapOptions::new().map_copy(&file).unwrap() };
        // More runs than one request returns, which reach the first and the last page.
        for page in (0..4096).filter(|page| page % 7 < 2) {
            mapping[page * host] = 1;
        }
        let entries = File::open("/proc/self/pagemap").unwrap();
        let wanted = read_entries(&entries, mapping.as_ptr().addr(), 4096).unwrap();
        assert_eq!(wanted.len(), 586);
        assert_eq!(private_dirty_pages(mapping.as_ptr(), mapping.len()).unwrap(), wanted);
    }
}
