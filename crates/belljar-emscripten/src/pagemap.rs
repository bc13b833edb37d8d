//! Which pages of a private mapping are this process's own by now: those that were written to.
//!
//! Linux tells in `/proc/self/pagemap` (the kernel's Documentation/admin-guide/mm/pagemap.rst). Elsewhere, and where
//! that cannot be read, the answer is an error.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The page of most systems, in bytes. Where pages have another size, nothing is told.
pub(crate) const PAGE: usize = 4096;

/// A page is in memory.
const PRESENT: u64 = 1 << 63;
/// A page is in the swap.
const SWAPPED: u64 = 1 << 62;
/// A page is the file's, or shared.
const OF_A_FILE: u64 = 1 << 61;

/// First page and length of each run of own pages in the `length` bytes from `base` on, in order and as long as can be.
///
/// A private page that lies on the disk as a page of its file is no own page: it was never written to.
pub(crate) fn own_pages(base: *const u8, length: usize) -> io::Result<Vec<(u32, u32)>> {
    if page_size() != PAGE {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut entries = vec![0; length / PAGE * 8];
    // Opened each time: an open one tells of the process that opened it, also after a fork.
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, (base.addr() / PAGE * 8) as u64)?;
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for (page, entry) in (0u32..).zip(entries.as_chunks().0) {
        let entry = u64::from_ne_bytes(*entry);
        if entry & (PRESENT | SWAPPED) == 0 || entry & OF_A_FILE != 0 {
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
    // SAFETY: asks for a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{PAGE, own_pages};

    #[test]
    fn pages_that_were_written_to_are_own_and_pages_that_were_read_are_not() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 * PAGE as u64).unwrap();
        // SAFETY: nobody else knows the file.
        let mut mapping = unsafe { memmap2::MmapOptions::new().map_copy(&file).unwrap() };
        for page in [3, 4, 40] {
            mapping[page * PAGE + 9] = 1;
        }
        assert_eq!(mapping[50 * PAGE], 0);
        assert_eq!(own_pages(mapping.as_ptr(), mapping.len()).unwrap(), [(3, 2), (40, 1)]);
    }
}
