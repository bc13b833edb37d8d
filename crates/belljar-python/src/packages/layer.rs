//! Wheels as cache entries: one file with the wheel's files, and an index. An entry is opened by mapping the one and
//! reading the other, so that a file costs a microsecond, whatever its length.
//!
//! The bytecode of a wheel's modules is in entries of its own, the wheel's *parts*: part 0 has the modules that were
//! needed first, and each further part has modules that were needed later. In the layer these are deferred files: a
//! module without bytecode is compiled by the Python that imports it.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
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

use super::bytecode::{self, Bytecode, Compiler};
use super::reachable::{self, ModulePaths, Reach};
use super::wheel::is_module;
use super::{PackageSet, SupplyError, UnpackedWheel, WheelFile, WheelId, WheelLayerError};
use crate::error::OpenError;
use crate::image::Image;
use crate::libraries::CompiledLibraries;

const DATA: &str = "wheel.data";
const INDEX: &str = "wheel.index";
/// The version of the format, and of the way in which modules are compiled.
const FORMAT: u32 = 2;
/// The number of parts of a wheel, the last of which has all modules that the others lack.
const MAX_PARTS: u32 = 8;
/// The maximum number of wheels that are installed at the same time.
const MAX_PARALLEL_WHEELS: usize = 16;
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
    /// The version of Python, which is part of the names of bytecode files.
    pub(crate) python: (u8, u8),
    pub(crate) progress: &'a dyn Progress,
}

