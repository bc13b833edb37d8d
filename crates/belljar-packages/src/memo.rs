//! Resolutions that were made before, so that the same need costs one small read.
//!
//! A resolution is a function of what was asked, of the settings and of what the indexes held at the time. The first
//! two are the file's name; for the third it is believed for a few minutes, and for as long as it lies there when
//! nothing newer can be had.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use belljar_cache::Cache;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::resolution::{Resolution, hexadecimal};

/// How long a resolution is believed while an index could be asked: as long as indexes let their pages be kept.
const BELIEVED: Duration = Duration::from_secs(600);
/// Files that were not used for so long are deleted.
const KEPT: Duration = Duration::from_secs(90 * 24 * 3600);
/// Raised when the meaning of the files changes.
const FORMAT: u32 = 2;

/// The directory of remembered resolutions.
#[derive(Debug, Clone)]
pub(crate) struct Memo {
    directory: PathBuf,
}

#[derive(Serialize, Deserialize)]
struct Remembered {
    format: u32,
    made: SystemTime,
    resolution: Resolution,
}

impl Memo {
    pub(crate) fn new(cache: &Cache) -> Self {
        Memo { directory: cache.root().join("resolutions") }
    }

    /// The resolution of a question, if there is one that may still be believed. `forever`: at any age.
    pub(crate) fn get(&self, question: &Question, forever: bool) -> Option<Resolution> {
        let bytes = std::fs::read(self.path(question)).ok()?;
        let remembered: Remembered = serde_json::from_slice(&bytes).ok()?;
        // A clock that was set back makes no resolution young.
        let young = remembered.made.elapsed().is_ok_and(|age| age < BELIEVED);
        (remembered.format == FORMAT && (young || forever)).then_some(remembered.resolution)
    }

    /// Remembers a resolution. Failing is fine: the cache may be one that this user only reads.
    pub(crate) fn put(&self, question: &Question, resolution: &Resolution) {
        let remembered = Remembered { format: FORMAT, made: SystemTime::now(), resolution: resolution.clone() };
        if let Err(error) = self.write(question, &remembered) {
            tracing::debug!(%error, "a resolution cannot be remembered");
        }
    }

    pub(crate) fn forget(&self, question: &Question) {
        let _ = std::fs::remove_file(self.path(question));
    }

    fn write(&self, question: &Question, remembered: &Remembered) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.directory)?;
        self.sweep();
        let mut file = tempfile::NamedTempFile::new_in(&self.directory)?;
        serde_json::to_writer(&mut file, remembered)?;
        file.persist(self.path(question)).map_err(|error| error.error)?;
        Ok(())
    }

    fn path(&self, question: &Question) -> PathBuf {
        self.directory.join(format!("{}.json", question.0))
    }

    /// Deletes what nobody asked for in a long time.
    fn sweep(&self) {
        let Ok(files) = self.directory.read_dir() else { return };
        for file in files.flatten() {
            let old = |time: SystemTime| time.elapsed().is_ok_and(|age| age > KEPT);
            if file.metadata().and_then(|metadata| metadata.modified()).is_ok_and(old) {
                let _ = std::fs::remove_file(file.path());
            }
        }
    }
}

/// Everything that a resolution depends on but the state of the indexes.
#[derive(Debug, Clone)]
pub(crate) struct Question(String);

impl Question {
    /// `parts` are framed by their length, so that no two lists give the same question.
    pub(crate) fn new<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Question(hexadecimal(&digest.finalize()))
    }
}

#[cfg(test)]
mod tests {
    use belljar_cache::Cache;

    use super::{Memo, Question};
    use crate::platform::Platform;
    use crate::resolution::Resolution;

    #[test]
    fn what_was_remembered_is_found_and_a_damaged_file_is_not_an_answer() {
        let directory = tempfile::tempdir().unwrap();
        let memo = Memo::new(&Cache::open(Some(directory.path().into())).unwrap());
        let question = Question::new(["rich"]);
        assert_eq!(memo.get(&question, true), None);
        let resolution = Resolution::new(&Platform::cpython_3_14(), Vec::new());
        memo.put(&question, &resolution);
        assert_eq!(memo.get(&question, false), Some(resolution));
        std::fs::write(memo.path(&question), "{").unwrap();
        assert_eq!(memo.get(&question, true), None);
    }
}
