//! x86-64, which has calls that newer architectures lack.

use libc::c_long;
use seccompiler::TargetArch;

/// The architecture, as `seccompiler` names it.
pub(crate) const TARGET_ARCH: TargetArch = TargetArch::x86_64;

/// `AUDIT_ARCH_…` of `linux/audit.h`: the ELF machine number, 64-bit, little-endian.
pub(crate) const AUDIT_ARCH: u32 = 62 | 0x8000_0000 | 0x4000_0000;

/// Calls that interpreters, libraries and shells make, and newer architectures do not have.
#[rustfmt::skip]
pub(crate) const ALLOWED_LEGACY: &[c_long] = &[
    libc::SYS_open, libc::SYS_creat, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_readlink,
    libc::SYS_mkdir, libc::SYS_rmdir, libc::SYS_unlink, libc::SYS_rename, libc::SYS_link, libc::SYS_symlink,
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat,
    libc::SYS_mknod, libc::SYS_getdents, libc::SYS_dup2, libc::SYS_pipe, libc::SYS_inotify_init, libc::SYS_fork,
    libc::SYS_vfork, libc::SYS_getpgrp, libc::SYS_arch_prctl, libc::SYS_time, libc::SYS_alarm, libc::SYS_pause,
    libc::SYS_signalfd, libc::SYS_eventfd, libc::SYS_epoll_create, libc::SYS_epoll_wait, libc::SYS_poll,
    libc::SYS_select,
];

/// Calls that are refused with any arguments.
#[rustfmt::skip]
pub(crate) const REFUSED_LEGACY: &[c_long] = &[
    libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib, libc::SYS_ustat, libc::SYS_sysfs,
    libc::SYS__sysctl, libc::SYS_kexec_file_load,
];

/// Calls that change a file's metadata.
#[rustfmt::skip]
pub(crate) const FILE_METADATA_LEGACY: &[c_long] = &[
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat,
];

/// Calls that open a file, with flags in argument 1 and the mode of a new file in argument 2.
pub(crate) const OPEN_LEGACY: &[c_long] = &[libc::SYS_open];

/// Calls that set the mode of a file, which is argument 1.
pub(crate) const SET_MODE_LEGACY: &[c_long] = &[libc::SYS_chmod, libc::SYS_creat, libc::SYS_mknod];
