//! 64-bit Arm, which has only the calls of `seccomp.rs`.

use libc::c_long;
use seccompiler::TargetArch;

/// The architecture, as `seccompiler` names it.
pub(crate) const TARGET_ARCH: TargetArch = TargetArch::aarch64;

/// `AUDIT_ARCH_…` of `linux/audit.h`: the ELF machine number, 64-bit, little-endian.
pub(crate) const AUDIT_ARCH: u32 = 183 | 0x8000_0000 | 0x4000_0000;

/// Calls that interpreters, libraries and shells make, and newer architectures do not have.
pub(crate) const ALLOWED_LEGACY: &[c_long] = &[];

/// Calls that are refused with any arguments.
pub(crate) const REFUSED_LEGACY: &[c_long] = &[];

/// Calls that change a file's metadata.
pub(crate) const FILE_METADATA_LEGACY: &[c_long] = &[];

/// Calls that open a file, with flags in argument 1 and the mode of a new file in argument 2.
pub(crate) const OPEN_LEGACY: &[c_long] = &[];

/// Calls that set the mode of a file, which is argument 1.
pub(crate) const SET_MODE_LEGACY: &[c_long] = &[];
