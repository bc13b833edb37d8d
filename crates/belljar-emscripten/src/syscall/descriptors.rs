//! System calls on descriptors that do not transfer file contents: `dup`, `fcntl`, `ioctl`, `pipe`, `lseek`, listing.

use wasmtime::Linker;

use super::result::{SyscallResult, env, wasi};
use crate::Errno;
use crate::fs::{FileType, OpenFlags, Whence};
use crate::guest_memory::{GuestMemory, Ptr, field};
use crate::host::{Call, Host};

const WASI: &str = "wasi_snapshot_preview1";

pub(super) fn define(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(WASI, "fd_close", |mut call: Call<'_>, fd: i32| {
        wasi(&mut call, |_, host| {
            host.files.close(fd)?;
            Ok(0)
        })
    })?;
    linker
        .func_wrap(WASI, "fd_sync", |mut call: Call<'_>, fd: i32| wasi(&mut call, |_, host| synchronise(host, fd)))?;
    linker.func_wrap("env", "__syscall_fdatasync", |mut call: Call<'_>, fd: i32| {
        env(&mut call, |_, host| synchronise(host, fd))
    })?;
    linker.func_wrap(WASI, "fd_fdstat_get", |mut call: Call<'_>, fd: i32, buffer: Ptr| {
        wasi(&mut call, |memory, host| fdstat(memory, host, fd, buffer))
    })?;
    linker.func_wrap(WASI, "fd_seek", |mut call: Call<'_>, fd: i32, offset: i64, whence: u32, result: Ptr| {
        wasi(&mut call, |memory, host| seek(memory, host, fd, offset, whence, result))
    })?;
    linker.func_wrap("env", "__syscall_dup", |mut call: Call<'_>, fd: i32| {
        env(&mut call, |_, host| Ok(host.files.duplicate(fd, 0, false)?))
    })?;
    linker.func_wrap("env", "__syscall_dup3", |mut call: Call<'_>, fd: i32, new: i32, flags: u32| {
        env(&mut call, |_, host| {
            let close_on_exec = flags & OpenFlags::CLOSE_ON_EXEC.0 != 0;
            Ok(host.files.duplicate_to(fd, new, close_on_exec)?)
        })
    })?;
    linker.func_wrap("env", "__syscall_fcntl64", |mut call: Call<'_>, fd: i32, command: i32, varargs: Ptr| {
        env(&mut call, |memory, host| fcntl(memory, host, fd, command, varargs))
    })?;
    linker.func_wrap("env", "__syscall_ioctl", |mut call: Call<'_>, fd: i32, operation: u32, varargs: Ptr| {
        env(&mut call, |memory, host| ioctl(memory, host, fd, operation, varargs))
    })?;
    linker.func_wrap("env", "__syscall_pipe", |mut call: Call<'_>, fds: Ptr| {
        env(&mut call, |memory, host| pipe(memory, host, fds, OpenFlags::default()))
    })?;
    linker.func_wrap("env", "__syscall_pipe2", |mut call: Call<'_>, fds: Ptr, flags: u32| {
        env(&mut call, |memory, host| pipe(memory, host, fds, OpenFlags(flags)))
    })?;
    linker.func_wrap("env", "__syscall_getdents64", |mut call: Call<'_>, fd: i32, buffer: Ptr, size: u32| {
        env(&mut call, |memory, host| getdents(memory, host, fd, buffer, size))
    })?;
    Ok(())
}

/// Implements `fsync` and `fdatasync`.
fn synchronise(host: &mut Host, fd: i32) -> SyscallResult {
    host.files.synchronise(fd)?;
    Ok(0)
}

/// Implements `fd_fdstat_get`: 24 bytes, of which Emscripten fills the type only. There, the console is reported as a
/// file, too, unless it is a terminal; here it never is.
fn fdstat(memory: &mut GuestMemory<'_>, host: &mut Host, fd: i32, buffer: Ptr) -> SyscallResult {
    let mut bytes = [0; 24];
    bytes[0] = if host.files.stat_fd(fd)?.file_type == FileType::Directory { 3 } else { 4 };
    memory.write(buffer, &bytes)?;
    Ok(0)
}

/// Implements `lseek`.
fn seek(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    fd: i32,
    offset: i64,
    whence: u32,
    result: Ptr,
) -> SyscallResult {
    let whence = match whence {
        0 => Whence::Start,
        1 => Whence::Current,
        2 => Whence::End,
        _ => return Err(Errno::EINVAL.into()),
    };
    // Checked first, so that the offset does not change if the result cannot be written.
    memory.slice(result, 8)?;
    let offset = host.files.seek(fd, offset, whence)?;
    memory.write_u64(result, offset)?;
    Ok(0)
}

