//! Memory and files on Unix: the part that Linux and macOS have in common.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::ptr;

pub(crate) mod files;

/// True if compiled code must have unwind information.
pub(crate) const NEEDS_UNWIND_INFO: bool = false;

pub(super) fn query_page_size() -> usize {
    // SAFETY: queries a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(0)
}

/// A range of address space.
#[derive(Debug)]
pub(crate) struct Reservation {
    base: *mut u8,
    total: usize,
}

// SAFETY: the range belongs to this value alone; the pointer is an address, not a borrow.
unsafe impl Send for Reservation {}
// SAFETY: shared references only read the fields.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves a new inaccessible range.
    pub(crate) fn new(total: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice does not affect existing memory.
        let base = unsafe { libc::mmap(ptr::null_mut(), total, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), total })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the length in bytes.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Maps `length` bytes of `file` from `offset` on over the start of the range, copy-on-write.
    ///
    /// # Safety
    /// The range must be at least as long and unused. The file must cover the bytes, and neither be written to nor
    /// truncated as long as the range exists.
    pub(crate) unsafe fn map_image(&mut self, file: &File, offset: u64, length: usize) -> io::Result<()> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: replaces pages of this value's own range, which the caller guarantees to be long enough and unused.
        let at = unsafe { libc::mmap(self.base.cast(), length, protection, flags, file.as_raw_fd(), offset) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Makes `length` bytes from `start` on, which were never accessible or were discarded, readable and writable; they
    /// are zero.
    ///
    /// # Safety
    /// They must lie in this range.
    pub(crate) unsafe fn commit(&mut self, start: usize, length: usize) -> io::Result<()> {
        // SAFETY: the caller guarantees the range.
        unsafe { protect(self.base.add(start), length, libc::PROT_READ | libc::PROT_WRITE) }
    }

    /// Makes `length` bytes from `start` on, which were never accessible, readable; they are zero. If they are readable
    /// or inaccessible already, makes them readable.
    ///
    /// # Safety
    /// They must lie in this range.
    pub(crate) unsafe fn commit_read_only(&mut self, start: usize, length: usize) -> io::Result<()> {
        // SAFETY: the caller guarantees the range.
        unsafe { protect(self.base.add(start), length, libc::PROT_READ) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `new` mapped, and its owner no longer uses it.
        unsafe { libc::munmap(self.base.cast(), self.total) };
    }
}

/// Sets the protection of mapped pages.
///
/// # Safety
/// The bytes must be a part of a mapping, and no code may depend on an access that is removed.
unsafe fn protect(start: *mut u8, length: usize, protection: libc::c_int) -> io::Result<()> {
    // SAFETY: the caller guarantees the range.
    let result = unsafe { libc::mprotect(start.cast(), length, protection) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Removes all access to pages: the next access faults.
///
/// # Safety
/// The bytes must be whole pages of a mapping, which only code that may fault accesses.
pub(crate) unsafe fn make_inaccessible(start: *mut u8, length: usize) -> io::Result<()> {
    // SAFETY: the caller guarantees the range.
    unsafe { protect(start, length, libc::PROT_NONE) }
}

/// Reads at an offset: forks of this process share the position in the file.
pub fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    FileExt::read_at(file, buffer, offset)
}

pub(crate) fn read_exact_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    FileExt::read_exact_at(file, buffer, offset)
}

pub(crate) fn write_at(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
    FileExt::write_at(file, data, offset)
}

pub(crate) fn write_all_at(file: &File, data: &[u8], offset: u64) -> io::Result<()> {
    FileExt::write_all_at(file, data, offset)
}

/// Sets the length of an empty file. Its parts that are not written take no space.
pub(crate) fn set_sparse_length(file: &File, length: u64) -> io::Result<()> {
    file.set_len(length)
}

/// Opens a regular file for reading, without following a link in the last component of its path, nor waiting for the
/// other end of a FIFO.
pub fn open_regular_file(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
}
