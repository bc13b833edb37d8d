//! Linear memories whose first contents are an image file, mapped copy-on-write.
//!
//! This is wasmtime's own seam, `MemoryCreator`: instances share the pages of an image until they write to them,
//! and restoring one costs a few system calls, whatever the size of the image.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

use crate::translate::{SAFEPOINT_ADDRESS, SAFEPOINT_LENGTH};

/// Part of a file that holds the contents of a linear memory.
#[derive(Debug, Clone)]
pub(crate) struct MemoryImage {
    file: Arc<File>,
    offset: u64,
    length: usize,
}

impl MemoryImage {
    /// `length` bytes of `file` from `offset` on. Both must be multiples of the wasm page size (64 KiB), and the
    /// file must not be written to or cut short while any instance lives.
    ///
    /// # Errors
    /// When the range is not aligned or reaches beyond the end of the file.
    pub(crate) fn new(file: File, offset: u64, length: u64) -> std::io::Result<Self> {
        let page = WASM_PAGE as u64;
        let end = offset.checked_add(length);
        if !offset.is_multiple_of(page) || !length.is_multiple_of(page) || end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(invalid("its memory is not aligned to pages"));
        }
        if end > Some(file.metadata()?.len()) {
            return Err(invalid("it is shorter than the memory it should hold"));
        }
        let length = usize::try_from(length).map_err(|_| invalid("its memory does not fit this machine"))?;
        Ok(Self { file: Arc::new(file), offset, length })
    }

    /// The file that holds it.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Where in the file it begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Length of the memory in bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Whether the memory has no bytes at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }
}

fn invalid(message: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, message)
}

pub(crate) const WASM_PAGE: usize = 65536;

/// A request that the next memory of this thread with exactly `minimum_pages` starts as `image`.
struct Pending {
    minimum_pages: u64,
    image: MemoryImage,
}

thread_local! {
    /// wasmtime asks the creator for memories while it instantiates, on the same thread, and passes nothing along:
    /// so the image to use is left here. Another memory (the heap for exceptions) is asked
    /// for in between and is told apart by its size.
    static PENDING: RefCell<Option<Pending>> = const { RefCell::new(None) };
}

/// Runs `instantiate` so that the memory of `minimum_pages` which it creates starts as `image`.
pub(crate) fn with_image<R>(minimum_pages: u64, image: &MemoryImage, instantiate: impl FnOnce() -> R) -> R {
    struct Clear;
    impl Drop for Clear {
        fn drop(&mut self) {
            PENDING.set(None);
        }
    }
    PENDING.set(Some(Pending { minimum_pages, image: image.clone() }));
    let _clear = Clear;
    instantiate()
}

/// The most that a linear memory can grow to, in bytes: the safepoint page lies behind it.
pub(crate) const MAX_MEMORY: usize = SAFEPOINT_ADDRESS as usize;

/// Address and length in bytes of the safepoint page of a linear memory that begins at `base`.
///
/// # Safety
/// `base` must be the beginning of a memory that [`ImageMemory`] made with room for 4 GiB.
pub(crate) unsafe fn safepoint_page(base: *mut u8) -> (*mut u8, usize) {
    // SAFETY: the caller vouches for the range.
    (unsafe { base.add(MAX_MEMORY) }, safepoint_length())
}

/// Length of the safepoint page: what safepoints need, rounded up to what this host can protect.
fn safepoint_length() -> usize {
    // SAFETY: asks for a constant of the system.
    let host_page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(host_page).unwrap_or(0).max(SAFEPOINT_LENGTH as usize)
}

/// The memory creator that every engine uses.
pub(crate) struct ImageMemory;

// SAFETY: `new_memory` answers mappings of its own that hold `reserved` bytes plus an inaccessible guard, are zero
// where no image was asked for, can only be read in the safepoint page, never move, and are unmapped only by their `Drop`. An image is mapped privately:
// writes never reach it, and `MemoryImage::new` asks its file to stay as it is.
unsafe impl MemoryCreator for ImageMemory {
    fn new_memory(
        &self,
        ty: MemoryType,
        minimum: usize,
        _maximum: Option<usize>,
        reserved: Option<usize>,
        guard: usize,
    ) -> Result<Box<dyn LinearMemory>, String> {
        let image = PENDING.with_borrow_mut(|pending| pending.take_if(|p| p.minimum_pages == ty.minimum()));
        Mapping::new(minimum, reserved.unwrap_or(0), guard, image.map(|pending| pending.image))
            .map(|mapping| Box::new(mapping) as Box<dyn LinearMemory>)
            .map_err(|error| format!("cannot map a linear memory: {error}"))
    }
}

