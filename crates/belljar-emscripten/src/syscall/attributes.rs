//! System calls on file attributes: `stat`, permissions, times, length, and `statfs`.

use wasmtime::Linker;

use super::result::{SyscallResult, env};
use crate::Errno;
use crate::fs::{AT_FDCWD, Access, SetTime, Stat, StatFs, Timestamp};
use crate::guest_memory::{GuestMemory, Ptr, field};
use crate::host::{Call, Host};

const AT_SYMLINK_NOFOLLOW: u32 = 0x100;
const AT_EMPTY_PATH: u32 = 0x1000;
const UTIME_NOW: u32 = 0x3fff_ffff;
const UTIME_OMIT: u32 = 0x3fff_fffe;

pub(super) fn define(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    define_stat(linker)?;
    define_permissions(linker)?;
    define_length(linker)?;
    linker.func_wrap(
        "env",
        "__syscall_utimensat",
        |mut call: Call<'_>, dirfd: i32, path: Ptr, times: Ptr, flags: u32| {
            env(&mut call, |memory, host| utimensat(memory, host, dirfd, path, times, flags))
        },
    )?;
    linker.func_wrap("env", "__syscall_statfs64", |mut call: Call<'_>, path: Ptr, _size: u32, buffer: Ptr| {
        env(&mut call, |memory, host| {
            host.files.stat_at(AT_FDCWD, memory.path(path)?, true)?;
            write_statfs(memory, buffer, host.files.statfs())
        })
    })?;
    linker.func_wrap("env", "__syscall_fstatfs64", |mut call: Call<'_>, fd: i32, _size: u32, buffer: Ptr| {
        env(&mut call, |memory, host| {
            host.files.stat_fd(fd)?;
            write_statfs(memory, buffer, host.files.statfs())
        })
    })?;
    Ok(())
}

fn define_stat(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap("env", "__syscall_stat64", |mut call: Call<'_>, path: Ptr, buffer: Ptr| {
        env(&mut call, |memory, host| {
            let stat = host.files.stat_at(AT_FDCWD, memory.path(path)?, true)?;
            write_stat(memory, buffer, stat)
        })
    })?;
    linker.func_wrap("env", "__syscall_lstat64", |mut call: Call<'_>, path: Ptr, buffer: Ptr| {
        env(&mut call, |memory, host| {
            let stat = host.files.stat_at(AT_FDCWD, memory.path(path)?, false)?;
            write_stat(memory, buffer, stat)
        })
    })?;
    linker.func_wrap("env", "__syscall_fstat64", |mut call: Call<'_>, fd: i32, buffer: Ptr| {
        env(&mut call, |memory, host| write_stat(memory, buffer, host.files.stat_fd(fd)?))
    })?;
    linker.func_wrap(
        "env",
        "__syscall_newfstatat",
        |mut call: Call<'_>, dirfd: i32, path: Ptr, buffer: Ptr, flags: u32| {
            env(&mut call, |memory, host| {
                let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
                let stat = match memory.path(path)? {
                    "" if flags & AT_EMPTY_PATH == 0 => return Err(Errno::ENOENT.into()),
                    "" if dirfd == AT_FDCWD => host.files.stat_at(dirfd, ".", true)?,
                    "" => host.files.stat_fd(dirfd)?,
                    path => host.files.stat_at(dirfd, path, follow)?,
                };
                write_stat(memory, buffer, stat)
            })
        },
    )?;
    Ok(())
}

/// Defines the calls for permissions and owners. There is one user: owners are accepted and ignored, as in Emscripten.
fn define_permissions(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "__syscall_faccessat",
        |mut call: Call<'_>, dirfd: i32, path: Ptr, mode: u32, flags: u32| {
            env(&mut call, |memory, host| {
                if mode & !7 != 0 {
                    return Err(Errno::EINVAL.into());
                }
                let access = Access { read: mode & 4 != 0, write: mode & 2 != 0, execute: mode & 1 != 0 };
                let follow = flags & AT_SYMLINK_NOFOLLOW == 0;
                host.files.access_at(dirfd, memory.path(path)?, access, follow)?;
                Ok(0)
            })
        },
    )?;
    linker.func_wrap("env", "__syscall_chmod", |mut call: Call<'_>, path: Ptr, mode: u32| {
        env(&mut call, |memory, host| {
            host.files.chmod_at(AT_FDCWD, memory.path(path)?, mode, true)?;
            Ok(0)
        })
    })?;
    linker.func_wrap("env", "__syscall_fchmod", |mut call: Call<'_>, fd: i32, mode: u32| {
        env(&mut call, |_, host| {
            host.files.chmod_fd(fd, mode)?;
            Ok(0)
        })
    })?;
    linker.func_wrap(
        "env",
        "__syscall_fchmodat2",
        |mut call: Call<'_>, dirfd: i32, path: Ptr, mode: u32, flags: u32| {
            env(&mut call, |memory, host| {
                host.files.chmod_at(dirfd, memory.path(path)?, mode, flags & AT_SYMLINK_NOFOLLOW == 0)?;
                Ok(0)
            })
        },
    )?;
    linker.func_wrap(
        "env",
        "__syscall_fchownat",
        |mut call: Call<'_>, dirfd: i32, path: Ptr, _owner: u32, _group: u32, flags: u32| {
            env(&mut call, |memory, host| {
                host.files.stat_at(dirfd, memory.path(path)?, flags & AT_SYMLINK_NOFOLLOW == 0)?;
                Ok(0)
            })
        },
    )?;
    linker.func_wrap("env", "__syscall_fchown32", |mut call: Call<'_>, fd: i32, _owner: u32, _group: u32| {
        env(&mut call, |_, host| {
            host.files.stat_fd(fd)?;
            Ok(0)
        })
    })?;
    Ok(())
}