impl Layers<'_> {
    /// Returns the set of `ids`. `supply` is called once, for the files of all wheels that are not in the cache. If
    /// there are such wheels, what importing the modules `imports` needs is compiled.
    ///
    /// Must be called on a guest thread.
    pub(crate) fn open(
        &self,
        ids: &[WheelId],
        imports: &[String],
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
            // Libraries do not need bytecode.
            return std::thread::scope(|scope| {
                scope.spawn(|| compiled.compile_all(&libraries, progress));
                wheels.extend(self.make_all(&missing, supplied)?);
                let set = PackageSet::new(wheels);
                self.compile(&set, &reachable::reachable(&set, imports, Reach::Imports, &[]))?;
                Ok(set)
            });
        }
        let set = PackageSet::new(wheels);
        let libraries: Vec<_> = set.wheels().iter().flat_map(|wheel| wheel.libraries.iter().cloned()).collect();
        self.libraries.compile_all(&libraries, self.progress);
        Ok(set)
    }

    /// Installs the wheels of `ids` from the supplied files.
    fn make_all(
        &self,
        ids: &[WheelId],
        mut supplied: Vec<UnpackedWheel>,
    ) -> Result<Vec<Arc<InstalledWheel>>, OpenError> {
        let mut wheels = Vec::with_capacity(ids.len());
        for id in ids {
            let at = supplied.iter().position(|contents| contents.id == *id);
            let at = at.ok_or_else(|| WheelLayerError::Missing { wheel: id.title() })?;
            wheels.push(supplied.swap_remove(at));
        }
        in_parallel(wheels, |wheel| Ok(self.open.insert(self.make(wheel)?)))
    }

    /// Compiles those of the given modules of `set` that have no bytecode yet.
    ///
    /// # Errors
    /// Returns an error if the cache cannot be written. Modules that cannot be compiled are not an error.
    pub(crate) fn compile(&self, set: &PackageSet, modules: &ModulePaths) -> Result<(), OpenError> {
        let missing = set.wheels().iter().zip(modules).map(|(wheel, modules)| (wheel, self.uncompiled(wheel, modules)));
        let mut missing: Vec<_> = missing.filter(|(_, modules)| !modules.is_empty()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        // The largest ones first: the processors finish at the same time then.
        missing.sort_by_key(|(_, modules)| Reverse(modules.len()));
        let count: usize = missing.iter().map(|(_, modules)| modules.len()).sum();
        let step = self.progress.start(ProgressStep::items("compiling packages to bytecode", count as u64));
        bytecode::with_compiler(self.program, self.base, &*step, |compiler| {
            in_parallel(missing, |(wheel, modules)| self.add_part(wheel, modules, compiler))
        })?;
        step.finish();
        Ok(())
    }

    /// Returns the path of a module's bytecode in the layer.
    pub(crate) fn bytecode_of(&self, module: &str) -> String {
        bytecode::path_of(module, self.python)
    }

    /// Returns those of `modules` that have no bytecode.
    fn uncompiled(&self, wheel: &InstalledWheel, modules: &[String]) -> Vec<String> {
        let lacks = |path: &&String| wheel.layer.file(&bytecode::path_of(path, self.python)).is_none();
        modules.iter().filter(lacks).cloned().collect()
    }

    /// Stores the bytecode of `modules` in the wheel's next part.
    fn add_part(
        &self,
        wheel: &Arc<InstalledWheel>,
        mut modules: Vec<String>,
        compiler: &Compiler,
    ) -> Result<(), OpenError> {
        for number in 0..MAX_PARTS {
            if number + 1 == MAX_PARTS {
                let sources = wheel.layer.contents().filter(|(path, _)| is_module(path)).map(|(path, _)| path);
                modules = self.uncompiled(wheel, &sources.collect::<Vec<_>>());
            }
            let entry = self.cache.get_or_create_pinned(&self.part_key(&wheel.id, number), self.progress, |new| {
                let mut compiled = compiler.compile(&wheel.layer, &modules);
                // Python imports the source of a module whose bytecode is empty.
                for path in modules.iter().map(|path| bytecode::path_of(path, self.python)) {
                    if compiled.iter().all(|compiled| compiled.path != path) {
                        compiled.push(Bytecode { path, bytes: Vec::new() });
                    }
                }
                compiled.sort_by(|one, other| one.path.cmp(&other.path));
                let parts = compiled.iter().map(|compiled| (compiled.path.as_str(), &compiled.bytes[..], None));
                write(new, parts.collect(), &[])
            })?;
            self.supply_part(wheel, &entry)?;
            // Another process may have made this part, for other modules.
            modules = self.uncompiled(wheel, &modules);
            if modules.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Makes the bytecode in a part visible in the wheel's layer.
    fn supply_part(&self, wheel: &InstalledWheel, entry: &Entry) -> Result<(), OpenError> {
        for_each_file(&wheel.id, entry, |file, bytes| {
            wheel.layer.supply(&file.path, bytes);
        })
        .map(drop)
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

    fn part_key(&self, id: &WheelId, number: u32) -> EntryKey {
        EntryKey::new("bytecode")
            .part("wheel", &id.sha256)
            .part("name", &id.name)
            .part("program", self.program.identity())
            .part("compiler", bytecode::SOURCE)
            .part("format", FORMAT.to_le_bytes())
            .part("number", number.to_le_bytes())
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
        // Bytecode that a wheel contains is left out: only this compiler's is trusted.
        let own: HashSet<String> = files
            .iter()
            .filter(|file| is_module(&file.path))
            .map(|file| bytecode::path_of(&file.path, self.python))
            .collect();
        files.retain(|file| !own.contains(&file.path));
        files.sort_by(|one, other| one.path.cmp(&other.path));
        let entry = self.cache.get_or_create_pinned(&self.key(&id), self.progress, |new| {
            // Building the layer validates the paths before any work is done.
            self.layer(&id, files.iter().map(|file| (file.path.as_str(), file.bytes.clone())))?;
            let parts =
                files.iter().map(|file| (file.path.as_str(), &file.bytes[..], library(file).map(|(hash, _)| hash)));
            write(new, parts.collect(), &modules)
        })?;
        self.read(id, &entry)
    }

    fn read(&self, id: WheelId, entry: &Entry) -> Result<InstalledWheel, OpenError> {
        let mut files = Vec::new();
        let mut libraries = Vec::new();
        let modules = for_each_file(&id, entry, |file, bytes| {
            if let Some(hash) = file.library {
                self.libraries.record_hash(&bytes, hash);
                libraries.push((hash, bytes.clone()));
            }
            files.push((file.path.to_string(), bytes));
        })?;
        let layer = self.layer(&id, files.iter().map(|(path, bytes)| (path.as_str(), bytes.clone())))?;
        let wheel = InstalledWheel { id, layer, modules, libraries, compiled: self.libraries.clone() };
        for number in 0..MAX_PARTS {
            let Some(entry) = self.cache.get_pinned(&self.part_key(&wheel.id, number))? else { break };
            self.supply_part(&wheel, &entry)?;
        }
        Ok(wheel)
    }

    /// Builds the layer of files that are sorted by path, with deferred files for bytecode.
    fn layer<'a>(
        &self,
        id: &WheelId,
        files: impl Iterator<Item = (&'a str, FileBytes)>,
    ) -> Result<Arc<Layer>, WheelLayerError> {
        let mut nodes: Vec<(Cow<'a, str>, Option<FileBytes>)> = Vec::new();
        for (path, bytes) in files {
            if is_module(path) {
                nodes.push((bytecode::path_of(path, self.python).into(), None));
            }
            nodes.push((path.into(), Some(bytes)));
        }
        nodes.sort_by(|(one, _), (other, _)| one.cmp(other));
        let mut builder = LayerBuilder::new();
        for (path, bytes) in nodes {
            let added = match bytes {
                Some(bytes) => builder.file(&path, bytes),
                None => builder.deferred(&path),
            };
            added.map_err(|error| WheelLayerError::Path { wheel: id.title(), error })?;
        }
        Ok(builder.finish(format!("wheel-{}-{}", id.name, id.sha256)))
    }
}

/// Calls `visit` for each file of an entry, and returns the modules that its index lists.
fn for_each_file(
    id: &WheelId,
    entry: &Entry,
    mut visit: impl FnMut(&IndexedFile<'_>, FileBytes),
) -> Result<Vec<String>, OpenError> {
    let damaged = |reason| WheelLayerError::Damaged { wheel: id.title(), reason };
    let file = |path: &Path| FileBytes::map(path).map_err(|error| OpenError::File { path: path.into(), error });
    let index = file(&entry.file(INDEX)?)?;
    let data = file(&entry.file(DATA)?)?;
    let index: Index<'_> = postcard::from_bytes(&index).map_err(|_| damaged("its index cannot be read"))?;
    let mut start = 0usize;
    for indexed in &index.files {
        let end = start.saturating_add(indexed.length as usize);
        let bytes = data.slice(start..end).ok_or_else(|| damaged("its data is cut short"))?;
        visit(indexed, bytes);
        start = end;
    }
    Ok(index.modules.iter().map(|module| module.to_string()).collect())
}

/// Calls `work` for each item on several threads, in order. The threads mostly wait for the compiler and the disk.
fn in_parallel<T: Send, R: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> Result<R, OpenError> + Sync,
) -> Result<Vec<R>, OpenError> {
    let threads = items.len().min(MAX_PARALLEL_WHEELS);
    let waiting = Mutex::new(items.into_iter());
    let next = || waiting.lock().next();
    let run = || std::iter::from_fn(next).map(&work).collect::<Result<Vec<R>, OpenError>>();
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let mut results = Vec::new();
        for thread in running {
            match thread.join() {
                Ok(part) => results.extend(part?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(results)
    })
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

/// Writes an entry with files, which are sorted by path.
fn write(new: &NewEntry, files: Vec<(&str, &[u8], Option<LibraryHash>)>, modules: &[String]) -> Result<(), OpenError> {
    let path = new.path().join(DATA);
    let failed = |error| CacheError::writing(&path, None, error);
    let mut data = BufWriter::new(crate::image::create(&path)?);
    let mut index = Index { modules: modules.iter().map(Cow::from).collect(), files: Vec::new() };
    for (path, bytes, library) in files {
        data.write_all(bytes).map_err(failed)?;
        // `check_size` limits the whole wheel to less than the field can hold.
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        index.files.push(IndexedFile { path: path.into(), length, library });
    }
    data.flush().map_err(failed)?;
    let index = postcard::to_stdvec(&index).map_err(|error| failed(std::io::Error::other(error)))?;
    Ok(new.write(INDEX, &index)?)
}
