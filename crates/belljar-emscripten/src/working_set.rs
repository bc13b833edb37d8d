//! The pages of an image that its copies write to first: seen once, then prepared ahead.
//!
//! The first write to a copy-on-write page costs a fault. A program that has just been restored writes to much the same
//! pages each time, and having the kernel copy them in a few calls is cheaper than as many faults. (Known from virtual
//! machines as "record and prefetch".) All of this is a matter of speed alone: what fails is left undone.

use serde::{Deserialize, Serialize};

use crate::pagemap::{PAGE, own_pages, page_size};

/// Runs of pages of a linear memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkingSet {
    /// First page and length of each run.
    runs: Vec<(u32, u32)>,
}

impl WorkingSet {
    /// The pages of the memory at `base`, `length` bytes long, that were written to; an error where the system does not
    /// tell.
    pub(crate) fn observed(base: *const u8, length: usize) -> std::io::Result<Self> {
        // Pages between two runs are left out, however few: what is prepared is a copy's own from then on.
        Ok(Self { runs: own_pages(base, length)? })
    }

    /// These pages, which ascend.
    pub(crate) fn of_pages(pages: &[u32]) -> Self {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for &page in pages {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == page => *count += 1,
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

#[cfg(test)]
mod tests {
    use super::WorkingSet;
    use crate::pagemap::PAGE;

    #[test]
    fn pages_become_runs() {
        let set = WorkingSet::of_pages(&[0, 1, 3, 6, 7, 8]);
        assert_eq!(set, WorkingSet { runs: vec![(0, 2), (3, 1), (6, 3)] });
        assert_eq!(set.pages(), 6);
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
