//! Images of sessions in the store: the bases of their snapshots, for replicas that have other images.
//!
//! ```text
//! records/bases/BASE   the SHA-256 of the archive
//! images/DIGEST        the archive: the files of DIR/bases/BASE
//! ```
//!
//! Most replicas have the same image, which they have built themselves, and write and read none. A replica with another
//! version of Belljar, or with other packages, reads the image of a session when it wakes the session.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, Instant};

use belljar_store::{Digest, StoreError};
use parking_lot::Mutex;

use super::{Cluster, wait};

/// The collection of the records of bases.
const BASES: &str = "bases";
/// The time for which an image that was found is not looked up again. A collector deletes unused ones after a day.
const LOOKUP_TTL: Duration = Duration::from_secs(10 * 60);
/// The maximum number of files in an archive.
const MAX_FILES: usize = 64;
/// The maximum size of the unpacked files, in bytes.
const MAX_SIZE: u64 = 1 << 30;

/// The images that the store has, by the name of the base.
#[derive(Debug, Default)]
pub(super) struct KnownImages(Mutex<HashMap<String, (Digest, Instant)>>);

impl KnownImages {
    /// Returns the digest of an image that was found or stored lately.
    pub(super) fn digest(&self, base: &str) -> Option<Digest> {
        self.0.lock().get(base).map(|(digest, _)| *digest)
    }

    fn is_fresh(&self, base: &str) -> bool {
        self.0.lock().get(base).is_some_and(|(_, found)| found.elapsed() < LOOKUP_TTL)
    }

    fn insert(&self, base: &str, digest: Digest) {
        self.0.lock().insert(base.to_owned(), (digest, Instant::now()));
    }
}

impl Cluster {
    /// Returns whether the store has an image. Blocks.
    ///
    /// # Errors
    /// Fails if the store does not answer.
    pub(crate) fn has_image(&self, base: &str) -> Result<bool, StoreError> {
        if self.images.is_fresh(base) {
            return Ok(true);
        }
        wait(&self.handle, async {
            let Some(digest) = self.image_of(base).await? else { return Ok(false) };
            let is_stored = self.services.images().contains(digest).await?;
            if is_stored {
                self.images.insert(base, digest);
            }
            Ok(is_stored)
        })
    }

    /// Stores the files of a directory as an image. Blocks.
    ///
    /// # Errors
    /// Fails if the files cannot be read, or the store does not answer.
    pub(crate) fn put_image(&self, base: &str, directory: &Path) -> io::Result<()> {
        let archive = pack(directory)?;
        let digest = Digest::from_content(&archive);
        let stored = wait(&self.handle, async {
            let images = self.services.images();
            images.put(digest, archive.into()).await?;
            let records = self.services.records(BASES)?;
            let name = digest.to_string();
            loop {
                let found = records.get(base).await?;
                if found.as_ref().is_some_and(|found| *found.value == *name.as_bytes()) {
                    return Ok(digest);
                }
                if let Some(found) = &found
                    && let Some(other) = parse(&found.value)
                    && images.contains(other).await?
                {
                    // Another replica has stored its copy first.
                    return Ok(other);
                }
                let version = found.map(|found| found.version);
                if records.put(base, version.as_ref(), name.as_bytes()).await?.is_some() {
                    return Ok(digest);
                }
            }
        });
        let digest = stored.map_err(|error: StoreError| io::Error::other(error))?;
        self.images.insert(base, digest);
        Ok(())
    }

    /// Reads an image into an empty directory. Returns false if the store does not have it. Blocks.
    ///
    /// # Errors
    /// Fails if the store does not answer, the image is damaged, or a file cannot be written.
    pub(crate) fn get_image(&self, base: &str, directory: &Path) -> io::Result<bool> {
        let found = wait(&self.handle, async {
            let Some(digest) = self.image_of(base).await? else { return Ok(None) };
            Ok(self.services.images().get(digest).await?.map(|archive| (digest, archive)))
        });
        let Some((digest, archive)) = found.map_err(|error: StoreError| io::Error::other(error))? else {
            return Ok(false);
        };
        unpack(&archive, directory)?;
        self.images.insert(base, digest);
        Ok(true)
    }

    async fn image_of(&self, base: &str) -> Result<Option<Digest>, StoreError> {
        Ok(self.services.records(BASES)?.get(base).await?.and_then(|record| parse(&record.value)))
    }
}

fn parse(digest: &[u8]) -> Option<Digest> {
    Digest::parse(std::str::from_utf8(digest).ok()?)
}

/// Returns the files of a directory as a tar archive. Equal files give equal archives.
fn pack(directory: &Path) -> io::Result<Vec<u8>> {
    let mut names = fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort_unstable();
    let mut archive = tar::Builder::new(Vec::new());
    archive.mode(tar::HeaderMode::Deterministic);
    for name in names {
        archive.append_file(&name, &mut File::open(directory.join(&name))?)?;
    }
    archive.into_inner()
}

/// Writes the files of an archive, which other replicas have written, into an empty directory.
fn unpack(archive: &[u8], directory: &Path) -> io::Result<()> {
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, format!("its image {reason}"));
    let mut left = MAX_SIZE;
    for (number, entry) in tar::Archive::new(archive).entries()?.enumerate() {
        let entry = entry?;
        if number >= MAX_FILES || entry.size() > left {
            return Err(invalid("is too large"));
        }
        left -= entry.size();
        let name = String::from_utf8(entry.path_bytes().into_owned()).map_err(|_| invalid("has invalid names"))?;
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte));
        if entry.header().entry_type() != tar::EntryType::Regular || !is_plain || name.starts_with('.') {
            return Err(invalid("contains more than files"));
        }
        let size = entry.size();
        io::copy(&mut entry.take(size), &mut File::create_new(directory.join(name))?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_survive_archives() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(from.path().join("about.json"), "{}").unwrap();
        fs::write(from.path().join("image.zst"), vec![7; 100_000]).unwrap();
        let archive = pack(from.path()).unwrap();
        unpack(&archive, to.path()).unwrap();
        assert_eq!(fs::read(to.path().join("image.zst")).unwrap(), vec![7; 100_000]);
        assert_eq!(pack(to.path()).unwrap(), archive);
    }

    #[test]
    fn archives_write_no_other_places() {
        for (name, kind) in [("../outside", tar::EntryType::Regular), ("link", tar::EntryType::Symlink)] {
            let mut archive = tar::Builder::new(Vec::new());
            let mut header = tar::Header::new_gnu();
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_cksum();
            archive.append(&header, &[][..]).unwrap();
            let to = tempfile::tempdir().unwrap();
            let error = unpack(&archive.into_inner().unwrap(), to.path()).unwrap_err();
            assert_eq!(error.to_string(), "its image contains more than files");
        }
    }
}
