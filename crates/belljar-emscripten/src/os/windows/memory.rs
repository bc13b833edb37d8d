//! Memory on Windows: ranges of address space that begin as a placeholder, which is replaced by a copy-on-write view of
//! an image and by reserved memory behind it.

use std::fs::File;
use std::io;
use std::os::windows::io::AsRawHandle;
use std::ptr;

use windows_sys::Win32::Foundation::CloseHandle;
use windows_sys::Win32::System::Memory::{
    CreateFileMappingW, MEM_COMMIT, MEM_DECOMMIT, MEM_PRESERVE_PLACEHOLDER, MEM_RELEASE, MEM_REPLACE_PLACEHOLDER,
    MEM_RESERVE, MEM_RESERVE_PLACEHOLDER, MEMORY_MAPPED_VIEW_ADDRESS, MapViewOfFile3, PAGE_NOACCESS, PAGE_READONLY,
    PAGE_READWRITE, PAGE_WRITECOPY, UnmapViewOfFile, VirtualAlloc, VirtualAlloc2, VirtualFree, VirtualProtect,
};

/// A range of address space.
#[derive(Debug)]
pub(crate) struct Reservation {
    base: *mut u8,
    total: usize,
    /// The length of the view of an image at the start of the range.
    view: usize,
    /// True if the bytes behind the view are reserved memory; false if they are a placeholder.
    is_reserved: bool,
}

