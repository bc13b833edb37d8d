//! The part that Linux and macOS have in common.

pub(crate) mod host_directory;
pub(crate) mod private_directory;
