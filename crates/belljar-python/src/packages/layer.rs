//! Wheels as cache entries: one file with the wheel's files and their bytecode, and an index. An entry is opened by
//! mapping the one and reading the other, so that a file costs a microsecond, whatever its length.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Weak};

use belljar_cache::{Cache, CacheError, Entry, EntryKey, NewEntry};
use belljar_core::Progress;
use belljar_core::progress::ProgressStep;
use belljar_emscripten::Program;
use belljar_emscripten::dylink::LibraryHash;
use belljar_emscripten::fs::{FileBytes, Layer, LayerBuilder};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::bytecode::{self, Bytecode};
use super::{PackageSet, SupplyError, UnpackedWheel, WheelFile, WheelId, WheelLayerError};
use crate::error::OpenError;
use crate::image::Image;
use crate::libraries::CompiledLibraries;

const DATA: &str = "wheel.data";
const INDEX: &str = "wheel.index";
/// The version of the format.
const FORMAT: u32 = 1;
/// The maximum number of files of one wheel.
const MAX_FILES: u64 = 100_000;
/// The maximum unpacked size of one wheel, in bytes.
const MAX_BYTES: u64 = 2 << 30;

/// A wheel that interpreters can use.
pub(crate) struct InstalledWheel {
    pub(crate) id: WheelId,
    pub(crate) layer: Arc<Layer>,
    /// The modules that the wheel provides.
    pub(crate) modules: Vec<String>,
    /// The wheel's side modules.
    pub(crate) libraries: Vec<(LibraryHash, FileBytes)>,
    compiled: Arc<CompiledLibraries>,
}

impl Drop for InstalledWheel {
    fn drop(&mut self) {
        for (_, bytes) in &self.libraries {
            self.compiled.remove_hash(bytes);
        }
    }
}

/// The content of the index file.
#[derive(Serialize, Deserialize)]
struct Index<'a> {
    #[serde(borrow)]
    modules: Vec<Cow<'a, str>>,
    /// The files, sorted by path, which is the order of their bytes in the data file.
    #[serde(borrow)]
    files: Vec<IndexedFile<'a>>,
}

#[derive(Serialize, Deserialize)]
struct IndexedFile<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    length: u32,
    /// SHA-256 of a side module; `None` for other files.
    library: Option<LibraryHash>,
}

/// The wheels that are in use in this process and shared by their users.
#[derive(Default)]
pub(crate) struct WheelTable(Mutex<HashMap<WheelId, Weak<InstalledWheel>>>);

impl WheelTable {
    fn get(&self, id: &WheelId) -> Option<Arc<InstalledWheel>> {
        self.0.lock().get(id)?.upgrade()
    }

    fn insert(&self, wheel: InstalledWheel) -> Arc<InstalledWheel> {
        let wheel = Arc::new(wheel);
        let mut open = self.0.lock();
        open.retain(|_, wheel| wheel.strong_count() > 0);
        open.insert(wheel.id.clone(), Arc::downgrade(&wheel));
        wheel
    }
}

/// Builds and opens the layers of wheels.
pub(crate) struct Layers<'a> {
    pub(crate) open: &'a WheelTable,
    pub(crate) cache: &'a Cache,
    pub(crate) program: &'a Program,
    pub(crate) base: &'a Image,
    pub(crate) libraries: &'a Arc<CompiledLibraries>,
    pub(crate) progress: &'a dyn Progress,
}