/// Address space of one linear memory: accessible up to `size`, reserved up to `capacity`, then a guard. Where 4 GiB
/// are reserved, the safepoint page lies in the last 64 KiB of them.
struct Mapping {
    base: *mut u8,
    size: usize,
    capacity: usize,
    total: usize,
}

// SAFETY: the mapping belongs to this value alone; the pointer is an address, not a borrow.
unsafe impl Send for Mapping {}
// SAFETY: shared references only read the fields.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(minimum: usize, reserved: usize, guard: usize, image: Option<MemoryImage>) -> std::io::Result<Self> {
        let size = minimum.max(image.as_ref().map_or(0, MemoryImage::len));
        let with_safepoints = reserved > MAX_MEMORY;
        let capacity = if with_safepoints { MAX_MEMORY } else { reserved.max(size) };
        let total = reserved.max(capacity).checked_add(guard).ok_or(std::io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), total.max(1), libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        // From here on `Drop` unmaps, also when a step below fails.
        let mut mapping = Self { base: base.cast(), size: 0, capacity, total: total.max(1) };
        if let Some(image) = &image {
            mapping.place(image)?;
        }
        mapping.open_to(size)?;
        if with_safepoints {
            mapping.open_safepoints()?;
        }
        Ok(mapping)
    }

    /// Maps `image` over the start of the reserved range.
    fn place(&mut self, image: &MemoryImage) -> std::io::Result<()> {
        if image.is_empty() {
            return Ok(());
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
        let offset = libc::off_t::try_from(image.offset).map_err(|_| std::io::ErrorKind::InvalidInput)?;
        // SAFETY: replaces pages of our own reservation, which is at least as long as the image and which nothing
        // points into yet. The file covers the range (checked in `MemoryImage::new`).
        let at =
            unsafe { libc::mmap(self.base.cast(), image.length, protection, flags, image.file.as_raw_fd(), offset) };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        self.size = image.length;
        Ok(())
    }

    /// Makes the safepoint page readable; it is zero.
    fn open_safepoints(&mut self) -> std::io::Result<()> {
        // SAFETY: the page lies in our own reservation, which is longer than `MAX_MEMORY` here by a wasm page at least.
        let result = unsafe {
            let (address, length) = safepoint_page(self.base);
            libc::mprotect(address.cast(), length, libc::PROT_READ)
        };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    /// Makes the bytes from the present size up to `size` accessible; they are zero.
    fn open_to(&mut self, size: usize) -> std::io::Result<()> {
        if size > self.capacity {
            return Err(std::io::ErrorKind::OutOfMemory.into());
        }
        if size > self.size {
            // SAFETY: `base + self.size` up to `base + size` lies in our own reservation.
            let result = unsafe {
                let start = self.base.add(self.size);
                libc::mprotect(start.cast(), size - self.size, libc::PROT_READ | libc::PROT_WRITE)
            };
            if result != 0 {
                return Err(std::io::Error::last_os_error());
            }
            self.size = size;
        }
        Ok(())
    }
}

// SAFETY: `as_ptr` is the base of a mapping with `byte_size` accessible bytes that grows in place only.
unsafe impl LinearMemory for Mapping {
    fn byte_size(&self) -> usize {
        self.size
    }

    fn byte_capacity(&self) -> usize {
        self.capacity
    }

    fn grow_to(&mut self, new_size: usize) -> wasmtime::Result<()> {
        Ok(self.open_to(new_size)?)
    }

    fn as_ptr(&self) -> *mut u8 {
        self.base
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `new` mapped, and wasmtime has dropped its last use of it.
        unsafe { libc::munmap(self.base.cast(), self.total) };
    }
}