// SAFETY: the range belongs to this value alone; the pointer is an address, not a borrow.
unsafe impl Send for Reservation {}
// SAFETY: shared references only read the fields.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves a new inaccessible range.
    pub(crate) fn new(total: usize) -> io::Result<Self> {
        let total = total.next_multiple_of(crate::os::page_size());
        let kind = MEM_RESERVE | MEM_RESERVE_PLACEHOLDER;
        // SAFETY: a new range at an address of the system's choice does not affect existing memory.
        let base =
            unsafe { VirtualAlloc2(ptr::null_mut(), ptr::null(), total, kind, PAGE_NOACCESS, ptr::null_mut(), 0) };
        if base.is_null() {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), total, view: 0, is_reserved: false })
    }

    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Returns the length in bytes.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Maps `length` bytes of `file` from `offset` on over the start of the range, copy-on-write. Both numbers must be
    /// multiples of 64 KiB, the system's granularity of mappings.
    ///
    /// # Safety
    /// The range must be at least as long and unused. The file must cover the bytes, and neither be written to nor
    /// truncated as long as the range exists.
    pub(crate) unsafe fn map_image(&mut self, file: &File, offset: u64, length: usize) -> io::Result<()> {
        if self.is_reserved || self.view > 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if length < self.total {
            // SAFETY: splits the placeholder, which belongs to this value alone, in two.
            check(unsafe { VirtualFree(self.base.cast(), length, MEM_RELEASE | MEM_PRESERVE_PLACEHOLDER) })?;
        }
        // From here on, the two parts are released separately, whether the first one is a view or not.
        self.view = length;
        // SAFETY: creates a section of the whole file; the name and the attributes are left out.
        let section =
            unsafe { CreateFileMappingW(file.as_raw_handle(), ptr::null(), PAGE_WRITECOPY, 0, 0, ptr::null()) };
        if section.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: replaces the first part, which the caller guarantees to be unused. The section is closed once; the
        // view keeps it.
        let (view, error) = unsafe {
            let base = self.base.cast();
            let kind = MEM_REPLACE_PLACEHOLDER;
            let process = ptr::null_mut();
            let view = MapViewOfFile3(section, process, base, offset, length, kind, PAGE_WRITECOPY, ptr::null_mut(), 0);
            let error = io::Error::last_os_error();
            CloseHandle(section);
            (view, error)
        };
        if view.Value.is_null() { Err(error) } else { Ok(()) }
    }

    /// Replaces the rest of the placeholder with reserved memory, if that was not done before.
    fn reserve(&mut self) -> io::Result<()> {
        if self.is_reserved || self.view == self.total {
            return Ok(());
        }
        let kind = MEM_RESERVE | MEM_REPLACE_PLACEHOLDER;
        // SAFETY: replaces a placeholder that belongs to this value alone.
        let at = unsafe {
            let start = self.base.add(self.view).cast();
            let process = ptr::null_mut();
            VirtualAlloc2(process, start, self.total - self.view, kind, PAGE_NOACCESS, ptr::null_mut(), 0)
        };
        if at.is_null() {
            return Err(io::Error::last_os_error());
        }
        self.is_reserved = true;
        Ok(())
    }

    /// Makes `length` bytes from `start` on, which were never accessible or were discarded, readable and writable; they
    /// are zero.
    ///
    /// # Safety
    /// They must lie in this range.
    pub(crate) unsafe fn commit(&mut self, start: usize, length: usize) -> io::Result<()> {
        self.reserve()?;
        // SAFETY: the caller guarantees the range, which is reserved.
        let at = unsafe { VirtualAlloc(self.base.add(start).cast(), length, MEM_COMMIT, PAGE_READWRITE) };
        if at.is_null() { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Makes `length` bytes from `start` on, which were never accessible, readable; they are zero. If they are readable
    /// or inaccessible already, makes them readable.
    ///
    /// # Safety
    /// They must lie in this range.
    pub(crate) unsafe fn commit_read_only(&mut self, start: usize, length: usize) -> io::Result<()> {
        self.reserve()?;
        // SAFETY: the caller guarantees the range, which is reserved. Committed pages keep their contents.
        let at = unsafe { VirtualAlloc(self.base.add(start).cast(), length, MEM_COMMIT, PAGE_READONLY) };
        if at.is_null() { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Makes `length` bytes from `start` on inaccessible and forgets their contents: they are zero after a commit.
    ///
    /// # Safety
    /// They must lie in this range behind its image, and no code may use them.
    pub(crate) unsafe fn discard(&mut self, start: usize, length: usize) -> io::Result<()> {
        // SAFETY: the caller guarantees the range.
        check(unsafe { VirtualFree(self.base.add(start).cast(), length, MEM_DECOMMIT) })
    }

    /// Returns `false`: large pages need a privilege and cannot be swapped.
    ///
    /// # Safety
    /// The bytes must lie in this range.
    pub(crate) unsafe fn request_huge_pages(&mut self, _: usize, _: usize) -> bool {
        false
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the parts are exactly those of this value, and its owner no longer uses them. If the first part is
        // not a view because mapping has failed, unmapping fails, and it is released as a placeholder.
        unsafe {
            if self.view > 0 {
                let view = MEMORY_MAPPED_VIEW_ADDRESS { Value: self.base.cast() };
                if UnmapViewOfFile(view) == 0 {
                    VirtualFree(self.base.cast(), 0, MEM_RELEASE);
                }
            }
            if self.view < self.total {
                VirtualFree(self.base.add(self.view).cast(), 0, MEM_RELEASE);
            }
        }
    }
}

/// Removes all access to pages: the next access faults.
///
/// # Safety
/// The bytes must be whole pages of a mapping, which only code that may fault accesses.
pub(crate) unsafe fn make_inaccessible(start: *mut u8, length: usize) -> io::Result<()> {
    let mut before = 0;
    // SAFETY: the caller guarantees the range.
    check(unsafe { VirtualProtect(start.cast(), length, PAGE_NOACCESS, &raw mut before) })
}

/// Does nothing: the system has no call that copies pages ahead of their faults.
///
/// # Safety
/// The bytes must be whole pages of the host, and a part of a mapping that is readable and writable.
pub(crate) unsafe fn prefault(_: *mut u8, _: usize) {}

/// Converts the result of a call that returns zero if it fails.
fn check(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
