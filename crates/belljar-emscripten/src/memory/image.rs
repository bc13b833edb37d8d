//! The initial contents of memories, and a pool of memories that can be reused with the same contents.

use std::fs::File;
use std::sync::{Arc, OnceLock};

use memmap2::{Mmap, MmapOptions};
use parking_lot::Mutex;

use super::WASM_PAGE;
use crate::os::Reservation;

/// The number of memories of one image that are kept for each processor.
const MAX_KEPT_PER_PROCESSOR: usize = 4;

/// Returns the maximum number of memories of one image that are kept: as many as instances that start before others
/// end.
pub(super) fn kept_per_image() -> usize {
    /// The number of processors. Determining it reads files of control groups, which takes as long as resetting a few
    /// dozen pages.
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    let processors = PROCESSORS.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    MAX_KEPT_PER_PROCESSOR * processors
}

/// The part of a file that holds the contents of a linear memory.
#[derive(Debug, Clone)]
pub(crate) struct MemoryImage {
    pub(super) file: Arc<File>,
    pub(super) offset: u64,
    pub(super) length: usize,
    pub(super) pool: Arc<ReservationPool>,
    /// The mapped contents, once they were requested.
    pub(super) contents: Arc<OnceLock<Mmap>>,
}

/// Unused reservations that begin with the contents of one image.
#[derive(Debug, Default)]
pub(super) struct ReservationPool(pub(super) Mutex<Vec<Reservation>>);

impl ReservationPool {
    pub(super) fn take(&self, total: usize) -> Option<Reservation> {
        let mut kept = self.0.lock();
        let at = kept.iter().rposition(|reservation| reservation.total() == total)?;
        Some(kept.swap_remove(at))
    }

    /// Returns whether the pool would keep another reservation now.
    pub(super) fn has_room(&self) -> bool {
        self.0.lock().len() < kept_per_image()
    }

    /// Keeps the reservation unless the pool is full.
    pub(super) fn put(&self, reservation: Reservation) {
        let mut kept = self.0.lock();
        if kept.len() < kept_per_image() {
            kept.push(reservation);
        }
    }
}

impl MemoryImage {
    /// Uses `length` bytes of `file` from `offset` on. Both must be multiples of the wasm page size (64 KiB), and the
    /// file must not be written to or truncated while any instance lives.
    ///
    /// # Errors
    /// Fails if the range is not aligned or reaches beyond the end of the file.
    pub(crate) fn new(file: File, offset: u64, length: u64) -> std::io::Result<Self> {
        let page = WASM_PAGE as u64;
        let end = offset.checked_add(length);
        if !offset.is_multiple_of(page) || !length.is_multiple_of(page) || end.is_none_or(|end| end > i64::MAX as u64) {
            return Err(invalid("the memory is not aligned to pages"));
        }
        if end > Some(file.metadata()?.len()) {
            return Err(invalid("the file is shorter than its memory"));
        }
        let length =
            usize::try_from(length).map_err(|_| invalid("the memory exceeds the address space of this machine"))?;
        Ok(Self { file: Arc::new(file), offset, length, pool: Arc::default(), contents: Arc::default() })
    }

    /// Returns the contents. They are mapped once and stay mapped as long as the image exists.
    ///
    /// # Errors
    /// Fails if they cannot be mapped.
    pub(crate) fn contents(&self) -> std::io::Result<&[u8]> {
        if let Some(contents) = self.contents.get() {
            return Ok(contents);
        }
        if self.is_empty() {
            return Ok(&[]);
        }
        // SAFETY: the caller of `new` guarantees that the file is neither written to nor truncated; `new` checked its
        // length.
        let mapped = unsafe { MmapOptions::new().offset(self.offset).len(self.length).map(&*self.file)? };
        Ok(self.contents.get_or_init(|| mapped))
    }

    /// Returns the file that contains the memory.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the length of the memory in bytes.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the memory has no bytes at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }
}

fn invalid(message: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, message)
}