/// Implements `fcntl`, with the command numbers of Emscripten's libc. Locks are always granted, since no
/// other process can hold one.
fn fcntl(memory: &mut GuestMemory<'_>, host: &mut Host, fd: i32, command: i32, varargs: Ptr) -> SyscallResult {
    const F_DUPFD: i32 = 0;
    const F_GETFD: i32 = 1;
    const F_SETFD: i32 = 2;
    const F_GETFL: i32 = 3;
    const F_SETFL: i32 = 4;
    const F_GETLK: i32 = 12;
    const F_SETLK: i32 = 13;
    const F_SETLKW: i32 = 14;
    const F_DUPFD_CLOEXEC: i32 = 1030;
    const FD_CLOEXEC: u32 = 1;
    const F_UNLCK: u16 = 2;

    let flags = host.files.flags(fd)?;
    match command {
        F_DUPFD | F_DUPFD_CLOEXEC => {
            let least = memory.read_i32(varargs)?;
            Ok(host.files.duplicate(fd, least, command == F_DUPFD_CLOEXEC)?)
        }
        F_GETFD => Ok(i32::from(host.files.close_on_exec(fd)?)),
        F_SETFD => {
            let close_on_exec = memory.read_u32(varargs)? & FD_CLOEXEC != 0;
            host.files.set_close_on_exec(fd, close_on_exec)?;
            Ok(0)
        }
        F_GETFL => Ok((flags.0 & i32::MAX as u32).cast_signed()),
        F_SETFL => {
            host.files.set_flags(fd, OpenFlags(memory.read_u32(varargs)?))?;
            Ok(0)
        }
        F_GETLK => {
            let lock = memory.read_u32(varargs)?;
            memory.write_u16(lock, F_UNLCK)?;
            Ok(0)
        }
        F_SETLK | F_SETLKW => Ok(0),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// Implements `ioctl`. Terminal requests fail with `ENOTTY`, so `isatty` is false for all descriptors.
fn ioctl(memory: &mut GuestMemory<'_>, host: &mut Host, fd: i32, operation: u32, varargs: Ptr) -> SyscallResult {
    /// The range from `TCGETS` to just before `FIONREAD`.
    const TERMINAL: std::ops::Range<u32> = 0x5401..0x541b;
    const FIONREAD: u32 = 0x541b;
    const FIONBIO: u32 = 0x5421;

    let flags = host.files.flags(fd)?;
    match operation {
        FIONREAD => {
            let count = host.files.bytes_to_read(fd)?;
            let result = memory.read_u32(varargs)?;
            memory.write_i32(result, i32::try_from(count).unwrap_or(i32::MAX))?;
            Ok(0)
        }
        FIONBIO => {
            let argument = memory.read_u32(varargs)?;
            let non_blocking = memory.read_u32(argument)? != 0;
            let others = flags.0 & !OpenFlags::NON_BLOCKING.0;
            let changed = if non_blocking { others | OpenFlags::NON_BLOCKING.0 } else { others };
            host.files.set_flags(fd, OpenFlags(changed))?;
            Ok(0)
        }
        operation if TERMINAL.contains(&operation) => Err(Errno::ENOTTY.into()),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// Implements `pipe` and `pipe2`.
fn pipe(memory: &mut GuestMemory<'_>, host: &mut Host, fds: Ptr, flags: OpenFlags) -> SyscallResult {
    memory.slice(fds, 8)?;
    if fds == 0 {
        return Err(Errno::EFAULT.into());
    }
    let [reader, writer] = host.files.pipe(flags)?;
    memory.write_i32(fds, reader)?;
    memory.write_i32(field(fds, 4)?, writer)?;
    Ok(0)
}

/// Implements `getdents64` with records of 280 bytes, whatever the length of the name. In Emscripten, their offsets are
/// record numbers times 280; here they are valid arguments of `lseek` and count entries.
fn getdents(memory: &mut GuestMemory<'_>, host: &mut Host, fd: i32, buffer: Ptr, size: u32) -> SyscallResult {
    const RECORD: u32 = 280;
    /// The maximum number of entries of one call; callers with larger buffers call again.
    const MAX_ENTRIES: u32 = 4096;

    let room = size / RECORD;
    if room == 0 {
        return Err(Errno::EINVAL.into());
    }
    let room = room.min(MAX_ENTRIES);
    memory.slice(buffer, room * RECORD)?;
    let mut at = buffer;
    for entry in host.files.read_directory(fd, room as usize)? {
        let mut record = [0; RECORD as usize];
        record[0..8].copy_from_slice(&entry.ino.to_le_bytes());
        record[8..16].copy_from_slice(&entry.next.to_le_bytes());
        record[16..18].copy_from_slice(&(RECORD as u16).to_le_bytes());
        record[18] = entry.file_type.entry_type();
        // A terminator follows: names have at most 255 bytes.
        let name = entry.name.as_bytes();
        let length = name.len().min(crate::fs::NAME_MAX);
        record[19..19 + length].copy_from_slice(&name[..length]);
        memory.write(at, &record)?;
        at = field(at, RECORD)?;
    }
    Ok(i32::try_from(at - buffer).map_err(|_| Errno::EOVERFLOW)?)
}
