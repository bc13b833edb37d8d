//! `mmap` of files: a copy in the guest's heap, which `msync` and `munmap` write back.
//!
//! Linear memory cannot be backed by a file, so Emscripten's filesystem copies the file's contents into memory that it
//! allocates with `emscripten_builtin_memalign`. Changes become visible to others only when they are written back, and
//! changes of the file are not visible in the mapping. libc remembers a mapping's descriptor by its number alone, so a
//! mapping whose descriptor was closed is written to the file that has the number at that time, if any. libc handles
//! anonymous mappings itself.

use wasmtime::{Linker, Result};

use super::result::{SyscallError, SyscallResult, env};
use crate::guest_memory::{GuestMemory, Ptr};
use crate::host::{Call, Host};
use crate::{Errno, exports};

/// The alignment of a mapping: a page of linear memory.
const PAGE: u32 = 65_536;

const PROT_WRITE: i32 = 2;
const MAP_PRIVATE: i32 = 2;

pub(super) fn define(linker: &mut Linker<Host>) -> Result<()> {
    linker.func_wrap("env", "_mmap_js", mmap)?;
    for name in ["_munmap_js", "_msync_js"] {
        // libc frees the memory itself.
        linker.func_wrap(
            "env",
            name,
            move |mut call: Call<'_>, start: Ptr, length: u32, protection: i32, flags: i32, fd: i32, offset: i64| {
                env(&mut call, |memory, host| {
                    let file = host.mapped_files.get(&start).copied();
                    if name == "_munmap_js" {
                        host.mapped_files.remove(&start);
                    }
                    if !writes_back(protection, flags) {
                        return Ok(0);
                    }
                    let fd = match file {
                        Some((device, ino)) => host.files.writer_of(device, ino, fd).ok_or(Errno::EBADF)?,
                        None => fd,
                    };
                    write_back(memory, host, start, length, fd, offset)
                })
            },
        )?;
    }
    Ok(())
}

/// Maps `length` bytes of `fd` from `offset` on. Writes the address to `address` and 1, for memory that must be freed,
/// to `allocated`.
#[expect(clippy::too_many_arguments, reason = "the import's signature")]
fn mmap(
    mut call: Call<'_>,
    length: u32,
    protection: i32,
    flags: i32,
    fd: i32,
    offset: i64,
    allocated: Ptr,
    address: Ptr,
) -> Result<i32> {
    let refused = env(&mut call, |memory, host| {
        memory.slice(allocated, 4)?;
        memory.slice(address, 4)?;
        check(host, length, protection, flags, fd, offset)
    })?;
    if refused != 0 {
        return Ok(refused);
    }
    let Some(room) = length.checked_next_multiple_of(PAGE) else { return Ok(Errno::ENOMEM.negative()) };
    let start = exports::call(&mut call, "emscripten_builtin_memalign", &[PAGE, room])?;
    if start == 0 {
        return Ok(Errno::ENOMEM.negative());
    }
    let result = env(&mut call, |memory, host| {
        fill(memory, host, start, length, fd, offset)?;
        memory.write_u32(allocated, 1)?;
        memory.write_u32(address, start)?;
        host.mapped_files.remove(&start);
        if writes_back(protection, flags) {
            let stat = host.files.stat_fd(fd)?;
            host.mapped_files.insert(start, (stat.device, stat.ino));
        }
        Ok(0)
    })?;
    if result != 0 {
        exports::call(&mut call, "free", &[start])?;
    }
    Ok(result)
}

/// Returns whether changes of a mapping are changes of the file.
fn writes_back(protection: i32, flags: i32) -> bool {
    protection & PROT_WRITE != 0 && flags & MAP_PRIVATE == 0
}

/// Checks the arguments of `mmap`. Refuses empty mappings, files that are not readable or not regular, and shared
/// writable mappings of files that are not writable.
fn check(host: &mut Host, length: u32, protection: i32, flags: i32, fd: i32, offset: i64) -> SyscallResult {
    let open = host.files.flags(fd)?;
    if !open.reads() || writes_back(protection, flags) && !open.writes() {
        return Err(Errno::EACCES.into());
    }
    if host.files.stat_fd(fd)?.file_type != crate::fs::FileType::Regular {
        return Err(Errno::ENODEV.into());
    }
    if length == 0 || offset < 0 {
        return Err(Errno::EINVAL.into());
    }
    Ok(0)
}

/// Copies the file into memory; bytes beyond its end are zero.
fn fill(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    start: Ptr,
    length: u32,
    fd: i32,
    offset: i64,
) -> Result<(), SyscallError> {
    let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    let mut rest = memory.slice_mut(start, length)?;
    let mut position = offset;
    while !rest.is_empty() {
        let count = host.files.read_at(fd, position, rest)?;
        if count == 0 {
            break;
        }
        position = position.saturating_add(count as u64);
        rest = rest.get_mut(count..).unwrap_or_default();
    }
    rest.fill(0);
    Ok(())
}

/// Writes a mapping back to the file, up to the file's length.
fn write_back(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    start: Ptr,
    length: u32,
    fd: i32,
    offset: i64,
) -> SyscallResult {
    let stat = host.files.stat_fd(fd)?;
    if stat.file_type != crate::fs::FileType::Regular {
        return Err(Errno::ENODEV.into());
    }
    let mut position = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    let inside = stat.size.saturating_sub(position).min(u64::from(length));
    let mut data = memory.slice(start, u32::try_from(inside).map_err(|_| Errno::EFAULT)?)?;
    while !data.is_empty() {
        match host.files.write_at(fd, position, data)? {
            0 => return Err(Errno::EIO.into()),
            count => {
                position = position.saturating_add(count as u64);
                data = data.get(count..).unwrap_or_default();
            }
        }
    }
    Ok(0)
}
