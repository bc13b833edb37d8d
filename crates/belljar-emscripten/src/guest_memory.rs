//! Checked access to the guest's linear memory.
//!
//! Invariant: guest memory is untrusted. Host functions use every pointer and length from the guest through
//! [`GuestMemory`], which returns [`Errno::EFAULT`] for ranges outside of memory. Nothing here panics.

use crate::Errno;

/// A guest address: a byte offset into linear memory.
pub type Ptr = u32;

/// The maximum length in bytes of a path or name read from the guest, with its terminator (`PATH_MAX`).
pub const PATH_MAX: usize = 4096;

/// The linear memory of one instance, borrowed for the duration of one host call.
///
/// The borrow must not last across a call into the guest, which may grow its memory.
pub struct GuestMemory<'a> {
    bytes: &'a mut [u8],
}

impl<'a> GuestMemory<'a> {
    /// Wraps the bytes of a linear memory.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes }
    }

    /// Returns the size of the memory in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether the memory has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns `len` bytes at `ptr`.
    pub fn slice(&self, ptr: Ptr, len: u32) -> Result<&[u8], Errno> {
        let start = ptr as usize;
        let end = start.checked_add(len as usize).ok_or(Errno::EFAULT)?;
        self.bytes.get(start..end).ok_or(Errno::EFAULT)
    }

    /// Returns `len` writable bytes at `ptr`.
    pub fn slice_mut(&mut self, ptr: Ptr, len: u32) -> Result<&mut [u8], Errno> {
        let start = ptr as usize;
        let end = start.checked_add(len as usize).ok_or(Errno::EFAULT)?;
        self.bytes.get_mut(start..end).ok_or(Errno::EFAULT)
    }

    /// Returns a copy of `N` bytes at `ptr`.
    pub fn array<const N: usize>(&self, ptr: Ptr) -> Result<[u8; N], Errno> {
        let start = ptr as usize;
        let end = start.checked_add(N).ok_or(Errno::EFAULT)?;
        self.bytes.get(start..end).and_then(|bytes| bytes.try_into().ok()).ok_or(Errno::EFAULT)
    }

    /// Copies `data` to `ptr`.
    pub fn write(&mut self, ptr: Ptr, data: &[u8]) -> Result<(), Errno> {
        let len = u32::try_from(data.len()).map_err(|_| Errno::EFAULT)?;
        self.slice_mut(ptr, len)?.copy_from_slice(data);
        Ok(())
    }

    /// Copies `len` bytes inside the memory; the ranges may overlap.
    pub fn copy_within(&mut self, from: Ptr, to: Ptr, len: u32) -> Result<(), Errno> {
        self.slice(from, len)?;
        self.slice(to, len)?;
        let from = from as usize;
        self.bytes.copy_within(from..from + len as usize, to as usize);
        Ok(())
    }

    /// Returns the bytes up to the first NUL from `ptr` on; [`Errno::ENAMETOOLONG`] if `max` bytes contain none.
    pub fn c_bytes(&self, ptr: Ptr, max: usize) -> Result<&[u8], Errno> {
        let tail = self.bytes.get(ptr as usize..).ok_or(Errno::EFAULT)?;
        let window = &tail[..tail.len().min(max)];
        match window.iter().position(|&byte| byte == 0) {
            Some(end) => Ok(&window[..end]),
            None if window.len() < max => Err(Errno::EFAULT),
            None => Err(Errno::ENAMETOOLONG),
        }
    }

    /// Reads a path or name: NUL-terminated UTF-8 of less than [`PATH_MAX`] bytes. Fails with [`Errno::EILSEQ`] for
    /// other bytes.
    pub fn path(&self, ptr: Ptr) -> Result<&str, Errno> {
        std::str::from_utf8(self.c_bytes(ptr, PATH_MAX)?).map_err(|_| Errno::EILSEQ)
    }
}

/// Returns `ptr + offset`; fails if the sum exceeds the 32-bit address space.
pub fn field(ptr: Ptr, offset: u32) -> Result<Ptr, Errno> {
    ptr.checked_add(offset).ok_or(Errno::EFAULT)
}

macro_rules! scalars {
    ($($read:ident, $write:ident, $type:ty;)*) => {
        impl GuestMemory<'_> {
            $(
                #[doc = concat!("The little-endian `", stringify!($type), "` at `ptr`; no alignment is asked for.")]
                pub fn $read(&self, ptr: Ptr) -> Result<$type, Errno> {
                    Ok(<$type>::from_le_bytes(self.array(ptr)?))
                }

                #[doc = concat!("Writes a little-endian `", stringify!($type), "` to `ptr`.")]
                pub fn $write(&mut self, ptr: Ptr, value: $type) -> Result<(), Errno> {
                    self.write(ptr, &value.to_le_bytes())
                }
            )*
        }
    };
}

scalars! {
    read_u8, write_u8, u8;
    read_u16, write_u16, u16;
    read_u32, write_u32, u32;
    read_i32, write_i32, i32;
    read_u64, write_u64, u64;
    read_i64, write_i64, i64;
    read_f64, write_f64, f64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_outside_of_memory_are_efault() {
        let mut bytes = [0u8; 16];
        let mut memory = GuestMemory::new(&mut bytes);
        for ptr in [13, 16, u32::MAX - 2, u32::MAX] {
            assert_eq!(memory.read_u32(ptr), Err(Errno::EFAULT));
            assert_eq!(memory.write_u32(ptr, 1), Err(Errno::EFAULT));
            assert_eq!(memory.slice(ptr, u32::MAX), Err(Errno::EFAULT));
        }
        assert_eq!(memory.slice(16, 0), Ok(&[][..]));
        assert_eq!(memory.copy_within(0, 8, 9), Err(Errno::EFAULT));
        assert_eq!(field(u32::MAX, 1), Err(Errno::EFAULT));
    }

    #[test]
    fn strings_end_at_their_nul_or_are_refused() {
        let mut bytes = *b"abc\0\xff\0xyz";
        let memory = GuestMemory::new(&mut bytes);
        assert_eq!(memory.path(0), Ok("abc"));
        assert_eq!(memory.path(3), Ok(""));
        assert_eq!(memory.path(4), Err(Errno::EILSEQ));
        assert_eq!(memory.path(6), Err(Errno::EFAULT));
        assert_eq!(memory.c_bytes(6, 2), Err(Errno::ENAMETOOLONG));
    }
}
