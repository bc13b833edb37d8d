//! System calls that open, create, remove and rename by path, and that set the working directory.
//!
//! Emscripten's libc passes paths relative to a directory descriptor on, as the `*at` calls of Linux do; [`crate::fs`]
//! resolves them. Hard links are not supported: older releases of Emscripten return `EMLINK` inside the guest, newer
//! ones call the host, which returns the same.

use wasmtime::Linker;

use super::result::{SyscallResult, env};
use crate::Errno;
use crate::fs::OpenFlags;
use crate::guest_memory::{GuestMemory, Ptr, field};
use crate::host::{Call, Host};

/// The only flag that `unlinkat` supports.
const AT_REMOVEDIR: u32 = 0x200;

pub(super) fn define(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap(
        "env",
        "__syscall_openat",
        |mut call: Call<'_>, dirfd: i32, path: Ptr, flags: u32, varargs: Ptr| {
            env(&mut call, |memory, host| openat(memory, host, dirfd, path, flags, varargs))
        },
    )?;
    linker.func_wrap("env", "__syscall_mknodat", |mut call: Call<'_>, dirfd: i32, path: Ptr, mode: u32, _: i32| {
        env(&mut call, |memory, host| mknodat(memory, host, dirfd, path, mode))
    })?;
    linker.func_wrap("env", "__syscall_mkdirat", |mut call: Call<'_>, dirfd: i32, path: Ptr, mode: u32| {
        env(&mut call, |memory, host| {
            host.files.make_directory_at(dirfd, memory.path(path)?, mode)?;
            Ok(0)
        })
    })?;
    linker.func_wrap("env", "__syscall_rmdir", |mut call: Call<'_>, path: Ptr| {
        env(&mut call, |memory, host| {
            host.files.remove_directory_at(crate::fs::AT_FDCWD, memory.path(path)?)?;
            Ok(0)
        })
    })?;
    linker.func_wrap("env", "__syscall_unlinkat", |mut call: Call<'_>, dirfd: i32, path: Ptr, flags: u32| {
        env(&mut call, |memory, host| {
            match flags {
                0 => host.files.unlink_at(dirfd, memory.path(path)?)?,
                AT_REMOVEDIR => host.files.remove_directory_at(dirfd, memory.path(path)?)?,
                _ => return Err(Errno::EINVAL.into()),
            }
            Ok(0)
        })
    })?;
    linker.func_wrap(
        "env",
        "__syscall_renameat",
        |mut call: Call<'_>, old_dirfd: i32, old: Ptr, new_dirfd: i32, new: Ptr| {
            env(&mut call, |memory, host| {
                host.files.rename_at(old_dirfd, memory.path(old)?, new_dirfd, memory.path(new)?)?;
                Ok(0)
            })
        },
    )?;
    linker.func_wrap("env", "__syscall_linkat", |_: i32, _: i32, _: i32, _: i32, _: i32| Errno::EMLINK.negative())?;
    linker.func_wrap("env", "__syscall_symlinkat", |mut call: Call<'_>, target: Ptr, dirfd: i32, path: Ptr| {
        env(&mut call, |memory, host| {
            host.files.make_link_at(memory.path(target)?, dirfd, memory.path(path)?)?;
            Ok(0)
        })
    })?;
    linker.func_wrap(
        "env",
        "__syscall_readlinkat",
        |mut call: Call<'_>, dirfd: i32, path: Ptr, buffer: Ptr, size: u32| {
            env(&mut call, |memory, host| readlinkat(memory, host, dirfd, path, buffer, size))
        },
    )?;
    linker.func_wrap("env", "__syscall_chdir", |mut call: Call<'_>, path: Ptr| {
        env(&mut call, |memory, host| {
            host.files.change_directory(memory.path(path)?)?;
            Ok(0)
        })
    })?;
    linker.func_wrap("env", "__syscall_fchdir", |mut call: Call<'_>, fd: i32| {
        env(&mut call, |_, host| {
            host.files.change_directory_fd(fd)?;
            Ok(0)
        })
    })?;
    linker.func_wrap("env", "__syscall_getcwd", |mut call: Call<'_>, buffer: Ptr, size: u32| {
        env(&mut call, |memory, host| getcwd(memory, host, buffer, size))
    })?;
    // An addition by Pyodide: the `umask` of Emscripten's libc does not inform the host of the mask.
    linker.func_wrap("env", "__syscall_umask_js", |mut call: Call<'_>, mask: u32| {
        env(&mut call, |_, host| Ok(host.files.set_umask(mask).cast_signed()))
    })?;
    Ok(())
}

/// Implements `openat`; the mode of a file to be created is the one variable argument.
fn openat(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    dirfd: i32,
    path: Ptr,
    flags: u32,
    varargs: Ptr,
) -> SyscallResult {
    let mode = if varargs == 0 { 0 } else { memory.read_u32(varargs)? };
    Ok(host.files.open_at(dirfd, memory.path(path)?, OpenFlags(flags), mode)?)
}

/// Implements `mknodat` for regular files. Fails with `EPERM` for devices and named pipes, and with `EINVAL` for
/// unknown types.
fn mknodat(memory: &mut GuestMemory<'_>, host: &mut Host, dirfd: i32, path: Ptr, mode: u32) -> SyscallResult {
    match mode & 0o170_000 {
        0 | 0o100_000 => host.files.make_file_at(dirfd, memory.path(path)?, mode)?,
        0o010_000 | 0o020_000 | 0o060_000 | 0o140_000 => return Err(Errno::EPERM.into()),
        _ => return Err(Errno::EINVAL.into()),
    }
    Ok(0)
}

/// Implements `readlinkat`: writes as much of the target as fits, without a terminator.
fn readlinkat(
    memory: &mut GuestMemory<'_>,
    host: &mut Host,
    dirfd: i32,
    path: Ptr,
    buffer: Ptr,
    size: u32,
) -> SyscallResult {
    if size == 0 || i32::try_from(size).is_err() {
        return Err(Errno::EINVAL.into());
    }
    let target = host.files.read_link_at(dirfd, memory.path(path)?)?;
    let part = &target.as_bytes()[..target.len().min(size as usize)];
    memory.write(buffer, part)?;
    Ok(i32::try_from(part.len()).map_err(|_| Errno::EOVERFLOW)?)
}

/// Implements `getcwd`. Returns the length with its terminator.
fn getcwd(memory: &mut GuestMemory<'_>, host: &mut Host, buffer: Ptr, size: u32) -> SyscallResult {
    let Some(room) = size.checked_sub(1) else { return Err(Errno::EINVAL.into()) };
    let path = host.files.working_directory(room as usize)?;
    let length = u32::try_from(path.len()).map_err(|_| Errno::ERANGE)?;
    memory.write(buffer, path.as_bytes())?;
    memory.write_u8(field(buffer, length)?, 0)?;
    Ok(i32::try_from(length + 1).map_err(|_| Errno::ERANGE)?)
}
