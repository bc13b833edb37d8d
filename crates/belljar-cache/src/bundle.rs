//! Bundles: directories of entries that are installed together with the program.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::manifest::{MANIFEST, Manifest, Record};
use super::pack::{self, Pack};
use super::{Cache, CacheError, Entry, EntryKey};

/// The end of the names of compressed files.
const COMPRESSED: &str = ".zst";

/// The names of the entries that were looked up. Clones of a cache share it.
pub(crate) type Recorder = Arc<Mutex<BTreeSet<String>>>;

/// A bundle. Clones of a cache share it.
#[derive(Debug)]
pub(crate) struct Bundle {
    pub(crate) directory: PathBuf,
    pub(crate) pack: Pack,
}

/// The contents of a bundle, for [`Cache::write_bundle`]. Files are given by the kinds and names of their entries.
#[derive(Debug, Clone, Copy)]
pub struct BundleContents<'a> {
    /// The kinds of entries whose files are used where they are installed.
    pub kinds: &'a [&'a str],
    /// Files of these entries that the bundle does not need.
    pub left_out: &'a [(&'a str, &'a str)],
    /// Files of these entries that are rarely needed. They are compressed, and read with [`open_file`].
    pub compressed: &'a [(&'a str, &'a str)],
    /// The kinds of entries that are compressed together, and unpacked into the cache when one is first looked up.
    pub packed: &'a [&'a str],
    /// A file of `kinds` that the packed entries resemble: they are compressed as their difference to it.
    pub resembled: (&'a str, &'a str),
}

impl Cache {
    /// Returns the same cache with a bundle, which is searched first.
    #[must_use]
    pub fn with_bundle(self, bundle: Option<PathBuf>) -> Self {
        let bundle = bundle.map(|directory| Arc::new(Bundle { pack: Pack::new(&directory), directory }));
        Cache { bundle, ..self }
    }

    /// Returns the same cache, which records the entries that are looked up, for [`Cache::write_bundle`].
    #[must_use]
    pub fn recording(self) -> Self {
        Cache { recorder: Some(Recorder::default()), ..self }
    }

    /// Returns whether the bundle contains the entry for a key, ready for use.
    pub fn is_bundled(&self, key: &EntryKey) -> bool {
        self.find_bundled(key).is_some()
    }

    /// Returns the bundle's entry for a key. An entry with a file of another size is not used.
    pub(crate) fn find_bundled(&self, key: &EntryKey) -> Option<Entry> {
        let directory = self.bundle.as_ref()?.directory.join(key.directory_name());
        let manifest = Manifest::read(&File::open(directory.join(MANIFEST)).ok()?).ok().flatten();
        match manifest {
            Some(manifest) if manifest.has_sizes(&directory) => Some(Entry::new(directory, manifest)),
            _ => {
                tracing::warn!(entry = %directory.display(), "the installation of belljar is incomplete");
                None
            }
        }
    }

    /// Records a lookup.
    pub(crate) fn record(&self, key: &EntryKey) {
        if let Some(recorder) = &self.recorder {
            recorder.lock().insert(key.directory_name());
        }
    }

    /// Removes an entry from those that were looked up, so that [`Cache::write_bundle`] does not copy it.
    pub fn exclude_from_bundle(&self, key: &EntryKey) {
        if let Some(recorder) = &self.recorder {
            recorder.lock().remove(&key.directory_name());
        }
    }

    /// Copies those entries that were looked up, and whose kind is part of `contents`, into a new directory, which
    /// becomes a bundle. Requires [`Cache::recording`].
    ///
    /// # Errors
    /// Fails if a file cannot be read or written, or if entries are to be packed and the file that they resemble was
    /// not looked up.
    pub fn write_bundle(&self, contents: &BundleContents<'_>, target: &Path) -> Result<(), CacheError> {
        let mut resembled = None;
        for (name, mut manifest) in self.recorded(contents.kinds)? {
            let kind = kind_of(&name);
            manifest.files.retain(|file, _| !contents.left_out.contains(&(kind, file)));
            if kind == contents.resembled.0 {
                resembled = Some(format!("{name}/{}", contents.resembled.1));
            }
            let (source, directory) = (self.entries().join(&name), target.join(&name));
            let failed = |error| CacheError::writing(&directory, None, error);
            fs::create_dir_all(&directory).map_err(failed)?;
            let files: Vec<String> = manifest.files.keys().cloned().collect();
            for file in files {
                let (from, to) = (source.join(&file), directory.join(&file));
                if contents.compressed.contains(&(kind, file.as_str())) {
                    manifest.files.remove(&file);
                    let record = write_compressed(&from, &compressed_path(&to)).map_err(failed)?;
                    manifest.files.insert(format!("{file}{COMPRESSED}"), record);
                } else {
                    fs::copy(&from, &to).map_err(failed)?;
                }
            }
            let bytes = manifest.without_stamps().to_bytes().map_err(failed)?;
            fs::write(directory.join(MANIFEST), bytes).map_err(failed)?;
        }
        let packed = self.recorded(contents.packed)?;
        if packed.is_empty() {
            return Ok(());
        }
        let resembled = resembled.ok_or_else(|| CacheError::NoSuchFile {
            directory: target.to_owned(),
            name: contents.resembled.1.to_owned(),
        })?;
        pack::write(&self.entries(), packed, resembled, target)
    }

    /// Returns the names and manifests of the entries of these kinds that were looked up and exist.
    fn recorded(&self, kinds: &[&str]) -> Result<Vec<(String, Manifest)>, CacheError> {
        let names = self.recorder.as_ref().map(|recorder| recorder.lock().clone()).unwrap_or_default();
        let mut found = Vec::new();
        for name in names {
            let directory = self.entries().join(&name);
            if !kinds.contains(&kind_of(&name)) {
                continue;
            }
            let Ok(file) = File::open(directory.join(MANIFEST)) else { continue };
            if let Some(manifest) = Manifest::read(&file).map_err(CacheError::io("read", &directory))? {
                found.push((name, manifest));
            }
        }
        Ok(found)
    }
}

/// Opens a file of an entry, which may be compressed in a bundle.
///
/// # Errors
/// Fails if the file does not exist or cannot be read.
pub fn open_file(path: &Path) -> io::Result<Box<dyn Read>> {
    let missing = match File::open(path) {
        Ok(file) => return Ok(Box::new(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => error,
        Err(error) => return Err(error),
    };
    match File::open(compressed_path(path)) {
        Ok(file) => Ok(Box::new(zstd::Decoder::new(file)?)),
        Err(_) => Err(missing),
    }
}

fn compressed_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(COMPRESSED);
    name.into()
}

fn write_compressed(from: &Path, to: &Path) -> io::Result<Record> {
    fs::write(to, pack::compress(&fs::read(from)?, &[])?)?;
    Record::from_file(to)
}

/// Returns the kind of the entry with this name.
fn kind_of(name: &str) -> &str {
    name.rsplit_once('-').map_or("", |(kind, _)| kind)
}