fn define_length(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap("env", "__syscall_truncate64", |mut call: Call<'_>, path: Ptr, length: i64| {
        env(&mut call, |memory, host| {
            let length = u64::try_from(length).map_err(|_| Errno::EINVAL)?;
            host.files.truncate_at(memory.path(path)?, length)?;
            Ok(0)
        })
    })?;
    linker.func_wrap("env", "__syscall_ftruncate64", |mut call: Call<'_>, fd: i32, length: i64| {
        env(&mut call, |_, host| {
            let length = u64::try_from(length).map_err(|_| Errno::EINVAL)?;
            host.files.truncate_fd(fd, length)?;
            Ok(0)
        })
    })?;
    linker.func_wrap(
        "env",
        "__syscall_fallocate",
        |mut call: Call<'_>, fd: i32, mode: i32, offset: i64, length: i64| {
            env(&mut call, |_, host| fallocate(host, fd, mode, offset, length))
        },
    )?;
    // Advice about access patterns has no effect: files are not read ahead.
    linker.func_wrap("env", "__syscall_fadvise64", |mut call: Call<'_>, fd: i32, _: i64, _: i64, _: i32| {
        env(&mut call, |_, host| {
            host.files.stat_fd(fd)?;
            Ok(0)
        })
    })?;
    Ok(())
}

/// Implements `fallocate`. Fails with `EOPNOTSUPP` for a mode other than 0 (keep the size, punch a hole).
fn fallocate(host: &mut Host, fd: i32, mode: i32, offset: i64, length: i64) -> SyscallResult {
    if mode != 0 {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if offset < 0 || length <= 0 {
        return Err(Errno::EINVAL.into());
    }
    let end = offset.checked_add(length).and_then(|end| u64::try_from(end).ok()).ok_or(Errno::EFBIG)?;
    host.files.allocate(fd, end)?;
    Ok(0)
}

/// Implements `utimensat`: without a path, for the descriptor itself; without times, for the current time.
fn utimensat(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    dirfd: i32,
    path: Ptr,
    times: Ptr,
    flags: u32,
) -> SyscallResult {
    let (accessed, modified) = match times {
        0 => (SetTime::Now, SetTime::Now),
        _ => (read_time(memory, times)?, read_time(memory, field(times, 16)?)?),
    };
    let path = if path == 0 { "" } else { memory.path(path)? };
    match path {
        "" if dirfd == AT_FDCWD => host.files.set_times_at(dirfd, ".", accessed, modified, true)?,
        "" => host.files.set_times_fd(dirfd, accessed, modified)?,
        path => {
            host.files.set_times_at(dirfd, path, accessed, modified, flags & AT_SYMLINK_NOFOLLOW == 0)?;
        }
    }
    Ok(0)
}

/// Reads a `struct timespec`: 64-bit seconds, 32-bit nanoseconds, or one of two special values for the latter.
fn read_time(memory: &GuestMemory<'_>, ptr: Ptr) -> Result<SetTime, Errno> {
    let seconds = memory.read_i64(ptr)?;
    match memory.read_u32(field(ptr, 8)?)? {
        UTIME_NOW => Ok(SetTime::Now),
        UTIME_OMIT => Ok(SetTime::Keep),
        nanoseconds @ 0..1_000_000_000 => Ok(SetTime::To(Timestamp { seconds, nanoseconds })),
        _ => Err(Errno::EINVAL),
    }
}

/// Writes a `struct stat` (`SYSCALLS.writeStat` in Emscripten): 96 bytes.
fn write_stat(memory: &mut GuestMemory<'_>, buffer: Ptr, stat: Stat) -> SyscallResult {
    let mut bytes = [0; 96];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &stat.device.to_le_bytes());
    put(4, &(stat.file_type.mode_bits() | stat.mode).to_le_bytes());
    put(8, &stat.links.to_le_bytes());
    // Offsets 12 and 16: owner and group, 0 for the only user.
    put(20, &stat.special.to_le_bytes());
    put(24, &stat.size.to_le_bytes());
    put(32, &4096_u32.to_le_bytes());
    put(36, &i32::try_from(stat.blocks).unwrap_or(i32::MAX).to_le_bytes());
    for (at, time) in [40, 56, 72].into_iter().zip(stat.times()) {
        put(at, &time.seconds.to_le_bytes());
        put(at + 8, &time.nanoseconds.to_le_bytes());
    }
    put(88, &stat.ino.to_le_bytes());
    memory.write(buffer, &bytes)?;
    Ok(0)
}

/// Writes the first 72 bytes of a `struct statfs` (`SYSCALLS.writeStatFs` in Emscripten).
fn write_statfs(memory: &mut GuestMemory<'_>, buffer: Ptr, statfs: StatFs) -> SyscallResult {
    let mut bytes = [0; 72];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(4, &4096_u32.to_le_bytes());
    put(8, &statfs.blocks.to_le_bytes());
    put(16, &statfs.free_blocks.to_le_bytes());
    put(24, &statfs.free_blocks.to_le_bytes());
    put(32, &statfs.inodes.to_le_bytes());
    put(40, &statfs.free_inodes.to_le_bytes());
    // The filesystem's id: arbitrary, Emscripten's is 42.
    put(48, &42_u32.to_le_bytes());
    put(56, &(crate::fs::NAME_MAX as u32).to_le_bytes());
    put(60, &4096_u32.to_le_bytes());
    // `ST_NOSUID`, as in Emscripten.
    put(64, &2_u32.to_le_bytes());
    memory.write(buffer, &bytes)?;
    Ok(0)
}
