//! Linear memories whose initial contents are an image file, mapped copy-on-write.
//!
//! They are created through wasmtime's `MemoryCreator`: instances share the pages of an image until they write to them,
//! and restoring an image costs a few system calls, whatever its size.
//!
//! A memory that is no longer used is reset to its image and kept for the next instance, if few of its pages were
//! written: overwriting pages that exist costs far less than releasing them and having them copied again, which stops
//! all threads of the process each time.

mod image;

use std::cell::{Cell, RefCell};

use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

pub(crate) use image::MemoryImage;

use crate::os::{PAGE, Reservation, page_size, private_dirty_pages};
use crate::translate::{SAFEPOINT_ADDRESS, SAFEPOINT_LENGTH};

/// The maximum number of private pages of a memory that is kept: 4 MiB. A short program writes to a fifth of that.
const MAX_KEPT_PAGES: u32 = 1024;

pub(crate) const WASM_PAGE: usize = 65536;

/// A request that the next memory of this thread with exactly `minimum_pages` starts with the contents of `image`.
struct PendingImage {
    minimum_pages: u64,
    image: MemoryImage,
}

thread_local! {
    /// The pending request. wasmtime calls the creator during instantiation, on the same thread and without a way to
    /// pass arguments, so the image to use is stored here. wasmtime also requests another memory (the heap for
    /// exceptions) in between, which is distinguished by its size.
    static PENDING: RefCell<Option<PendingImage>> = const { RefCell::new(None) };
    /// Set if an earlier instance used the memory that the last request returned.
    static IS_REUSED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `instantiate`. The memory of `minimum_pages` that it creates starts with the contents of `image`. Returns the
/// result, and whether an earlier instance used the memory: pages that this one wrote to need not be prefaulted.
pub(crate) fn with_image<R>(minimum_pages: u64, image: &MemoryImage, instantiate: impl FnOnce() -> R) -> (R, bool) {
    struct ClearOnDrop;
    impl Drop for ClearOnDrop {
        fn drop(&mut self) {
            PENDING.set(None);
        }
    }
    PENDING.set(Some(PendingImage { minimum_pages, image: image.clone() }));
    IS_REUSED.set(false);
    let _clear = ClearOnDrop;
    let result = instantiate();
    (result, IS_REUSED.get())
}

/// The maximum size of a linear memory in bytes: the safepoint page lies behind it.
pub(crate) const MAX_MEMORY: usize = SAFEPOINT_ADDRESS as usize;

/// Returns the address and length in bytes of the safepoint page of a linear memory that begins at `base`.
///
/// # Safety
/// `base` must be the beginning of a memory that [`ImageMemory`] created with a reservation of 4 GiB.
pub(crate) unsafe fn safepoint_page(base: *mut u8) -> (*mut u8, usize) {
    // SAFETY: the caller guarantees the range.
    (unsafe { base.add(MAX_MEMORY) }, safepoint_length())
}

/// Returns the length of the safepoint page: the length that safepoints use, rounded up to a page of this host.
fn safepoint_length() -> usize {
    page_size().max(SAFEPOINT_LENGTH as usize)
}

/// The growth in bytes from which huge pages are requested.
const MIN_HUGE_GROWTH: usize = 16 << 20;

/// The memory creator that every engine uses.
pub(crate) struct ImageMemory;

// SAFETY: `new_memory` returns mappings that are not shared, that hold `reserved` bytes plus an inaccessible guard, are
// zero if no image was requested, are read-only in the safepoint page, and never move. They are unmapped, or kept for
// another instance, only by their `Drop`. An image is mapped privately: writes never reach it, and `MemoryImage::new`
// requires its file to stay unchanged.
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
            .map_err(|error| format!("failed to map a linear memory: {error}"))
    }
}

