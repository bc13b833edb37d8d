//! A wheel as a cache entry: its files and their bytecode in one file, and an index of it. The entry is opened by
//! mapping the one and reading the other, so that a file costs a microsecond, however long it is.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use belljar_cache::{Cache, CacheError, Entry, EntryKey, NewEntry};
use belljar_core::progress::{Progress, Step};
use belljar_emscripten::Program;
use belljar_emscripten::dylink::LibraryHash;
use belljar_emscripten::fs::{FileBytes, Layer, LayerBuilder};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::bytecode::{self, Bytecode};
use super::{Contents, Member, PackageSet, SupplyError, WheelFile, WheelLayerError};
use crate::image::Image;
use crate::libraries::CompiledLibraries;
use crate::python::OpenError;

const DATA: &str = "wheel.data";
const INDEX: &str = "wheel.index";
/// Raised when the format changes.
const FORMAT: u32 = 1;
/// Files of one wheel.
const MAX_FILES: u64 = 100_000;
/// Bytes of one wheel, unpacked.
const MAX_BYTES: u64 = 2 << 30;

/// A wheel that interpreters can have.
pub(crate) struct InstalledWheel {
    pub(crate) member: Member,
    pub(crate) layer: Arc<Layer>,
    /// The modules that it provides.
    pub(crate) modules: Vec<String>,
    /// Its side modules.
    pub(crate) libraries: Vec<(LibraryHash, FileBytes)>,
    compiled: Arc<CompiledLibraries>,
}

impl Drop for InstalledWheel {
    fn drop(&mut self) {
        for (_, bytes) in &self.libraries {
            self.compiled.forget(bytes);
        }
    }
}

/// What the index file holds.
#[derive(Serialize, Deserialize)]
struct Index<'a> {
    #[serde(borrow)]
    modules: Vec<Cow<'a, str>>,
    /// Files in the order of their bytes in the data file, sorted by path.
    #[serde(borrow)]
    files: Vec<IndexedFile<'a>>,
}

#[derive(Serialize, Deserialize)]
struct IndexedFile<'a> {
    #[serde(borrow)]
    path: Cow<'a, str>,
    length: u32,
    /// SHA-256, of side modules.
    library: Option<LibraryHash>,
}

/// The wheels that are in use in this process: who needs one of them shares it.
#[derive(Default)]
pub(crate) struct OpenWheels(Mutex<HashMap<Member, Weak<InstalledWheel>>>);

impl OpenWheels {
    fn get(&self, member: &Member) -> Option<Arc<InstalledWheel>> {
        self.lock().get(member)?.upgrade()
    }

