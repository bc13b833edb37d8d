//! Copying of files with verification of size and SHA-256.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use belljar_cache::CacheError;
use belljar_core::progress::StepProgress;
use sha2::{Digest, Sha256};

use super::FileDigest;

/// The difference between a file and its expected content.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// The file is too short.
    #[error("the file has {actual} bytes, expected {expected}")]
    Short {
        /// The number of bytes read.
        actual: u64,
        /// The expected number of bytes.
        expected: u64,
    },
    /// The file is too long. Its actual length is not determined.
    #[error("the file has more than the expected {expected} bytes")]
    Long {
        /// The expected number of bytes.
        expected: u64,
    },
    /// The file has the expected size but different content.
    #[error("the SHA-256 is {actual}, expected {expected}")]
    Hash {
        /// The actual SHA-256.
        actual: String,
        /// The expected SHA-256.
        expected: &'static str,
    },
}

/// An error of [`copy`].
#[derive(Debug)]
pub(super) enum CopyError {
    Read(io::Error),
    Write(CacheError),
    Mismatch(Mismatch),
}

/// Copies the bytes of `from` to `to`, at most the expected size, and verifies them.
pub(super) fn copy(
    from: &mut dyn Read,
    expected: FileDigest,
    progress: &dyn StepProgress,
    to: &mut dyn FnMut(&[u8]) -> Result<(), CacheError>,
) -> Result<(), CopyError> {
    let mut buffer = vec![0; 64 * 1024];
    let mut digest = Sha256::new();
    let mut copied: u64 = 0;
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Read(error)),
        };
        let Some(bytes) = buffer.get(..count) else { break };
        copied += count as u64;
        if copied > expected.size {
            return Err(CopyError::Mismatch(Mismatch::Long { expected: expected.size }));
        }
        digest.update(bytes);
        to(bytes).map_err(CopyError::Write)?;
        progress.advance(count as u64);
    }
    if copied < expected.size {
        return Err(CopyError::Mismatch(Mismatch::Short { actual: copied, expected: expected.size }));
    }
    let actual = hex::encode(digest.finalize());
    if actual != expected.sha256 {
        return Err(CopyError::Mismatch(Mismatch::Hash { actual, expected: expected.sha256 }));
    }
    Ok(())
}

/// Does the same as [`copy`], into a file at `path` that replaces the file of an earlier attempt.
pub(super) fn copy_to_file(
    from: &mut dyn Read,
    path: &Path,
    expected: FileDigest,
    progress: &dyn StepProgress,
) -> Result<(), CopyError> {
    let failed = |error| CacheError::writing(path, Some(expected.size), error);
    let mut file = File::create(path).map_err(|error| CopyError::Write(failed(error)))?;
    copy(from, expected, progress, &mut |bytes| file.write_all(bytes).map_err(failed))
}
