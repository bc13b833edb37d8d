//! The contents that memories begin with, and memories that are kept to begin so again.

use std::fs::File;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use memmap2::{Mmap, MmapOptions};

use super::WASM_PAGE;

/// Memories that are kept of one image, for each processor.
const MAX_KEPT_PER_PROCESSOR: usize = 4;

/// Part of a file that holds the contents of a linear memory.
#[derive(Debug, Clone)]
pub(crate) struct MemoryImage {
    pub(super) file: Arc<File>,
    pub(super) offset: u64,
    pub(super) length: usize,
    pub(super) spares: Arc<Spares>,
    /// The contents, once somebody has asked for them.
    pub(super) contents: Arc<OnceLock<Mmap>>,
}

/// Reservations that begin with the contents of one image and that nobody uses.
#[derive(Debug, Default)]
pub(super) struct Spares(pub(super) Mutex<Vec<Reservation>>);

impl Spares {
    pub(super) fn most() -> usize {
        MAX_KEPT_PER_PROCESSOR * std::thread::available_parallelism().map_or(1, usize::from)
    }

    pub(super) fn take(&self, total: usize) -> Option<Reservation> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().rposition(|reservation| reservation.total == total)?;
        Some(kept.swap_remove(at))
    }

    /// Keeps a few for each processor: as many as instances that are begun before others are through.
    pub(super) fn put(&self, reservation: Reservation) {
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
        Ok(Self { file: Arc::new(file), offset, length, spares: Arc::default(), contents: Arc::default() })
    }

    /// Its contents, to be read. They are mapped once, and then stay so as long as the image does.
    ///
    /// # Errors
    /// When they cannot be mapped.
    pub(crate) fn contents(&self) -> std::io::Result<&[u8]> {
        if let Some(contents) = self.contents.get() {
            return Ok(contents);
        }
        if self.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: `new` asks for a file that nobody writes to or cuts short, and has checked its length.
        let mapped = unsafe { MmapOptions::new().offset(self.offset).len(self.length).map(&*self.file)? };
        Ok(self.contents.get_or_init(|| mapped))
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

/// A range of address space.
#[derive(Debug)]
pub(super) struct Reservation {
    pub(super) base: *mut u8,
    total: usize,
}

// SAFETY: the range belongs to this value alone; the pointer is an address, not a borrow.
unsafe impl Send for Reservation {}
// SAFETY: shared references only read the fields.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// A new range that cannot be accessed.
    pub(super) fn new(total: usize) -> std::io::Result<Self> {
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
