//! The only module that depends on the host's operating system: memory, files and clocks.
//!
//! | subject | Linux | macOS | Windows |
//! | --- | --- | --- | --- |
//! | mapping an image copy-on-write | `mmap` | `mmap` | views of sections over placeholders |
//! | files for images of this process | `memfd_create` | files without a name | files that are deleted when closed |
//! | finding a copy's own pages | `/proc/self/pagemap` | comparison with the image | comparison with the image |
//! | making the stop page inaccessible | `mprotect` | `mprotect` | `VirtualProtect` |
//! | processor clocks of threads | `pthread_getcpuclockid` | `thread_info` | `GetThreadTimes` |
//! | handlers of faults | signal handlers, installed again | Mach exception ports | a vectored handler |
//!
//! Each system is one module with the same items, which [`self`] exports; the compiler checks that none is missing.
//! Only Linux was ever run, on arm64 in an emulator: the others are type-checked by `cargo xtask check-targets`.
//!
//! Sizes of pages: [`PAGE`] is the unit of saved states, the same on all systems. [`page_size`] is the host's unit, a
//! multiple of [`PAGE`]: 16 KiB on Apple silicon, up to 64 KiB on Linux on arm64.

use std::sync::OnceLock;

#[cfg(target_os = "linux")]
#[path = "linux/mod.rs"]
mod system;
#[cfg(all(unix, not(target_os = "linux")))]
#[path = "macos.rs"]
mod system;
#[cfg(windows)]
#[path = "windows/mod.rs"]
mod system;

#[cfg(unix)]
mod unix;

#[cfg(target_os = "linux")]
pub use system::pagemap;
pub(crate) use system::{
    NEEDS_UNWIND_INFO, Reservation, ThreadClock, anonymous_file, fault_handlers, files, make_inaccessible, prefault,
    private_dirty_pages, read_exact_at, set_sparse_length, write_all_at, write_at,
};
pub use system::{files::DirectoryHandle, lower_thread_priority, open_regular_file, read_at};

/// The unit in bytes in which written pages are reported and saved.
pub(crate) const PAGE: usize = 4096;

/// Returns the size in bytes of the pages that this system maps and protects: a power of two, at least [`PAGE`].
pub(crate) fn page_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| system::query_page_size().max(PAGE))
}

/// The attributes of a file of the host, in the units of `struct stat`.
pub(crate) struct FileAttributes {
    pub(crate) ino: u64,
    /// The type and permissions, with the numbers of Unix on all systems.
    pub(crate) mode: u32,
    pub(crate) links: u64,
    pub(crate) blocks: u64,
    /// Seconds and nanoseconds since 1970, as the other times.
    pub(crate) accessed: (i64, i64),
    pub(crate) modified: (i64, i64),
    pub(crate) changed: (i64, i64),
}

/// Appends pages to the runs, the last of which they may continue.
pub(crate) fn push_run(runs: &mut Vec<(u32, u32)>, page: u32, count: u32) {
    match runs.last_mut() {
        Some((first, length)) if *first + *length == page => *length += count,
        _ => runs.push((page, count)),
    }
}

/// Returns the runs of pages of `memory` that differ from `image`, behind the end of which memory is zero: what
/// [`private_dirty_pages`] returns, but for pages that were written with what they held, for systems that do not report
/// them. Reads all of both.
pub(crate) fn differing_pages(memory: &[u8], image: &[u8]) -> Vec<(u32, u32)> {
    let mut runs = Vec::new();
    for (number, page) in (0u32..).zip(memory.chunks(PAGE)) {
        let at = number as usize * PAGE;
        let is_equal = match image.get(at..at + page.len()) {
            Some(original) => page == original,
            None => *page == [0; PAGE][..page.len()],
        };
        if !is_equal {
            push_run(&mut runs, number, 1);
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::{PAGE, differing_pages, page_size};

    #[test]
    fn host_pages_consist_of_whole_pages() {
        assert!(page_size().is_power_of_two() && page_size() >= PAGE);
    }

    #[test]
    fn comparison_finds_changed_and_added_pages() {
        let image = vec![7; 8 * PAGE];
        let mut memory = image.clone();
        memory.resize(12 * PAGE, 0);
        assert!(differing_pages(&memory, &image).is_empty());
        for at in [PAGE - 1, PAGE, 5 * PAGE + 9, 8 * PAGE, 12 * PAGE - 1] {
            memory[at] = 1;
        }
        assert_eq!(differing_pages(&memory, &image), [(0, 2), (5, 1), (8, 1), (11, 1)]);
    }
}
