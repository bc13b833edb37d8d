//! The pages of an image that its copies write to first: seen once, then prepared ahead.
//!
//! The first write to a copy-on-write page costs a fault. A program that has just been restored writes to much the same
//! pages each time, and having the kernel copy them in a few calls is cheaper than as many faults. (Known from virtual
//! machines as "record and prefetch".) All of this is a matter of speed alone: what fails is left undone.

use std::fs::File;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

/// Unit of a working set, in bytes: the page of most systems. Where pages are larger, nothing is seen or prepared.
pub(crate) const PAGE: usize = 4096;

/// Pages between two runs that are prepared along with them, since another call costs more.
const GAP: usize = 1;

/// Runs of pages of a linear memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkingSet {
    /// First page and length of each run.
    runs: Vec<(u32, u32)>,
}

impl WorkingSet {
    /// The pages of the memory at `base`, `length` bytes long, that are this process's own by now: those written to.
    ///
    /// Linux tells in `/proc/self/pagemap`; elsewhere the answer is an error.
    pub(crate) fn observed(base: *const u8, length: usize) -> std::io::Result<Self> {
        Ok(own_pages(base, length)?.map(|own| Self::of(own.into_iter())).unwrap_or_default())
    }

    fn of(pages: impl Iterator<Item = bool>) -> Self {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (page, _) in (0u32..).zip(pages).filter(|(_, own)| *own) {
            match runs.last_mut() {
                Some((first, count)) if page - (*first + *count) <= GAP as u32 => *count = page + 1 - *first,
                _ => runs.push((page, 1)),
            }
        }
        Self { runs }
    }

    /// How many pages it has.
    pub fn pages(&self) -> usize {
        self.runs.iter().map(|(_, count)| *count as usize).sum()
    }

    /// Has the kernel copy the pages now.
    ///
    /// # Safety
    /// `base` must be the beginning of a mapping of `length` bytes that may be read and written.
    pub(crate) unsafe fn prepare(&self, base: *mut u8, length: usize) {
        if page_size() != PAGE {
            return;
        }
        for &(first, count) in &self.runs {
            let (start, bytes) = (first as usize * PAGE, count as usize * PAGE);
            if start.checked_add(bytes).is_none_or(|end| end > length) {
                continue;
            }
            // SAFETY: the range lies within the mapping that the caller vouches for; its contents stay as they are.
            unsafe { libc::madvise(base.add(start).cast(), bytes, libc::MADV_POPULATE_WRITE) };
        }
    }
}

/// Which pages of the memory at `base` are this process's own by now, and not the image's: those written to. `None` where
/// pages have another size.
pub(crate) fn own_pages(base: *const u8, length: usize) -> std::io::Result<Option<Vec<bool>>> {
    /// Bits of an entry, by the kernel's Documentation/admin-guide/mm/pagemap.rst.
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_A_FILE: u64 = 1 << 61;
    if page_size() != PAGE {
        return Ok(None);
    }
    let mut entries = vec![0; length / PAGE * 8];
    File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, (base.addr() / PAGE * 8) as u64)?;
    let own = entries.as_chunks().0.iter().map(|entry| {
        let entry = u64::from_ne_bytes(*entry);
        entry & (PRESENT | SWAPPED) != 0 && entry & OF_A_FILE == 0
    });
    Ok(Some(own.collect()))
}

fn page_size() -> usize {
    // SAFETY: asks for a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{PAGE, WorkingSet};

    #[test]
    fn pages_become_runs_and_small_gaps_are_closed() {
        let own = [true, true, false, true, false, false, true];
        let set = WorkingSet::of(own.into_iter());
        assert_eq!(set, WorkingSet { runs: vec![(0, 4), (6, 1)] });
        assert_eq!(set.pages(), 5);
    }

    #[test]
    fn what_was_written_is_seen_and_can_be_prepared_in_another_mapping() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 * PAGE as u64).unwrap();
        // SAFETY: nobody else knows the file.
        let copy = || unsafe { memmap2::MmapOptions::new().map_copy(&file).unwrap() };
        let (mut first, mut second) = (copy(), copy());
        first[3 * PAGE] = 1;
        first[40 * PAGE + 9] = 1;
        let seen = WorkingSet::observed(first.as_ptr(), first.len()).unwrap();
        assert_eq!(seen, WorkingSet { runs: vec![(3, 1), (40, 1)] });
        // SAFETY: the mapping is as long as it says and can be written to.
        unsafe { seen.prepare(second.as_mut_ptr(), second.len()) };
        assert_eq!(WorkingSet::observed(second.as_ptr(), second.len()).unwrap(), seen);
        assert_eq!(second[3 * PAGE], 0);
    }

    #[test]
    fn a_set_that_reaches_beyond_the_mapping_is_left_undone() {
        let mut mapping = memmap2::MmapMut::map_anon(PAGE).unwrap();
        // SAFETY: the mapping is as long as it says and can be written to.
        unsafe { WorkingSet { runs: vec![(0, 2), (u32::MAX, u32::MAX)] }.prepare(mapping.as_mut_ptr(), mapping.len()) };
        assert_eq!(WorkingSet::observed(mapping.as_ptr(), mapping.len()).unwrap().pages(), 0);
    }
}
