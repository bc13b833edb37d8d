//! System calls that transfer file contents: `read`, `write` and their variants, all through lists of buffers.

use wasmtime::Linker;

use super::result::{SyscallError, SyscallResult, wasi};
use crate::Errno;
use crate::console::Stream;
use crate::fs::Device;
use crate::guest_memory::{GuestMemory, Ptr, field};
use crate::host::{Call, Host, wait_for_socket};

const WASI: &str = "wasi_snapshot_preview1";

/// The maximum number of buffers of one call.
const IOV_MAX: u32 = 1024;

pub(super) fn define(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "fd_read", |mut call: Call<'_>, fd: i32, iov: Ptr, count: u32, result: Ptr| {
        wasi(&mut call, |memory, host| read(memory, host, fd, None, Buffers { iov, count, result }))
    })?;
    linker.func_wrap(
        WASI,
        "fd_pread",
        |mut call: Call<'_>, fd: i32, iov: Ptr, count: u32, offset: i64, result: Ptr| {
            wasi(&mut call, |memory, host| read(memory, host, fd, Some(offset), Buffers { iov, count, result }))
        },
    )?;
    linker.func_wrap(WASI, "fd_write", |mut call: Call<'_>, fd: i32, iov: Ptr, count: u32, result: Ptr| {
        wasi(&mut call, |memory, host| write(memory, host, fd, None, Buffers { iov, count, result }))
    })?;
    linker.func_wrap(
        WASI,
        "fd_pwrite",
        |mut call: Call<'_>, fd: i32, iov: Ptr, count: u32, offset: i64, result: Ptr| {
            wasi(&mut call, |memory, host| write(memory, host, fd, Some(offset), Buffers { iov, count, result }))
        },
    )?;
    Ok(())
}

/// A list of buffers, and the address of the number of bytes transferred.
struct Buffers {
    iov: Ptr,
    count: u32,
    result: Ptr,
}

impl Buffers {
    /// Returns the address and length of each buffer. All are checked first, so that no data is transferred if one is
    /// invalid.
    fn checked(&self, memory: &GuestMemory<'_>) -> Result<Vec<(Ptr, u32)>, Errno> {
        if self.count > IOV_MAX {
            return Err(Errno::EINVAL);
        }
        memory.slice(self.result, 4)?;
        let mut total = 0_u32;
        let buffer = |index| {
            let entry = field(self.iov, index * 8)?;
            let (start, length) = (memory.read_u32(entry)?, memory.read_u32(field(entry, 4)?)?);
            memory.slice(start, length)?;
            // The result is a signed size.
            total = total.checked_add(length).filter(|&total| total <= i32::MAX as u32).ok_or(Errno::EINVAL)?;
            Ok((start, length))
        };
        (0..self.count).map(buffer).collect()
    }

    /// Transfers buffer after buffer, until one is transferred partially. An error is returned only if no data was
    /// transferred before it.
    fn each(
        &self,
        memory: &mut GuestMemory<'_>,
        mut read_or_write: impl FnMut(&mut GuestMemory<'_>, Ptr, u32, u64) -> Result<usize, SyscallError>,
    ) -> SyscallResult {
        let mut moved = 0;
        for (start, length) in self.checked(memory)? {
            match read_or_write(memory, start, length, u64::from(moved)) {
                Ok(count) => {
                    moved += u32::try_from(count).map_err(|_| Errno::EOVERFLOW)?;
                    if count < length as usize {
                        break;
                    }
                }
                Err(SyscallError::Errno(_)) if moved > 0 => break,
                Err(failure) => return Err(failure),
            }
        }
        memory.write_u32(self.result, moved)?;
        Ok(0)
    }
}

/// Returns the position in the file after `moved` bytes; `EINVAL` for a negative offset.
fn position(offset: Option<i64>, moved: u64) -> Result<Option<u64>, Errno> {
    let Some(offset) = offset else { return Ok(None) };
    let start = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    start.checked_add(moved).map(Some).ok_or(Errno::EOVERFLOW)
}

/// Implements `readv` and `preadv`. The console is read once per call: a second read might wait for more input.
fn read(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    fd: i32,
    offset: Option<i64>,
    buffers: Buffers,
) -> SyscallResult {
    let console = host.files.device(fd)?.is_some_and(Device::is_console);
    if console && offset.is_some() {
        return Err(Errno::ESPIPE.into());
    }
    if console && !host.files.flags(fd)?.reads() {
        return Err(Errno::EBADF.into());
    }
    position(offset, 0)?;
    buffers.each(memory, |memory, start, length, moved| {
        let buffer = memory.slice_mut(start, length)?;
        Ok(match position(offset, moved)? {
            _ if console && (moved > 0 || buffer.is_empty()) => 0,
            _ if console => {
                let count = host.console.read(buffer);
                // The read may have taken long.
                host.stop.check()?;
                count
            }
            Some(position) => host.files.read_at(fd, position, buffer)?,
            None if moved == 0 => wait_for_socket(host, fd, |host| host.files.read(fd, buffer))??,
            None => host.files.read(fd, buffer)?,
        })
    })
}

/// Implements `writev` and `pwritev`.
fn write(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    fd: i32,
    offset: Option<i64>,
    buffers: Buffers,
) -> SyscallResult {
    let stream = match host.files.device(fd)? {
        // Emscripten's terminal treats data written to standard input as output.
        Some(Device::Stdin | Device::Stdout) => Some(Stream::Stdout),
        Some(Device::Stderr) => Some(Stream::Stderr),
        _ => None,
    };
    if stream.is_some() && offset.is_some() {
        return Err(Errno::ESPIPE.into());
    }
    if stream.is_some() && !host.files.flags(fd)?.writes() {
        return Err(Errno::EBADF.into());
    }
    position(offset, 0)?;
    buffers.each(memory, |memory, start, length, moved| {
        let data = memory.slice(start, length)?;
        Ok(match (stream, position(offset, moved)?) {
            (Some(stream), _) => {
                if let Some(recording) = host.recording() {
                    recording.end_sleep()?;
                }
                host.console.write(stream, data)?;
                data.len()
            }
            (None, Some(position)) => host.files.write_at(fd, position, data)?,
            (None, None) if moved == 0 => wait_for_socket(host, fd, |host| host.files.write(fd, data))??,
            (None, None) => host.files.write(fd, data)?,
        })
    })
}