    fn put(&self, wheel: InstalledWheel) -> Arc<InstalledWheel> {
        let wheel = Arc::new(wheel);
        let mut open = self.lock();
        open.retain(|_, wheel| wheel.strong_count() > 0);
        open.insert(wheel.member.clone(), Arc::downgrade(&wheel));
        wheel
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Member, Weak<InstalledWheel>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes and opens the layers of wheels.
pub(crate) struct Layers<'a> {
    pub(crate) open: &'a OpenWheels,
    pub(crate) cache: &'a Cache,
    pub(crate) program: &'a Program,
    pub(crate) base: &'a Image,
    pub(crate) libraries: &'a Arc<CompiledLibraries>,
    pub(crate) progress: &'a dyn Progress,
}

impl Layers<'_> {
    /// The set of `members`. `supply` is asked for the files of those that are not in the cache, all of them at once.
    ///
    /// Must be called on a guest thread.
    pub(crate) fn open(
        &self,
        members: &[Member],
        supply: impl FnOnce(&[Member]) -> Result<Vec<Contents>, SupplyError>,
    ) -> Result<PackageSet, OpenError> {
        let mut wheels = Vec::with_capacity(members.len());
        let mut missing = Vec::new();
        for member in members {
            match self.find(member)? {
                Some(wheel) => wheels.push(wheel),
                None => missing.push(member.clone()),
            }
        }
        if !missing.is_empty() {
            let supplied = supply(&missing).map_err(WheelLayerError::Supply)?;
            for contents in &supplied {
                check_size(&contents.member, &contents.files)?;
            }
            let libraries: Vec<_> = supplied.iter().flat_map(|contents| &contents.files).filter_map(library).collect();
            let (compiled, progress) = (self.libraries, self.progress);
            // Bytecode is made one wheel after the other, mostly by one processor, and libraries need no bytecode.
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

    /// Makes the wheels of `members` from what was supplied.
    fn make_all(
        &self,
        members: Vec<Member>,
        mut supplied: Vec<Contents>,
    ) -> Result<Vec<Arc<InstalledWheel>>, OpenError> {
        let step = self.progress.start(Step::items("compiling packages to bytecode", members.len() as u64));
        let mut wheels = Vec::with_capacity(members.len());
        for member in members {
            let at = supplied.iter().position(|contents| contents.member == member);
            let at = at.ok_or_else(|| WheelLayerError::Missing { wheel: member.title() })?;
            wheels.push(self.open.put(self.make(supplied.swap_remove(at))?));
            step.advance(1);
        }
        step.finish();
        Ok(wheels)
    }

    /// Whether all of `members` are in use already, or in the cache.
    pub(crate) fn have(&self, members: &[Member]) -> Result<bool, CacheError> {
        for member in members {
            if self.open.get(member).is_none() && self.cache.get(&self.key(member))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn key(&self, member: &Member) -> EntryKey {
        EntryKey::new("layer")
            .part("wheel", &member.sha256)
            .part("name", &member.name)
            .part("program", self.program.identity())
            .part("compiler", bytecode::SOURCE)
            .part("format", FORMAT.to_le_bytes())
    }

    fn find(&self, member: &Member) -> Result<Option<Arc<InstalledWheel>>, OpenError> {
        if let Some(wheel) = self.open.get(member) {
            return Ok(Some(wheel));
        }
        match self.cache.hold(&self.key(member))? {
            Some(entry) => Ok(Some(self.open.put(self.read(member.clone(), &entry)?))),
            None => Ok(None),
        }
    }

    fn make(&self, contents: Contents) -> Result<InstalledWheel, OpenError> {
        let Contents { member, mut files, modules } = contents;
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let entry = self.cache.hold_or_make(&self.key(&member), self.progress, |new| {
            // The layer of sources alone shows whether the paths are sound, before any work is done.
            let sources = layer(&member, "sources", files.iter().map(|file| (file.path.as_str(), file.bytes.clone())))?;
            let bytecode = bytecode::compile(self.program, self.base, &sources, &files)?;
            write(new, &files, &bytecode, &modules)
        })?;
        self.read(member, &entry)
    }

    fn read(&self, member: Member, entry: &Entry) -> Result<InstalledWheel, OpenError> {
        let damaged = |reason| WheelLayerError::Damaged { wheel: member.title(), reason };
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
                self.libraries.note(&bytes, hash);
                libraries.push((hash, bytes.clone()));
            }
            parts.push((&*indexed.path, bytes));
            start = end;
        }
        let id = format!("wheel-{}-{}", member.name, member.sha256);
        let layer = layer(&member, &id, parts.into_iter())?;
        let modules = index.modules.iter().map(|module| module.to_string()).collect();
        Ok(InstalledWheel { member, layer, modules, libraries, compiled: self.libraries.clone() })
    }
}

fn layer<'a>(
    member: &Member,
    id: &str,
    files: impl Iterator<Item = (&'a str, FileBytes)>,
) -> Result<Arc<Layer>, WheelLayerError> {
    let mut builder = LayerBuilder::new();
    for (path, bytes) in files {
        builder.file(path, bytes).map_err(|error| WheelLayerError::Path { wheel: member.title(), error })?;
    }
    Ok(builder.finish(id))
}

/// The hash and the bytes of a side module.
fn library(file: &WheelFile) -> Option<(LibraryHash, FileBytes)> {
    file.is_library.then(|| (Sha256::digest(&file.bytes[..]).into(), file.bytes.clone()))
}

fn check_size(member: &Member, files: &[WheelFile]) -> Result<(), WheelLayerError> {
    let too_large = |what: String, limit| WheelLayerError::TooLarge { wheel: member.title(), what, limit };
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
        // A wheel that brings bytecode of its own is believed less than our compiler.
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
        // `check_size` bounds the whole wheel below what the field can hold.
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        index.files.push(IndexedFile { path: path.into(), length, library });
    }
    data.flush().map_err(failed)?;
    let index = postcard::to_stdvec(&index).map_err(|error| failed(std::io::Error::other(error)))?;
    Ok(new.write(INDEX, &index)?)
}
