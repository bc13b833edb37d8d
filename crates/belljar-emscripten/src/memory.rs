//! Linear memories whose first contents are an image file, mapped copy-on-write.
//!
//! This is wasmtime's own seam, `MemoryCreator`: instances share the pages of an image until they write to them,
//! and restoring one costs a few system calls, whatever the size of the image.
//!
//! A memory that is not used any more is made to equal its image again and kept for the next instance, if it takes
//! little: writing over pages that are there costs far less than giving them back and having them copied anew, which
//! stops all threads of the process each time.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

use crate::pagemap::{PAGE, own_pages, page_size};
use crate::translate::{SAFEPOINT_ADDRESS, SAFEPOINT_LENGTH};

/// Pages of its own that a memory may have and be kept: 4 MiB. A short program writes to a fifth of that.
const MAX_KEPT_PAGES: u32 = 1024;

/// Memories that are kept of one image, for each processor.
const MAX_KEPT_PER_PROCESSOR: usize = 4;

/// Part of a file that holds the contents of a linear memory.
#[derive(Debug, Clone)]
pub(crate) struct MemoryImage {
    file: Arc<File>,
    offset: u64,
    length: usize,
    spares: Arc<Spares>,
}

/// Reservations that begin with the contents of one image and that nobody uses.
#[derive(Debug, Default)]
struct Spares(Mutex<Vec<Reservation>>);

impl Spares {
    fn most() -> usize {
        MAX_KEPT_PER_PROCESSOR * std::thread::available_parallelism().map_or(1, usize::from)
    }

    fn take(&self, total: usize) -> Option<Reservation> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().rposition(|reservation| reservation.total == total)?;
        Some(kept.swap_remove(at))
    }

    /// Keeps a few for each processor: as many as instances that are begun before others are through.
    fn put(&self, reservation: Reservation) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() < Self::most() {
            kept.push(reservation);
        }
    }
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
        Ok(Self { file: Arc::new(file), offset, length, spares: Arc::default() })
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

/// A range of address space.
#[derive(Debug)]
struct Reservation {
    base: *mut u8,
    total: usize,
}

// SAFETY: the range belongs to this value alone; the pointer is an address, not a borrow.
unsafe impl Send for Reservation {}
// SAFETY: shared references only read the fields.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// A new range that cannot be accessed.
    fn new(total: usize) -> std::io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), total, libc::PROT_NONE, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { base: base.cast(), total })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range is exactly what `new` mapped, and whoever had it has no use for it any more.
        unsafe { libc::munmap(self.base.cast(), self.total) };
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
mod tests {
    use super::{MAX_KEPT_PAGES, Mapping, MemoryImage, PAGE, Spares, WASM_PAGE};
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    const LENGTH: usize = 128 * WASM_PAGE;
    const RESERVED: usize = 1 << 32;

    /// An image in which each page holds its number, behind something else in the file.
    fn image() -> MemoryImage {
        let file: File = tempfile::tempfile().unwrap();
        file.set_len((WASM_PAGE + LENGTH) as u64).unwrap();
        for page in 0..LENGTH / PAGE {
            file.write_all_at(&page.to_ne_bytes(), (WASM_PAGE + page * PAGE) as u64).unwrap();
        }
        MemoryImage::new(file, WASM_PAGE as u64, LENGTH as u64).unwrap()
    }

    fn mapping(image: &MemoryImage) -> Mapping {
        Mapping::new(LENGTH, RESERVED, WASM_PAGE, Some(image.clone())).unwrap()
    }

    /// All accessible bytes.
    fn bytes(mapping: &mut Mapping) -> &mut [u8] {
        // SAFETY: the mapping is accessible up to its size, and borrowed as long as the slice lives.
        unsafe { std::slice::from_raw_parts_mut(mapping.base, mapping.size) }
    }

    fn assert_is(mapping: &mut Mapping, image: &MemoryImage) {
        let mut expected = vec![0; LENGTH];
        image.file.read_exact_at(&mut expected, image.offset).unwrap();
        assert!(bytes(mapping) == expected, "the memory is not the image");
    }

    fn spares(image: &MemoryImage) -> usize {
        image.spares.0.lock().unwrap().len()
    }

    #[test]
    fn a_memory_is_used_again_as_its_image() {
        let image = image();
        let mut first = mapping(&image);
        let base = first.base;
        assert_is(&mut first, &image);
        for page in [0, 7, 8, 9, LENGTH / PAGE - 1] {
            bytes(&mut first)[page * PAGE..][..PAGE].fill(0xff);
        }
        first.open_to(LENGTH + 3 * WASM_PAGE).unwrap();
        bytes(&mut first)[LENGTH..].fill(0xff);
        drop(first);
        assert_eq!(spares(&image), 1);
        let mut second = mapping(&image);
        assert_eq!((second.base, spares(&image)), (base, 0));
        assert_is(&mut second, &image);
        // What it grows by is zero again.
        second.open_to(LENGTH + 3 * WASM_PAGE).unwrap();
        assert!(bytes(&mut second)[LENGTH..].iter().all(|byte| *byte == 0));
        // And again.
        bytes(&mut second)[5] = 0xff;
        drop(second);
        assert_is(&mut mapping(&image), &image);
    }

    #[test]
    fn a_memory_that_was_written_to_a_lot_is_not_kept() {
        let image = image();
        let mut first = mapping(&image);
        for page in 0..=MAX_KEPT_PAGES as usize {
            bytes(&mut first)[page * PAGE] = 0xff;
        }
        drop(first);
        assert_eq!(spares(&image), 0);
        assert_is(&mut mapping(&image), &image);
    }

    #[test]
    fn a_memory_is_not_kept_when_its_image_cannot_be_read() {
        let image = image();
        let mut first = mapping(&image);
        bytes(&mut first)[LENGTH - 1] = 0xff;
        let unreadable = File::options().write(true).open("/dev/null").unwrap();
        first.image = Some(MemoryImage { file: unreadable.into(), ..image.clone() });
        drop(first);
        assert_eq!(spares(&image), 0);
    }

    #[test]
    fn only_so_many_memories_are_kept() {
        let image = image();
        let most = Spares::most();
        let all: Vec<_> = (0..most + 2).map(|_| mapping(&image)).collect();
        drop(all);
        assert_eq!(spares(&image), most);
    }
}
