//! The pages of an image that its copies write to first: measured once, and then prefaulted in each copy.
//!
//! The first write to a copy-on-write page costs a fault. A program that has just been restored writes to much the same
//! pages each time, and having the kernel copy them in a few calls is cheaper than as many faults. (Virtual machines do
//! the same under the name "record and prefetch".) All of this only affects speed: failures are ignored.

use serde::{Deserialize, Serialize};

use crate::os::{self, PAGE, page_size, private_dirty_pages, push_run};

/// Runs of pages of a linear memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkingSet {
    /// The first page and the length of each run.
    runs: Vec<(u32, u32)>,
}

impl WorkingSet {
    /// Returns the pages of the memory at `base`, `length` bytes long, that were written to; fails on systems that do
    /// not report them.
    pub(crate) fn from_written_pages(base: *const u8, length: usize) -> std::io::Result<Self> {
        // Gaps between runs are kept, however small: each prefaulted page becomes the copy's private memory.
        Ok(Self { runs: private_dirty_pages(base, length)? })
    }

    /// Creates a set of these pages, which must be in ascending order.
    pub(crate) fn from_pages(pages: &[u32]) -> Self {
        let mut runs = Vec::new();
        for &page in pages {
            push_run(&mut runs, page, 1);
        }
        Self { runs }
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> usize {
        self.runs.iter().map(|(_, count)| *count as usize).sum()
    }

    /// Has the kernel copy the pages now.
    ///
    /// # Safety
    /// `base` must be the beginning of a mapping of `length` bytes that is readable and writable.
    pub(crate) unsafe fn prefault(&self, base: *mut u8, length: usize) {
        let host = page_size();
        for &(first, count) in &self.runs {
            let (start, bytes) = (first as usize * PAGE, count as usize * PAGE);
            let Some(end) = start.checked_add(bytes).filter(|end| *end <= length) else { continue };
            // Whole pages of the host. A memory consists of those: its length is a multiple of 64 KiB.
            let (start, end) = (start & !(host - 1), end.next_multiple_of(host).min(length));
            // SAFETY: the range lies within the mapping that the caller guarantees.
            unsafe { os::prefault(base.add(start), end - start) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WorkingSet;
    use crate::os::{PAGE, page_size};

    #[test]
    fn pages_become_runs() {
        let set = WorkingSet::from_pages(&[0, 1, 3, 6, 7, 8]);
        assert_eq!(set, WorkingSet { runs: vec![(0, 2), (3, 1), (6, 3)] });
        assert_eq!(set.pages(), 6);
    }

    #[test]
    fn written_pages_can_be_prefaulted_in_another_mapping() {
        let host = page_size();
        let count = (host / PAGE) as u32;
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 * host as u64).unwrap();
        // SAFETY: no other code has access to the file.
        let copy = || unsafe { memmap2::MmapOptions::new().map_copy(&file).unwrap() };
        let (mut first, mut second) = (copy(), copy());
        first[3 * host] = 1;
        first[40 * host + 9] = 1;
        let seen = WorkingSet::from_written_pages(first.as_ptr(), first.len()).unwrap();
        assert_eq!(seen, WorkingSet { runs: vec![(3 * count, count), (40 * count, count)] });
        // SAFETY: the mapping has this length and is writable.
        unsafe { seen.prefault(second.as_mut_ptr(), second.len()) };
        assert_eq!(WorkingSet::from_written_pages(second.as_ptr(), second.len()).unwrap(), seen);
        assert_eq!(second[3 * host], 0);
    }

    #[test]
    fn working_set_beyond_the_mapping_is_not_prefaulted() {
        let mut mapping = memmap2::MmapMut::map_anon(page_size()).unwrap();
        let too_long = (page_size() / PAGE) as u32 + 1;
        // SAFETY: the mapping has this length and is writable.
        unsafe {
            WorkingSet { runs: vec![(0, too_long), (u32::MAX, u32::MAX)] }.prefault(mapping.as_mut_ptr(), mapping.len())
        };
        assert_eq!(WorkingSet::from_written_pages(mapping.as_ptr(), mapping.len()).unwrap().pages(), 0);
    }
}
