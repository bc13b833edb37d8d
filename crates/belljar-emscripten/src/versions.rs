//! Versions of the formats that are part of the engine's fingerprint.

pub(crate) use crate::translate::VERSION as TRANSLATION_VERSION;

/// The version of the snapshot file format and of its contents.
pub(crate) const SNAPSHOT_VERSION: u32 = 2;
