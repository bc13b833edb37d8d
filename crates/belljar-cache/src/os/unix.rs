//! The part that Linux and macOS have in common: the metadata of files.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

use crate::manifest::Stamp;

/// Returns the stamp of a file with this metadata.
pub(crate) fn stamp(metadata: &Metadata) -> Stamp {
    let nanoseconds = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Stamp {
        mtime_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        ctime_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        inode: metadata.ino(),
        device: metadata.dev(),
    }
}
