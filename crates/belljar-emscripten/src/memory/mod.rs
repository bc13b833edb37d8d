//! Linear memories whose first contents are an image file, mapped copy-on-write.
//!
//! This is wasmtime's own seam, `MemoryCreator`: instances share the pages of an image until they write to them,
//! and restoring one costs a few system calls, whatever the size of the image.
//!
//! A memory that is not used any more is made to equal its image again and kept for the next instance, if it takes
//! little: writing over pages that are there costs far less than giving them back and having them copied anew, which
//! stops all threads of the process each time.

mod image;

use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

pub(crate) use image::MemoryImage;

use crate::pagemap::{PAGE, own_pages, page_size};
use crate::translate::{SAFEPOINT_ADDRESS, SAFEPOINT_LENGTH};
use image::Reservation;

/// Pages of its own that a memory may have and be kept: 4 MiB. A short program writes to a fifth of that.
const MAX_KEPT_PAGES: u32 = 1024;

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
    page_size().max(SAFEPOINT_LENGTH as usize)
}

/// The memory creator that every engine uses.
pub(crate) struct ImageMemory;

// SAFETY: `new_memory` answers mappings that it has to itself, that hold `reserved` bytes plus an inaccessible guard,
// are zero where no image was asked for, can only be read in the safepoint page, and never move. They are unmapped, or
// kept for another instance, only by their `Drop`. An image is mapped privately: writes never reach it, and
// `MemoryImage::new` asks its file to stay as it is.
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

/// One linear memory: accessible up to `size`, reserved up to `capacity`, then a guard. Where 4 GiB are reserved, the
/// safepoint page lies in the last 64 KiB of them.
struct Mapping {
    /// There until it is dropped.
    reservation: Option<Reservation>,
    base: *mut u8,
    size: usize,
    capacity: usize,
    with_safepoints: bool,
    /// What it began as.
    image: Option<MemoryImage>,
}

// SAFETY: the mapping belongs to this value alone; the pointer is an address, not a borrow.
unsafe impl Send for Mapping {}
// SAFETY: shared references only read the fields.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(minimum: usize, reserved: usize, guard: usize, image: Option<MemoryImage>) -> std::io::Result<Self> {
        let image = image.filter(|image| !image.is_empty());
        let size = minimum.max(image.as_ref().map_or(0, MemoryImage::len));
        let with_safepoints = reserved > MAX_MEMORY;
        let capacity = if with_safepoints { MAX_MEMORY } else { reserved.max(size) };
        let total = reserved.max(capacity).checked_add(guard).ok_or(std::io::ErrorKind::OutOfMemory)?.max(1);
        let spare = image.as_ref().and_then(|image| image.spares.take(total));
        let is_spare = spare.is_some();
        let reservation = spare.map_or_else(|| Reservation::new(total), Ok)?;
        let base = reservation.base;
        // Without an image until it is placed: what fails below is unmapped and not kept.
        let mut mapping =
            Self { reservation: Some(reservation), base, size: 0, capacity, with_safepoints, image: None };
        if let Some(image) = image {
            if !is_spare {
                mapping.place(&image)?;
            }
            mapping.size = image.length;
            mapping.image = Some(image);
        }
        mapping.open_to(size)?;
        mapping.open_safepoints()?;
        Ok(mapping)
    }

    /// Maps `image` over the start of the reserved range.
    fn place(&mut self, image: &MemoryImage) -> std::io::Result<()> {
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
        Ok(())
    }

    /// Makes the safepoint page, if there is one, readable; it is zero.
    fn open_safepoints(&mut self) -> std::io::Result<()> {
        if !self.with_safepoints {
            return Ok(());
        }
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

impl Mapping {
    /// Makes the memory what it was at first: `image`, and nothing behind that. An error where that takes more than it
    /// is worth, or cannot be done; the contents are of no use then.
    fn reset(&mut self, image: &MemoryImage) -> std::io::Result<()> {
        if self.size > image.length {
            // SAFETY: the range lies in our own reservation, and wasmtime has dropped its last use of it.
            let result = unsafe {
                let (start, length) = (self.base.add(image.length).cast(), self.size - image.length);
                // Anonymous pages that are given back are zero when they are next used.
                libc::madvise(start, length, libc::MADV_DONTNEED) | libc::mprotect(start, length, libc::PROT_NONE)
            };
            if result != 0 {
                return Err(std::io::Error::last_os_error());
            }
        }
        let own = own_pages(self.base, image.length)?;
        if own.iter().map(|(_, pages)| pages).sum::<u32>() > MAX_KEPT_PAGES {
            return Err(std::io::ErrorKind::QuotaExceeded.into());
        }
        for (first, pages) in own {
            let (start, length) = (first as usize * PAGE, pages as usize * PAGE);
            // SAFETY: the run lies within the image's part of the mapping, which can be written to, and nobody else
            // has the mapping any more.
            let bytes = unsafe { std::slice::from_raw_parts_mut(self.base.add(start), length) };
            image.file.read_exact_at(bytes, image.offset + start as u64)?;
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let (Some(image), Some(reservation)) = (self.image.take(), self.reservation.take())
            && self.reset(&image).is_ok()
        {
            image.spares.put(reservation);
        }
    }
}

#[cfg(test)]
mod tests;
