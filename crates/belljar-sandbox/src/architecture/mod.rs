//! The only module that depends on the processor's architecture: its name, and the system calls that not every
//! architecture has. The lists of those that all have are in `seccomp.rs`.
//!
//! Each architecture is one module with the same items, which [`self`] exports.

#[cfg(target_arch = "aarch64")]
#[path = "aarch64.rs"]
mod processor;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod processor;

pub(crate) use processor::{
    ALLOWED_LEGACY, AUDIT_ARCH, FILE_METADATA_LEGACY, OPEN_LEGACY, REFUSED_LEGACY, SET_MODE_LEGACY, TARGET_ARCH,
};