impl Layers<'_> {
    /// Returns the set of `ids`. `supply` is called once, for the files of all wheels that are not in the cache.
    ///
    /// Must be called on a guest thread.
    pub(crate) fn open(
        &self,
        ids: &[WheelId],
        supply: impl FnOnce(&[WheelId]) -> Result<Vec<UnpackedWheel>, SupplyError>,
    ) -> Result<PackageSet, OpenError> {
        let mut wheels = Vec::with_capacity(ids.len());
        let mut missing = Vec::new();
        for id in ids {
            match self.find(id)? {
                Some(wheel) => wheels.push(wheel),
                None => missing.push(id.clone()),
            }
        }
        if !missing.is_empty() {
            let supplied = supply(&missing).map_err(WheelLayerError::Supply)?;
            for contents in &supplied {
                check_size(&contents.id, &contents.files)?;
            }
            let libraries: Vec<_> = supplied.iter().flat_map(|contents| &contents.files).filter_map(library).collect();
            let (compiled, progress) = (self.libraries, self.progress);
            // Bytecode is compiled one wheel at a time, mostly on one processor, and libraries do not need bytecode.
            wheels.extend(std::thread::scope(|scope| {
                scope.spawn(|| compiled.compile_all(&libraries, progress));
                self.make_all(missing, supplied)
            })?);
        }
        let set = PackageSet::new(wheels);
        let libraries: Vec<_> = set.wheels().iter().flat_map(|wheel| wheel.libraries.iter().cloned()).collect();
        self.libraries.compile_all(&libraries, self.progress);
        Ok(set)
    }

    /// Installs the wheels of `ids` from the supplied files.
    fn make_all(
        &self,
        ids: Vec<WheelId>,
        mut supplied: Vec<UnpackedWheel>,
    ) -> Result<Vec<Arc<InstalledWheel>>, OpenError> {
        let step = self.progress.start(ProgressStep::items("compiling packages to bytecode", ids.len() as u64));
        let mut wheels = Vec::with_capacity(ids.len());
        for id in ids {
            let at = supplied.iter().position(|contents| contents.id == id);
            let at = at.ok_or_else(|| WheelLayerError::Missing { wheel: id.title() })?;
            wheels.push(self.open.insert(self.make(supplied.swap_remove(at))?));
            step.advance(1);
        }
        step.finish();
        Ok(wheels)
    }

    /// Returns whether all of `ids` are in use or in the cache.
    pub(crate) fn contains_all(&self, ids: &[WheelId]) -> Result<bool, CacheError> {
        for id in ids {
            if self.open.get(id).is_none() && self.cache.get(&self.key(id))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn key(&self, id: &WheelId) -> EntryKey {
        EntryKey::new("layer")
            .part("wheel", &id.sha256)
            .part("name", &id.name)
            .part("program", self.program.identity())
            .part("compiler", bytecode::SOURCE)
            .part("format", FORMAT.to_le_bytes())
    }

    fn find(&self, id: &WheelId) -> Result<Option<Arc<InstalledWheel>>, OpenError> {
        if let Some(wheel) = self.open.get(id) {
            return Ok(Some(wheel));
        }
        match self.cache.get_pinned(&self.key(id))? {
            Some(entry) => Ok(Some(self.open.insert(self.read(id.clone(), &entry)?))),
            None => Ok(None),
        }
    }

    fn make(&self, contents: UnpackedWheel) -> Result<InstalledWheel, OpenError> {
        let UnpackedWheel { id, mut files, modules } = contents;
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let entry = self.cache.get_or_create_pinned(&self.key(&id), self.progress, |new| {
            // Building the layer of sources validates the paths before any work is done.
            let sources = layer(&id, "sources", files.iter().map(|file| (file.path.as_str(), file.bytes.clone())))?;
            let bytecode = bytecode::compile(self.program, self.base, &sources, &files)?;
            write(new, &files, &bytecode, &modules)
        })?;
        self.read(id, &entry)
    }

    fn read(&self, id: WheelId, entry: &Entry) -> Result<InstalledWheel, OpenError> {
        let damaged = |reason| WheelLayerError::Damaged { wheel: id.title(), reason };
        let file = |path: &Path| FileBytes::map(path).map_err(|error| OpenError::File { path: path.into(), error });
        let index = file(&entry.file(INDEX)?)?;
        let data = file(&entry.file(DATA)?)?;
        let index: Index<'_> = postcard::from_bytes(&index).map_err(|_| damaged("its index cannot be read"))?;
        let mut parts = Vec::with_capacity(index.files.len());
        let mut libraries = Vec::new();
        let mut start = 0usize;
        for indexed in &index.files {
            let end = start.saturating_add(indexed.length as usize);
            let bytes = data.slice(start..end).ok_or_else(|| damaged("its data is cut short"))?;
            if let Some(hash) = indexed.library {
                self.libraries.record_hash(&bytes, hash);
                libraries.push((hash, bytes.clone()));
            }
            parts.push((&*indexed.path, bytes));
            start = end;
        }
        let layer_id = format!("wheel-{}-{}", id.name, id.sha256);
        let layer = layer(&id, &layer_id, parts.into_iter())?;
        let modules = index.modules.iter().map(|module| module.to_string()).collect();
        Ok(InstalledWheel { id, layer, modules, libraries, compiled: self.libraries.clone() })
    }
}

fn layer<'a>(
    id: &WheelId,
    layer_id: &str,
    files: impl Iterator<Item = (&'a str, FileBytes)>,
) -> Result<Arc<Layer>, WheelLayerError> {
    let mut builder = LayerBuilder::new();
    for (path, bytes) in files {
        builder.file(path, bytes).map_err(|error| WheelLayerError::Path { wheel: id.title(), error })?;
    }
    Ok(builder.finish(layer_id))
}

/// Returns the hash and the bytes of a side module.
fn library(file: &WheelFile) -> Option<(LibraryHash, FileBytes)> {
    file.is_library.then(|| (Sha256::digest(&file.bytes[..]).into(), file.bytes.clone()))
}

fn check_size(id: &WheelId, files: &[WheelFile]) -> Result<(), WheelLayerError> {
    let too_large = |what: String, limit| WheelLayerError::TooLarge { wheel: id.title(), what, limit };
    if files.len() as u64 > MAX_FILES {
        return Err(too_large(format!("{} files", files.len()), MAX_FILES));
    }
    let bytes: u64 = files.iter().map(|file| file.bytes.len() as u64).sum();
    if bytes > MAX_BYTES {
        return Err(too_large(format!("{bytes} bytes"), MAX_BYTES));
    }
    Ok(())
}

/// Writes the entry. `files` are sorted by path.
fn write(new: &NewEntry, files: &[WheelFile], bytecode: &[Bytecode], modules: &[String]) -> Result<(), OpenError> {
    let mut parts: Vec<(&str, &[u8], Option<LibraryHash>)> = Vec::with_capacity(files.len() + bytecode.len());
    for file in files {
        parts.push((&file.path, &file.bytes, library(file).map(|(hash, _)| hash)));
    }
    for compiled in bytecode {
        // Bytecode that a wheel contains is replaced: only this compiler's is trusted.
        if let Ok(at) = files.binary_search_by(|file| file.path.as_str().cmp(&compiled.path)) {
            parts[at].1 = &compiled.bytes;
        } else {
            parts.push((&compiled.path, &compiled.bytes, None));
        }
    }
    parts.sort_by_key(|(path, ..)| *path);

    let path = new.path().join(DATA);
    let failed = |error| CacheError::writing(&path, None, error);
    let mut data = BufWriter::new(crate::image::create(&path)?);
    let mut index = Index { modules: modules.iter().map(Cow::from).collect(), files: Vec::new() };
    for (path, bytes, library) in parts {
        data.write_all(bytes).map_err(failed)?;
        // `check_size` limits the whole wheel to less than the field can hold.
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        index.files.push(IndexedFile { path: path.into(), length, library });
    }
    data.flush().map_err(failed)?;
    let index = postcard::to_stdvec(&index).map_err(|error| failed(std::io::Error::other(error)))?;
    Ok(new.write(INDEX, &index)?)
}