/// One linear memory: accessible up to `size`, reserved up to `capacity`, followed by a guard. If 4 GiB are reserved,
/// the safepoint page lies in the last 64 KiB of them.
struct Mapping {
    /// The reservation; `Some` until the mapping is dropped.
    reservation: Option<Reservation>,
    base: *mut u8,
    size: usize,
    capacity: usize,
    with_safepoints: bool,
    /// True if a part of the memory is in huge pages.
    has_huge_pages: bool,
    /// The initial contents.
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
        let reused = image.as_ref().and_then(|image| image.pool.take(total));
        let is_reused = reused.is_some();
        let reservation = reused.map_or_else(|| Reservation::new(total), Ok)?;
        let base = reservation.base();
        // The image is set only once it is mapped: a mapping that fails below is unmapped and not kept.
        let mut mapping = Self {
            reservation: Some(reservation),
            base,
            size: 0,
            capacity,
            with_safepoints,
            has_huge_pages: false,
            image: None,
        };
        if let Some(image) = image {
            if is_reused {
                IS_REUSED.set(true);
            } else {
                // SAFETY: the reservation is at least as long as the image, and no pointer refers to it yet. The file
                // covers the range, and its owner guarantees that it does not change (`MemoryImage::new`).
                unsafe { mapping.reserved()?.map_image(&image.file, image.offset, image.length)? };
            }
            mapping.size = image.length;
            mapping.image = Some(image);
        }
        mapping.commit_to(size)?;
        mapping.map_safepoint_page()?;
        Ok(mapping)
    }

    /// Returns the reservation.
    fn reserved(&mut self) -> std::io::Result<&mut Reservation> {
        self.reservation.as_mut().ok_or_else(|| std::io::ErrorKind::InvalidInput.into())
    }

    /// Makes the safepoint page, if the memory has one, readable; it is zero.
    fn map_safepoint_page(&mut self) -> std::io::Result<()> {
        if !self.with_safepoints {
            return Ok(());
        }
        // SAFETY: the page lies in this mapping's own reservation, which exceeds `MAX_MEMORY` here by at least a wasm
        // page.
        unsafe { self.reserved()?.commit_read_only(MAX_MEMORY, safepoint_length()) }
    }

    /// Makes the bytes from the present size up to `size` accessible; they are zero.
    fn commit_to(&mut self, size: usize) -> std::io::Result<()> {
        if size > self.capacity {
            return Err(std::io::ErrorKind::OutOfMemory.into());
        }
        if size > self.size {
            let (start, length) = (self.size, size - self.size);
            let reserved = self.reserved()?;
            // SAFETY: the range lies in this mapping's own reservation.
            unsafe { reserved.commit(start, length)? };
            if length >= MIN_HUGE_GROWTH {
                // A program that asks for that much at once will write to it, and a fault for each small page would
                // take longer than the program.
                // SAFETY: as above.
                let has_huge_pages = unsafe { reserved.request_huge_pages(start, length) };
                self.has_huge_pages |= has_huge_pages;
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
        Ok(self.commit_to(new_size)?)
    }

    fn as_ptr(&self) -> *mut u8 {
        self.base
    }
}

impl Mapping {
    /// Resets the memory to its initial state: `image`, followed by no accessible bytes. Fails if that costs more than
    /// it saves, or is impossible; the contents are then undefined.
    fn reset(&self, reservation: &mut Reservation, image: &MemoryImage) -> std::io::Result<()> {
        if self.has_huge_pages {
            // Small instances would take huge pages, too.
            return Err(std::io::ErrorKind::QuotaExceeded.into());
        }
        if self.size > image.length {
            // SAFETY: the range lies in this mapping's own reservation behind the image; wasmtime no longer uses it.
            unsafe { reservation.discard(image.length, self.size - image.length)? };
        }
        let dirty = private_dirty_pages(self.base, image.length)?;
        if dirty.iter().map(|(_, pages)| pages).sum::<u32>() > MAX_KEPT_PAGES {
            return Err(std::io::ErrorKind::QuotaExceeded.into());
        }
        // Copied from a mapping: reading each run from the file would take a system call for each.
        let contents = image.contents()?;
        for (first, pages) in dirty {
            let (start, length) = (first as usize * PAGE, pages as usize * PAGE);
            // SAFETY: the run lies within the image's part of the mapping, which is writable, and no other code has
            // access to the mapping any more.
            let bytes = unsafe { std::slice::from_raw_parts_mut(self.base.add(start), length) };
            bytes.copy_from_slice(&contents[start..][..length]);
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let (Some(image), Some(mut reservation)) = (self.image.take(), self.reservation.take())
            // Many instances may end at once, and one that is not kept need not be reset.
            && image.pool.has_room()
            && self.reset(&mut reservation, &image).is_ok()
        {
            image.pool.put(reservation);
        }
    }
}

#[cfg(test)]
mod tests;
