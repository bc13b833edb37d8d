//! A library on the disk: translated, compiled and written to a directory once, opened by every process after that.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use wasmtime::Module;

use super::library::{Data, Library, LibraryError, LibraryHash};
use crate::engine::{Effort, Engine};
use crate::fs::FileBytes;
use crate::translate::{self, Dylink, Options, Symbols};

/// The module, compiled.
const CODE: &str = "library.cwasm";
/// What to know before linking it.
const DESCRIPTION: &str = "library.description";
/// The bytes of its data segments, one after the other.
const DATA: &str = "library.data";

#[derive(Serialize, Deserialize)]
struct Description {
    fingerprint: String,
    hash: LibraryHash,
    symbols: Symbols,
    dylink: Dylink,
    /// Address relative to `__memory_base`, and length, of each piece of the data.
    segments: Vec<(u32, u32)>,
}

impl Library {
    /// Translates and compiles the side module `wasm` and writes the result into `directory`, which must exist. Whatever the
    /// effort, what is written is the same library: snapshots do not tell one from the other.
    ///
    /// # Errors
    /// When it is no side module, uses something that this host does not have, or cannot be written.
    pub fn compile(engine: &Engine, effort: Effort, wasm: &[u8], directory: &Path) -> Result<(), LibraryError> {
        let options = Options { safepoints: true, ..Options::default() };
        let translated = translate::translate(wasm, &options);
        let translated = translated.map_err(|error| LibraryError::NotASideModule(error.to_string()))?;
        let dylink = translated.dylink.ok_or_else(|| LibraryError::NotASideModule("no `dylink.0` section".into()))?;
        let code = engine.compile(effort, &translated.wasm);
        let code = code.map_err(|error| LibraryError::Compile(format!("{error:#}")))?;
        let mut data = Vec::new();
        let mut segments = Vec::with_capacity(translated.segments.len());
        for segment in &translated.segments {
            let length = u32::try_from(segment.bytes.len());
            let length = length.map_err(|_| LibraryError::Malformed("a data segment is too long".into()))?;
            segments.push((segment.offset, length));
            data.extend_from_slice(&segment.bytes);
        }
        let description = Description {
            fingerprint: engine.fingerprint(),
            hash: Sha256::digest(wasm).into(),
            symbols: translated.symbols,
            dylink,
            segments,
        };
        let description = postcard::to_stdvec(&description);
        let description = description.map_err(|error| LibraryError::Unavailable(error.to_string()))?;
        write(directory, CODE, &code)?;
        write(directory, DATA, &data)?;
        write(directory, DESCRIPTION, &description)
    }

    /// Opens what [`Library::compile`] wrote.
    ///
    /// # Safety
    /// The files in `directory` must be exactly those that [`Library::compile`] wrote: they hold native code.
    ///
    /// # Errors
    /// When a file is missing or was made by another build.
    pub unsafe fn open(engine: &Engine, directory: &Path) -> Result<Self, LibraryError> {
        let path = directory.join(DESCRIPTION);
        let bytes = fs::read(&path).map_err(unavailable(&path))?;
        let description: Option<Description> = postcard::from_bytes(&bytes).ok();
        let description = description.filter(|description| description.fingerprint == engine.fingerprint());
        let description = description.ok_or_else(|| {
            LibraryError::Unavailable(format!("{} was made by another build; remove it", directory.display()))
        })?;
        let path = directory.join(DATA);
        let bytes = FileBytes::map(&path).map_err(unavailable(&path))?;
        let mut data = Vec::with_capacity(description.segments.len());
        let mut start = 0usize;
        for (offset, length) in description.segments {
            let end = start.saturating_add(length as usize);
            let piece = bytes.slice(start..end);
            let piece = piece.ok_or_else(|| LibraryError::Unavailable(format!("{} is cut short", path.display())))?;
            data.push(Data { offset, bytes: piece });
            start = end;
        }
        // SAFETY: the caller vouches for the files.
        let module = unsafe { Module::deserialize_file(engine.wasmtime(), directory.join(CODE)) };
        let module = module.map_err(|error| LibraryError::Unavailable(format!("{error:#}")))?;
        Self::new(description.hash, module, data, description.symbols, description.dylink)
    }
}

fn write(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), LibraryError> {
    let path = directory.join(name);
    fs::write(&path, bytes).map_err(unavailable(&path))
}

fn unavailable(path: &Path) -> impl FnOnce(std::io::Error) -> LibraryError + use<> {
    let path = PathBuf::from(path);
    move |error| LibraryError::Unavailable(format!("{}: {error}", path.display()))
}
