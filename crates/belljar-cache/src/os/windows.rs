//! Windows: the metadata of files.

use std::fs::Metadata;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use super::no_memory_file::MemoryFile;
use crate::manifest::Stamp;

/// Returns the stamp of a file with this metadata: the times alone, since the standard library offers no more here.
pub(crate) fn stamp(metadata: &Metadata) -> Stamp {
    let nanoseconds = |time: io::Result<SystemTime>| {
        time.ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
            .and_then(|since| i128::try_from(since.as_nanos()).ok())
            .unwrap_or(-1)
    };
    Stamp { mtime_ns: nanoseconds(metadata.modified()), ctime_ns: nanoseconds(metadata.created()), inode: 0, device: 0 }
}
