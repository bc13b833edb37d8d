//! Finds the pages of a private mapping that were written to, and so belong to this process alone.
//!
//! Linux reports them in `/proc/self/pagemap` (the kernel's Documentation/admin-guide/mm/pagemap.rst). On other
//! systems, and if that file cannot be read, the result is an error.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The page size of most systems, in bytes. On systems with another page size, written pages are not reported.
pub(crate) const PAGE: usize = 4096;

/// The bit of a page that is in memory.
const PRESENT: u64 = 1 << 63;
/// The bit of a page that is in swap.
const SWAPPED: u64 = 1 << 62;
/// The bit of a page that belongs to a file or is shared.
const FILE_BACKED: u64 = 1 << 61;

/// Returns the first page and length of each maximal run of private dirty pages in the `length` bytes from `base` on,
/// in order.
///
/// A private page that is still backed by its file is not included: it was never written to.
pub(crate) fn private_dirty_pages(base: *const u8, length: usize) -> io::Result<Vec<(u32, u32)>> {
    if page_size() != PAGE {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut entries = vec![0; length / PAGE * 8];
    // Opened for each query: an open descriptor describes the process that opened it, also after a fork.
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, (base.addr() / PAGE * 8) as u64)?;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for (page, entry) in (0u32..).zip(entries.as_chunks().0) {
        let entry = u64::from_ne_bytes(*entry);
        if entry & (PRESENT | SWAPPED) == 0 || entry & FILE_BACKED != 0 {
            continue;
        }
        match runs.last_mut() {
            Some((first, count)) if *first + *count == page => *count += 1,
            _ => runs.push((page, 1)),
        }
    }
    Ok(runs)
}

pub(crate) fn page_size() -> usize {
    // SAFETY: queries a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{PAGE, private_dirty_pages};

    #[test]
    fn only_written_pages_are_private_dirty() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 * PAGE as u64).unwrap();
        // SAFETY: no other code has access to the file.
        let mut mapping = unsafe { memmap2::MmapOptions::new().map_copy(&file).unwrap() };
        for page in [3, 4, 40] {
            mapping[page * PAGE + 9] = 1;
        }
        assert_eq!(mapping[50 * PAGE], 0);
        assert_eq!(private_dirty_pages(mapping.as_ptr(), mapping.len()).unwrap(), [(3, 2), (40, 1)]);
    }
}
