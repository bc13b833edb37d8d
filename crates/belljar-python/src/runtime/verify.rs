//! Copying a file while making sure that it is the right one.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use belljar_cache::{CacheError, hex};
use belljar_core::progress::StepProgress;
use sha2::{Digest, Sha256};

use super::Fingerprint;

/// Why what was read is not the wanted file.
#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    /// It is shorter.
    #[error("it ends after {actual} of {expected} bytes")]
    Short {
        /// Bytes there were.
        actual: u64,
        /// Bytes there should have been.
        expected: u64,
    },
    /// It is longer. How much longer was not looked at.
    #[error("it is longer than the expected {expected} bytes")]
    Long {
        /// Bytes there should have been.
        expected: u64,
    },
    /// It has the right size and other content.
    #[error("its sha256 is {actual}, expected {expected}")]
    Hash {
        /// The sha256 of what was read.
        actual: String,
        /// What it should be.
        expected: &'static str,
    },
}

/// What ended a [`copy`].
#[derive(Debug)]
pub(super) enum CopyError {
    Read(io::Error),
    Write(CacheError),
    Mismatch(Mismatch),
}

/// Hands the bytes of `from` to `to`, never more than the expected size, and checks what went through.
pub(super) fn copy(
    from: &mut dyn Read,
    expected: Fingerprint,
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
    let actual = hex(&digest.finalize());
    if actual != expected.sha256 {
        return Err(CopyError::Mismatch(Mismatch::Hash { actual, expected: expected.sha256 }));
    }
    Ok(())
}

/// [`copy`] into a new file at `path`, in the place of whatever an earlier attempt left there.
pub(super) fn copy_to_file(
    from: &mut dyn Read,
    path: &Path,
    expected: Fingerprint,
    progress: &dyn StepProgress,
) -> Result<(), CopyError> {
    let failed = |error| CacheError::writing(path, Some(expected.size), error);
    let mut file = File::create(path).map_err(|error| CopyError::Write(failed(error)))?;
    copy(from, expected, progress, &mut |bytes| file.write_all(bytes).map_err(failed))
}
